"""The root of the repository: few entries, a hint for old commands, and the site where GitHub looks."""

import importlib.util
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT, ROOT
from workflows.workflow import named

ZENSICAL = """#!/bin/sh
# Stands in for zensical: writes a site of one page into the folder that it is told, beside its file.
set -eu
[ "$*" = "build --strict --config-file docs/zensical.toml" ]
mkdir -p "docs/$SITE"
echo "$TEXT" > "docs/$SITE/$TEXT.html"
"""


def test_the_root_has_few_entries() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    entries = {name.partition("/")[0] for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert len(entries) <= 30, sorted(entries)


@pytest.mark.parametrize(
    ("old", "new", "module"),
    [
        ("predict", "figura predict", "figura.commands.predict"),
        ("export", "figura export", "figura.commands.export.__main__"),
        ("import_weights", "figura import", "figura.commands.import_weights.__main__"),
        ("sweep_report", "figura sweep", "figura.commands.sweep_report"),
        ("overfit_pose", "figura pose.overfit", "models.pose.overfit"),
        ("submit_pose", "figura pose.submit", "models.pose.submit"),
        ("import_openpifpaf", "figura import openpifpaf", "models.pose.import_openpifpaf"),
        ("strips", "python -m figura.commands.strips", "figura.commands.strips"),
    ],
)
def test_an_old_command_says_what_it_is_now(old: str, new: str, module: str) -> None:
    command = [sys.executable, "-m", f"tools.{old}", "--help", "tools.other"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == f"error: python -m tools.{old} is now: {new}\n"
    assert (done.returncode, done.stdout) == (1, "")
    assert importlib.util.find_spec(module)


def test_the_site_lies_where_the_workflow_looks_for_it(tmp_path: Path) -> None:
    """Zensical writes beside its file alone; `make docs` moves the site, and of one before nothing stays."""
    for name in ("Makefile", "docs/zensical.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    program = tmp_path / "venv/bin/zensical"
    program.parent.mkdir(parents=True)
    program.write_text(ZENSICAL)
    program.chmod(0o755)
    site = tomllib.loads((tmp_path / "docs/zensical.toml").read_text())["project"]["site_dir"]
    for text in ("before", "now"):
        environment = ENVIRONMENT | {"SITE": site, "TEXT": text}
        subprocess.run(
            ["make", "docs", "VENV=venv", "--old-file=environment"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        )
    steps = named("docs")["jobs"]["docs"]["steps"]
    (upload,) = (one["with"] for one in steps if one.get("with", {}).get("name") == "site")
    assert [path.name for path in (tmp_path / upload["path"]).iterdir()] == ["now.html"]
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["zensical.toml"]

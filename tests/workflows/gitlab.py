"""A small runner of .gitlab-ci.yml, with the stand-ins of workflow.py."""

import re
import shutil
from collections.abc import Collection, Mapping
from typing import Any

from workflows.expressions import evaluate
from workflows.workflow import GITLAB, Host, Job, check_out, load, shell

WORDS = {"workflow", "stages", "default", "variables"}  # top-level keys that are no jobs


def jobs() -> dict[str, dict[str, Any]]:
    """Return the jobs of the file, by name."""
    return {name: job for name, job in load(GITLAB).items() if name not in WORDS}


def wanted(
    rules: list[Mapping[str, Any]] | None, variables: Mapping[str, str], changed: Collection[str] = ()
) -> str | None:
    """Return when the first rule that fits lets a job run (`on_success` where it says nothing), None if none fits.

    `changed` has the paths of the files that `changes` is about.
    """
    if rules is None:
        return "on_success"
    fitting = (
        rule.get("when", "on_success")
        for rule in rules
        if evaluate(rule["if"], variables) and fits(rule.get("changes"), changed)
    )
    return next(fitting, None)


def fits(patterns: list[str] | None, changed: Collection[str]) -> bool:
    """Whether a file that changed fits one of the patterns of `changes`, or a rule has none."""
    return patterns is None or any(re.fullmatch(glob(pattern), path) for pattern in patterns for path in changed)


def glob(pattern: str) -> str:
    """Return a pattern of paths as a regular expression: `**/` stands for any folders or none, `*` for no `/`."""
    return re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")


def expanded(values: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a level with those of the levels above filled in."""
    return {
        key: re.sub(r"\$([A-Z_]+)", lambda match: variables.get(match[1], ""), str(text))
        for key, text in values.items()
    }


def run_pipeline(host: Host, variables: Mapping[str, str]) -> dict[str, Job]:
    """Run the jobs in the order of their stages; those that no rule wants are skipped."""
    content = load(GITLAB)
    done: dict[str, Job] = {}
    for stage in content["stages"]:
        for name, job in jobs().items():
            if job["stage"] == stage:
                well = all(done[need].result == "success" for need in job.get("needs", list(done)))
                when = wanted(job.get("rules"), variables)
                if when == "always" or (when == "on_success" and well):
                    done[name] = run_job(name, job, content["variables"], host, variables)
                else:
                    done[name] = Job("skipped")
    return done


def run_job(
    name: str, job: Mapping[str, Any], shared: Mapping[str, Any], host: Host, variables: Mapping[str, str]
) -> Job:
    """Run `script` in one shell and then, whatever came of it, `after_script` in another; keep the artifacts."""
    workspace = host.folder / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    check_out(host.repository, workspace, variables["CI_COMMIT_SHA"])
    for need in job.get("needs", []):
        shutil.copytree(host.folder / "artifacts" / need, workspace, dirs_exist_ok=True)
    started_with = {**variables, "CI_PROJECT_DIR": str(workspace)}
    written = expanded(shared, started_with) | expanded(job.get("variables", {}), started_with)
    environment = host.environment() | written | started_with  # which stands above what the file says
    result, log = shell("\n".join(job["script"]), workspace, environment)
    done = Job(result, {"script": result}, log=log)
    if "after_script" in job:
        done.steps["after_script"], log = shell("\n".join(job["after_script"]), workspace, environment)
        done.log += log
    shutil.rmtree(host.folder / "artifacts" / name, ignore_errors=True)
    for path in job.get("artifacts", {}).get("paths", []):
        if result == "success" or job["artifacts"].get("when") == "always":
            shutil.copytree(workspace / path, host.folder / "artifacts" / name / path)
    return done

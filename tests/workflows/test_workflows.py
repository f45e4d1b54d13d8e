"""What the hosts would run, run here: block by block, in order, with the stand-ins that workflow.py lists."""

import json
import re
from pathlib import Path

import pytest
from pipeline.project import Project
from workflows.gitlab import jobs, run_job, run_pipeline, wanted
from workflows.workflow import WORKFLOWS, Host, load, run_workflow

DOCS = next(path for path in WORKFLOWS if path.stem == "docs")
REPRODUCE = next(path for path in WORKFLOWS if path.stem == "reproduce")
TESTS = next(path for path in WORKFLOWS if path.stem == "tests")
ALTERED = "vunet.reconstruction.l1_person.value"


def blocks() -> list[tuple[str, str, str]]:
    """Return workflow, job and text of every `run:` block."""
    return [
        (path.stem, name, step["run"])
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
        for step in job["steps"]
        if "run" in step
    ]


def at(project: Project, commit: str = "HEAD") -> str:
    """Return the hash of a commit."""
    return project.run("git", "rev-parse", commit).stdout.strip()


def pull_request(host: Host, **changes: object) -> Host:
    """Make the event that a pull request with the label brings; `changes` replace keys of the event."""
    project = Project(host.repository)
    event = {
        "action": "synchronize",
        "pull_request": {
            "number": 7,
            "head": {"sha": at(project), "repo": {"full_name": "someone/figura"}},
            "base": {"sha": at(project, "main")},
            "labels": [{"name": "reproduce"}],
        },
    } | changes
    host.github = {
        "event_name": "pull_request",
        "repository": "someone/figura",
        "event": event,
        "sha": at(project),
        "ref_protected": False,
        "token": "token",
    }
    return host


def by_hand(host: Host, rerun: str) -> Host:
    """Make the event of a run by hand on the protected main branch."""
    host.github = {"event_name": "workflow_dispatch", "sha": at(Project(host.repository)), "ref_protected": True}
    host.inputs = {"rerun": rerun}
    return host


def alter(host: Host) -> None:
    """Commit, on a branch, a metric that nobody measured."""
    project = Project(host.repository)
    project.run("git", "checkout", "-q", "-b", "better")
    path = project.folder / "metrics/full/vunet.json"
    metrics = json.loads(path.read_text())
    metrics["reconstruction"]["l1_person"]["value"] /= 2
    path.write_text(json.dumps(metrics, indent=2) + "\n")
    project.run("git", "commit", "-qam", "twice as good")


def stored(host: Host) -> set[str]:
    """Return the names of the files of the DVC remote."""
    remote = Path(host.variables["DVC_REMOTE_URL"])
    return {str(path.relative_to(remote)) for path in remote.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_an_honest_pull_request_passes_and_is_commented(host: Host) -> None:
    project = Project(host.repository)
    project.run("git", "checkout", "-q", "-b", "documented")
    (project.folder / "README.md").write_text("more\n")
    project.run("git", "commit", "-qam", "words")
    before = stored(host)
    done = run_workflow(REPRODUCE, pull_request(host))
    assert done["reproduce"].result == done["comment"].result == "success", done["reproduce"].log
    assert "Running stage 'train@vunet'" in done["reproduce"].log  # trained, not taken from a cache
    assert done["reproduce"].steps["Keep the results"] == "skipped"
    assert stored(host) == before
    comment = (host.folder / "comment.md").read_text()
    assert f"# Rerun of {at(project)[:10]}" in comment
    assert f"Compared with {at(project, 'main')[:10]}" in comment
    assert "**Reproduction: passed**" in comment
    assert comment.count("None changed.") == 3  # params, the summary, all figures
    assert "![" not in comment  # nothing differs, so nothing is shown


@pytest.mark.slow
def test_an_altered_metric_fails_at_the_gate_and_is_still_commented(host: Host) -> None:
    alter(host)
    Project(host.repository).set("params.yaml", {"metrics.bootstrap": 30})
    Project(host.repository).run("git", "commit", "-qam", "and another interval")
    done = run_workflow(REPRODUCE, pull_request(host))
    steps = done["reproduce"].steps
    assert [name for name, outcome in steps.items() if outcome == "failure"] == ["Gate"]
    assert steps["Rerun"] == steps["Report"] == "success"
    assert done["reproduce"].result == "failure"
    assert done["comment"].result == "success"
    comment = (host.folder / "comment.md").read_text()
    assert re.search(rf"\*\*Reproduction: failed\*\*.*?{re.escape(ALTERED.removesuffix('.value'))}", comment, re.DOTALL)
    assert re.search(r"params\.yaml \| metrics\.bootstrap *\| 20 +\| 30 ", comment)
    assert "reconstruction.l1_person.low" in comment
    assert host.recorded("cml") == ["comment create --target=pr report/report.md"]


@pytest.mark.slow
def test_a_rerun_that_breaks_is_commented_without_a_gate(host: Host) -> None:
    project = Project(host.repository)
    project.run("git", "checkout", "-q", "-b", "broken")
    project.set("params.yaml", {"train.stepz": 3})
    project.run("git", "commit", "-qam", "a key nobody knows")
    done = run_workflow(REPRODUCE, pull_request(host))
    assert done["reproduce"].steps["Rerun"] == "failure"
    assert done["reproduce"].steps["Gate"] == "skipped"
    assert "It did not run" in (host.folder / "comment.md").read_text()


@pytest.mark.slow
def test_by_hand_on_a_protected_branch_results_are_kept(host: Host) -> None:
    project = Project(host.repository)
    project.set("params.yaml", {"metrics.bootstrap": 40})
    project.run("dvc", "repro")
    project.run("git", "commit", "-qam", "another interval")  # its plots were not pushed
    before = stored(host)
    done = run_workflow(REPRODUCE, by_hand(host, "changed"))
    assert done["reproduce"].result == "success", done["reproduce"].log
    assert "Running stage 'train@vunet'" not in done["reproduce"].log
    assert done["reproduce"].steps["Keep the results"] == "success"
    assert before <= stored(host)
    assert done["comment"].result == "skipped"
    assert "# Rerun of" in (host.folder / "GITHUB_STEP_SUMMARY").read_text()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"repository": "fork/figura"}, "skipped"),
        ({"labels": []}, "skipped"),
        ({"labels": [{"name": "reproduce"}, {"name": "docs"}], "action": "labeled", "label": "docs"}, "skipped"),
        ({"labels": [{"name": "reproduce"}], "action": "labeled", "label": "reproduce"}, "failure"),
    ],
)
def test_only_this_repository_with_the_label_reaches_the_gpu(tmp_path: Path, changes: dict, expected: str) -> None:
    """A job that starts here fails at its first step: there is no remote and nothing to check out but a README."""
    project = Project(tmp_path / "figura")
    project.folder.mkdir()
    (project.folder / "README.md").write_text("nothing else\n")
    for command in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        project.run("git", *command)
    host = pull_request(Host(tmp_path / "host", project.folder))
    event = dict(host.github["event"])
    event["pull_request"] = event["pull_request"] | {"labels": changes.get("labels", [{"name": "reproduce"}])}
    event["pull_request"]["head"]["repo"]["full_name"] = changes.get("repository", "someone/figura")
    event |= {"action": changes.get("action", "synchronize"), "label": {"name": changes.get("label", "")}}
    host.github = {**host.github, "event": event}
    assert run_workflow(REPRODUCE, host)["reproduce"].result == expected


@pytest.mark.slow
def test_the_tests_workflow_makes_the_environment_and_runs_both_tiers(host: Host) -> None:
    host.github = {"event_name": "push", "sha": at(Project(host.repository))}
    done = run_workflow(TESTS, host)
    assert done["tests"].result == "success", done["tests"].log
    versions = load(TESTS)["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert host.recorded("make") == ["environment", "test-all"] * len(versions)
    assert "Slowest tests" in (host.folder / "GITHUB_STEP_SUMMARY").read_text()


@pytest.mark.slow
def test_gitlab_does_the_same(host: Host) -> None:
    alter(host)
    project = Project(host.repository)
    variables = {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1",
        "CI_MERGE_REQUEST_LABELS": "docs,reproduce",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": at(project, "main"),
        "CI_COMMIT_SHA": at(project),
        "CI_COMMIT_REF_PROTECTED": "false",
        "REPO_TOKEN": "token",
        "RERUN": "changed",  # an altered file is no longer what dvc.lock says the stage wrote
        **host.secrets,
        **host.variables,
    }
    fork = variables | {"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2"}
    first = ["success", "skipped", "skipped", "skipped"]  # tests; audit, docs and pages, as none of their files changed
    assert [job.result for job in run_pipeline(host, fork).values()] == [*first, "skipped", "skipped"]
    assert [job.result for job in run_pipeline(host, variables).values()] == [*first, "failure", "success"]
    assert ALTERED.removesuffix(".value") in (host.folder / "comment.md").read_text()
    assert host.recorded("npm")[0].startswith("install --global @dvcorg/cml@")
    variables["CI_COMMIT_SHA"] = variables["CI_MERGE_REQUEST_DIFF_BASE_SHA"]
    assert [job.result for job in run_pipeline(host, variables).values()] == [*first, "success", "success"]


def test_gitlab_builds_the_site_where_pages_change_and_publishes_it_from_the_default_branch_alone() -> None:
    change = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_DEFAULT_BRANCH": "main"}
    merged = {"CI_PIPELINE_SOURCE": "push", "CI_DEFAULT_BRANCH": "main", "CI_COMMIT_BRANCH": "main"}
    docs, pages = (jobs()[name]["rules"] for name in ("docs", "pages"))
    for file in ("docs/index.md", "docs/recipes/pose.md", "docs/zensical.toml", "figura/interfaces.py", "Makefile"):
        assert wanted(docs, change, [file]) == wanted(docs, merged, [file]) == "on_success"
        assert wanted(pages, merged, [file]) == "on_success"
        assert wanted(pages, change, [file]) is None
    for file in ("README.md", "tests/docs/test_idea_page.py", "models/pose/README.md"):
        assert wanted(docs, merged, [file]) is wanted(pages, merged, [file]) is None


def test_gitlab_publishes_the_folder_that_is_built(tmp_path: Path) -> None:
    """The same command as on GitHub; then GitLab takes `public` of the job `pages`."""
    (github,) = (step for step in load(DOCS)["jobs"]["docs"]["steps"] if "run" in step)
    (built,) = jobs()["docs"]["artifacts"]["paths"]
    assert jobs()["docs"]["script"] == [github["run"]]
    project = Project(tmp_path / "figura")
    project.folder.mkdir()
    (project.folder / "README.md").write_text("nothing else\n")
    for command in (["init", "-qb", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        project.run("git", *command)
    host = Host(tmp_path / "host", project.folder)
    site = host.folder / "artifacts/docs" / built
    site.mkdir(parents=True)
    (site / "index.html").write_text("the site")
    done = run_job("pages", jobs()["pages"], {}, host, {"CI_COMMIT_SHA": at(project)})
    assert done.result == "success", done.log
    assert (host.folder / "artifacts/pages/public/index.html").read_text() == "the site"


@pytest.mark.parametrize(("workflow", "job", "block"), blocks())
def test_no_block_is_written_by_an_expression(workflow: str, job: str, block: str) -> None:
    """What an event says is data: interpolated into a block it would be code."""
    assert "${{" not in block


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_have_a_limit_a_shell_and_no_permission_they_do_not_name(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert workflow["defaults"] == {"run": {"shell": "bash"}}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        writes = {scope for scope, access in job["permissions"].items() if access != "read"}
        assert writes <= {"pull-requests"}
        assert not (writes and "self-hosted" in job["runs-on"])
        for step in job["steps"]:
            if "uses" in step and step["uses"].partition("@")[0] != "iterative/setup-cml":
                assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])

"""Every command of DVC that only reads, on a changed project: the rows are there, and nothing is complained about."""

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.dag import CODE, consistency, recipes, stages
from pipeline.project import Project

pytestmark = pytest.mark.slow
PEOPLE = "datasets.people"
PARAMS = {  # what differs from the commit: file, dotted key, old and new value; the middle one is run
    ("params.yaml", "losses.KL.weight"): (1.0, 2.0),
    ("params.yaml", "metrics.confidence"): (0.95, 0.5),
    ("data/params.yaml", f"{PEOPLE}.seed"): (7, 12345),
    ("data/params.yaml", f"{PEOPLE}.synthetic.people_per_scene.1"): (0.45, 0.4),
    ("data/params.yaml", f"{PEOPLE}.synthetic.people_per_scene.2"): (0.35, 0.4),
}
NARROWER = ("l1_person.low", "l1_person.high")  # of the summary; the value of the same pictures stays


@pytest.fixture(scope="module")
def changed(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished project with an experiment (`narrow`, the cheapest stage) in its workspace and further changes."""
    project = finished.copy(tmp_path_factory.mktemp("changed") / "figura")
    project.run("dvc", "exp", "run", "--name", "narrow", "-S", "metrics.confidence=0.5", "metrics@vunet")
    for (file, key), (_, new) in PARAMS.items():
        project.set(file, {key: new})
    return project


def said(project: Project, *command: str) -> str:
    """Return what a command prints; it must complain about nothing."""
    done = project.run(*command)
    assert done.stderr == ""
    return done.stdout


def printed(project: Project, *command: str) -> Any:
    """Return the JSON that a command prints; it must complain about nothing, in the JSON neither."""
    content = json.loads(said(project, *command))
    assert "errors" not in content  # of plots
    assert list(errors_in(content)) == []
    return content


def errors_in(content: Any) -> Iterator[Any]:
    """Yield what DVC's JSON has below a key `error`."""
    if isinstance(content, dict) and content.get("error"):
        yield content["error"]
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from errors_in(part)


def test_params_diff(changed: Project) -> None:
    rows = printed(changed, "dvc", "params", "diff", "--json")
    found = {(file, key): (one["old"], one["new"]) for file, of_file in rows.items() for key, one in of_file.items()}
    assert found == PARAMS


def test_metrics_show_and_diff(changed: Project) -> None:
    (shown,) = printed(changed, "dvc", "metrics", "show", "--json").values()
    judged = [entry["metrics"] for entry in consistency().values()]
    assert shown["data"].keys() == {f"metrics/{name}.json" for name in [*recipes(), *judged]}
    person = shown["data"]["metrics/vunet.json"]["data"]["l1_person"]
    assert 0 < person["low"] <= person["value"] <= person["high"]
    diff = printed(changed, "dvc", "metrics", "diff", "--json")
    assert set(diff["metrics/vunet.json"]) == set(NARROWER)
    assert diff.keys() == {"metrics/vunet.json"}
    assert (
        diff["metrics/vunet.json"]["l1_person.low"]["diff"] > 0 > diff["metrics/vunet.json"]["l1_person.high"]["diff"]
    )


def test_exp_show(changed: Project) -> None:
    table = list(csv.DictReader(io.StringIO(said(changed, "dvc", "exp", "show", "--csv"))))
    assert [row["rev"] for row in table][:2] == ["workspace", "main"]
    assert [row["Experiment"] for row in table] == ["", "", "narrow"]
    assert [row["losses.KL.weight"] for row in table] == ["2.0", "1.0", "1.0"]
    assert [row[f"{PEOPLE}.seed"] for row in table] == ["12345", "7", "7"]


def test_plots(changed: Project) -> None:
    shown = printed(changed, "dvc", "plots", "show", "--json")["data"]
    for name in recipes():
        kinds = {entry["type"] for path, entries in shown.items() if f"plots/{name}/" in path for entry in entries}
        assert kinds == {"vega", "image"}, name
    assert "<DVC_METRIC" not in json.dumps(shown)  # templates are filled in


def test_dag_and_status(changed: Project) -> None:
    diagram = said(changed, "dvc", "dag", "--mermaid")
    assert all(f'["{stage}"]' in diagram for stage in {CODE, *stages()})
    status = printed(changed, "dvc", "status", "--json")
    assert status.keys() == {CODE, "prepare@people", "train@vunet"}
    assert status[CODE] == ["always changed"]
    assert PEOPLE in json.dumps(status["prepare@people"])


def test_the_report_on_a_change_shows_the_same(changed: Project) -> None:
    changed.run("figura", "report", "HEAD", "--recipe", "vunet", "--markdown", "report")
    report = (changed.folder / "report/report.md").read_text().replace("\\", "")
    assert all(f"| `{file}` | {key} | {old:g} | {new:g} |" in report for (file, key), (old, new) in PARAMS.items())
    assert "incomplete" not in report


def test_what_cannot_be_read_is_said_by_the_report(changed: Project) -> None:
    path = changed.folder / "data/params.yaml"
    before = path.read_text()
    path.write_text(re.sub("""["']1["']: 0.4,""", "1: 0.4,", before))
    try:
        changed.run("figura", "report", "HEAD", "--recipe", "vunet", "--markdown", "report")
    finally:
        path.write_text(before)
    report = (changed.folder / "report/report.md").read_text()
    assert "Not all params could be read, so this is incomplete" in report
    assert "- data/params.yaml of workspace: AttributeError" in report.replace("\\", "")

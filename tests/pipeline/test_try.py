"""A try by DVC: what its tables show of it, that no tool takes it for a result, and the way back."""

import json

import pytest

from pipeline.project import Project
from pipeline.test_dag import ran

pytestmark = pytest.mark.slow


def test_a_try_is_never_beside_a_result_and_goes_without_a_trace(project: Project) -> None:
    before, results = project.run("git", "status", "--short").stdout, project.outputs()
    done = project.run("dvc", "exp", "run", "--name", "quick", "-S", "train.try=true", "metrics@vunet")
    assert done.stdout.count("TRY of ") >= 3  # one for each stage
    rows = json.loads(project.run("dvc", "metrics", "diff", "--json").stdout)["metrics/vunet.json"]
    assert {name for name, row in rows.items() if "diff" in row} == set()
    assert {name.startswith("try.") for name, row in rows.items() if row["new"] is not None} == {True}
    for command, said in (
        (
            ["compare", "HEAD", "quick", "--recipe", "vunet"],
            "error: quick: vunet is a try there (train.try)",
        ),
        (["gate"], "error: metrics/full/vunet.json: metrics of a try"),
    ):
        assert project.run("figura", *command, code=1).stderr.startswith(said)
    again = project.run("dvc", "exp", "run", "-S", "train.try=false", "metrics@vunet")
    assert "TRY" not in again.stdout
    assert ran(again.stdout) <= {"metrics@vunet"}  # its files are not in DVC's cache, but in git; all else it still has
    assert project.outputs() == results
    project.run("git", "restore", "params.yaml")  # `-S` breaks long lines
    assert project.run("git", "status", "--short").stdout == before

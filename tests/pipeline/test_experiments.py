"""Experiments of the real DVC: a grid queued and reported, a try that leaves no trace, a race."""

import json

import pytest

from pipeline.dag import recipes
from pipeline.project import Project
from pipeline.test_dag import ran

pytestmark = pytest.mark.slow
SCORES = "models/images/scores.py"


def test_a_grid_is_queued_run_and_reported(project: Project) -> None:
    code = project.folder / SCORES
    code.write_text(f"{code.read_text()}CHANGED = 1\n")
    grid = ["-S", "metrics.bootstrap=40", "-S", "metrics.confidence=0.5,0.9"]  # reruns the cheapest stage
    project.run("dvc", "exp", "run", "--queue", "--name", "grid", *grid, "metrics@vunet")
    project.run("git", "restore", SCORES)  # the queue has the code as it was when it was asked
    project.run("dvc", "exp", "run", "--queue", "--name", "broken", "-S", "metrics.confidence=2", "metrics@vunet")
    project.run("dvc", "exp", "run", "--run-all", "--jobs", "2", code=None)  # one of them fails
    commit = json.loads(project.run("dvc", "exp", "show", "--json").stdout)[1]
    experiments = {one["name"]: one["revs"][0] for one in commit["experiments"]}
    assert experiments.pop("broken")["error"]
    values, widths, best = set(), {}, ""
    for name, one in experiments.items():
        figures = one["data"]["metrics"]["metrics/vunet.json"]["data"]["l1_person"]
        widths[one["data"]["params"]["params.yaml"]["data"]["metrics"]["confidence"]] = figures["high"] - figures["low"]
        values.add(figures["value"])
        best = name
    # a higher confidence widens the interval; the value, of the same pictures, stays that of the commit
    assert 0 < widths[0.5] < widths[0.9]
    assert values == {commit["data"]["metrics"]["metrics/vunet.json"]["data"]["l1_person"]["value"]}
    assert f"  code: {SCORES}\n" in project.run("dvc", "queue", "logs", best).stdout
    project.run("dvc", "exp", "apply", best)
    assert f"confidence: {list(widths)[-1]:g}" in (project.folder / "params.yaml").read_text()


def test_a_try_is_never_beside_a_result_and_goes_without_a_trace(project: Project) -> None:
    before, results = project.run("git", "status", "--short").stdout, project.outputs()
    done = project.run("dvc", "exp", "run", "--name", "quick", "-S", "train.try=true", "metrics@vunet")
    assert done.stdout.count("TRY of ") >= 3  # one for each stage
    rows = json.loads(project.run("dvc", "metrics", "diff", "--json").stdout)["metrics/vunet.json"]
    assert {name for name, row in rows.items() if "diff" in row} == set()
    assert {name.startswith("try.") for name, row in rows.items() if row["new"] is not None} == {True}
    for command, said in (
        (["compare", "HEAD", "quick", "--recipe", "vunet"], "error: quick: vunet is a try there (train.try)"),
        (["gate"], "error: metrics/full/vunet.json: metrics of a try"),
    ):
        assert project.run("figura", *command, code=1).stderr.startswith(said)
    again = project.run("dvc", "exp", "run", "-S", "train.try=false", "metrics@vunet")
    assert "TRY" not in again.stdout
    assert ran(again.stdout) <= {"metrics@vunet"}  # its files are not in DVC's cache, but in git; all else it still has
    assert project.outputs() == results
    project.run("git", "restore", "params.yaml")  # `-S` breaks long lines
    assert project.run("git", "status", "--short").stdout == before


def test_every_recipe_goes_on_from_a_shorter_training(project: Project) -> None:
    results, names = trained(project), recipes(project.folder)
    share = {"FIGURA_STATES": ""}  # beside DVC's cache
    for entry in names.values():
        project.set(entry["params"], {"train.steps": 8})
    trains = [f"train@{name}" for name in names]
    project.run("dvc", "repro", *trains, **share)
    project.commit("shorter")
    copy = project.run("dvc", "exp", "run", "--temp", "-S", "train.steps=9", "train@vunet", **share).stdout
    assert "8 of 9 iterations are those of vunet" in copy
    for entry in names.values():
        project.set(entry["params"], {"train.steps": 12})
    done = project.run("dvc", "repro", "--force", *trains, **share).stdout
    assert done.count("8 of 12 iterations are those of") == len(names) - 1
    assert "9 of 12 iterations are those of vunet of " in done
    assert trained(project) == results


def trained(project: Project) -> dict[str, str]:
    return {path: one for path, one in project.outputs().items() if path.endswith(("/model", "/history"))}


def test_the_winner_of_a_race_has_the_files_of_a_plain_training(project: Project) -> None:
    recipe, share = "recipes/pix2pix.yaml", {"FIGURA_STATES": ""}  # beside DVC's cache
    falls = {
        "type": "Linear",
        "start": "40%",
        "end": "100%",
        "from": 1.0,
        "to": 0.0,
    }  # of 12 iterations, not of the rung
    project.set(recipe, {f"steps.{step}.lr_schedule": falls for step in ("D", "G")})
    project.commit("schedules in shares")
    grid = ["--rungs", "4", "--margin", "0.01", "-S", "losses.G_L1.weight=none,2,1e38"]  # refused, good, and far worse
    done = project.run("figura", "race", "--recipe", "pix2pix", "--metric", "psnr", *grid, **share)
    winner = "race-pix2pix-losses.G_L1.weight=2"
    head, best, worse, failed, total, command = filter(None, done.stdout.splitlines())
    assert head.split() == ["at", "4", "psnr", "from", "the", "best", "interval", "trained"]
    assert (best.split()[0], best.split()[2:]) == ("losses.G_L1.weight=2", ["best", "4"])
    assert (worse.split()[0], worse.split()[-2:]) == ("losses.G_L1.weight=1e+38", ["stops", "4"])
    assert failed.split() == ["losses.G_L1.weight=none", "failed", "0"]
    assert total == "losses.G_L1.weight=2 wins; 16 of 36 iterations were trained"
    assert done.stderr.count('evaluate.data.pairs.split  "test" -> "validation"') == 2
    assert project.run("dvc", "exp", "list", "--name-only").stdout.split() == [winner]  # no rungs
    project.run(*command.split())
    results = project.outputs()
    stages = [f"{stage}@pix2pix" for stage in ("train", "eval-dump", "metrics")]
    project.run("git", "restore", recipe)
    project.set(recipe, {"losses.G_L1.weight": 2})
    whole = project.run("dvc", "repro", "--force", "--single-item", *stages)
    assert ran(whole.stdout) == set(stages)
    assert project.outputs() == results

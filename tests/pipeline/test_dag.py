"""The promise of the README, with the real dvc: a change reruns what depends on it and nothing else."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from bench.stale_stages import stages_with_changes
from figura.base.yaml12 import read_yaml
from pipeline.dag import ROOT, datasets, recipes, stages, stages_of
from pipeline.project import Project

pytestmark = pytest.mark.slow
SAID_BY = {
    "vunet": ({"reconstruction", "transfer"}, {"reconstructions", "transfer_grid", "samples", "worst", "best"}),
    "pix2pix": ({"translation", "frechet", "frechet_palette", "frechet_real"}, {"triptychs", "draws", "worst", "best"}),
    "pose": ({"joints", "boxes"}, {"fields", "worst", "precision_recall", "similarity"}),
    "super_resolution": ({"upscaling", "bicubic", "lanczos"}, {"enlarged", "worst"}),
}  # metrics and pictures to look for
PLOTS = {"losses", "contributions", "updates"}


def ran(output: str) -> set[str]:
    """Return the stages that a `dvc repro` or `dvc exp run` says it ran, but for `code`, which always runs."""
    return set(re.findall(r"Running stage '([^']+)'", output)) - {"code"}


def stale(project: Project) -> set[str]:
    """Return the stages that read what has changed, with manifests of the code as it is; `dvc repro` writes these."""
    project.run("python", "-m", "stages.code")
    return set(stages_with_changes(project.folder))


def test_a_repro_writes_metrics_and_pictures_and_the_next_does_nothing(project: Project) -> None:
    for name in recipes():
        metrics = json.loads((project.folder / f"metrics/full/{name}.json").read_text())
        summary = json.loads((project.folder / f"metrics/{name}.json").read_text())
        assert 0 < sum(len(entry) for entry in summary.values()) <= 6
        pictures = {path.stem for path in (project.folder / f"plots/{name}/pictures").iterdir()}
        expected_metrics, expected_pictures = SAID_BY.get(name, (set(), set()))
        assert metrics.keys() >= expected_metrics
        assert pictures >= expected_pictures | {"losses"}
        assert {path.stem for path in (project.folder / f"plots/{name}").glob("*.csv")} == PLOTS
        for score in metrics.values():
            for value in score.values():
                if isinstance(value, dict) and "low" in value:
                    assert value["low"] <= value["value"] <= value["high"]
    start = time.perf_counter()
    done = project.run("dvc", "repro")
    assert ran(done.stdout) == set()
    skipped = re.findall(r"^Stage '(.*)' didn't change, skipping$", done.stdout, re.MULTILINE)
    assert set(skipped) == stages() - {"code"}
    assert project.run("git", "status", "--porcelain").stdout == ""
    assert time.perf_counter() - start < 30  # the budget of 2 s is a bench; this only catches a rerun


def test_going_back_as_the_guide_says(project: Project) -> None:
    """After a `dvc repro`, which stages `dvc.lock` for git."""
    (command,) = re.findall(r"^ {4}(git restore .*?) +# discard", (ROOT / "docs/guide.md").read_text(), re.MULTILINE)
    before = project.outputs()
    project.set("params.yaml", {"metrics.bootstrap": 30})
    assert ran(project.run("dvc", "repro").stdout) == {"metrics@vunet"}
    assert project.outputs() != before
    project.run("bash", "-c", command)
    assert project.outputs() == before
    assert project.run("git", "status", "--porcelain").stdout == ""
    assert ran(project.run("dvc", "repro").stdout) == set()


def edits() -> Iterator[tuple[str, str, dict[str, Any], set[str]]]:
    """Yield what is changed, in which params file, how, and the stages that read it."""
    for name, entry in recipes().items():
        file, recipe = entry["params"], read_yaml(ROOT / entry["params"])
        loss = next(iter(recipe["losses"]))
        mode = next(iter(recipe["evaluate"]["modes"]))
        train, dump, metrics = (f"{stage}@{name}" for stage in ("train", "eval-dump", "metrics"))
        for edit, expected in (
            ({f"losses.{loss}.weight": 0.75}, {train}),
            ({"train.steps": 9}, {train}),
            ({"seed": 4}, {train, metrics}),
            ({"evaluate.batch_size": 16}, {dump}),
            ({f"evaluate.modes.{mode}.repeat": 4}, {dump}),
            ({"metrics.bootstrap": 30}, {metrics}),
            ({"runtime.log_every": 7, "runtime.workers": 1, "runtime.resume_every": 5}, set()),
        ):
            yield ", ".join(edit), file, edit, expected
    for name in datasets():
        yield name, "data/params.yaml", {f"datasets.{name}.seed": 12345}, {f"prepare@{name}"}
    decoder = {"evaluate.modes.poses.injectors.people.decoder.greedy": True}
    yield "greedy", "recipes/pose.yaml", decoder, {"eval-dump@pose"}


@pytest.mark.parametrize("file", ["data/params.yaml", *(entry["params"] for entry in recipes().values())])
def test_exactly_the_stages_that_read_a_key_are_stale_when_it_changes(project: Project, file: str) -> None:
    path = project.folder / file
    before = path.read_bytes()
    for what, edited, values, expected in edits():
        if edited == file:
            project.set(file, values)
            assert set(stages_with_changes(project.folder)) == expected, what
            path.write_bytes(before)
    assert stages_with_changes(project.folder) == []


def test_an_experiment_runs_exactly_what_depends_on_its_change(project: Project) -> None:
    change = "recipes/pose.yaml:evaluate.modes.fields.injectors.draw.count=1"
    assert ran(project.run("dvc", "exp", "run", "-S", change).stdout) == {"eval-dump@pose", "metrics@pose"}
    assert "recipes/pose.yaml" in project.run("git", "diff", "--name-only").stdout.splitlines()


def test_losses_are_weighted_removed_and_added_from_the_command_line(project: Project) -> None:
    added = "+losses.second={type: images.L2, inputs: {image: image, target: target}, weight: 0.5}"
    changes = ("losses.KL.weight=2", "~losses.color_L2", added)
    done = project.run("dvc", "exp", "run", *(word for change in changes for word in ("-S", change)), "metrics@vunet")
    assert ran(done.stdout) == stages_of("vunet")
    params = json.loads(project.run("dvc", "params", "diff", "--json").stdout)
    assert params["params.yaml"]["losses.KL.weight"] == {"old": 1.0, "new": 2, "diff": 1.0}
    metrics = json.loads(project.run("dvc", "metrics", "diff", "--json").stdout)
    changed = metrics["diff"]["metrics/vunet.json"] if "diff" in metrics else metrics["metrics/vunet.json"]
    assert changed.keys() <= {f"l1_person.{part}" for part in ("value", "low", "high")}
    assert changed["l1_person.value"]["diff"]
    assert set(pd.read_csv(project.folder / "plots/vunet/losses.csv")["name"]) == {"color_L1", "KL", "second"}
    shown = json.loads(project.run("dvc", "plots", "diff", "--json").stdout)["data"]["plots/vunet/losses.csv"][0]
    points = shown["content"]["data"]["values"]
    with_removed = {point["rev"] for point in points if point["name"] == "color_L2"}
    assert {point["rev"] for point in points} > with_removed > set()
    assert shown["content"]["title"]["text"] == "vunet: losses, and their effective weights"
    assert "loss.second" in (project.folder / "runs/vunet/dump/examples.csv").read_text().splitlines()[0]


IN_ONE_PROCESS = """
import importlib, json, sys
from accelerate.state import AcceleratorState

for stage, *arguments in json.loads(sys.argv[1]):
    AcceleratorState._reset_state(reset_partial_state=True)
    importlib.import_module(f"stages.{stage}").main(arguments)
"""
ORDER = ("code", "prepare", "train", "eval_dump", "metrics", "pose_consistency")


def test_two_runs_give_the_same_hashes(project: Project) -> None:
    """One stage as DVC runs it by force; then all stages, without DVC, since starting them takes most of the time."""
    before = project.outputs()
    done = project.run("dvc", "repro", "--force", "--single-item", "train@vunet")
    assert ran(done.stdout) == {"train@vunet"}
    assert project.outputs() == before
    commands = [stage["cmd"].replace("figura.launch ", "stages.") for stage in project.lock().values()]
    words = [command.removeprefix("python -m stages.").split() for command in commands]
    assert len(words) == len(stages())
    project.run("rm", "-r", *before)
    project.run("python", "-c", IN_ONE_PROCESS, json.dumps(sorted(words, key=lambda one: ORDER.index(one[0]))))
    assert stages_with_changes(project.folder) == []

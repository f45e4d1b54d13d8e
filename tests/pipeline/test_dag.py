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
from pipeline.dag import CODE, OF_A_RECIPE, ROOT, datasets, judging, recipes, stages, stages_of
from pipeline.project import ENVIRONMENT, Project

pytestmark = pytest.mark.slow
SAID_BY = {
    "vunet": ({"reconstruction", "transfer"}, {"reconstructions", "transfer_grid", "samples", "worst", "best"}),
    "pix2pix": ({"translation", "frechet", "frechet_palette", "frechet_real"}, {"triptychs", "draws", "worst", "best"}),
    "pose": ({"joints", "boxes"}, {"fields", "worst", "precision_recall", "similarity"}),
    "super_resolution": ({"upscaling", "bicubic", "lanczos"}, {"enlarged", "worst"}),
}  # metrics and pictures to look for
PLOTS = {"losses", "contributions", "updates"}


def ran(output: str) -> set[str]:
    """Return the stages that a `dvc repro` or `dvc exp run` says it ran, but for `CODE`, which always runs."""
    return set(re.findall(r"Running stage '([^']+)'", output)) - {CODE}


def stale(project: Project) -> set[str]:
    """Return the stages that read what has changed, with manifests of the code as it is; `dvc repro` writes these."""
    project.write_manifests()
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
    start, lock = time.perf_counter(), project.folder / "dvc.lock"
    before = lock.stat()
    done = project.run("dvc", "repro")
    assert ran(done.stdout) == set()
    skipped = re.findall(r"^Stage '(.*)' didn't change, skipping$", done.stdout, re.MULTILINE)
    assert set(skipped) == stages()
    assert (lock.stat().st_ino, lock.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
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


def edits() -> Iterator[tuple[dict[str, dict[str, Any]], set[str]]]:
    """Yield what is changed, as dotted keys by file, in all recipes at once, and the stages that read it."""
    files = {name: (entry["params"], read_yaml(ROOT / entry["params"])) for name, entry in recipes().items()}
    loss = {name: next(iter(recipe["losses"])) for name, (_, recipe) in files.items()}
    mode = {name: next(iter(recipe["evaluate"]["modes"])) for name, (_, recipe) in files.items()}
    for edit, readers in (
        (lambda name: {f"losses.{loss[name]}.weight": 0.75}, ("train",)),
        (lambda name: {"train.steps": 9}, ("train",)),
        (lambda name: {"seed": 4}, ("train", "metrics")),
        (lambda name: {"evaluate.batch_size": 16, f"evaluate.modes.{mode[name]}.repeat": 4}, ("eval-dump",)),
        (lambda name: {"metrics.bootstrap": 30}, ("metrics",)),
        (lambda name: {"runtime.log_every": 7, "runtime.workers": 1, "runtime.resume_every": 5}, ()),
    ):
        yield {file: edit(name) for name, (file, _) in files.items()}, {f"{one}@{n}" for one in readers for n in files}
    for name in datasets():
        yield {"data/params.yaml": {f"datasets.{name}.seed": 12345}}, {f"prepare@{name}"}
    yield {"params.yaml": {"train.steps": 9}}, {"train@vunet"}
    decoder = {"evaluate.modes.poses.injectors.people.decoder.greedy": True}
    yield {"recipes/pose.yaml": decoder}, {"eval-dump@pose"}


def test_exactly_the_stages_that_read_a_key_are_stale_when_it_changes(project: Project) -> None:
    for changes, expected in edits():
        before = {file: (project.folder / file).read_bytes() for file in changes}
        for file, values in changes.items():
            project.set(file, values)
        assert set(stages_with_changes(project.folder)) == expected, changes
        for file, content in before.items():
            (project.folder / file).write_bytes(content)
    assert stages_with_changes(project.folder) == []


def test_an_experiment_runs_exactly_what_depends_on_its_changes(project: Project) -> None:
    """Losses are weighted, removed and added from the command line; a picture of another recipe is drawn otherwise."""
    added = "+losses.second={type: images.L2, inputs: {image: image, target: target}, weight: 0.5}"
    drawn = "recipes/pose.yaml:evaluate.modes.fields.injectors.draw.count=1"
    changes = ("losses.KL.weight=2", "~losses.color_L2", added, drawn)
    done = project.run("dvc", "exp", "run", *(word for change in changes for word in ("-S", change)))
    assert ran(done.stdout) == stages_of("vunet") | judging("vunet") | {"eval-dump@pose", "metrics@pose"}
    assert "recipes/pose.yaml" in project.run("git", "diff", "--name-only").stdout.splitlines()
    params = json.loads(project.run("dvc", "params", "diff", "--json").stdout)
    assert params["params.yaml"]["losses.KL.weight"] == {"old": 1.0, "new": 2, "diff": 1.0}
    metrics = json.loads(project.run("dvc", "metrics", "diff", "--json").stdout)
    changed = metrics["diff"]["metrics/vunet.json"] if "diff" in metrics else metrics["metrics/vunet.json"]
    assert changed.keys() <= {"frechet.value", *(f"l1_person.{part}" for part in ("value", "low", "high"))}
    assert changed["l1_person.value"]["diff"]
    assert set(pd.read_csv(project.folder / "plots/vunet/losses.csv")["name"]) == {"color_L1", "KL", "second"}
    shown = json.loads(project.run("dvc", "plots", "diff", "--json").stdout)["data"]["plots/vunet/losses.csv"][0]
    points = shown["content"]["data"]["values"]
    with_removed = {point["rev"] for point in points if point["name"] == "color_L2"}
    assert {point["rev"] for point in points} > with_removed > set()
    assert shown["content"]["title"]["text"] == "vunet: losses, and their effective weights"
    assert "loss.second" in (project.folder / "runs/vunet/dump/examples.csv").read_text().splitlines()[0]


ORDER = ("prepare", *OF_A_RECIPE, "pose-consistency")


def test_two_runs_give_the_same_hashes(project: Project) -> None:
    """The first one is that of all stages in one process; in the second, DVC starts each, some in a fresh Python."""
    before = project.outputs()
    project.run("rm", "-r", *before)
    every = sorted(stages(), key=lambda name: ORDER.index(name.partition("@")[0]))
    fresh = {"prepare@pairs", *stages_of("pix2pix"), *judging("pix2pix")}
    forced = ("dvc", "repro", "--force", "--single-item")
    done = project.run(*forced, CODE, *(name for name in every if name not in fresh))
    again = project.run(*forced, *(name for name in every if name in fresh), PATH=ENVIRONMENT["PATH"])
    assert ran(done.stdout) | ran(again.stdout) == {*every}
    assert ran(again.stdout) == fresh
    assert project.outputs() == before


GATE = ("figura", "gate", "--markdown", "gate.md")


def test_an_honest_rerun_passes_the_gate_and_other_data_and_an_altered_metric_fail(project: Project) -> None:
    threads = ("env", "OMP_NUM_THREADS=2")  # other machines add in another order
    done = project.run(*threads, "dvc", "repro", "--force", "--single-item", "train@pix2pix")
    assert "Running stage 'train@pix2pix'" in done.stdout
    project.run(*threads, "dvc", "repro", "metrics@pix2pix")
    table = project.run(*GATE).stdout
    assert " 0 violated, " in table.splitlines()[-1]
    assert all(path in table for path in ("data/prepared/people", "data/prepared/pairs", "vunet.transfer.l1"))

    project.set("data/params.yaml", {"datasets.people.seed": 12345})
    project.run("dvc", "repro", "prepare@people")
    file = project.folder / "metrics/full/pix2pix.json"
    metrics = json.loads(file.read_text())
    l1 = metrics["translation"]["l1"]
    l1["value"] += l1["high"] - l1["low"]  # twice as far as the interval reaches to each side
    file.write_text(json.dumps(metrics))
    said = project.run(*GATE, code=1).stderr
    assert "not reproduced: " in said
    assert all(name in said for name in ("data/prepared/people", "pix2pix.translation.l1"))
    shown = (project.folder / "gate.md").read_text()
    assert shown.startswith("**Reproduction: failed**")
    assert "| `pix2pix.translation.l1` |" in shown.partition("<details>")[0]

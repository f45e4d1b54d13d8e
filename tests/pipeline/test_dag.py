"""The promise of the README, with the real dvc: a change reruns what depends on it and nothing else."""

import json
import re
import time

import pytest

from pipeline.project import Project

pytestmark = pytest.mark.pipeline
AFTER_PREPARE = {"train@vunet", "eval-dump@vunet", "metrics@vunet"}
PIX2PIX = {"train@pix2pix", "eval-dump@pix2pix", "metrics@pix2pix"}
POSE = {"train@pose", "eval-dump@pose", "metrics@pose"}
SUPER_RESOLUTION = {"train@super_resolution", "eval-dump@super_resolution", "metrics@super_resolution"}
STAGES = {"prepare@people", "prepare@pairs"} | AFTER_PREPARE | PIX2PIX | POSE | SUPER_RESOLUTION


def ran(output: str) -> set[str]:
    """Return the stages that a `dvc repro` or `dvc exp run` says it ran."""
    return set(re.findall(r"Running stage '([^']+)'", output))


def test_a_repro_writes_metrics_and_pictures_and_the_next_does_nothing(project: Project) -> None:
    metrics = json.loads((project.folder / "metrics/vunet.json").read_text())
    assert metrics["reconstruction"]["l1_person"]["low"] <= metrics["reconstruction"]["l1_person"]["value"]
    pictures = {path.stem for path in (project.folder / "plots/vunet/pictures").glob("*.png")}
    assert {"reconstructions", "transfer_grid", "samples", "worst", "best", "losses"} <= pictures
    metrics = json.loads((project.folder / "metrics/pix2pix.json").read_text())
    assert {"translation", "mean_image", "identity", "frechet", "frechet_mean_image", "frechet_identity"} == set(
        metrics
    )
    pictures = {path.stem for path in (project.folder / "plots/pix2pix/pictures").glob("*.png")}
    assert {"triptychs", "draws", "worst", "best", "losses"} <= pictures
    metrics = json.loads((project.folder / "metrics/pose.json").read_text())
    assert metrics["joints"]["joints"] > 0
    pictures = {path.stem for path in (project.folder / "plots/pose/pictures").glob("*.png")}
    assert {"nose", "left_thigh", "person", "losses", "worst", "precision_recall", "similarity"} <= pictures
    assert metrics["boxes"]["objects"] > 0
    metrics = json.loads((project.folder / "metrics/super_resolution.json").read_text())
    assert {"upscaling", "bicubic", "lanczos"} <= set(metrics)
    start = time.perf_counter()
    done = project.run("dvc", "repro")
    assert ran(done.stdout) == set()
    assert "up to date" in done.stdout
    assert time.perf_counter() - start < 30  # the budget of 2 s is a bench; this only catches a rerun


def test_one_loss_weight_reruns_what_depends_on_it(project: Project) -> None:
    done = project.run("dvc", "exp", "run", "-S", "losses.KL.weight=2")
    assert ran(done.stdout) == AFTER_PREPARE
    params = json.loads(project.run("dvc", "params", "diff", "--json").stdout)
    assert params["params.yaml"]["losses.KL.weight"] == {"old": 1.0, "new": 2, "diff": 1.0}
    metrics = json.loads(project.run("dvc", "metrics", "diff", "--json").stdout)
    changed = metrics["diff"]["metrics/vunet.json"] if "diff" in metrics else metrics["metrics/vunet.json"]
    assert any(entry["diff"] for name, entry in changed.items() if name.startswith("reconstruction"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("metrics.bootstrap=30", {"metrics@vunet"}),
        ("recipes/pix2pix.yaml:losses.G_L1.weight=50", PIX2PIX),
        ("recipes/pix2pix.yaml:metrics.bootstrap=30", {"metrics@pix2pix"}),
        ("recipes/pose.yaml:losses.caf.weight=2", POSE),
        ("recipes/pose.yaml:evaluate.modes.poses.injectors.people.decoder.greedy=true", POSE - {"train@pose"}),
        ("recipes/super_resolution.yaml:losses.G_fake.weight=0.1", SUPER_RESOLUTION),
        ("evaluate.batch_size=16", {"eval-dump@vunet", "metrics@vunet"}),
        ("runtime.log_every=7", set()),
        ("runtime.workers=0", set()),
    ],
)
def test_a_section_reruns_the_stages_that_read_it(project: Project, change: str, expected: set[str]) -> None:
    assert ran(project.run("dvc", "exp", "run", "-S", change).stdout) <= expected
    if expected:
        status = project.run("git", "diff", "--name-only").stdout
        assert (change.split(":")[0] if ":" in change else "params.yaml") in status


def test_a_loss_is_removed_and_added_from_the_command_line(project: Project) -> None:
    done = project.run("dvc", "exp", "run", "-S", "~losses.KL")
    assert ran(done.stdout) == AFTER_PREPARE
    assert not (project.folder / "plots/vunet/curves/KL.raw.csv").exists()
    added = "+losses.second={type: images.L2, inputs: {image: image, target: target}, weight: 0.5}"
    done = project.run("dvc", "exp", "run", "-S", added)
    assert ran(done.stdout) == AFTER_PREPARE
    assert (project.folder / "plots/vunet/curves/second.raw.csv").exists()
    assert "loss.second" in (project.folder / "runs/vunet/dump/examples.csv").read_text().splitlines()[0]


def test_two_forced_runs_give_the_same_hashes(project: Project) -> None:
    before = project.outputs()
    done = project.run("dvc", "repro", "--force")
    assert ran(done.stdout) == STAGES
    assert project.outputs() == before


def test_dvc_shows_what_there_is(project: Project) -> None:
    assert all(stage in project.run("dvc", "dag", "--mermaid").stdout for stage in STAGES)
    assert "up to date" in project.run("dvc", "status").stdout
    project.run("dvc", "plots", "show", "-o", "shown")
    page = (project.folder / "shown/index.html").read_text()
    assert "transfer_grid.png" in page
    assert "KL.weight" in page
    shown = project.run("dvc", "exp", "show", "--csv").stdout
    assert "reconstruction.l1_person.value" in shown
    assert "losses.KL.weight" in shown


def test_lock_fits_code_and_params(project: Project) -> None:
    project.run("dvc", "repro", "--allow-missing", "--dry")
    project.set("params.yaml", {"losses.KL.weight": 3.0})
    assert "train@vunet" in ran(project.run("dvc", "repro", "--dry").stdout)
    assert "prepare@people" not in project.run("dvc", "status").stdout

"""A gradient that overflows on one of two ranks: both leave the update out, and both scales fall."""

import json
import os

import test_precision
from torch.amp import GradScaler
from two_processes import run_in_two

from figura.engine import build
from figura.training.trainer import Trainer


def overflow_on_the_second(folder):
    """Train in a rank; note of each iteration whether the update was skipped, why, and the scale; then the weights."""
    rank = int(os.environ["RANK"])
    build.gradient_scaler = lambda accelerator: GradScaler("cpu", init_scale=64.0, growth_interval=4)
    recipe = test_precision.overflowing_painter([2], **{"train.steps": 8, "train.ema": None, "runtime.resume_every": 8})
    trainer = Trainer(recipe, folder / "run")
    trainer.steps["painter"].injectors[1].injector.at = [2] if rank == 1 else [99]
    update_averages, seen = trainer.update_averages, []

    def note(reports):
        report, scaler = reports["painter"], trainer.steps["painter"].scaler
        seen.append([report.skipped, report.overflowed, scaler.get_scale()])
        update_averages(reports)

    trainer.update_averages = note
    trainer.fit()
    weights = [p.tolist() for p in trainer.accelerator.unwrap_model(trainer.networks.live["painter"]).parameters()]
    (folder / f"{rank}.json").write_text(json.dumps([seen, weights]))


def test_all_ranks_agree_on_an_overflow(tmp_path):
    run_in_two(lambda: overflow_on_the_second(tmp_path))
    (seen, weights), (others, theirs) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    good, bad = [False, False], [True, True]
    scales = [64.0, 64.0, 32.0, 32.0, 32.0, 32.0, 64.0, 64.0]  # halved by the third update, doubled by four good ones
    assert seen == others == [[*(bad if place == 2 else good), scale] for place, scale in enumerate(scales)]
    assert weights == theirs

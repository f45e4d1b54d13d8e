"""A gradient that overflows on one of two processes: both leave the update out, and both scales fall."""

import json

from two_processes import run_in_two

SCRIPT = """
import json, os, sys
from pathlib import Path
import test_precision
from torch.amp import GradScaler
from models.engine import build as assemble
from models.training.trainer import Trainer

rank = int(os.environ["RANK"])
assemble.gradient_scaler = lambda accelerator: GradScaler("cpu", init_scale=64.0, growth_interval=4)
at = [2] if rank == 1 else [99]
recipe = test_precision.overflowing_painter([2], **{"train.steps": 8, "train.ema": None, "runtime.resume_every": 8})
trainer = Trainer(recipe, Path(sys.argv[1]) / "run")
trainer.steps["painter"].injectors[1].injector.at = at
watch, seen = trainer.recovery.watch, []

def note(iteration, reports):
    report, scaler = reports["painter"], trainer.steps["painter"].scaler
    seen.append([report.skipped, report.overflowed, scaler.get_scale()])
    return watch(iteration, reports)

trainer.recovery.watch = note
trainer.fit()
weights = [p.tolist() for p in trainer.accelerator.unwrap_model(trainer.networks.live["painter"]).parameters()]
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps([seen, weights]))
"""


def test_all_processes_agree_on_an_overflow(tmp_path):
    run_in_two(SCRIPT, tmp_path)
    (seen, weights), (others, theirs) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    good, bad = [False, False], [True, True]
    scales = [64.0, 64.0, 32.0, 32.0, 32.0, 32.0, 64.0, 64.0]  # halved by the third update, doubled by four good ones
    assert seen == others == [[*(bad if place == 2 else good), scale] for place, scale in enumerate(scales)]
    assert weights == theirs

"""The last lines of a training say how many updates were skipped."""

import pytest
import toy
from torch.amp import GradScaler

from figura.live import listeners
from figura.live.skipped_updates import SkippedUpdates
from figura.training.trainer import Trainer


@pytest.mark.parametrize(
    ("broken_from", "record_every", "told"),
    [(None, 4, 0), (4, 4, 3), (4, 50, 3)],  # one example of five, in three epochs
)
def test_skipped_updates_are_counted(broken_from, record_every, told, run, capsys):
    ramps = {"type": "toy.Ramps", "length": 5, "broken_from": broken_from}
    changes = {"data.train.ramps": ramps, "data.batch_size": 1, "train.steps": 15, "train.record_every": record_every}
    recipe = toy.checked(changes)
    Trainer(recipe, run, listeners=listeners(recipe)).fit()
    lines = [line for line in capsys.readouterr().out.splitlines() if "updates were skipped" in line]
    if told:
        (line,) = lines
        start = f"warning: step 'painter': {told} updates were skipped, because a loss or a gradient was not finite; "
        assert line.startswith(f"{start}`figura replay {run} --step ")
    else:
        assert lines == []


@pytest.mark.parametrize(("broken_from", "told"), [(None, 0), (4, 3)])
def test_in_fp16_those_of_the_loss_scale_alone_are_not_told(broken_from, told, run, capsys):
    ramps = {"type": "toy.Ramps", "length": 5, "broken_from": broken_from}
    recipe = toy.checked({"data.train.ramps": ramps, "data.batch_size": 1, "train.steps": 15})
    trainer = Trainer(recipe, run, listeners=[SkippedUpdates()])
    trainer.recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"precision": "fp16"})})
    scaler = GradScaler("cpu", init_scale=2.0**127 if not told else 1.0)  # the first overflows
    trainer.state.scalers["painter"] = trainer.steps["painter"].scaler = scaler
    trainer.fit()
    assert sum(row["painter.skipped"] for row in trainer.loss_log.train) > 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "updates were skipped" in line]
    start = f"warning: step 'painter': {told} updates were skipped (fp16 skips up to 16 by design), because a loss"
    assert [line.startswith(start) for line in lines] == [True] * bool(told)

"""The last lines of a training say how many updates were skipped."""

import pytest
import toy

from figura.live import listeners
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

"""A validation pass on a part of the split."""

import pytest
import toy
from trainings import BASE, Stopping, fit, history, outputs
from two_processes import run_in_two

LIMITED = BASE | {"train.evaluate_limit": 4, "data.validation.ramps.length": 10}


class Seeing(Stopping):
    """Notes the examples of each validation pass."""

    def eval_op(self, batch):
        self.seen.append(batch["index"].tolist())
        return super().eval_op(batch)


def test_the_examples_are_evenly_spaced(run):
    trainer = Seeing(toy.checked(LIMITED), run)
    trainer.seen = []
    trainer.fit()
    passes = len(history(run, "validation"))
    assert trainer.seen == [[0, 2, 5, 7]] * passes  # every 2.5th of 10


def test_a_limit_above_the_length_changes_nothing(run, tmp_path):
    fit(run, LIMITED | {"train.evaluate_limit": 10})
    fit(tmp_path / "all", LIMITED | {"train.evaluate_limit": None})
    names = [name for name in outputs(run) if "recipe" not in name]
    assert [outputs(run)[name] for name in names] == [outputs(tmp_path / "all")[name] for name in names]


def test_two_ranks_judge_the_same_examples(tmp_path):
    run_in_two(lambda: fit(tmp_path / "two", LIMITED | {"networks.painter.dropout": 0.0}))
    fit(tmp_path / "one", LIMITED | {"networks.painter.dropout": 0.0})
    ours, theirs = (history(tmp_path / name, "validation") for name in ("one", "two"))
    for row, other in zip(ours, theirs, strict=True):
        assert row == pytest.approx(other, abs=1e-6)

"""The book of losses: every value of every loss, whatever happens to the process."""

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from models.training.book import LossLog

from models.base.errors import UserError
from models.interfaces import StepReport
from models.training.trainer import Trainer

TAGS = {"D_real": "D", "D_fake": "D", "G_L1": "G"}
QUIET = {"runtime.samples": None}


def reports(step):
    raw = {"D": {"D_real": 0.1 * step, "D_fake": 0.2 * step}, "G": {"G_L1": 1.0 / step}}
    weights = {"D_real": 0.5, "D_fake": 0.5, "G_L1": 100.0 - step}
    return {
        tag: StepReport({n: torch.tensor(v, dtype=torch.float64) for n, v in values.items()}, weights)
        for tag, values in raw.items()
    }


def filled(path, count, every=3):
    book = LossLog(path, TAGS)
    book.start(0)
    for step in range(1, count + 1):
        book.add(step, reports(step))
        if step % every == 0:
            book.flush()
    return book


def test_history_holds_every_value(tmp_path):
    rows = filled(tmp_path / "losses.csv", 7).history()
    assert list(rows.columns) == ["step", "loss", "raw", "weight", "weighted"]
    assert len(rows) == 21
    one = rows[rows["loss"] == "G_L1"]
    steps = np.arange(1, 8)
    assert one["step"].tolist() == steps.tolist()
    np.testing.assert_array_equal(one["raw"], 1.0 / steps)
    np.testing.assert_array_equal(one["weight"], 100.0 - steps)
    np.testing.assert_array_equal(one["weighted"], (1.0 / steps) * (100.0 - steps))


def test_queries_by_name_and_tag(tmp_path):
    book = filled(tmp_path / "losses.csv", 4)
    assert book.select() == ["D_real", "D_fake", "G_L1"]
    assert book.select("G", "D_real") == ["D_real", "G_L1"]
    assert set(book.history("D")["loss"]) == {"D_real", "D_fake"}
    assert book.last("G") == {"G_L1": {"raw": 0.25, "weight": 96.0, "weighted": 24.0}}
    with pytest.raises(UserError, match=r"no loss or tag 'G_L2' \(did you mean 'G_L1'\?\); there are D_real, .*, D, G"):
        book.select("G_L2")


def test_nothing_to_tell_yet(tmp_path):
    book = LossLog(tmp_path / "losses.csv", TAGS)
    book.start(0)
    assert book.last() == {}
    assert book.history().empty


def test_going_on_cuts_off_what_is_yet_to_come(tmp_path):
    path = tmp_path / "losses.csv"
    filled(path, 9)
    with path.open("a") as file:
        file.write("10,G_L1,0.1,9")  # killed while it wrote: half a row
    book = LossLog(path, TAGS)
    book.start(4)
    assert book.history()["step"].max() == 4
    assert book.last("G")["G_L1"]["raw"] == 0.25
    for step in (5, 6):
        book.add(step, reports(step))
    expected = filled(tmp_path / "whole.csv", 6).history()
    pd.testing.assert_frame_equal(book.history(), expected)


def test_an_earlier_run_is_not_continued(tmp_path):
    filled(tmp_path / "losses.csv", 5)
    book = LossLog(tmp_path / "losses.csv", TAGS)
    book.start(0)
    assert book.history().empty


class StopError(BaseException):
    pass


def stopping_before(iteration):
    """Return a training step that raises before this iteration."""

    def step(trainer, batch):
        if trainer.iteration == iteration:
            raise StopError
        return trainer.train_op(batch)

    return step


def test_a_training_that_fails_has_written_all_it_did(run):
    trainer = Trainer(toy.checked(QUIET | {"runtime.log_every": 100}), run, train_step=stopping_before(7))
    with pytest.raises(StopError):
        trainer.fit()
    rows = pd.read_csv(run / "live" / "losses.csv")
    assert rows["step"].tolist() == [step for step in range(1, 8) for _ in range(2)]


def test_an_interrupted_and_resumed_training_writes_the_same_book(run, tmp_path):
    changes = QUIET | {"runtime.log_every": 5, "runtime.resume_every": 4}
    whole = Trainer(toy.checked(changes), tmp_path / "whole")
    whole.fit()
    with pytest.raises(StopError):
        Trainer(toy.checked(changes), run, train_step=stopping_before(10)).fit()
    Trainer(toy.checked(changes), run).fit()
    assert (run / "live/losses.csv").read_bytes() == (tmp_path / "whole/live/losses.csv").read_bytes()


def test_the_book_agrees_with_the_tracked_history(run):
    trainer = Trainer(toy.checked(QUIET | {"train.record_every": 4}), run)
    trainer.fit()
    book = trainer.loss_log.history()
    tracked = pd.read_csv(run / "history/train.csv")
    for name in ("distance", "square"):
        rows = book[book["loss"] == name]
        for column in ("raw", "weight", "weighted"):
            means = rows.groupby((rows["step"] - 1) // 4)[column].mean()
            np.testing.assert_allclose(tracked[f"{name}.{column}"], means, rtol=1e-6)

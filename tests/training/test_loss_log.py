"""The log of losses: every value of every loss, whatever happens to the process, and the means over windows of it."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from trainings import Killed, assert_same, fit, trained, weights

from figura.base.errors import UserError
from figura.interfaces import Loss, StepReport
from figura.training.loss_log import LossLog, as_csv

TAGS = {"D_real": "D", "D_fake": "D", "G_L1": "G"}
QUIET = {"runtime.samples": None}
RAW = np.random.default_rng(0).uniform(0, 2, 10).astype(np.float32)


def reports(step):
    raw = {"D": {"D_real": 0.1 * step, "D_fake": 0.2 * step}, "G": {"G_L1": 1.0 / step}}
    weights = {"D_real": 0.5, "D_fake": 0.5, "G_L1": 100.0 - step}
    return {
        tag: StepReport({n: torch.tensor(v, dtype=torch.float64) for n, v in values.items()}, weights)
        for tag, values in raw.items()
    }


def flushed(path, count, every=3):
    log = LossLog(path, TAGS, 100)
    log.start(0)
    for step in range(1, count + 1):
        log.add(step, reports(step))
        if step % every == 0:
            log.flush()
    return log


def report(step, skipped=False):
    """Of iteration `step`, counted from 1."""
    raw = torch.tensor(float("nan") if skipped else RAW[step - 1].item())
    return {"g": StepReport({"a": raw}, {"a": step / 10}, raw * 10, 0.1 / step, skipped)}


def windowed(every, count=10, skip=()):
    """Return a log without a file, which has ended, and the number of its rows after each iteration."""
    log, rows = LossLog(None, {"a": "g", "b": "d"}, every), []
    for step in range(1, count + 1):
        log.add(step, report(step, step in skip))
        rows.append(len(log.train))
    log.end_window()
    return log, rows


def test_history_holds_every_value_and_is_asked_by_name_and_step(tmp_path):
    log = flushed(tmp_path / "losses.csv", 7)
    rows = log.history()
    assert list(rows.columns) == ["step", "loss", "raw", "weight", "weighted"]
    assert len(rows) == 21
    one = rows[rows["loss"] == "G_L1"]
    steps = np.arange(1, 8)
    assert one["step"].tolist() == steps.tolist()
    np.testing.assert_array_equal(one["raw"], 1.0 / steps)
    np.testing.assert_array_equal(one["weight"], 100.0 - steps)
    np.testing.assert_array_equal(one["weighted"], (1.0 / steps) * (100.0 - steps))
    assert log.select() == ["D_real", "D_fake", "G_L1"]
    assert log.select("G", "D_real") == ["D_real", "G_L1"]
    assert set(log.history("D")["loss"]) == {"D_real", "D_fake"}
    assert log.last("G")["G_L1"] == pytest.approx({"raw": 1 / 7, "weight": 93.0, "weighted": 93 / 7})
    with pytest.raises(UserError, match=r"no loss or step 'G_L2' \(did you mean 'G_L1'\?\); there are .*, D, G"):
        log.select("G_L2")


def test_going_on_cuts_off_what_is_yet_to_come(tmp_path):
    path = tmp_path / "losses.csv"
    flushed(path, 9)
    with path.open("a") as file:
        file.write("10,G_L1,0.1,9")  # killed while it wrote: half a row
    log = LossLog(path, TAGS, 100)
    log.start(4)
    assert log.history()["step"].max() == 4
    assert log.last("G")["G_L1"]["raw"] == 0.25
    for step in (5, 6):
        log.add(step, reports(step))
    expected = flushed(tmp_path / "whole.csv", 6).history()
    pd.testing.assert_frame_equal(log.history(), expected)


def test_the_latest_value_may_be_nan(tmp_path):
    log = LossLog(tmp_path / "losses.csv", {"a": "g"}, 3)
    log.start(0)
    for step in (1, 2):
        log.add(step, report(step, skipped=step == 2))
    assert log.last()["a"] == pytest.approx({"raw": np.nan, "weight": 0.2, "weighted": np.nan}, nan_ok=True)


def test_without_a_file_it_knows_the_latest_values_alone():
    log = LossLog(None, TAGS, 3)
    log.start(0)
    assert log.last() == {}
    for step in range(1, 6):
        log.add(step, reports(step))
    assert log.history().empty
    assert log.last("G") == {"G_L1": {"raw": 0.2, "weight": 95.0, "weighted": 19.0}}
    assert set(log.last()) == set(TAGS)


def test_a_log_line_has_the_last_values_of_what_does_not_run_in_its_iteration(run):
    trained(run, {"losses.square.every": 3, "runtime.log_every": 4})  # square in iterations 1, 4, 7 and 10
    lines = [json.loads(line) for line in (run / "live/log.jsonl").read_text().splitlines()[1:]]
    losses = pd.read_csv(run / "live/losses.csv").set_index(["loss", "step"])
    for line, at in zip(lines, (4, 7, 10), strict=True):
        assert line["train.square"] == losses.loc[("square", at), "raw"]
        assert line["train.total"] == pytest.approx(
            losses.loc[("distance", line["step"]), "weighted"] + losses.loc[("square", at), "weighted"]
        )


def test_a_training_that_fails_has_written_all_it_did(run):
    with pytest.raises(Killed):
        fit(run, QUIET | {"runtime.log_every": 100}, stop=7)
    rows = pd.read_csv(run / "live" / "losses.csv")
    assert rows["step"].tolist() == [step for step in range(1, 8) for _ in range(2)]


def test_rows_are_means_over_windows():
    log, rows = windowed(4)
    assert rows == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    steps = np.arange(1, 11)
    for row, window in zip(log.train, (slice(0, 4), slice(4, 8), slice(8, 10)), strict=True):
        raw, weight = RAW[window].astype(np.float64), steps[window] / 10
        assert row["step"] == steps[window][-1]
        assert row["a.raw"] == pytest.approx(raw.mean(), rel=1e-12)
        assert row["a.weight"] == pytest.approx(weight.mean(), rel=1e-12)
        assert row["a.weighted"] == pytest.approx((raw * weight).mean(), rel=1e-6)
        assert row["g.grad_norm"] == pytest.approx(10 * raw.mean(), rel=1e-6)
        assert row["g.lr"] == pytest.approx((0.1 / steps[window]).mean(), rel=1e-12)
        assert row["g.skipped"] == 0


def test_skipped_updates_are_counted_and_kept_out_of_the_means():
    log, _ = windowed(5, skip=(2, 3))
    assert [row["g.skipped"] for row in log.train] == [2, 0]
    assert log.train[0]["a.raw"] == pytest.approx(RAW[[0, 3, 4]].astype(np.float64).mean(), rel=1e-12)
    assert log.train[0]["g.lr"] == pytest.approx((0.1 / np.arange(1, 6)).mean())


def test_a_batch_with_nothing_to_learn_is_kept_out_of_the_mean_rate():
    log, _ = windowed(4, count=0)
    for step in range(1, 9):
        empty = {"g": StepReport(weights={"a": 1.0})}
        log.add(step, empty if step in (2, 3) or step > 4 else report(step))
    assert log.train[0]["g.lr"] == pytest.approx((0.1 / np.array([1, 4])).mean(), rel=1e-12)
    assert log.train[0]["g.skipped"] == 0
    assert log.train[1] == {"step": 8, "g.skipped": 0}


def test_a_step_that_did_not_run_has_no_columns():
    log, _ = windowed(2, count=0)
    for step in range(1, 5):
        both = report(step)
        if step > 2:
            both["d"] = StepReport({"b": torch.tensor(1.0)}, {"b": 1.0}, torch.tensor(2.0), 0.5)
        log.add(step, both)
    assert "b.raw" not in log.train[0]
    assert log.train[1]["d.lr"] == 0.5
    assert "," * 5 + "\n" in as_csv(log.train)  # empty cells


def test_csv_keeps_every_digit(tmp_path):
    log, _ = windowed(4)
    log.validation.append({"step": 10, "a.raw": 1 / 3})
    log.write(tmp_path)
    table = pd.read_csv(tmp_path / "train.csv")
    assert table.to_dict("records") == log.train
    assert (tmp_path / "validation.csv").read_text() == f"step,a.raw\n10,{1 / 3!r}\n"
    assert as_csv([]) == "step\n"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\n", b"step,loss\n1,a,b,c,d\n2\n", b"step,raw\n1,2\n", b"step,loss\nx,a\n"]
)
def test_a_damaged_file_begins_again_with_a_warning(content, tmp_path, capsys):
    path = tmp_path / "losses.csv"
    path.write_bytes(content)
    LossLog(path, {"a": "painter"}, 3).start(5)
    assert path.read_text() == "step,loss,raw,weight,weighted\n"
    assert f"warning: {path} is damaged, and begins again: " in capsys.readouterr().out


# components of a loss: they are recorded, and counted once


class Parts(Loss):
    """Distance in two components."""

    def forward(self, *, image, target):
        difference = (image - target).abs()
        return {"near": 2 * difference.mean(dim=(1, 2, 3)), "far": (difference**2).mean(dim=(1, 2, 3))}


TWO = {"type": "test_loss_log.Parts", "inputs": {"image": "image", "target": "y"}, "weight": 3.0}
QUICK = QUIET | {"train.record_every": 1}


def test_the_sum_is_trained_and_counts_once_and_the_parts_are_recorded(run):
    distance = {"type": "toy.Distance", "inputs": TWO["inputs"]}
    whole = {"near": distance | {"weight": 6.0}, "far": distance | {"power": 2.0, "weight": 3.0}}
    trainer, same = (trained(run / name, QUICK | {"losses": one}) for name, one in (("a", {"two": TWO}), ("b", whole)))
    assert_same(weights(trainer), weights(same), atol=1e-6)
    for row in trainer.loss_log.train:
        assert row["two.raw"] == pytest.approx(row["two.near.raw"] + row["two.far.raw"], rel=1e-6)
        assert row["two.near.weight"] == row["two.weight"] == 3
    book = trainer.loss_log
    assert set(book.history("two")["loss"]) == {"two", "two.near", "two.far"}
    assert list(book.last("painter")) == ["two", "two.near", "two.far"]
    assert {"two.raw", "two.near.raw", "two.far.raw"} <= set(pd.read_csv(run / "a/history/validation.csv"))
    _, means = trainer.log_op({"x": torch.rand(4, 1, 4, 4), "y": torch.rand(4, 1, 4, 4)})
    assert means["total"] == pytest.approx(3 * means["two"])

import numpy as np
import pandas as pd
import pytest
import torch
from models.training.history import History, as_csv

from models.interfaces import StepReport

RAW = np.random.default_rng(0).uniform(0, 2, 10).astype(np.float32)


def report(step, weight=None, skipped=False):
    """Of iteration `step`, counted from 1."""
    raw = torch.tensor(float("nan") if skipped else RAW[step - 1].item())
    norm = raw * 10
    return {"g": StepReport({"a": raw}, {"a": step / 10 if weight is None else weight}, norm, 0.1 / step, skipped)}


def filled(every, count=10, skip=()):
    history = History(every)
    rows = [history.add(step, report(step, skipped=step in skip), last=step == count) for step in range(1, count + 1)]
    return history, rows


def test_rows_are_means_over_windows():
    history, rows = filled(4)
    assert [row is not None for row in rows] == [False] * 3 + [True] + [False] * 3 + [True, False, True]
    steps = np.arange(1, 11)
    for row, window in zip(history.train, (slice(0, 4), slice(4, 8), slice(8, 10)), strict=True):
        raw, weight = RAW[window].astype(np.float64), steps[window] / 10
        assert row["step"] == steps[window][-1]
        assert row["a.raw"] == pytest.approx(raw.mean(), rel=1e-12)
        assert row["a.weight"] == pytest.approx(weight.mean(), rel=1e-12)
        assert row["a.weighted"] == pytest.approx((raw * weight).mean(), rel=1e-6)
        assert row["g.grad_norm"] == pytest.approx(10 * raw.mean(), rel=1e-6)
        assert row["g.lr"] == pytest.approx((0.1 / steps[window]).mean(), rel=1e-12)
        assert row["g.skipped"] == 0


def test_skipped_updates_are_counted_and_kept_out_of_the_means():
    history, _ = filled(5, skip=(2, 3))
    assert [row["g.skipped"] for row in history.train] == [2, 0]
    assert history.train[0]["a.raw"] == pytest.approx(RAW[[0, 3, 4]].astype(np.float64).mean(), rel=1e-12)
    assert history.train[0]["g.lr"] == pytest.approx((0.1 / np.arange(1, 6)).mean())


def test_a_batch_with_nothing_to_learn_is_kept_out_of_the_mean_rate():
    history = History(4)
    for step in range(1, 9):
        reports = {"g": StepReport(weights={"a": 1.0})} if step in (2, 3) or step > 4 else report(step)
        history.add(step, reports, last=False)
    assert history.train[0]["g.lr"] == pytest.approx((0.1 / np.array([1, 4])).mean(), rel=1e-12)
    assert history.train[0]["g.skipped"] == 0
    assert history.train[1] == {"step": 8, "g.skipped": 0}


def test_a_step_that_did_not_run_has_no_columns():
    history = History(2)
    for step in range(1, 5):
        reports = report(step)
        if step > 2:
            reports["d"] = StepReport({"b": torch.tensor(1.0)}, {"b": 1.0}, torch.tensor(2.0), 0.5)
        history.add(step, reports, last=False)
    assert "b.raw" not in history.train[0]
    assert history.train[1]["d.lr"] == 0.5
    assert "," * 5 + "\n" in as_csv(history.train)  # empty cells


def test_state_goes_on_in_the_middle_of_a_window():
    whole, _ = filled(4)
    history = History(4)
    for step in range(1, 7):
        history.add(step, report(step), last=False)
    other = History(4)
    other.load_state_dict(history.state_dict())
    for step in range(7, 11):
        other.add(step, report(step), last=step == 10)
    assert other.train == whole.train


def test_csv_keeps_every_digit(tmp_path):
    history, _ = filled(4)
    history.validation.append({"step": 10, "a.raw": 1 / 3})
    history.write(tmp_path)
    table = pd.read_csv(tmp_path / "train.csv")
    assert table.to_dict("records") == history.train
    assert (tmp_path / "validation.csv").read_text() == f"step,a.raw\n10,{1 / 3!r}\n"
    assert as_csv([]) == "step\n"

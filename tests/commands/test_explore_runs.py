"""Runs as the page lists them: their states, curves, sheets and output; stopping and resuming."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.base.yaml12 import to_yaml
from figura.commands import live_log
from figura.commands.explore import run_control, run_curves, runs

HOLDER = """
import sys, time
from pathlib import Path
from figura.base.lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
ROOT = Path(__file__).parents[2]


def write_live(live, steps, batches=5, epochs=None, factor=1.0):
    """Write the live files of a training after `steps` iterations, with a sheet at each tenth."""
    (live / "samples").mkdir(parents=True, exist_ok=True)
    rows = [
        (step, loss, factor / step, 2.0, 2 * factor / step) for step in range(1, steps + 1) for loss in ("L1", "KL")
    ]
    pd.DataFrame(rows, columns=["step", "loss", "raw", "weight", "weighted"]).to_csv(live / "losses.csv", index=False)
    records = [{"process": {"command": ["train"]}, "code": "0" * 64, "processes": 1, "batches_per_epoch": batches}]
    for step in range(10, steps + 1, 10):
        records.append({
            "step": step, "train.total": 4 * factor / step, "train.L1": factor / step,
            "validation.total": 5 * factor / step, "lr.main": 0.1, "images_per_second": 12.5,
        })  # fmt: skip
        write_png(live / "samples" / f"{step:08d}.png", np.full((8, 8, 3), step % 250, np.uint8))
    (live / "log.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    train = {"epochs": epochs} if epochs else {"steps": 40}
    (live / "recipe.yaml").write_text(to_yaml({"seed": 7, "train": train, "losses": {"L1": {"weight": factor}}}))


def write_run(root, name, steps=40, factor=1.0, trial=False):
    folder = root / "runs" / name
    live = (folder / "try" if trial else folder) / "live"
    write_live(live, steps, factor=factor)
    for part in ("history", "model"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame({"step": range(10, steps + 1, 10)})
    table = table.assign(
        **{"L1.raw": factor / table["step"], "L1.weight": 2.0, "L1.weighted": 2 * factor / table["step"]}
    )
    table.assign(**{"main.lr": 0.1}).to_csv(folder / "history/train.csv", index=False)
    table[["step", "L1.raw"]].to_csv(folder / "history/validation.csv", index=False)
    (folder / "model/recipe.yaml").write_text((live / "recipe.yaml").read_text())
    (folder / "model/provenance.json").write_text(json.dumps({"try": "TRY"} if trial else {}))
    return folder


@contextmanager
def training(folder, code=HOLDER):
    """Start a process that holds the lock of a folder; end it after the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
    )
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_states(tmp_path):
    assert runs.list_runs() == []
    write_run(tmp_path, "whole")
    write_run(tmp_path, "group/inner", steps=20)
    write_run(tmp_path, "trial", trial=True)
    write_live(tmp_path / "runs/broken/live", 15)
    write_live(tmp_path / "runs/halfway/live", 30)
    (tmp_path / "runs/halfway/resume/0000000025").mkdir(parents=True)
    (tmp_path / "runs/halfway/resume/writing").mkdir()
    write_live(tmp_path / "runs/epochs/live", 10, epochs=4)
    (tmp_path / "runs/judge/dump").mkdir(parents=True)
    listed = {one.name: one for one in runs.list_runs(["whole", "new"])}
    assert {name: one.state_text for name, one in listed.items()} == {
        "broken": "ended without a model",
        "epochs": "ended without a model",
        "group/inner": "trained",
        "halfway": "interrupted after iteration 25",
        "new": "never trained",
        "trial": "a try",
        "whole": "trained",
    }
    steps = {name: (one.step, one.steps) for name, one in listed.items()}
    assert steps == {
        "broken": (15, 40), "epochs": (10, None), "group/inner": (20, 40), "halfway": (25, 40), "new": (None, None),
        "trial": (40, 40), "whole": (40, 40),
    }  # fmt: skip
    assert listed["trial"].live == Path("runs/trial/try/live")
    assert listed["whole"].mtime > 0 == listed["new"].mtime
    assert runs.summary(listed["whole"]).startswith("trained; step 40 of 40; last written 2")
    new = listed["new"]
    assert (run_curves.curves_of(new), runs.samples(new), runs.output_tail(new, 5)) == ({}, {}, [])
    assert runs.summary(new) == "never trained"


def test_damaged_files_are_left_out_of_the_list(tmp_path):
    folder = write_run(tmp_path, "odd")
    (folder / "live/log.jsonl").write_bytes(b"\xff\xfe\n[1]\nnull\n")
    (folder / "history/train.csv").write_bytes(b"\xff")
    (folder / "live/losses.csv").write_bytes(b"step,loss,raw,weight,weighted\nx,y\n")
    for name in ("live", "model"):
        (folder / name / "recipe.yaml").write_text("train: [\n")
    os.mkfifo(tmp_path / "runs/odd/.lock")
    (one,) = runs.list_runs()
    assert (one.state_text, one.step, one.steps) == ("trained", None, None)
    with pytest.raises(UserError, match=r"train\.csv"):
        run_curves.curves_of(one)


def test_a_try_that_trains_and_is_stopped(tmp_path):
    folder = write_run(tmp_path, "toy")
    write_live(folder / "try/live", 10)
    for name in ("", "losses.csv", "log.jsonl"):
        os.utime(folder / "live" / name, (1, 1))
    assert runs.lock_holder(folder) is None
    with training(folder) as process:
        holder = runs.lock_holder(folder)
        assert (holder.process, runs.locking_process(folder)) == (process.pid, process.pid)
        one = runs.read_run("toy")
        assert one.state_text.startswith(f"training (process {process.pid} on ")
        assert (one.live, one.step) == (Path("runs/toy/try/live"), 10)  # which is written now
        with pytest.raises(UserError, match=f"process {process.pid} on .* is at work there"):
            run_control.resume("toy")
        assert run_control.stop(one).process == process.pid
        assert process.wait(10) == -signal.SIGTERM
    assert (folder / ".lock").exists()  # left by a killed process: the kernel says that nobody holds it
    one = runs.read_run("toy")
    assert (one.state, one.live) == ("trained", Path("runs/toy/live"))
    with pytest.raises(UserError, match="no process is at work there"):
        run_control.stop(one)


def test_looking_at_a_lock_takes_none(tmp_path):
    """A training that starts at the same time is not refused."""
    folder = write_run(tmp_path, "toy")
    (folder / ".lock").touch()
    assert runs.locking_process(folder) is None
    with (folder / ".lock").open("r+") as file:  # POSIX locks are of a process: this one could take it, and has not
        assert runs.locking_process(folder) is None
        with training(folder):
            assert runs.locking_process(folder) is not None
            with pytest.raises(BlockingIOError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_curves_of_a_run_that_has_ended(tmp_path):
    write_run(tmp_path, "toy")
    curves = run_curves.curves_of(runs.read_run("toy"))
    assert list(curves)[:2] == ["train.total", "validation.total"]
    assert set(curves) == {
        "train.total", "validation.total", "train.L1", "weighted.L1", "weight.L1", "lr.main", "validation.L1",
        "images_per_second", "validation_batch.total",
    }  # fmt: skip
    assert curves["train.L1"] == ([10, 20, 30, 40], pytest.approx([1 / 10, 1 / 20, 1 / 30, 1 / 40]))
    assert curves["validation.total"][1] == pytest.approx([2 / 10, 2 / 20, 2 / 30, 2 / 40])
    assert curves["images_per_second"] == ([10, 20, 30, 40], [12.5] * 4)
    shutil.rmtree(tmp_path / "runs/toy/live")  # of another machine
    assert run_curves.curves_of(runs.read_run("toy"))["train.L1"] == curves["train.L1"]


def test_curves_grow_and_lines_that_are_no_records_are_left_out(tmp_path):
    log = tmp_path / "runs/toy/live/log.jsonl"
    write_live(log.parent, 20)
    run = runs.read_run("toy")
    assert run_curves.curves_of(run)["train.L1"] == ([10, 20], pytest.approx([1 / 10, 1 / 20]))
    odd = b'\n\n\xff,\xfe\n"\n[1]\nnull\n{"step": 1e999, "lr.main": 1}\n{"step": -1, "lr.main": 1}\n[[' + b"[" * 9999
    for text, steps, values in (
        (b'{"step": 30, "train.L1": 0.5}\n{"step": 4', [10, 20, 30], [0.1, 0.05, 0.5]),  # half a line waits
        (b'0, "train.L1": 0.25}\n', [10, 20, 30, 40], [0.1, 0.05, 0.5, 0.25]),
        (b'{"step": 30, "train.L1": 0.75}\n', [10, 20, 30], [0.1, 0.05, 0.75]),  # resumed: later steps are replaced
        (odd, [10, 20, 30], [0.1, 0.05, 0.75]),
    ):
        with log.open("ab") as file:
            file.write(text)
        os.utime(log, ns=(0, log.stat().st_size))
        assert run_curves.curves_of(run)["train.L1"] == (steps, pytest.approx(values))


def test_curves_of_an_earlier_training_end_where_the_next_one_begins(tmp_path):
    begins = {"process": {}}
    first = [begins, *({"step": step, "train.total": 9.0, "train.gone": 9.0} for step in (2, 4, 6, 8))]
    resumed = [begins, {"step": 6, "train.total": 5.0}]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in [*first, *resumed]))
    assert live_log.log_curves(log) == {"train.total": ([2, 4, 6], [9.0, 9.0, 5.0]), "train.gone": ([2, 4], [9.0, 9.0])}
    fresh = [begins, {"step": 2, "train.total": 1.0}]
    log.write_text("".join(json.dumps(one) + "\n" for one in [*first, *fresh]))
    assert live_log.log_curves(log) == {"train.total": ([2], [1.0])}


def test_sheets_and_output(tmp_path):
    folder = write_run(tmp_path, "toy")
    (folder / "live/samples/00000020-train.png").touch()
    (folder / "live/samples/.00000030.abcdefgh.png").touch()
    (folder / "live/explore.log").write_bytes(b"first\n10%\r20%\r\n\x1b[31mred\xff\nhalf")
    one = runs.read_run("toy")
    sheets = runs.samples(one)
    assert {kind: list(steps) for kind, steps in sheets.items()} == {"validation": [10, 20, 30, 40], "train": [20]}
    assert runs.sheet_at(sheets["validation"], 35)[0] == 30
    assert runs.sheet_at(sheets["train"], 19) is None
    assert runs.result_pictures(one) == {}
    assert runs.output_tail(one, 9) == ["first", "20%", "\\x1b[31mred\ufffd"]


@pytest.mark.parametrize("length", [1, 501, 12345])
def test_a_long_curve_has_few_points_and_ends_at_its_newest_step(length):
    steps, values = list(range(1, length + 1)), np.linspace(0, 1, length)
    values[length // 2] = np.nan
    shown, means = live_log.thin(steps, values)
    assert len(shown) == len(means) <= live_log.MOST
    assert shown[-1] == length
    assert shown == sorted(set(shown))
    if length > 10:
        assert 0 <= np.nanmin(means) <= np.nanmax(means) <= 1
        assert np.nanmean(means) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host": "elsewhere"}, "process .* on elsewhere, since .* trains; this is .*: `kill .*` there"),
        ({"pid": 1}, "process 1 does not hold the lock that names it"),
        ({"pid": "x"}, "cannot be told"),  # damaged: another process
    ],
)
def test_stop_refuses(tmp_path, change, message):
    folder = write_run(tmp_path, "toy")
    with training(folder) as process:
        said = json.loads((folder / ".lock").read_text())
        (folder / ".lock").write_text(json.dumps(said | change))
        with pytest.raises(UserError, match=message):
            run_control.stop(runs.read_run("toy"))
        assert process.poll() is None


def fake_dvc(folder, code):
    """Write a module `dvc` for processes that are started in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dvc.py").write_text(code)


def test_resume_starts_dvc_once(tmp_path):
    fake_dvc(tmp_path, "import sys, time; print(sys.argv[1:], flush=True); time.sleep(60)")
    number = run_control.resume("toy")
    try:
        assert os.getsid(number) == number  # it survives this process
        with pytest.raises(UserError, match=f"at work for it already, process {number}"):
            run_control.resume("toy")
        one = runs.read_run("toy")
        assert one.state == "never trained"  # nothing but the output yet
        assert f"is at work, process {number}" in run_control.launch_status(one)
        limit = time.monotonic() + 10
        while len(told := runs.output_tail(one, 9)) < 2 and time.monotonic() < limit:
            time.sleep(0.05)
        assert told[0].endswith("dvc repro train@toy")
        assert told[1] == "['repro', 'train@toy']"
    finally:
        os.kill(number, signal.SIGKILL)
        run_control._started["toy"].wait()
    assert "ended with status" in run_control.launch_status(one)

"""Runs as the page lists them: their states, curves that grow, sheets, settings, experiments; stopping and resuming."""

import fcntl
import json
import math
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
from figura.commands.explore import experiments, programs, run_control, run_curves, run_files, run_locks, runs
from figura.commands.explore.project import Project
from figura.commands.sweeps import read_sweep

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
    pd.DataFrame(rows, columns=run_curves.COLUMNS).to_csv(live / "losses.csv", index=False)
    records = [{"process": {"command": ["train"]}, "code": "0" * 64, "processes": 1, "batches_per_epoch": batches}]
    for step in range(10, steps + 1, 10):
        records.append({
            "step": step, "train.total": 4 * factor / step, "validation.total": 5 * factor / step, "lr.main": 0.1,
            "images_per_second": 12.5,
        })  # fmt: skip
        write_png(live / "samples" / f"{step:08d}.png", np.full((8, 8, 3), step % 250, np.uint8))
    (live / "log.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
    train = {"epochs": epochs} if epochs else {"steps": 40}
    (live / "recipe.yaml").write_text(to_yaml({"seed": 7, "train": train, "losses": {"L1": {"weight": factor}}}))


def write_run(root, name, steps=40, factor=1.0, trial=False):
    """Write a run that has ended, with its metrics."""
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
    metrics = {"psnr": {"value": 20.0 + factor, "low": 20.0, "high": 30.0, "baseline": 1.0}}
    (root / "metrics").mkdir(exist_ok=True)
    (root / "metrics" / f"{Path(name).name}.json").write_text(json.dumps({"try": metrics} if trial else metrics))
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


def project_in(root, *recipes):
    return Project(root, {name: {"params": f"{name}.yaml"} for name in recipes}, {})


def test_states(tmp_path):
    write_run(tmp_path, "whole")
    write_run(tmp_path, "group/inner", steps=20)
    write_run(tmp_path, "trial", trial=True)
    write_live(tmp_path / "runs/broken/live", 15)
    write_live(tmp_path / "runs/halfway/live", 30)
    (tmp_path / "runs/halfway/resume/0000000025").mkdir(parents=True)
    (tmp_path / "runs/halfway/resume/writing").mkdir()
    write_live(tmp_path / "runs/epochs/live", 10, epochs=4)
    (tmp_path / "runs/judge/dump").mkdir(parents=True)
    listed = {one.name: one for one in runs.list_runs(tmp_path, ["whole", "new"])}
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
        "broken": (15, 40), "epochs": (10, 20), "group/inner": (20, 40), "halfway": (25, 40), "new": (None, None),
        "trial": (40, 40), "whole": (40, 40),
    }  # fmt: skip
    assert listed["whole"].images_per_second == 12.5
    assert str(listed["whole"].metrics["psnr"]) == "21 [20, 30]"
    assert str(listed["trial"].metrics["psnr"]) == "21 [20, 30]"
    assert listed["trial"].live == tmp_path / "runs/trial/try/live"
    assert listed["whole"].mtime > 0 == listed["new"].mtime
    assert "step 40 of 40; 12.5 images/s; 2 min ago" in runs.summary(listed["whole"], listed["whole"].mtime + 100)


def test_no_runs_at_all(tmp_path):
    assert runs.list_runs(tmp_path) == []
    (one,) = runs.list_runs(tmp_path, ["toy"])
    assert (one.state, run_curves.curves(one), run_files.samples(one), run_files.log_tail(one, 5)) == (
        "never trained",
        {},
        {},
        [],
    )
    assert runs.summary(one) == "never trained"


def test_damaged_files_are_left_out_of_the_list(tmp_path):
    folder = write_run(tmp_path, "odd")
    (folder / "live/log.jsonl").write_bytes(b"\xff\xfe\n[1]\nnull\n")
    (folder / "history/train.csv").write_bytes(b"\xff")
    (folder / "live/losses.csv").write_bytes(b"step,loss,raw,weight,weighted\nx,y\n")
    (folder / "model/recipe.yaml").write_text("train: [\n")
    (tmp_path / "metrics/odd.json").write_text('{"psnr": 3, "ssim": {"value": "high"}}')
    os.mkfifo(tmp_path / "runs/odd/.lock")
    (one,) = runs.list_runs(tmp_path)
    assert (one.state_text, one.step, one.steps, one.images_per_second, one.metrics) == (
        "trained",
        None,
        None,
        None,
        {},
    )
    with pytest.raises(UserError, match=r"train\.csv"):
        run_curves.curves(one)


def test_a_hundred_runs_are_listed_fast(tmp_path):
    folder = write_run(tmp_path, "run")
    for number in range(99):
        shutil.copytree(folder, tmp_path / "runs" / f"run-{number:03d}")
    start = time.perf_counter()
    assert len(runs.list_runs(tmp_path)) == 100
    assert time.perf_counter() - start < 1


def test_who_trains(tmp_path):
    folder = write_run(tmp_path, "toy")
    assert run_locks.lock_holder(folder) is None
    with training(folder) as process:
        holder = run_locks.lock_holder(folder)
        assert (holder.process, run_locks.locking_process(folder)) == (process.pid, process.pid)
        one = runs.read_run(tmp_path, "toy")
        assert one.state_text.startswith(f"training (process {process.pid} on ")
        (folder / ".lock").write_text("no JSON")
        assert str(run_locks.lock_holder(folder)) == "another process"
    assert (folder / ".lock").exists()  # left by a killed process: the kernel says that nobody holds it
    assert run_locks.lock_holder(folder) is None
    assert runs.read_run(tmp_path, "toy").state == "trained"


def test_looking_at_a_lock_takes_none(tmp_path):
    """A training that starts at the same time is not refused."""
    folder = write_run(tmp_path, "toy")
    (folder / ".lock").touch()
    assert run_locks.locking_process(folder) is None
    with (folder / ".lock").open("r+") as file:  # POSIX locks are of a process: this one could take it, and has not
        assert run_locks.locking_process(folder) is None
        with training(folder):
            assert run_locks.locking_process(folder) is not None
            with pytest.raises(BlockingIOError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_try_that_trains_is_shown_by_its_own_files(tmp_path):
    folder = write_run(tmp_path, "toy")
    write_live(folder / "try/live", 10)
    os.utime(folder / "live", (1, 1))
    for name in ("losses.csv", "log.jsonl"):
        os.utime(folder / "live" / name, (1, 1))
    with training(folder):
        one = runs.read_run(tmp_path, "toy")
        assert (one.live, one.step) == (folder / "try/live", 10)
    assert runs.read_run(tmp_path, "toy").live == folder / "live"


def test_curves_of_a_run_that_has_ended(tmp_path):
    write_run(tmp_path, "toy")
    curves = run_curves.curves(runs.read_run(tmp_path, "toy"))
    assert list(curves)[:2] == ["train.total", "validation.total"]
    assert set(curves) == {
        "train.total", "validation.total", "train.L1", "weighted.L1", "weight.L1", "lr.main", "validation.L1",
        "images_per_second", "validation_batch.total",
    }  # fmt: skip
    assert curves["train.L1"] == ([10, 20, 30, 40], pytest.approx([1 / 10, 1 / 20, 1 / 30, 1 / 40]))
    assert curves["validation.total"][1] == pytest.approx([2 / 10, 2 / 20, 2 / 30, 2 / 40])
    assert curves["images_per_second"] == ([10, 20, 30, 40], [12.5] * 4)


def test_curves_grow_and_a_half_written_line_waits(tmp_path):
    live = tmp_path / "runs/toy/live"
    write_live(live, 20)
    (live / "scores.csv").write_text("step,best.psnr\n10,21.5\n20,\n")
    growing = run_curves.Curves(runs.read_run(tmp_path, "toy"))
    first = growing.read("training")
    assert first["train.L1"] == (list(range(1, 21)), pytest.approx([1 / step for step in range(1, 21)]))
    assert first["score.best.psnr"] == ([10], [21.5])
    with (live / "losses.csv").open("a") as file:
        file.write("21,L1,0.5,2.0,1.0\n21,KL,nan,2.0,nan\n22,L1,0.")
    second = growing.read("training")
    assert (second["train.L1"][0][-1], second["weighted.L1"][1][-1]) == (21, 1.0)
    assert math.isnan(second["train.KL"][1][-1])
    with (live / "losses.csv").open("a") as file:
        file.write("25,2.0,0.5\n")
    third = growing.read("training")
    assert (third["train.L1"][0][-1], third["train.L1"][1][-1]) == (22, 0.25)


def test_a_file_that_was_written_anew_is_read_anew(tmp_path):
    live = tmp_path / "runs/toy/live"
    write_live(live, 30)
    growing = run_curves.Curves(runs.read_run(tmp_path, "toy"))
    growing.read("training")
    write_live(live, 35, factor=3.0)  # longer than before
    curves = growing.read("training")
    assert curves["train.L1"] == (list(range(1, 36)), pytest.approx([3 / step for step in range(1, 36)]))
    assert curves["train.total"][0] == [10, 20, 30]
    (live / "losses.csv").unlink()
    assert "train.L1" not in growing.read("training")


@pytest.mark.parametrize(
    "lines",
    [b"\n\n", b"\xff,\xfe\n", b'"\n', b"1e400,L1,1,1,1\n", b"-1,L1,1,1,1\n", b"x\0y\n" * 9],
)
def test_lines_that_are_no_losses_are_left_out(tmp_path, lines):
    live = tmp_path / "runs/toy/live"
    write_live(live, 20)
    before = run_curves.curves(runs.read_run(tmp_path, "toy"))
    growing = run_curves.Curves(runs.read_run(tmp_path, "toy"))
    growing.read("training")
    for name in ("losses.csv", "log.jsonl"):
        with (live / name).open("ab") as file:
            file.write(lines)
    with (live / "log.jsonl").open("ab") as file:
        file.write(b'{"step": 1e999, "lr.main": 1}\n{"step": 30, "lr.main": 1' + b"0" * 400 + b"}\n[[" + b"[" * 9999)
    assert growing.read("training") == before


def test_a_resumed_training_replaces_later_steps(tmp_path):
    live = tmp_path / "runs/toy/live"
    write_live(live, 30)
    with (live / "log.jsonl").open("a") as file:
        for step in (20, 25):
            file.write(f"{json.dumps({'step': step, 'train.total': -1.0})}\n")
    curves = run_curves.curves(runs.read_run(tmp_path, "toy"))
    assert curves["train.total"] == ([10, 20, 25], [0.4, -1.0, -1.0])


@pytest.mark.parametrize(
    ("length", "piece"), [(1, 1), (499, 1), (500, 1), (501, 1), (501, 700), (12345, 700), (12345, 20000)]
)
def test_a_long_curve_has_few_points_and_ends_at_its_newest_step(length, piece):
    steps, values = np.arange(1, length + 1), np.linspace(0, 1, length)
    values[length // 2] = np.nan
    curve = run_curves.WindowMeans()
    for start in range(0, length, piece):
        curve.add(steps[start : start + piece], values[start : start + piece])
    shown, means = curve.points
    assert len(shown) == len(means) <= run_curves.MOST
    assert shown[-1] == length
    assert shown == sorted(set(shown))
    if length > 10:
        assert 0 <= np.nanmin(means) <= np.nanmax(means) <= 1
        assert np.nanmean(means) == pytest.approx(0.5, abs=0.02)


def test_losses_in_several_pieces_are_those_in_one(tmp_path, monkeypatch):
    write_live(tmp_path / "runs/toy/live", 900)
    whole = run_curves.curves(runs.read_run(tmp_path, "toy"))
    monkeypatch.setattr(run_curves, "CHUNK", 1000)
    assert run_curves.curves(runs.read_run(tmp_path, "toy")) == whole
    assert len(whole["train.L1"][0]) <= run_curves.MOST


def test_sheets(tmp_path):
    folder = write_run(tmp_path, "toy")
    (folder / "live/samples/00000020-train.png").touch()
    (folder / "live/samples/.00000030.abcdefgh.png").touch()
    one = runs.read_run(tmp_path, "toy")
    sheets = run_files.samples(one)
    assert {kind: list(steps) for kind, steps in sheets.items()} == {"validation": [10, 20, 30, 40], "train": [20]}
    assert run_files.sheet_at(sheets["validation"], 35)[0] == 30
    assert run_files.sheet_at(sheets["train"], 19) is None
    assert run_files.result_pictures(one) == {}


def test_logs_are_lines_of_text(tmp_path):
    folder = write_run(tmp_path, "toy")
    one = runs.read_run(tmp_path, "toy")
    assert run_files.log_tail(one, 1) == ["step 40: total 0.1, 12.5 images/s"]
    assert run_files.log_tail(one, 9)[0].startswith("started: 1 process")
    (folder / "live/explore.log").write_bytes(b"first\n10%\r20%\r\n\x1b[31mred\xff\nhalf")
    assert run_files.output_tail(one, 9) == ["first", "20%", "\\x1b[31mred\ufffd"]


def test_settings_that_differ(tmp_path):
    write_run(tmp_path, "one")
    write_run(tmp_path, "two", factor=3.0)
    first, second = (runs.read_run(tmp_path, name).resolved for name in ("one", "two"))
    assert run_files.setting_differences(first, second) == [("losses.L1.weight", "1", "3")]
    assert run_files.setting_differences(first, first) == []
    second.write_text(to_yaml({"train": {"steps": 40}, "other": "<b>"}))
    differences = run_files.setting_differences(first, second)
    assert ("other", "absent", "<b>") in differences
    with pytest.raises(UserError, match="no such file"):
        run_files.setting_differences(first, tmp_path / "none.yaml")


def test_stop_sends_a_signal_to_whoever_holds_the_lock(tmp_path):
    folder = write_run(tmp_path, "toy")
    with training(folder) as process:
        assert run_control.stop(runs.read_run(tmp_path, "toy")).process == process.pid
        assert process.wait(10) == -signal.SIGTERM
    with pytest.raises(UserError, match="no process is at work there"):
        run_control.stop(runs.read_run(tmp_path, "toy"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host": "elsewhere"}, "process .* on elsewhere, since .* trains; this is .*: `kill .*` there"),
        ({"pid": 1}, "process 1 does not hold the lock that names it"),
        ({"pid": 2**30}, "cannot be told"),
        ({"pid": "x"}, "cannot be told"),
    ],
)
def test_stop_refuses(tmp_path, change, message):
    folder = write_run(tmp_path, "toy")
    with training(folder) as process:
        said = json.loads((folder / ".lock").read_text())
        (folder / ".lock").write_text(json.dumps(said | change))
        with pytest.raises(UserError, match=message):
            run_control.stop(runs.read_run(tmp_path, "toy"))
        assert process.poll() is None


def fake_dvc(folder, code):
    """Write a module `dvc` for processes that are started in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dvc.py").write_text(code)


def test_resume_starts_dvc_once(tmp_path):
    fake_dvc(tmp_path, "import sys, time; print(sys.argv[1:], flush=True); time.sleep(60)")
    project = project_in(tmp_path, "toy")
    number = run_control.resume(project, "toy")
    try:
        assert os.getsid(number) == number  # it survives this process
        with pytest.raises(UserError, match=f"at work for it already, process {number}"):
            run_control.resume(project, "toy")
        one = runs.read_run(tmp_path, "toy")
        assert one.state == "never trained"  # nothing but the output yet
        assert f"is at work, process {number}" in run_control.launch_status(one)
        limit = time.monotonic() + 10
        while len(told := run_files.output_tail(one, 9)) < 2 and time.monotonic() < limit:
            time.sleep(0.05)
        assert told[0].endswith("dvc repro train@toy")
        assert told[1] == "['repro', 'train@toy']"
    finally:
        os.kill(number, signal.SIGKILL)
        run_control._dvc_processes[one.folder].wait()
    assert "ended with status" in run_control.launch_status(one)


def test_resume_refuses(tmp_path):
    project = project_in(tmp_path, "toy")
    with pytest.raises(UserError, match=r"dvc\.yaml has no such recipe; there are toy"):
        run_control.resume(project, "../../etc")
    folder = write_run(tmp_path, "toy")
    with training(folder) as process, pytest.raises(UserError, match=f"process {process.pid} on .* is at work there"):
        run_control.resume(project, "toy")


def test_flow_of_what_cannot_be_described(tmp_path):
    with pytest.raises(UserError, match="no such recipe"):
        programs.flow_picture(project_in(tmp_path, "toy"), "other")
    with pytest.raises(UserError, match="figura describe: "):
        programs.flow_picture(project_in(tmp_path, "toy"), "toy")


def shown(experiments):
    """What `dvc exp show --json` prints, of a commit with experiments: (name, weight, psnr)."""

    def entry(rev, weight, psnr):
        return {
            "rev": rev, "name": None, "error": None,
            "data": {
                "params": {"params.yaml": {"data": {"w": weight}}, "other.yaml": {"data": {"w": 1}}},
                "metrics": {
                    f"metrics/{name}.json": {"data": {"psnr": {"value": value, "low": 1.0, "high": 30.0}}}
                    for name, value in (("main", psnr), ("other", 5.0))
                },
            },
        }  # fmt: skip

    listed = [
        {"name": name, "revs": [entry(rev, weight, psnr)], "executor": None} for name, rev, weight, psnr in experiments
    ]
    return [entry("workspace", 9, 9.0), entry("c" * 40, 1, 20.0) | {"name": "trunk", "experiments": listed}]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A project, in a folder with `.dvc`, whose commit is `c` * 40."""
    (tmp_path / ".dvc").mkdir()
    monkeypatch.setattr(experiments, "_baselines", lambda root: ["c" * 40])
    return Project(tmp_path, {"main": {"params": "params.yaml"}, "other": {"params": "other.yaml"}}, {})


def test_experiments_stand_at_the_recipe_that_they_change(repository, monkeypatch):
    monkeypatch.setattr(experiments, "exp_show", lambda rev: shown([("kl", "e" * 40, 2, 22.0)]))
    rows = experiments.experiments(repository)
    assert [(one.name, one.state, dict(one.changed_params)) for one in rows] == [
        ("main @ trunk", "baseline", {}), ("other @ trunk", "baseline", {}), ("main @ kl", "done", {"w": "2"})
    ]  # fmt: skip
    assert str(rows[-1].metrics["psnr"]) == "22 [1, 30]"
    assert rows[-1].has_results


def test_a_commit_without_experiments_is_listed(repository, monkeypatch):
    monkeypatch.setattr(experiments, "exp_show", lambda rev: shown([]))
    with pytest.raises(UserError):
        read_sweep(shown([]), "c" * 40)
    assert [one.name for one in experiments.experiments(repository)] == ["main @ trunk", "other @ trunk"]


def test_no_repository_has_no_experiments(tmp_path):
    assert experiments.experiments(project_in(tmp_path, "toy")) == []


def test_what_a_commit_has_of_a_run_is_fetched_once(tmp_path):
    fake_dvc(
        tmp_path,
        "import sys, pathlib, shutil\n"
        "get, dot, rev_, rev, path, out_, out = sys.argv[1:]\n"
        "open('calls', 'a').write(path + '\\n')\n"
        "source = pathlib.Path('source') / path\n"
        "if not source.exists(): sys.exit(f'ERROR: {path} is lost\\nHaving any troubles?')\n"
        "(shutil.copytree if source.is_dir() else shutil.copy)(source, out)\n",
    )
    write_run(tmp_path / "source", "toy")
    one = experiments.ExperimentRun("toy", "kl", "done", {}, {}, "e" * 40)
    project = project_in(tmp_path, "toy")
    for _ in range(2):
        run = experiments.fetch_run(project, one, tmp_path / "scratch")
    assert (run.name, run.state, run.step, run.steps) == ("toy @ kl", "experiment kl", 40, 40)
    assert run_curves.curves(run)["train.L1"][0] == [10, 20, 30, 40]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:3] == ["runs/toy/history", "runs/toy/model/recipe.yaml", "plots/toy/pictures"]
    assert set(calls[3:]) <= {"plots/toy/pictures"}
    lost = experiments.ExperimentRun("lost", "kl", "done", {}, {}, "e" * 40)
    with pytest.raises(UserError, match=r"lost @ kl: runs/lost/history is not in DVC's cache .*is lost.*`dvc fetch"):
        experiments.fetch_run(project, lost, tmp_path / "scratch")


PIPELINE = """
vars:
  - recipes:
      toy: {params: params.yaml}
stages:
  train:
    foreach: ${recipes}
    do:
      cmd: python train.py
      params: [w]
      outs: [runs/toy/model, runs/toy/history]
      metrics: [{metrics/toy.json: {cache: false}}]
"""
TRAIN = """
import sys, shutil
from pathlib import Path
import yaml
from test_explore_runs import write_run
write_run(Path("made"), "toy", factor=float(yaml.safe_load(Path("params.yaml").read_text())["w"]))
for name in ("runs/toy/model", "runs/toy/history"):
    shutil.copytree(Path("made") / name, name)
Path("metrics").mkdir(exist_ok=True)
shutil.copy("made/metrics/toy.json", "metrics/toy.json")
shutil.rmtree("made")
"""


@pytest.mark.slow
def test_experiments_of_the_real_dvc(tmp_path, monkeypatch):
    """Also of those that started from an earlier commit; their curves come from DVC's cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]))
    for name, text in (
        ("dvc.yaml", PIPELINE),
        ("train.py", TRAIN),
        ("params.yaml", "w: 1\n"),
        (".gitignore", "made\n"),
    ):
        (tmp_path / name).write_text(text)

    def call(*words):
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    git, dvc = ("git",), (sys.executable, "-m", "dvc")
    call(*git, "init", "-q", "-b", "trunk")
    for one in (("user.name", "a"), ("user.email", "a@example.org")):
        call(*git, "config", *one)
    call(*dvc, "init", "-q")
    call(*dvc, "repro", "-q")
    call(*git, "add", "-A")
    call(*git, "commit", "-q", "-m", "first")
    call(*dvc, "exp", "run", "-q", "-n", "heavy", "-S", "w=3")
    call(*git, "checkout", "-q", ".")
    call(*git, "commit", "-q", "--allow-empty", "-m", "second")
    project = Project(tmp_path, {"toy": {"params": "params.yaml"}}, {})
    rows = {one.name: one for one in experiments.experiments(project)}
    assert rows["toy @ trunk"].state == "baseline"
    heavy = rows["toy @ heavy"]
    assert (heavy.state, dict(heavy.changed_params), str(heavy.metrics["psnr"])) == ("done", {"w": "3"}, "23 [20, 30]")
    fetched = experiments.fetch_run(project, heavy, tmp_path / "scratch")
    assert run_curves.curves(fetched)["train.L1"][1] == pytest.approx([3 / 10, 3 / 20, 3 / 30, 3 / 40])
    base = experiments.fetch_run(project, rows["toy @ trunk"], tmp_path / "scratch")
    assert run_files.setting_differences(base.resolved, fetched.resolved) == [("losses.L1.weight", "1", "3")]

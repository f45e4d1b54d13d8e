"""A training at small size for seconds, or for `MINUTES` of the environment, in which nothing grows.

It evaluates, writes resume points, checkpoints, sample sheets and online scores, and tells every tracker that is
installed, and one that always fails.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
from pipeline.dag import recipes
from pipeline.project import ENVIRONMENT

from figura.base.errors import Interrupted
from reliability.workplace import LIMIT, hearing_ctrl_c, make_project, until, wait

pytestmark = pytest.mark.slow
MINUTES = float(os.environ.get("MINUTES", "0"))
RECIPE = "super_resolution" if MINUTES else "pix2pix"
EVERY = 200 if MINUTES else 50  # an evaluation; the first ones start a process, and make room
SETTINGS = {
    "train.steps": 10**7, "train.evaluate_every": EVERY, "train.record_every": 500,
    "runtime.log_every": 5, "runtime.resume_every": 25, "runtime.checkpoint_every": 250, "runtime.workers": 1,
    "runtime.trackers": ["dvclive", "tensorboard", *(["wandb"] if find_spec("wandb") else [])],
}  # fmt: skip
TRAINING = """
import sys
from pathlib import Path
from accelerate.tracking import GeneralTracker
from figura.base.exit_status import run
from figura.live import listeners
from figura.recipe.load import load_recipe
from figura.training.trainer import Trainer

class Failing(GeneralTracker):
    name, requires_logging_directory, tracker = "failing", False, None

    def log(self, values, step=None, **more):
        raise ConnectionError("nobody answers")

    finish = store_init_configuration = log

def main(arguments):
    recipe = load_recipe(Path(arguments[0]))
    trainer = Trainer(recipe, Path(arguments[1]), listeners=listeners(recipe))
    trainer.accelerator.log_with = [*trainer.accelerator.log_with, Failing()]
    with trainer.stop_request.by_signals():
        trainer.fit()

sys.exit(run(main))
"""
KEPT = ("checkpoints", "live")  # what a training keeps, or appends to, by design
MEGABYTE = 2**20


class Sample(NamedTuple):
    """What a training takes at one moment; its processes are the training and all below it."""

    seconds: float
    iteration: int
    cpu: float  # seconds of the processor so far, ended children included
    descriptors: int
    threads: int
    processes: int
    memory: float  # MiB of all processes
    scratch: float  # MiB of the run folder but for what is kept
    kept: float  # MiB of the run folder that are kept
    temporary: int  # files and folders in the folder of temporary files


ALLOWED = {"descriptors": 2, "threads": 2, "processes": 1, "memory": 24, "scratch": 1, "temporary": 1}
"""By so much a column may rise over the second half of the samples (by a line through them); in seconds six times."""
FASTER = 1.25  # what an iteration adds to these, the last quarter over the second one; in seconds up to 2
AT_ONCE = {"cpu": 0.0, "kept": 1.0}  # what is added now and then, a sheet or table: a quarter may have one more


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short path: data loader workers open Unix sockets there, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        yield Path(folder)


def test_a_training_grows_in_nothing_and_outlives_its_trackers(tmp_path: Path, temporary: Path) -> None:
    scores = {"runtime.scores.every": EVERY} if RECIPE == "super_resolution" else {}
    project = make_project(tmp_path / "figura", RECIPE, SETTINGS | scores)
    entry, run, log = recipes(project.folder)[RECIPE], project.folder / "runs/run", tmp_path / "log"
    project.run("python", "-m", "stages.prepare", entry["data"])
    with log.open("wb") as file, hearing_ctrl_c():
        child = subprocess.Popen(
            [sys.executable, "-c", TRAINING, entry["params"], str(run)],
            cwd=project.folder, env=ENVIRONMENT | {"TMPDIR": str(temporary), "CUDA_VISIBLE_DEVICES": ""},
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    rows: list[Sample] = []
    try:
        assert until(lambda: iteration(run) > 2 * EVERY or child.poll() is not None, LIMIT), log.read_text()
        training, began = psutil.Process(child.pid), time.monotonic()
        while time.monotonic() < began + (60 * MINUTES or 15) and child.poll() is None:
            rows += sampled(training, began, run, temporary)
            time.sleep(5 if MINUTES else 0.2)
        assert child.poll() is None, log.read_text()[-2000:]
    finally:
        child.terminate()
    assert wait(child, LIMIT) == Interrupted.code, log.read_text()[-2000:]
    assert grown(rows) == []
    assert log.read_text().count("warning: the tracker failing failed, and gets nothing more") == 1
    assert len(list((run / "live").rglob("events.out.tfevents.*"))) >= 1
    assert (run / "live/dvclive").is_dir()


def sampled(training: psutil.Process, began: float, run: Path, temporary: Path) -> list[Sample]:
    """Measure; return nothing where a process ended meanwhile."""
    try:
        with training.oneshot():
            times, children = training.cpu_times(), training.children(recursive=True)
            descriptors, threads = training.num_fds(), training.num_threads()
        memory = sum(one.memory_info().rss for one in (training, *children)) / MEGABYTE
    except psutil.NoSuchProcess:
        return []
    kept = sum(size(run / name) for name in KEPT) / MEGABYTE
    scratch = size(run) / MEGABYTE - kept
    cpu = times.user + times.system + times.children_user + times.children_system
    left, now = sum(1 for _ in below(temporary)), time.monotonic() - began
    processes = 1 + len(children)
    return [Sample(now, iteration(run), cpu, descriptors, threads, processes, memory, scratch, kept, left)]


def iteration(run: Path) -> int:
    try:
        return int((run / "live/losses.csv").read_bytes().splitlines()[-1].split(b",")[0])
    except (OSError, ValueError, IndexError):
        return 0


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile does not count."""
    total = 0
    for one in below(folder):
        with suppress(OSError):
            total += one.lstat().st_size
    return total


def below(folder: Path) -> Iterator[Path]:
    """Yield all that is below a folder; folders that vanish meanwhile count as empty, which `rglob` raises for."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def grown(rows: Sequence[Sample]) -> list[str]:
    """Return what grew after the warm-up, which is the first third, and at most five minutes."""
    warm = [row for row in rows if row.seconds >= min(300, rows[-1].seconds / 3)]
    half, quarter = warm[len(warm) // 2 :], len(warm) // 4
    times, found = np.array([row.seconds for row in half]), []
    for column, most in ALLOWED.items():
        values = np.array([getattr(row, column) for row in half], dtype=float)
        rise = np.polyfit(times, values, 1)[0] * (times[-1] - times[0])
        if rise > most * (1 if MINUTES else 6):  # a validation that begins brings a process and its memory
            found.append(f"{column} rose by {rise:.2f}, to {values[-1]:.2f}")
    for column, at_once in AT_ONCE.items():
        before, after = (
            [getattr(part[-1], column) - getattr(part[0], column), max(part[-1].iteration - part[0].iteration, 1)]
            for part in (warm[quarter : 2 * quarter], warm[-quarter:])
        )
        if (after[0] - at_once) / after[1] > before[0] / before[1] * (FASTER if MINUTES else 2):
            found.append(
                f"{column}: {before[0]:.4f} in {before[1]} iterations, and {after[0]:.4f} in {after[1]} at the end"
            )
    return found


@pytest.mark.parametrize(
    ("column", "growth", "said"),
    [
        ("descriptors", 0.1, "descriptors rose"), ("memory", 0.5, "memory rose"), ("processes", 0.1, "processes rose"),
        ("scratch", 0.1, "scratch rose"), ("cpu", 1e-7, "cpu: "), ("kept", 1e-7, "kept: "),
    ],
)  # fmt: skip
def test_what_grows_is_seen(column: str, growth: float, said: str) -> None:
    flat = Sample(0, 0, 0, 20, 5, 2, 700.0, 1.0, 0, 3)
    rows = [flat._replace(seconds=5.0 * n, iteration=50 * n, kept=0.5 * n, cpu=4.0 * n) for n in range(1000)]
    assert grown(rows) == []
    power = 4 if column in ("cpu", "kept") else 1  # these are sums
    worse = [row._replace(**{column: getattr(row, column) + growth * n**power}) for n, row in enumerate(rows)]
    (line,) = grown(worse)
    assert line.startswith(said)

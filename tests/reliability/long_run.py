"""Trains for hours at small size and measures that nothing grows: `python -m tests.reliability.long_run --minutes 120`.

The training evaluates, writes resume points, checkpoints, sample sheets and online scores, and tells every tracker that
is installed, and one that always fails. Every few seconds a row of `samples.csv` says what its processes and its folder
take; `samples.png` draws them. The exit status is 1 if something grows that should not, as `RULES` says.
"""

import argparse
import csv
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
from pipeline.dag import recipes
from pipeline.project import ENVIRONMENT

from figura.base.errors import Interrupted
from reliability.workplace import LIMIT, RECIPES, hearing_ctrl_c, make_project, until, wait

SETTINGS = {
    "train.steps": 10**7, "train.evaluate_every": 200, "train.record_every": 500,
    "runtime.log_every": 5, "runtime.resume_every": 25, "runtime.checkpoint_every": 250, "runtime.workers": 1,
}  # fmt: skip
SCORES = 200  # iterations between online scores
KEPT = (
    "checkpoints",
    "live/samples",
    "live/losses.csv",
    "live/log.jsonl",
    "live/scores.csv",
    "live/dvclive",
    "live/run",
)
"""What a training keeps, or appends to, by design; it may grow with the iterations, and no faster."""
MINUTES_OF_WARMTH = 5.0  # at most; of a short run, a third
MEGABYTE = 2**20


@dataclass(frozen=True)
class Sample:
    """What a training takes at one moment; its processes are the training and all below it."""

    seconds: float
    iteration: int
    descriptors: int
    threads: int
    processes: int
    memory: float  # MiB of the training itself
    memory_below: float  # MiB of its children
    scratch: float  # MiB of the run folder but for what is kept
    temporary: int  # files and folders in the folder of temporary files
    kept: float  # MiB of the run folder that are kept
    cpu: float  # seconds of the processor so far, ended children included


@dataclass(frozen=True)
class Rule:
    """A column may rise over the second half of the samples (by a line through them) by so much at most."""

    column: str
    most: float


RULES = (
    Rule("descriptors", 2), Rule("threads", 2), Rule("processes", 1), Rule("memory", 24), Rule("memory_below", 24),
    Rule("scratch", 1), Rule("temporary", 1),
)  # fmt: skip
SLOWER = 1.25  # processor time of an iteration, and megabytes kept by one: the last quarter over the second one
AT_ONCE = {"cpu": 0.0, "kept": 1.0}  # what is added now and then, a sheet or table: a quarter may have one more


def failing_tracker() -> Any:
    """Return a tracker that fails at every call."""
    from accelerate.tracking import GeneralTracker  # takes seconds to load

    class Failing(GeneralTracker):
        name, requires_logging_directory, tracker = "failing", False, None

        def log(self, values: dict[str, Any], step: int | None = None, **more: Any) -> None:
            raise ConnectionError("nobody answers")

        finish = store_init_configuration = log

    return Failing()


def train(recipe_file: Path, run: Path) -> None:
    """Train as stages/train.py does, with one tracker more, which fails."""
    from figura.base.yaml12 import read_yaml
    from figura.live.listeners import listeners
    from figura.recipe.load import check_recipe
    from figura.training.trainer import Trainer

    recipe = check_recipe(read_yaml(recipe_file), recipe_file)
    trainer = Trainer(recipe, run, listeners=listeners(recipe))
    trainer.accelerator.log_with = [*trainer.accelerator.log_with, failing_tracker()]
    with trainer.stop_request.by_signals():
        trainer.fit()


class LongRun:
    """A training in a folder of its own.

    Args:
        folder: is made; gets the project, `samples.csv`, `samples.png` and `log.txt`.
        recipe: one of `RECIPES`.
    """

    def __init__(self, folder: Path, recipe: str) -> None:
        self.base = folder.resolve()
        self.project = make_project(self.base / "figura", recipe, settings(recipe))
        entry = recipes(self.project.folder)[recipe]
        self.params, self.run = entry["params"], self.project.folder / "runs" / "run"
        # short, because data loader workers open Unix sockets there, whose paths have at most 107 bytes
        self._temporary = tempfile.TemporaryDirectory(prefix="run-")
        self.temporary = Path(self._temporary.name)
        self.project.run("python", "-m", "stages.prepare", entry["data"])

    def start(self) -> subprocess.Popen[bytes]:
        """Start the training, or let it go on."""
        command = [sys.executable, "-m", "tests.reliability.long_run", "--train", self.params, "runs/run"]
        environment = ENVIRONMENT | {"TMPDIR": str(self.temporary), "CUDA_VISIBLE_DEVICES": ""}
        with (self.base / "log.txt").open("ab") as log, hearing_ctrl_c():
            return subprocess.Popen(
                command, cwd=self.project.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def said(self) -> str:
        """Return what the training printed."""
        return (self.base / "log.txt").read_text(errors="replace")

    def iteration(self) -> int:
        """Return how many iterations are in the log of losses."""
        try:
            with (self.run / "live/losses.csv").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 400))
                return int(file.read().splitlines()[-1].split(b",")[0])
        except (OSError, ValueError, IndexError):
            return 0

    def sample(self, training: psutil.Process, began: float) -> Sample | None:
        """Measure; None where a process ended meanwhile."""
        try:
            with training.oneshot():
                times, below = training.cpu_times(), training.children(recursive=True)
                descriptors, threads, memory = training.num_fds(), training.num_threads(), training.memory_info().rss
            below_memory = sum(child.memory_info().rss for child in below)
        except psutil.NoSuchProcess:
            return None
        kept = sum(size(self.run / name) for name in KEPT)
        return Sample(
            seconds=round(time.monotonic() - began, 2), iteration=self.iteration(),
            descriptors=descriptors, threads=threads, processes=1 + len(below),
            memory=memory / MEGABYTE, memory_below=below_memory / MEGABYTE,
            scratch=(size(self.run) - kept) / MEGABYTE, temporary=sum(1 for _ in self.temporary.rglob("*")),
            kept=kept / MEGABYTE, cpu=times.user + times.system + times.children_user + times.children_system,
        )  # fmt: skip

    def samples(self, seconds: float, every: float) -> list[Sample]:
        """Train for so many seconds after the first losses, stop with SIGTERM, and return the samples."""
        child = self.start()
        rows: list[Sample] = []
        try:
            assert until(lambda: self.iteration() or child.poll() is not None, LIMIT), self.said()
            training, began = psutil.Process(child.pid), time.monotonic()
            with (self.base / "samples.csv").open("w", newline="") as file:
                table = csv.DictWriter(file, list(Sample.__annotations__))
                table.writeheader()
                while time.monotonic() < began + seconds and child.poll() is None:
                    if row := self.sample(training, began):
                        rows.append(row)
                        table.writerow(asdict(row))
                        file.flush()
                    time.sleep(every)
            assert child.poll() is None, f"the training ended: {self.said()[-2000:]}"
            child.terminate()
            status = wait(child, LIMIT)
            assert status == Interrupted.code, f"SIGTERM: {status}: {self.said()[-2000:]}"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        return rows

    def goes_on(self) -> bool:
        """Whether the training goes on after its last iteration, without the failing tracker; it is killed then."""
        (stopped,) = re.findall(r"stopped after iteration (\d+)", self.said())
        words = f"resumed after iteration {stopped}\n", "warning: the tracker failing failed, and gets nothing more"
        child, before = self.start(), self.said().count(words[1])
        try:
            return before == 1 and until(lambda: [self.said().count(word) for word in words] == [1, 2], LIMIT)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def settings(recipe: str) -> dict[str, Any]:
    """Return what changes in a recipe, beside the tiny settings."""
    trackers = ["dvclive", "tensorboard", *(["wandb"] if installed("wandb") else [])]
    scores = {"runtime.scores.every": SCORES} if recipe == "super_resolution" else {}
    return SETTINGS | scores | {"runtime.trackers": trackers}


def installed(module: str) -> bool:
    """Whether a module can be imported."""
    from importlib.util import find_spec

    return find_spec(module) is not None


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; what vanishes meanwhile does not count."""
    total = 0
    for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
        try:
            total += one.lstat().st_size
        except OSError:
            continue
    return total


def rise(rows: Sequence[Sample], column: str) -> float:
    """Return how much a line through the values of a column rises from the first to the last row."""
    times, values = np.array([[row.seconds, getattr(row, column)] for row in rows], dtype=float).T
    return float(np.polyfit(times, values, 1)[0] * (times[-1] - times[0]))


def each_iteration(rows: Sequence[Sample], column: str) -> float:
    """Return what an iteration adds to a column."""
    iterations = rows[-1].iteration - rows[0].iteration
    return (getattr(rows[-1], column) - getattr(rows[0], column)) / max(iterations, 1)


def judged(rows: Sequence[Sample], looser: float = 1.0) -> tuple[str, list[str]]:
    """Return a table, and a line for each broken rule; `looser` multiplies what is allowed.

    What comes before the end of the warm-up does not count. Of the rest, the second half counts.
    """
    warmth = min(60 * MINUTES_OF_WARMTH, rows[-1].seconds / 3)
    warm = [row for row in rows if row.seconds >= warmth]
    half, quarter = warm[len(warm) // 2 :], len(warm) // 4
    lines, broken = [f"{'':14s} {'at first':>10s} {'at the end':>10s} {'rise':>10s} {'allowed':>10s}"], []
    for rule in RULES:
        values, up, most = [getattr(row, rule.column) for row in half], rise(half, rule.column), rule.most * looser
        lines.append(f"{rule.column:14s} {fmean(values[:5]):10.2f} {fmean(values[-5:]):10.2f} {up:10.2f} {most:10.2f}")
        if up > most:
            broken.append(f"{rule.column} rose by {up:.2f} in the second half; at most {most:g} are allowed")
    for column, unit in (("cpu", 1000), ("kept", 1024)):
        before = unit * each_iteration(warm[quarter : 2 * quarter], column)
        after = unit * each_iteration(warm[-quarter:], column)
        rare = unit * AT_ONCE[column] / max(warm[-1].iteration - warm[-quarter].iteration, 1)
        most = 1 + (SLOWER - 1) * looser
        what = {"cpu": "ms/iteration", "kept": "KiB/iteration"}[column]
        ratio = after / max(before, 1e-9)
        lines.append(f"{what:14s} {before:10.2f} {after:10.2f} {ratio:9.2f}x {most:9.2f}x")
        if ratio > most and after - before > rare:
            broken.append(f"{what}: {after:.2f} in the last quarter, {before:.2f} in the second one")
    total = rows[-1]
    lines.append(f"{total.iteration} iterations in {total.seconds / 60:.1f} minutes, {len(rows)} samples")
    return "\n".join(lines), broken


def draw(rows: Sequence[Sample], path: Path) -> None:
    """Draw every column over the time."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns: list[tuple[str, Callable[[Sample], float]]] = [
        (name, attrgetter(name)) for name in Sample.__annotations__ if name != "seconds"
    ]
    figure, axes = plt.subplots(len(columns), 1, figsize=(8, 1.6 * len(columns)), sharex=True)
    for axis, (name, value) in zip(axes, columns, strict=True):
        axis.plot([row.seconds / 60 for row in rows], [value(row) for row in rows], linewidth=0.8)
        axis.set_title(name, fontsize=8, loc="left")
    axes[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: list[str]) -> int:
    """Run the long form; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.long_run", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--every", type=float, default=5, help="seconds between samples")
    parser.add_argument("--recipe", choices=RECIPES, default="super_resolution")
    parser.add_argument("--folder", type=Path, help="where to work; default: a new temporary folder")
    parser.add_argument("--train", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.train:
        from figura.base.exit_status import run

        return run(lambda _: train(*args.train), [])
    folder = args.folder or Path(tempfile.mkdtemp(prefix="long-run-"))
    training = LongRun(folder, args.recipe)
    print(f"{folder}: samples.csv, log.txt", flush=True)
    rows = training.samples(60 * args.minutes, args.every)
    draw(rows, folder / "samples.png")
    text, broken = judged(rows)
    if not training.goes_on():
        broken.append("after SIGTERM it did not go on, or a failing tracker was not left out once a start")
    print(text, *(f"BROKEN {line}" for line in broken), sep="\n")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

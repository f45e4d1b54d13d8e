"""A tiny project of every recipe: what an uninterrupted `dvc repro` writes, and what differs from it later."""

import fnmatch
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.dag import recipes
from pipeline.project import ENVIRONMENT, Project, source_tree
from pipeline.tiny_settings import tiny
from running import processes_in

RECIPES = ("vunet", "pix2pix", "pose", "detection", "super_resolution")
STAGES = ("prepare", "train", "eval-dump", "metrics")
VOLATILE = {
    ".git/*": "git's own",
    ".dvc/*": "DVC's own locks, and its cache, which dvc.lock names by content",
    "*__pycache__/*": "compiled code",
    "dvc.lock": "has the whole project, so that the hashes of outputs are compared by name",
    "runs/*/live/log.jsonl": "clock readings, and a line for each start",
    "runs/*/.lock": "who held it last",
    "data/prepared/.*.lock": "who held it last",
    "runs/*/finished/*": "the outputs once more, until DVC has recorded them",
}
OFTEN = {"runtime.checkpoint_every": 5}  # beside what makes any recipe tiny
LIMIT = 240  # seconds within which any command here ends, on a busy machine too
LEFT = 20  # seconds within which processes end that have lost their launcher or their training


@dataclass(frozen=True)
class Whole:
    """What an uninterrupted `dvc repro` left: files by hash, outputs by the hash of DVC, seconds of each stage."""

    files: dict[str, str]
    outputs: dict[str, str]
    seconds: dict[str, float]


class Workplace:
    """A tiny project in a folder of its own, a copy of what one recipe writes, and the hashes of all of it.

    Args:
        folder: is made.
        recipe: one of `RECIPES`.
        changes: values of the recipe beside the tiny ones, by dotted key.
    """

    def __init__(self, folder: Path, recipe: str, changes: Mapping[str, Any] | None = None) -> None:
        folder = folder.resolve()
        self.recipe, self.project = recipe, make_project(folder / "figura", recipe, OFTEN | dict(changes or {}))
        self.temporary, self.saved = folder / "tmp", folder / "saved"
        self.temporary.mkdir()
        entry = recipes(self.folder)[recipe]
        self.params, self.data = entry["params"], entry["data"]
        self.written = (
            f"runs/{recipe}", f"plots/{recipe}", f"metrics/{recipe}.json", f"metrics/full/{recipe}.json",
            f"data/prepared/{self.data}", "dvc.lock", ".dvc/cache", ".dvc/tmp",
        )  # fmt: skip
        self.stages = {stage: f"{stage}@{self.data if stage == 'prepare' else recipe}" for stage in STAGES}
        self.remove(self.written)
        seconds = self._run_whole()
        self.whole = Whole(self.files(), self.project.outputs(), seconds)
        for name in self.written:
            copy(self.folder / name, self.saved / name)

    @property
    def folder(self) -> Path:
        """The folder of the project."""
        return self.project.folder

    def command(self, stage: str) -> list[str]:
        """Return the command of a stage as dvc.yaml has it, or of `repro`."""
        run, plots, summary, *_ = self.written
        return {
            "prepare": ["python", "-m", "stages.prepare", self.data],
            "train": ["python", "-m", "figura.launch", "train", self.params, run],
            "eval-dump": ["python", "-m", "figura.launch", "eval_dump", self.params, run],
            "metrics": ["python", "-m", "stages.metrics", self.params, run, summary, plots],
            "repro": ["dvc", "repro", f"metrics@{self.recipe}"],
        }[stage]

    def outputs(self, stage: str) -> tuple[str, ...]:
        """Return the paths that a stage writes, scratch included."""
        run, plots, summary, full, prepared, *_ = self.written
        return {
            "prepare": (prepared,),
            "train": tuple(f"{run}/{one}" for one in ("model", "history", "live", "resume", "checkpoints", "finished")),
            "eval-dump": (f"{run}/dump",),
            "metrics": (summary, full, plots),
            "repro": self.written,
        }[stage]

    def dvc_outputs(self, stage: str) -> tuple[str, ...]:
        """Return the paths that DVC removes before it runs a stage."""
        return self.outputs(stage)[:2] if stage == "train" else self.outputs(stage)

    def restore(self) -> None:
        """Make it as after the uninterrupted run."""
        self.remove(self.written)
        for name in self.written:
            copy(self.saved / name, self.folder / name)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files and folders of the project."""
        for name in names:
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def files(self) -> dict[str, str]:
        """Return the hash of every file of the project that is not volatile."""
        hashes = {}
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_file() and not volatile(name):
                hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return hashes

    def differences(self, expected: Mapping[str, str] | None = None) -> list[str]:
        """Return a line for each file that is missing, other, or too many; the default is the uninterrupted run's."""
        expected = self.whole.files if expected is None else expected
        now = self.files()
        return (
            [f"missing: {name}" for name in expected.keys() - now.keys()]
            + [f"left over: {name}" for name in now.keys() - expected.keys()]
            + [f"other content: {name}" for name in expected.keys() & now.keys() if expected[name] != now[name]]
        )

    def start(self, command: list[str], log: Path, processes: int = 1, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own; `log` gets what it prints, and `.err` beside it its errors."""
        environment = {key: value for key, value in ENVIRONMENT.items() if not key.startswith(("SLURM_", "FIGURA_"))}
        settings = {"TMPDIR": str(self.temporary), "FIGURA_PROCESSES": str(processes), "CUDA_VISIBLE_DEVICES": ""}
        environment |= settings | variables
        with log.open("wb") as out, log.with_suffix(".err").open("wb") as err, hearing_ctrl_c():
            return subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )

    def processes(self) -> list[int]:
        """Return the processes that run in the project."""
        return sorted(processes_in(self.folder))

    def _run_whole(self) -> dict[str, float]:
        """Run `dvc repro` of the recipe, and return the seconds of each stage and of all of it."""
        log, began = self.temporary.parent / "whole.log", time.monotonic()
        child = self.start([*self.command("repro")], log)
        starts: dict[str, float] = {}
        while child.poll() is None:
            assert time.monotonic() < began + 2 * LIMIT, log
            said = log.read_text()
            for stage, name in self.stages.items():
                if stage not in starts and f"Running stage '{name}'" in said:
                    starts[stage] = time.monotonic()
            time.sleep(0.02)
        assert child.returncode == 0, log.read_text() + log.with_suffix(".err").read_text()
        order = [*starts.values(), time.monotonic()]
        seconds = {stage: end - begin for stage, begin, end in zip(starts, order, order[1:], strict=False)}
        return seconds | {"repro": order[-1] - began}


def make_project(folder: Path, recipe: str, changes: Mapping[str, Any]) -> Project:
    """Make a project with tiny settings, and `changes` of one recipe, in a repository of git."""
    project = source_tree(folder)
    add_detection(folder / "dvc.yaml")
    for file, values in tiny(folder).items():
        project.set(file, values)
    project.set(recipes(folder)[recipe]["params"], dict(changes))
    project.run("git", "init", "-q", "-b", "main")
    project.commit("tiny")
    return project


def add_detection(pipeline: Path) -> None:
    """Add the recipe `detection` to a dvc.yaml, as its first lines say."""
    text = pipeline.read_text()
    (entry,) = re.findall(r"^      pose:\n(?:        .*\n)+", text, re.MULTILINE)
    own = entry.replace("pose:", "detection:", 1).replace("recipes/pose.yaml", "recipes/detection.yaml")
    pipeline.write_text(text.replace(entry, entry + own))


def volatile(name: str) -> bool:
    """Whether two uninterrupted runs may differ in a file, or it is no file of figura."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in VOLATILE)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, if there is one, to a place where there is nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.is_file():
        shutil.copy2(source, target)


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """What is started inside hears SIGINT, though a shell keeps it from what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status, or None after so many seconds, when the whole process group has been killed."""
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return None


def until(reached: Callable[[], object], seconds: float, pause: float = 0.05) -> bool:
    """Wait until something is reached; return whether it was within so many seconds."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True

"""A tiny project of one recipe: what an uninterrupted `dvc repro` writes, and what differs from it later."""

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
from pathlib import Path
from typing import Any

from pipeline.dag import recipes
from pipeline.project import ENVIRONMENT, Project, source_tree
from pipeline.tiny_settings import tiny

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
LIMIT = 240  # seconds within which any command here ends, on a busy machine too
Child = subprocess.Popen[bytes]


class Workplace:
    """A project in a folder of its own, a copy of what one recipe writes, and the hashes of all of it.

    Attributes:
        whole: the hash of each file after the uninterrupted run.
        hashes: the hashes of all outputs in its dvc.lock.
        seconds: that it took.

    Args:
        folder: is made.
        recipe: of dvc.yaml, or `detection`.
    """

    def __init__(self, folder: Path, recipe: str) -> None:
        self.recipe, self.project = recipe, make_project(folder / "figura", recipe, {"runtime.checkpoint_every": 5})
        self.log, self.saved = folder / "log", folder / "saved"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        entry = recipes(self.folder)[recipe]
        self.params, self.data, self.run = entry["params"], entry["data"], f"runs/{recipe}"
        self.written = (
            self.run, f"plots/{recipe}", f"metrics/{recipe}.json", f"metrics/full/{recipe}.json",
            f"data/prepared/{self.data}", "dvc.lock", ".dvc/cache", ".dvc/tmp",
        )  # fmt: skip
        self.remove(self.written)
        began = time.monotonic()
        assert wait(self.start("repro"), 2 * LIMIT) == 0, self.said()
        self.seconds = time.monotonic() - began
        self.whole, self.hashes = self.files(), self.project.outputs()
        for name in self.written:
            copy(self.folder / name, self.saved / name)

    @property
    def folder(self) -> Path:
        return self.project.folder

    def command(self, stage: str) -> list[str]:
        """Return the command of a stage as dvc.yaml has it, or of `repro`."""
        _, plots, summary, *_ = self.written
        return {
            "prepare": ["python", "-m", "stages.prepare", self.data],
            "train": ["python", "-m", "figura.launch", "train", self.params, self.run],
            "eval-dump": ["python", "-m", "figura.launch", "eval_dump", self.params, self.run],
            "metrics": ["python", "-m", "stages.metrics", self.params, self.run, summary, plots],
            "repro": ["dvc", "repro", f"metrics@{self.recipe}"],
        }[stage]

    def outputs(self, stage: str) -> tuple[str, ...]:
        """Return the paths that a stage writes, scratch included."""
        _, plots, summary, full, prepared, *_ = self.written
        trained = ("model", "history", "live", "resume", "checkpoints", "finished")
        return {
            "prepare": (prepared,),
            "train": tuple(f"{self.run}/{one}" for one in trained),
            "eval-dump": (f"{self.run}/dump",),
            "metrics": (summary, full, plots),
            "repro": self.written,
        }[stage]

    def restore(self) -> None:
        """Make it as after the uninterrupted run."""
        self.remove(self.written)
        for name in self.written:
            copy(self.saved / name, self.folder / name)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def files(self) -> dict[str, str]:
        """Return the hash of every file of the project in which two uninterrupted runs may not differ."""
        paths = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        kept = {name: path for name, path in paths.items() if not any(fnmatch.fnmatch(name, one) for one in VOLATILE)}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in kept.items()}

    def differences(self, expected: Mapping[str, str] | None = None) -> list[str]:
        """Return each file that is missing, other, or too many; the default is the uninterrupted run's."""
        expected, now = self.whole if expected is None else expected, self.files()
        return sorted(name for name in now | expected if now.get(name) != expected.get(name))

    def start(self, stage: str | list[str], processes: int = 1, log: Path | None = None, **variables: str) -> Child:
        """Start a stage or another command in a session of its own; `log` gets what it prints."""
        environment = {key: value for key, value in ENVIRONMENT.items() if not key.startswith(("SLURM_", "FIGURA_"))}
        settings = {"TMPDIR": str(self.temporary), "FIGURA_PROCESSES": str(processes), "CUDA_VISIBLE_DEVICES": ""}
        settings["FIGURA_STATES"] = "off"
        command = self.command(stage) if isinstance(stage, str) else stage
        with (log or self.log).open("wb") as out, hearing_ctrl_c():
            return subprocess.Popen(
                command, cwd=self.folder, env=environment | settings | variables, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text(errors="replace")


def make_project(folder: Path, recipe: str, changes: Mapping[str, Any]) -> Project:
    """Make a git repository with tiny settings, with the recipe `detection`, and with `changes` of one recipe."""
    project = source_tree(folder)
    text = (folder / "dvc.yaml").read_text()
    (entry,) = re.findall(r"^      pose:\n(?:        .*\n)+", text, re.MULTILINE)
    own = entry.replace("pose:", "detection:", 1).replace("recipes/pose.yaml", "recipes/detection.yaml")
    (folder / "dvc.yaml").write_text(text.replace(entry, entry + own))
    for file, values in tiny(folder).items():
        project.set(file, values)
    project.set(recipes(folder)[recipe]["params"], dict(changes))
    project.run("git", "init", "-q", "-b", "main")
    project.commit("tiny")
    return project


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


def wait(child: Child, seconds: float) -> int | None:
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

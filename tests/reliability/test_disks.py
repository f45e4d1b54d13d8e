"""Disks that fill up, for good and for a moment, that become read-only, or take files of a limited size alone.

Each case runs a command on a tiny project that lies on a small tmpfs of its own (mounting needs root; without it, only
the limit on file sizes is tried). The command must end with 1 and one bounded message that names a file, or with 0 and
the results of an undisturbed run. Earlier results and resume points must stay readable, and when there is space again,
the same command must end well and with the same results.
"""

import os
import random
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from figura.base.yaml12 import read_yaml, to_yaml
from reliability import CASES, SEED
from reliability.small_project import Ended, SmallProject, dvc_repository, finished_project

pytestmark = pytest.mark.slow
PAGE = 4096
SPARE = 6400 * PAGE  # for folders, and for rounding up to pages
FOR_GOOD, MOMENT, READ_ONLY, SIZES = KINDS = ("full", "full for a moment", "read-only", "file sizes")


@dataclass(frozen=True)
class Command:
    """A command with what it writes, and what must stay as it was if it fails: earlier results too."""

    run: Callable[..., Ended]
    results: tuple[str, ...]
    stays: tuple[str, ...]
    expected: dict[str, bytes] = field(default_factory=dict)

    def prepare(self, project: SmallProject) -> None:
        """Remove what the command shall write, but for what must stay."""
        for name in {*self.results} - {*self.stays}:
            project.remove(name)


def stage(name: str, of: str = "pix2pix") -> Callable[..., Ended]:
    return lambda project, **more: project.stage(name, of, **more)


def tool(module: str, *arguments: object) -> Callable[..., Ended]:
    return lambda project, **more: project.command(f"figura.commands.{module}", *arguments, **more)


RECIPE, RUN = "recipes/pix2pix.yaml", "runs/pix2pix"
TRAINED, DUMP = (f"{RUN}/model", f"{RUN}/history"), f"{RUN}/dump"
METRICS = ("metrics/pix2pix.json", "metrics/full/pix2pix.json")
REPORT = ("HEAD", "--recipe", "pix2pix", "--output", "r.html")
COMMANDS = {
    "prepare": (stage("prepare", "facades"), ("data/prepared/facades",), ("data/raw", "data/prepared/pairs")),
    "train": (stage("train"), TRAINED, ("data",)),
    "eval-dump": (stage("eval_dump"), (DUMP,), TRAINED),
    "metrics": (stage("metrics"), (*METRICS, "plots/pix2pix"), (*METRICS, DUMP, *TRAINED)),
    "predict": (tool("predict", RECIPE, RUN, "photos", "--output", "out"), ("out",), (*TRAINED, "photos")),
    "show": (tool("show", RECIPE, "--count", 3, "--output", "show.png"), ("show.png",), ("data",)),
    "report": (tool("report.command", *REPORT), ("r.html",), (*METRICS, DUMP)),
    "gate": (tool("ci.check_reproduction", "--markdown", "gate.md"), ("gate.md",), METRICS),
}


class Disks:
    """A project with a training that was stopped, results of all commands, and a folder to mount on."""

    def __init__(self, finished: SmallProject, folder: Path) -> None:
        self.whole, self.place = finished.copy(folder / "whole"), folder / "disk"
        self._add_raw()
        dvc_repository(self.whole.folder, "pix2pix")
        lock = read_yaml(self.whole.folder / "dvc.lock")
        lock["stages"]["train@pix2pix"]["deps"][0]["md5"] = "0" * 32  # other data, so that there are two to compare
        (self.whole.folder / "dvc.lock").write_text(to_yaml(lock))
        self.commands = {name: Command(*of) for name, of in COMMANDS.items()}
        for command in self.commands.values():
            project = self.whole.copy(self.place)
            command.prepare(project)
            ended = command.run(project)
            assert ended.code == 0, ended.out + ended.err
            command.expected.update(project.contents(*command.results))
            assert command.expected
        shutil.rmtree(self.place)

    def _add_raw(self) -> None:
        """Make a dataset `facades` that is read from files."""
        root = self.whole.folder
        params = read_yaml(root / "data/params.yaml")
        entry = {"kind": "paired", "source": "data/raw", "paired": {"train": "train", "validation": "validation"}}
        params["datasets"]["facades"] = params["datasets"]["pairs"] | entry
        (root / "data/params.yaml").write_text(to_yaml(params))
        for split in ("train", "validation"):
            shutil.unpack_archive(root / f"data/prepared/pairs/{split}.zip", root / "data/raw")

    @contextmanager
    def disk(self, kind: str, size: int) -> Iterator[SmallProject]:
        """Copy the project to a folder, or to a tmpfs with so many free bytes; skip where that may not be mounted."""
        self.place.mkdir()
        used = sum(-(-path.stat().st_size // PAGE + 1) * PAGE for path in self.whole.folder.rglob("*"))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={used + 4 * size + SPARE}", "tmpfs", self.place]
        mounted = kind != SIZES and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        try:
            if kind != SIZES and not mounted:
                pytest.skip("only root may mount a tmpfs")
            yield self.whole.copy(self.place / "project")
        finally:
            if mounted:
                subprocess.run(["umount", "-l", self.place], check=True)
            shutil.rmtree(self.place)


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Disks:
    finished = finished_project(["pix2pix"], tmp_path_factory.getbasetemp())
    return Disks(finished, tmp_path_factory.mktemp("disks"))


@pytest.mark.parametrize("number", range(-(-CASES // 32) or 1))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_fails_loses_nothing(disks: Disks, name: str, kind: str, number: int) -> None:
    command, chance = disks.commands[name], random.Random(f"{SEED}/{name}/{kind}/{number}")
    size = sum(-(-len(one) // PAGE) * PAGE for one in command.expected.values()) + (2_000_000 if name == "train" else 0)
    with disks.disk(kind, size) as project:
        command.prepare(project)
        before = project.contents(*command.stays)
        trouble = Trouble(disks.place, kind, chance, size, max(map(len, command.expected.values())))
        ended = command.run(project, prepare=trouble.prepare, meanwhile=trouble.meanwhile)
        trouble.end()
        ended.check()
        if ended.code == 0:
            assert differing(project, command.results, command.expected) == []
        else:
            assert len(ended.errors) == 1
            assert names_files(ended), ended.err
            assert differing(project, command.stays, before) == []
            assert name != "train" or [*project.folder.glob("runs/pix2pix/resume/0*/state.json")]
        again = command.run(project)
        assert again.code == 0, f"with space again: {again.err}"
        assert differing(project, command.results, command.expected) == []
        assert ended.code == 0 or name != "train" or "resumed after" in again.out


class Trouble:
    """What happens to a disk while a command runs.

    Args:
        place: the mount point.
        kind: one of `KINDS`.
        chance: says when and how much.
        size: bytes that the command writes, scratch included.
        longest: bytes of the largest file that it writes.
    """

    def __init__(self, place: Path, kind: str, chance: random.Random, size: int, longest: int) -> None:
        self.place, self.kind, self.filler = place, kind, place / "filler"
        free, self.limit = chance.randrange(max(size, 2 * PAGE)), chance.randrange(longest)
        self.pause, self.full_since = chance.uniform(0, 0.4), 0.0
        self.moment, self.protected = time.monotonic() + chance.uniform(0, 2.0), False
        if kind in (FOR_GOOD, MOMENT):
            left = os.statvfs(place)
            with self.filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(left.f_bavail * left.f_frsize - free, PAGE))

    def prepare(self) -> None:
        """Called in the child."""
        if self.kind == SIZES:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))

    def meanwhile(self) -> None:
        """Called again and again while the command runs."""
        now = time.monotonic()
        if self.kind == MOMENT and self.filler.exists():
            if not self.full_since and os.statvfs(self.place).f_bavail <= 1:
                self.full_since = now
            if self.full_since and now > self.full_since + self.pause:
                self.filler.unlink()
        if self.kind == READ_ONLY and not self.protected and now > self.moment:
            self.protected = self._remount("ro")  # refused while a file is open for writing

    def end(self) -> None:
        """Make the disk well again."""
        if self.protected:
            assert self._remount("rw"), self.place
        self.filler.unlink(missing_ok=True)

    def _remount(self, how: str) -> bool:
        command = ["mount", "-o", f"remount,{how}", self.place]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def names_files(ended: Ended) -> bool:
    """Whether the message has a path; that of predictions counts the photos, and has a line above for each of them."""
    lines = [line for line in ended.err.splitlines() if line.startswith("skipped")]
    return all(re.search(r"[\w.-]+[/.][\w-]+", line) for line in lines or ended.errors)


def differing(project: SmallProject, names: tuple[str, ...], expected: dict[str, bytes]) -> list[str]:
    """Return the files at and below paths that are not as expected."""
    now = project.contents(*names)
    return sorted(name for name in now | expected if now.get(name) != expected.get(name))

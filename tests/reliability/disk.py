"""Disks that fill up, for good and for a moment, that become read-only, or take files of a limited size alone.

Usage: python -m tests.reliability.disk [--cases 200] [--seed 0] [--case N]

Each case runs a command on a tiny project that lies on a small tmpfs of its own (mounting needs root; without it, only
the limit on file sizes is tried). The command must end with 1 and one bounded message that names a file, or with 0 and
the results of an undisturbed run. Earlier results and resume points must stay readable, and when there is space again,
the same command must end well and with the same results. Exit status 1 if any case is lost.
"""

import argparse
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.yaml12 import read_yaml, to_yaml
from reliability.damage import DETECTED, HARMLESS, LOST, killed_before, remove
from reliability.forked import Ended
from reliability.small_project import SmallProject, contents, dvc_repository

PAGE = 4096
SPARE = 64 * PAGE  # for folders, and for rounding up to pages
FOR_GOOD, MOMENT, READ_ONLY, SIZES = "full", "full for a moment", "read-only", "file sizes"
KINDS = (FOR_GOOD, MOMENT, READ_ONLY, SIZES)


@dataclass(frozen=True)
class Command:
    """A command, what it writes, what must stay as it was if it fails, and what is removed before."""

    name: str
    run: Callable[..., Ended]
    results: tuple[str, ...]
    stays: tuple[str, ...]
    absent: tuple[str, ...] = ()


def commands() -> list[Command]:
    """Return the commands that are tried, for pix2pix."""
    recipe, run = "recipes/pix2pix.yaml", "runs/pix2pix"
    model = (f"{run}/model", f"{run}/history")
    metrics = ("metrics/pix2pix.json", "metrics/full/pix2pix.json")

    def stage(name: str, of: str) -> Callable[..., Ended]:
        return lambda project, **limits: project.stage(name, of, **limits)

    def tool(module: str, *arguments: object) -> Callable[..., Ended]:
        return lambda project, **limits: project.command(module, *arguments, **limits)

    return [
        Command(
            "prepare", stage("prepare", "facades"), ("data/prepared/facades",), ("data/raw", "data/prepared/pairs")
        ),
        Command("train", stage("train", "pix2pix"), model, ("data",), (*model, f"{run}/dump")),
        Command("eval-dump", stage("eval_dump", "pix2pix"), (f"{run}/dump",), model),
        Command("metrics", stage("metrics", "pix2pix"), (*metrics, "plots/pix2pix"), (*metrics, f"{run}/dump", *model)),
        Command(
            "predict",
            tool("figura.commands.predict", recipe, run, "photos", "--output", "out"),
            ("out",),
            (*model, "photos"),
        ),
        Command(
            "show", tool("figura.commands.show", recipe, "--count", 3, "--output", "show.png"), ("show.png",), ("data",)
        ),
        Command(
            "report",
            tool("figura.commands.report.__main__", "HEAD", "--recipe", "pix2pix", "--output", "r.html"),
            ("r.html",),
            (*metrics, f"{run}/dump"),
        ),
        Command("gate", tool("figura.commands.ci.check_reproduction", "--markdown", "gate.md"), ("gate.md",), metrics),
    ]


@dataclass(frozen=True)
class Case:
    """What was done to the disk of which command, and what came of it."""

    number: int
    command: str
    kind: str
    detail: str
    outcome: str
    why: str


class Disk:
    """A project with a training that was stopped, results of all commands, and a folder to mount on."""

    def __init__(self, folder: Path) -> None:
        self.whole, self.place, self.mounts = SmallProject(folder / "whole"), folder / "disk", can_mount(folder)
        self.whole.folder.mkdir(parents=True)
        self.whole.make(["pix2pix"])
        self.bring_raw()
        dvc_repository(self.whole.folder, "pix2pix")
        pretend_other_data(self.whole.folder / "dvc.lock", "train@pix2pix")
        stopped = self.whole.copy(folder / "stopped")
        for path in ("model", "history", "live", "checkpoints", "dump"):
            remove(stopped.folder / f"runs/pix2pix/{path}")
        ended = stopped.stage("train", "pix2pix", prepare=lambda: killed_before(8))
        assert ended.code == -signal.SIGKILL, ended.out + ended.err
        (stopped.folder / "runs/pix2pix/resume").rename(self.whole.folder / "runs/pix2pix/resume")
        self.commands = commands()
        self.expected: dict[str, dict[str, bytes]] = {}
        for command in self.commands:
            project = self.whole.copy(folder / "disk")
            self.absent(project, command)
            project.checked(command.run(project))
            self.expected[command.name] = contents(project.folder, *command.results)
            assert self.expected[command.name], command.name
        shutil.rmtree(self.place)

    def bring_raw(self) -> None:
        """Make a dataset `facades` that is read from files."""
        root = self.whole.folder
        params = read_yaml(root / "data/params.yaml")
        entry = {"kind": "paired", "source": "data/raw", "paired": {"train": "train", "validation": "validation"}}
        params["datasets"]["facades"] = params["datasets"]["pairs"] | entry
        (root / "data/params.yaml").write_text(to_yaml(params))
        for split in ("train", "validation"):
            shutil.copytree(root / "data/prepared/pairs" / split, root / "data/raw" / split)

    @staticmethod
    def absent(project: SmallProject, command: Command) -> None:
        """Remove what the command shall write."""
        for name in {*command.absent, *command.results} - {*command.stays}:
            remove(project.folder / name)

    def case(self, number: int, seed: int) -> Case:
        """Do one case."""
        chance = random.Random(f"{seed}/{number}")
        command = self.commands[number % len(self.commands)]
        kind = KINDS[number // len(self.commands) % len(KINDS)] if self.mounts else SIZES
        expected = self.expected[command.name]
        size = sum(-(-len(one) // PAGE) * PAGE for one in expected.values()) + (
            2_000_000 if command.name == "train" else 0
        )
        used = sum(-(-path.stat().st_size // PAGE + 1) * PAGE for path in self.whole.folder.rglob("*"))
        with self.mounted(used + 4 * size + 100 * SPARE) if kind != SIZES else self.plain():
            project = self.whole.copy(self.place / "project")
            self.absent(project, command)
            before = contents(project.folder, *command.stays)
            trouble = Trouble(self.place, kind, chance, expected, size)
            ended = command.run(project, prepare=trouble.prepare, meanwhile=trouble.meanwhile)
            trouble.end()
            outcome, why = self.judge(command, project, ended, before)
        return Case(number, command.name, kind, trouble.detail, outcome, why)

    def judge(self, command: Command, project: SmallProject, ended: Ended, before: dict[str, bytes]) -> tuple[str, str]:
        """Return the outcome of a command whose disk is well again, and the reason if it is a loss."""
        expected = self.expected[command.name]
        if ended.fault is not None:
            return LOST, ended.fault
        if ended.code == 0 and (other := differing(contents(project.folder, *command.results), expected)):
            return LOST, f"exit status 0, and {other}"
        if ended.code == 1:
            if len(ended.errors) != 1 or not names_a_file(ended):
                return LOST, f"{len(ended.errors)} messages, or one that names no file: {ended.errors[:2]}"
            after = contents(project.folder, *command.stays)
            if other := differing(after, {name: before[name] for name in before}):
                return LOST, f"what was there before is damaged: {other}"
            if command.name == "train" and not [*project.folder.glob("runs/pix2pix/resume/0*/state.json")]:
                return LOST, "the earlier resume point is gone"
        again = command.run(project)
        if again.code != 0:
            return LOST, f"with space again: {again.fault or again.errors[:1]}"
        if other := differing(contents(project.folder, *command.results), expected):
            return LOST, f"with space again, {other}"
        if ended.code == 1 and command.name == "train" and "resumed after" not in again.out:
            return LOST, "with space again, it began afresh"
        return (DETECTED, ended.errors[0]) if ended.code == 1 else (HARMLESS, "")

    @contextmanager
    def plain(self) -> Iterator[None]:
        """Make a folder on the disk that there is."""
        self.place.mkdir()
        try:
            yield
        finally:
            shutil.rmtree(self.place)

    @contextmanager
    def mounted(self, size: int) -> Iterator[None]:
        """Mount a tmpfs of so many bytes."""
        self.place.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.place], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", self.place], check=True)
            self.place.rmdir()


class Trouble:
    """What happens to a disk while a command runs.

    Args:
        place: the mount point.
        kind: one of `KINDS`.
        chance: says when and how much.
        expected: what the command writes.
        size: of it in bytes, scratch included.
    """

    def __init__(self, place: Path, kind: str, chance: random.Random, expected: dict[str, bytes], size: int) -> None:
        self.place, self.kind, self.filler = place, kind, place / "filler"
        self.free = chance.randrange(0, max(size, 2 * PAGE))
        self.limit = chance.randrange(0, max(map(len, expected.values())))
        self.pause, self.began, self.full_since = chance.uniform(0, 0.4), time.monotonic(), 0.0
        self.moment = self.began + chance.uniform(0, 2.0)
        self.detail = {
            FOR_GOOD: f"{self.free} bytes free",
            MOMENT: f"{self.free} bytes free, then more {self.pause:.2f} s later",
            READ_ONLY: f"after {self.moment - self.began:.2f} s",
            SIZES: f"{self.limit} bytes",
        }[kind]
        self.protected = False
        if kind in (FOR_GOOD, MOMENT):
            left = os.statvfs(place)
            with self.filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(left.f_bavail * left.f_frsize - self.free, PAGE))

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
            # refused while a file is open for writing
            self.protected = remount(self.place, "ro")

    def end(self) -> None:
        """Make the disk well again."""
        if self.protected:
            assert remount(self.place, "rw"), self.place
        self.filler.unlink(missing_ok=True)


def pretend_other_data(lock: Path, stage: str) -> None:
    """Let a dvc.lock say that a training had other data, so that there are two to compare."""
    content = read_yaml(lock)
    content["stages"][stage]["deps"][0]["md5"] = "0" * 32
    lock.write_text(to_yaml(content))


def remount(place: Path, how: str) -> bool:
    """Mount again, `ro` or `rw`; return whether it went well."""
    return subprocess.run(["mount", "-o", f"remount,{how}", place], capture_output=True, check=False).returncode == 0


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a tmpfs."""
    place = folder / "tried"
    place.mkdir(parents=True)
    command: list[Any] = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place]
    mounted = (
        shutil.which("mount") is not None and not subprocess.run(command, capture_output=True, check=False).returncode
    )
    if mounted:
        subprocess.run(["umount", place], check=True)
    return mounted


def names_a_file(ended: Ended) -> bool:
    """Whether the message has a path; that of predictions counts the photos, and has a line above for each of them."""
    lines = [line for line in ended.err.splitlines() if line.startswith("skipped")]
    return all(re.search(r"[\w.-]+[/.][\w-]+", line) for line in lines or ended.errors)


def differing(now: dict[str, bytes], expected: dict[str, bytes]) -> str:
    """Return what differs, in words; nothing if it is equal."""
    names = sorted(name for name in now.keys() | expected.keys() if now.get(name) != expected.get(name))
    return f"{len(names)} files differ: {', '.join(names[:4])}" if names else ""


def table(cases: Sequence[Case]) -> Iterator[str]:
    """Yield lines: outcomes of each command and kind, then each loss."""
    counts = Counter((case.command, case.kind, case.outcome) for case in cases)
    outcomes = (DETECTED, HARMLESS, LOST)
    yield f"{'command':<12}{'disk':<20}{'cases':>7}" + "".join(f"{name:>10}" for name in outcomes)
    for command, kind in dict.fromkeys(
        (case.command, case.kind) for case in sorted(cases, key=lambda one: one.number % 8)
    ):
        numbers = [counts[command, kind, name] for name in outcomes]
        yield f"{command:<12}{kind:<20}{sum(numbers):>7}" + "".join(f"{number:>10}" for number in numbers)
    total = Counter(case.outcome for case in cases)
    yield f"{'all':<32}{len(cases):>7}" + "".join(f"{total[name]:>10}" for name in outcomes)
    for case in cases:
        if case.outcome == LOST:
            yield f"LOST case {case.number}: {case.command}, {case.kind} ({case.detail}): {case.why}"


def main(arguments: list[str] | None = None) -> int:
    """Do the cases and print the table; return 1 if any is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.disk", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="do this case alone")
    args = parser.parse_args(arguments)
    cases, began = list[Case](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Path(folder))
        print(
            f"project made in {time.monotonic() - began:.0f} s; mounting is {'' if disk.mounts else 'not '}allowed",
            flush=True,
        )
        for number in range(args.cases) if args.case is None else [args.case]:
            cases.append(disk.case(number, args.seed))
            if args.case is not None or cases[-1].outcome == LOST:
                print(cases[-1], flush=True)
    print(*table(cases), f"{time.monotonic() - began:.0f} s", sep="\n")
    return int(any(case.outcome == LOST for case in cases))


if __name__ == "__main__":
    sys.exit(main())

"""Kills stages at random moments until they are done: `python -m tests.reliability.kill_torture --rounds 100`.

A round starts a stage, as DVC or a person would, or `dvc repro`, kills it one to three times, and lets it end. Then
every file must be that of an uninterrupted run, but for the volatile ones that workplace.py names. A table says what
was injected and how it ended; the exit status is 1 if anything was lost.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from running import processes_in, workers

from figura.base.errors import Interrupted
from reliability.workplace import LEFT, LIMIT, RECIPES, Workplace, until, wait

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
TARGETS = {"train": 4, "train in two": 2, "eval-dump": 2, "eval-dump in two": 1, "metrics": 1, "prepare": 1, "repro": 2}
"""What is killed, and how often beside the others."""
WRITES = {
    "prepare": ("data/prepared/.*.partial/*", "data/prepared/.*.partial/images/*", "data/prepared/.*.old"),
    "train": (
        "runs/*/finished/*", "runs/*/live/*", "runs/*/resume/writing", "runs/*/resume/0*", "runs/*/checkpoints/.step-*",
        "runs/*/checkpoints/step-*", "runs/*/model/*", "runs/*/.model*/*", "runs/*/history/*",
    ),
    "eval-dump": ("runs/*/dump/*", "runs/*/dump/*/*", "runs/*/dump/.parts/*"),
    "metrics": ("plots/*/*", "metrics/*.json", "metrics/full/*"),
}  # fmt: skip
"""What appears in the project while a stage writes."""
STOPPED = {signal.SIGTERM: Interrupted.code, signal.SIGUSR1: Interrupted.code, signal.SIGINT: 130}
"""The exit statuses that docs/machines.md promises."""
DVC_STOPPED = (255, 252, 130)  # a stage failed; interrupted
NOT_OURS = ("torchinductor_*", "pymp-*", "figura-launch-*")
"""PyTorch's cache, and what Python and PyTorch's launcher remove unless they are killed; the system clears them."""
TRACEBACK = "Traceback (most recent call last)"
ORPHAN = re.compile(
    r'Traceback \(most recent call last\):\n(?:  .*\n)*  File ".*/multiprocessing/spawn\.py".*\n(?:  .*\n)*'
    r"EOFError: Ran out of input\n"
)
"""What Python prints in a process that was just being started when its parent was killed."""


@dataclass(frozen=True)
class Blow:
    """One kill: the signal, to whom, and when: `seconds` after the start, or after the `count`-th new match."""

    number: signal.Signals
    whom: str
    seconds: float
    pattern: str | None = None
    count: int = 1

    def __str__(self) -> str:
        after = f" after {self.pattern} ({self.count})" if self.pattern else ""
        return f"{self.number.name} to {self.whom} {self.seconds:.3f} s{after}"


@dataclass
class Start:
    """How one start went; `blow` is None where it was left alone, `status` where it hung."""

    blow: Blow | None
    delivered: bool
    status: int | None
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        missed = " (missed)" if self.blow and not self.delivered else ""
        return f"{self.blow or 'end'}{missed} -> {self.status}"


@dataclass(frozen=True)
class Round:
    """All starts of a target until it was done, and what was lost."""

    target: str
    starts: list[Start]
    lost: list[str]


class Torture:
    """Draws and runs rounds in a workplace.

    Args:
        place: the workplace.
        seed: of all that is drawn.
    """

    def __init__(self, place: Workplace, seed: int) -> None:
        self.place, self.random = place, random.Random(f"{seed} {place.recipe}")
        self.log = place.temporary.parent / "start.log"
        self.furthest = 0  # the last resume point that was seen in this round
        self.by_hand = False
        self.expected: dict[str, str] = {}
        self._whole_in_two: dict[str, str] = {}

    def round(self, target: str, blows: Sequence[Blow] | None = None) -> Round:
        """Run one round; `blows` replaces those that would be drawn."""
        stage, processes = target.removesuffix(" in two"), 2 if target.endswith(" in two") else 1
        expected = self.expected = self.whole(stage, processes)
        self.furthest, self.by_hand = 0, stage not in ("train", "repro") and self.random.random() < 0.5
        self.place.restore()
        if not self.by_hand:
            self.place.remove(self.place.outputs(stage))
        if blows is None:
            blows = [self.blow(stage, processes) for _ in range(self.random.choice((1, 1, 2, 3)))]
        starts: list[Start] = []
        for blow in (*blows, None, None, None):
            starts.append(self.start(stage, processes, blow))
            if starts[-1].status in (0, None):
                break
        lost = [fault for one in starts for fault in one.faults]
        if starts[-1].status != 0:
            lost.append(f"it does not end: {self.said()[-400:]!r}")
        lost += self.place.differences(expected)
        if stage == "repro" and not lost and self.place.project.outputs() != self.place.whole.outputs:
            lost.append("dvc.lock has other hashes")
        return Round(target, starts, lost + self.strays())

    def whole(self, stage: str, processes: int) -> dict[str, str]:
        """Return the files after an uninterrupted run; a training in two processes rounds otherwise."""
        if processes == 1 or stage != "train":
            return self.place.whole.files
        if not self._whole_in_two:
            self.place.restore()
            self.place.remove(self.place.outputs(stage))
            assert wait(self.begin(stage, processes), LIMIT) == 0, self.said()
            self._whole_in_two = self.place.files()
        return self._whole_in_two

    def blow(self, stage: str, processes: int) -> Blow:
        """Draw a kill: at any time, in the last tenth, or when something is written."""
        whom = ["group", "launcher"]
        whom += ["rank 0", "rank 1"] if processes > 1 else []
        whom += ["stage"] if stage == "repro" else []
        number, to = self.random.choice(SIGNALS), self.random.choice(whom)
        length, when = self.place.whole.seconds[stage], self.random.random()
        if when < 0.3:
            return Blow(number, to, self.random.uniform(0, length))
        if when < 0.45:
            return Blow(number, to, self.random.uniform(0.9 * length, 1.05 * length))
        pattern = self.random.choice(WRITES[self.random.choice(list(WRITES)) if stage == "repro" else stage])
        count = self.random.choice((1, 1, 2, 3)) if pattern.endswith("*") else 1
        return Blow(number, to, self.random.uniform(0, self.random.choice((0.0, 0.02, 0.5))), pattern, count)

    def begin(self, stage: str, processes: int) -> subprocess.Popen[bytes]:
        """Start a stage; unless by hand, as DVC does: without its outputs, and with its name in the environment."""
        if stage == "repro" or self.by_hand:
            return self.place.start(self.place.command(stage), self.log, processes)
        self.place.remove(self.place.dvc_outputs(stage))
        return self.place.start(self.place.command(stage), self.log, processes, DVC_STAGE=self.place.stages[stage])

    def start(self, stage: str, processes: int, blow: Blow | None) -> Start:
        """Start a stage, strike once, and wait until nothing of it runs."""
        safe, child = self.furthest, self.begin(stage, processes)
        one = Start(blow, blow is not None and self._reached(child, blow) and self._strike(child, blow), None)
        one.status = wait(child, LIMIT)
        alone = stage == "repro" and blow is not None and blow.whom == "launcher"  # DVC is gone, and its stage goes on
        if not until(lambda: not self.place.processes(), LIMIT if alone else LEFT):
            one.faults.append(f"still running: {processes_in(self.place.folder)}")
            for number in self.place.processes():
                os.kill(number, signal.SIGKILL)
        self._look_for_points()
        one.faults += self._faults(stage, one, safe)
        one.faults = [f"{fault} [{one}]" for fault in one.faults]
        return one

    def said(self) -> str:
        """Return what the last start printed."""
        return "".join(path.read_text(errors="replace") for path in (self.log, self.log.with_suffix(".err")))

    def strays(self) -> list[str]:
        """Empty the folder of temporary files; return what did not belong there."""
        left = list(self.place.temporary.iterdir())
        for path in left:
            if not path.match("torchinductor_*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return [f"left over: {path}" for path in left if not any(map(path.match, NOT_OURS))]

    def _reached(self, child: subprocess.Popen[bytes], blow: Blow) -> bool:
        """Wait for the moment; return whether it came while the process lived."""
        before, new = self._matches(blow), set[str]()
        while blow.pattern and len(new) < blow.count:
            if child.poll() is not None:
                return False
            new |= self._matches(blow) - before
            self._look_for_points()
            time.sleep(0.002)
        end = time.monotonic() + blow.seconds
        while (left := end - time.monotonic()) > 0:
            if child.poll() is not None:
                return False
            self._look_for_points()
            time.sleep(min(left, 0.02))
        return child.poll() is None

    def _matches(self, blow: Blow) -> set[str]:
        """Return the paths that fit a pattern, while others write and remove them, which `Path.glob` does not take."""
        return set(glob(blow.pattern, root_dir=self.place.folder)) if blow.pattern else set()

    def _strike(self, child: subprocess.Popen[bytes], blow: Blow) -> bool:
        """Send the signal; return whether somebody was there to get it."""
        try:
            if blow.whom == "group":
                os.killpg(child.pid, blow.number)
            else:
                os.kill(child.pid if blow.whom == "launcher" else self._number(blow.whom), blow.number)
        except LookupError:  # no process of this number, or not yet
            return False
        return True

    def _number(self, whom: str) -> int:
        """Return the process of a rank, or of the stage that DVC runs. Raises LookupError if there is none."""
        if whom.startswith("rank"):
            return workers(self.place.folder)[int(whom.removeprefix("rank "))]
        running = processes_in(self.place.folder)
        stages = [number for number, one in running.items() if "-m" in one.arguments and one.arguments[0] != "/bin/sh"]
        return stages[0]

    def _look_for_points(self) -> None:
        points = (self.place.folder / f"runs/{self.place.recipe}/resume").glob("0*")
        self.furthest = max([self.furthest, *(int(point.name) for point in points if point.name.isdecimal())])

    def _faults(self, stage: str, one: Start, safe: int) -> list[str]:
        """Return what was wrong with how a start ended; `safe` iterations were in a resume point before."""
        said, faults = self.said(), []
        if one.status is None:
            faults.append(f"hung for {LIMIT} s")
        if one.blow is not None and one.blow.number == signal.SIGKILL:
            said = ORPHAN.sub("", said)
        if TRACEBACK in said:
            faults.append(f"traceback: {said[said.index(TRACEBACK) :][-400:]!r}")
        resumed = [int(number) for number in re.findall(r"resumed after iteration (\d+)", said)]
        if safe and re.search(r"\d+ steps of \d+ examples", said) and max(resumed, default=0) < safe:
            faults.append(f"went on from {resumed or 'the start'}, though there was a resume point of {safe}")
        if one.status not in (None, *statuses(stage, one, said)) and not self._had_ended(one):
            faults.append(f"exit status {one.status}: {said[-200:]!r}")
        return faults

    def _had_ended(self, one: Start) -> bool:
        """Whether a signal came when all was done, and Python, which was about to leave, listened no more."""
        return one.blow is not None and one.status == -one.blow.number and not self.place.differences(self.expected)


def statuses(stage: str, one: Start, said: str) -> set[int]:
    """Return the exit statuses that may come of a start."""
    if one.blow is None or not one.delivered:
        return {0}
    number, whom = one.blow.number, one.blow.whom
    if stage == "repro":
        return {0, *DVC_STOPPED, -number}
    if number == signal.SIGKILL:
        return {0, 1} if whom.startswith("rank") else {-number}
    unheard = not re.search(r"^(launch|error|interrupted): ", said, re.MULTILINE) or stage in ("prepare", "metrics")
    if number == signal.SIGINT and not re.search(r"\d+ steps of \d+ examples", said):
        return {0, STOPPED[number], -number}  # PyTorch was loaded; shells tell both as 130
    return {0, STOPPED[number]} | ({-number} if unheard else set())  # Python itself was starting, or had ended


def table(rounds: Sequence[Round]) -> str:
    """Return a table: a row for each target and signal."""
    lines = [f"{'target':17s} {'signal':8s} {'kills':>5s} {'missed':>6s}  {'to whom':40s} exit statuses"]
    for target in TARGETS:
        for number in SIGNALS:
            starts = [one for each in rounds if each.target == target for one in each.starts]
            aimed = [one for one in starts if one.blow and one.blow.number == number]
            hit = [one for one in aimed if one.delivered]
            whom = counted(sorted(one.blow.whom for one in hit if one.blow))
            ends = counted([str(one.status) for one in hit])
            if aimed:
                missed = len(aimed) - len(hit)
                lines.append(f"{target:17s} {number.name:8s} {len(hit):5d} {missed:6d}  {whom:40s} {ends}")
    return "\n".join(lines)


def counted(words: Sequence[str]) -> str:
    """Return each word with its count."""
    return ", ".join(f"{word}: {count}" for word, count in Counter(words).items())


def storm(recipe: str, rounds: int, target: str | None, seed: int, base: Path) -> bool:
    """Run the rounds of a recipe, print each and their table; return whether nothing was lost."""
    torture, done = Torture(Workplace(base, recipe), seed), list[Round]()
    for number in range(rounds):
        drawn = torture.random.choices(list(TARGETS), list(TARGETS.values()))[0]
        done.append(torture.round(target or drawn))
        print(f"{recipe} {number}: {done[-1].target}: {'; '.join(map(str, done[-1].starts))}", flush=True)
        print(*(f"  LOST {line}\n" for line in done[-1].lost), sep="", end="", flush=True)
    lost = sum(bool(one.lost) for one in done)
    kills = sum(one.delivered for each in done for one in each.starts)
    print(
        f"\n{recipe}, seed {seed}: {rounds} rounds, {kills} kills, {lost} rounds with a loss\n{table(done)}\n",
        flush=True,
    )
    return lost == 0


def main(arguments: list[str]) -> int:
    """Run the long form; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.kill_torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of each recipe")
    parser.add_argument("--recipe", choices=RECIPES, help="default: all, one after another")
    parser.add_argument("--target", choices=TARGETS, help="default: drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to work; default: the folder of temporary files")
    args = parser.parse_args(arguments)
    whole = True
    for recipe in [args.recipe] if args.recipe else RECIPES:
        base = Path(tempfile.mkdtemp(prefix=f"torture-{recipe}-", dir=args.folder))
        whole &= storm(recipe, args.rounds, args.target, args.seed, base)
        shutil.rmtree(base)
    return int(not whole)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

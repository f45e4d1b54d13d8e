"""Damaged files: every one is detected, with one clear message, or harmless; never does another result come of it.

Usage: python -m tests.reliability.damage [--cases 500] [--seed 0] [--case N] [--only TARGET]

A case damages one file of a tiny project (its bytes, not its times, as a disk does it) and runs the command that reads
it. The command must end with 1 and one bounded message, or with 0 and the results of an undisturbed run, byte by byte.
Of a recipe that people write, each other content that is valid is another recipe, and no damage; of a recipe in a model
folder it is damage. Exit status 1 if any case is lost: another result, a traceback, a hang.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from figura.base.yaml12 import read_yaml
from figura.training.trainer import Trainer
from reliability.forked import Ended
from reliability.small_project import SmallProject, contents, dvc_repository

DETECTED, HARMLESS, OTHER_RECIPE, LOST = "detected", "harmless", "another recipe", "LOST"
HELD = ("pix2pix", "vunet")


@dataclass(frozen=True)
class Target:
    """Files that one command reads, as patterns below the project, and what the command makes of them."""

    name: str
    files: tuple[str, ...]
    command: Callable[[SmallProject], Ended]
    results: tuple[str, ...]
    by_hand: bool = False
    absent: tuple[str, ...] = ()
    """What is removed before: the results, and what would spare the command from reading the files."""
    dvc: bool = False
    """Whether the project is a repository of git and DVC."""


def target_of(recipe: str, dataset: str) -> list[Target]:
    """Return the targets in a project whose stages have run for a recipe."""
    run, params = f"runs/{recipe}", "params.yaml" if recipe == "vunet" else f"recipes/{recipe}.yaml"
    trained = (f"{run}/model", f"{run}/history")
    metrics = (f"metrics/{recipe}.json", f"metrics/full/{recipe}.json", f"plots/{recipe}")
    state = (f"{run}/resume", f"{run}/live", f"{run}/checkpoints")

    def stage(name: str) -> Callable[[SmallProject], Ended]:
        return lambda project: project.stage(name, recipe)

    def checkpoint(project: SmallProject) -> Ended:
        return project.command(
            "stages.eval_dump", params, run, "--checkpoint", f"{run}/checkpoints/step-000006", "--output", "dumped"
        )

    def predict(project: SmallProject) -> Ended:
        return project.command("figura.commands.predict", params, run, "photos", "--output", "predicted")

    targets = [
        Target("resume point", (f"{run}/resume/*/*",), stage("train"), trained, absent=trained),
        Target("model", (f"{run}/model/*",), stage("eval_dump"), (f"{run}/dump",), absent=(f"{run}/dump",)),
        Target("checkpoint", (f"{run}/checkpoints/step-000006/*",), checkpoint, ("dumped",)),
        Target("dump", (f"{run}/dump/**/*",), stage("metrics"), metrics, absent=metrics),
        Target("history", (f"{run}/history/*",), stage("metrics"), metrics, absent=metrics),
        Target("recipe", (params,), stage("train"), trained, by_hand=True, absent=(*trained, *state)),
        Target(
            "prepared data", (f"data/prepared/{dataset}/**/*",), stage("train"), trained, absent=(*trained, *state)
        ),
        Target(
            "prepared data, judged", (f"data/prepared/{dataset}/**/*",), stage("eval_dump"), (f"{run}/dump",),
            absent=(f"{run}/dump",),
        ),
    ]  # fmt: skip
    if recipe == "pix2pix":
        targets.append(Target("model, predicted", (f"{run}/model/*",), predict, ("predicted",)))
    return targets


def targets_of_dvc(recipe: str) -> list[Target]:
    """Return the targets in a repository of DVC: what the gate reads, and DVC's cache, from which stages get files."""
    run = f"runs/{recipe}"
    outputs, metrics = (f"{run}/model", f"{run}/dump", "data/prepared/pairs"), f"metrics/full/{recipe}.json"

    def gate(project: SmallProject) -> Ended:
        return project.command("figura.commands.ci.check_reproduction", "--markdown", "gate.md")

    def from_cache(project: SmallProject) -> Ended:
        ended = project.command("dvc.cli", "checkout", "--force")
        if ended.code not in (None, 0):
            said = [line for line in ended.err.splitlines() if line.startswith("ERROR: ")]
            return replace(ended, code=1, err="".join(f"error: dvc: {line}\n" for line in said))
        for stage in ("metrics", "eval_dump"):
            if (ended := project.stage(stage, recipe)).code != 0:
                break
        return ended

    whole = tuple(f"metrics/{one}{recipe}.json" for one in ("", "full/"))
    return [
        Target("metrics, gate", (metrics,), gate, ("gate.md",), dvc=True),
        Target("dvc.lock, gate", ("dvc.lock",), gate, ("gate.md",), dvc=True),
        Target(
            "cache of DVC", (".dvc/cache/files/**/*",), from_cache, (f"{run}/dump", *whole), absent=outputs, dvc=True
        ),
    ]


@dataclass(frozen=True)
class Case:
    """What was damaged and how, and what came of it."""

    number: int
    recipe: str
    target: str
    kind: str
    file: str
    outcome: str
    why: str
    seconds: float


class Damage:
    """A project of these recipes, stopped in a training each too, and what the commands make of undamaged files."""

    def __init__(self, folder: Path, names: Sequence[str] = HELD) -> None:
        self.whole, self.scratch = SmallProject(folder / "whole"), folder / "case"
        self.whole.folder.mkdir(parents=True)
        self.whole.make(names)
        stopped = self.whole.copy(folder / "stopped")
        self.expected: dict[tuple[str, str], dict[str, bytes]] = {}
        self.targets: list[tuple[str, Target]] = []
        for name in names:
            for path in (f"runs/{name}/{part}" for part in ("model", "history", "live", "checkpoints", "dump")):
                remove(stopped.folder / path)
            ended = stopped.stage("train", name, prepare=lambda: killed_before(8))
            assert ended.code == -signal.SIGKILL, ended.out + ended.err
            copied = stopped.folder / f"runs/{name}/resume"
            assert any(copied.glob("0*")), f"{copied}: no resume point"
            copied.rename(self.whole.folder / f"runs/{name}/resume")
            self.targets += [(name, one) for one in target_of(name, "pairs" if name == "pix2pix" else "people")]
        self.repository = self.whole.copy(folder / "repository")
        if "pix2pix" in names:
            dvc_repository(self.repository.folder, "pix2pix", "exact")
            self.targets += [("pix2pix", one) for one in targets_of_dvc("pix2pix")]
        for name, target in self.targets:
            project = self.ready(target)
            project.checked(target.command(project))
            self.expected[name, target.name] = contents(project.folder, *target.results)

    def ready(self, target: Target) -> SmallProject:
        """Return a copy of the project in which the command of a target has everything to do."""
        project = (self.repository if target.dvc else self.whole).copy(self.scratch)
        for name in target.absent:
            remove(project.folder / name)
        return project

    def case(self, number: int, seed: int, only: str | None = None) -> Case:
        """Do one case; the same number and seed, on the same project, damage the same bytes."""
        chance = random.Random(f"{seed}/{number}")
        targets = [one for one in self.targets if only in (None, one[1].name)]
        recipe, target = targets[number % len(targets)]
        project = self.ready(target)
        files = sorted(path for one in target.files for path in project.folder.glob(one) if path.is_file())
        kind, path = chance.choice(list(KINDS)), chance.choice(files)
        detail = KINDS[kind](path, chance, files)
        began = time.monotonic()
        ended = target.command(project)
        outcome, why = self.judge(recipe, target, project, ended)
        file = f"{path.relative_to(project.folder)} ({detail})"
        return Case(number, recipe, target.name, kind, file, outcome, why, time.monotonic() - began)

    def judge(self, recipe: str, target: Target, project: SmallProject, ended: Ended) -> tuple[str, str]:
        """Return the outcome, and the reason if it is a loss."""
        if ended.fault is not None:
            return LOST, ended.fault
        if ended.code == 1:
            return DETECTED, ended.errors[0]
        now, expected = contents(project.folder, *target.results), self.expected[recipe, target.name]
        if now == expected:
            return HARMLESS, ""
        other = sorted(name for name in now.keys() | expected.keys() if now.get(name) != expected.get(name))
        if target.by_hand and read_yaml(project.folder / target.files[0]) != read_yaml(
            self.whole.folder / target.files[0]
        ):
            return OTHER_RECIPE, ""
        return LOST, f"exit status 0, and {len(other)} files differ: {', '.join(other[:4])}"


def killed_before(iteration: int) -> None:
    """Let the training of this process be killed before an iteration."""
    iterate = Trainer.iterate

    def watched(self: Trainer, *arguments: object, **keywords: object) -> object:
        if self.iteration == iteration:
            os.kill(os.getpid(), signal.SIGKILL)
        return iterate(self, *arguments, **keywords)  # type: ignore[arg-type]

    Trainer.iterate = watched  # type: ignore[assignment,method-assign]


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def rewrite(path: Path, content: bytes) -> None:
    """Write in place, and leave times and mode as they are: a disk that loses bytes changes neither."""
    before = path.stat()
    path.chmod(0o644)  # DVC's cache is read-only
    with path.open("r+b") as file:
        file.truncate(len(content))
        file.write(content)
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncated(path: Path, chance: random.Random, files: Sequence[Path]) -> str:
    """Keep a beginning: none of it, all but a byte, or any."""
    content = path.read_bytes()
    kept = chance.choice([0, max(len(content) - 1, 0), chance.randrange(len(content) + 1)])
    rewrite(path, content[:kept])
    return f"{kept} of {len(content)} bytes left"


def zeroed(path: Path, chance: random.Random, files: Sequence[Path]) -> str:
    """Replace a range by zeros, up to all of it."""
    content = bytearray(path.read_bytes())
    begin = chance.choice([0, chance.randrange(len(content) + 1)])
    end = min(len(content), chance.choice([len(content), begin + 1, begin + 512]))
    content[begin:end] = bytes(end - begin)
    rewrite(path, bytes(content))
    return f"bytes {begin} to {end} of {len(content)}"


def flipped(path: Path, chance: random.Random, files: Sequence[Path]) -> str:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if not content:
        return "empty"
    place, bit = chance.randrange(len(content)), chance.randrange(8)
    content[place] ^= 1 << bit
    rewrite(path, bytes(content))
    return f"bit {bit} of byte {place} of {len(content)}"


def deleted(path: Path, chance: random.Random, files: Sequence[Path]) -> str:
    """Remove the file."""
    path.unlink()
    return "the file"


def swapped(path: Path, chance: random.Random, files: Sequence[Path]) -> str:
    """Exchange the contents of two files of the same suffix, or two ranges of the one that is alone."""
    others = [one for one in files if one != path and one.suffix == path.suffix]
    content = path.read_bytes()
    if others:
        other = chance.choice(others)
        rewrite(path, other.read_bytes())
        rewrite(other, content)
        return f"with {other.name}"
    length = chance.randint(1, max(len(content) // 4, 1))
    first = chance.randrange(max(len(content) - 2 * length, 1))
    second = first + length
    rewrite(
        path, content[:first] + content[second : second + length] + content[first:second] + content[second + length :]
    )
    return f"{length} bytes at {first} and {second}"


def appended(path: Path, chance: random.Random, files: Sequence[Path]) -> str:
    """Add bytes to the end."""
    more = chance.choice([b"\0", b"\n", chance.randbytes(100), path.read_bytes()])
    rewrite(path, path.read_bytes() + more)
    return f"{len(more)} bytes"


KINDS: dict[str, Callable[[Path, random.Random, Sequence[Path]], str]] = {
    "truncated": truncated, "zeroed": zeroed, "flipped": flipped, "deleted": deleted, "swapped": swapped,
    "appended": appended,
}  # fmt: skip


def table(cases: Sequence[Case]) -> Iterator[str]:
    """Yield lines: outcomes by what was damaged and by kind, then each loss."""
    for title, of in (("target", "target"), ("kind", "kind")):
        counts = Counter((getattr(case, of), case.outcome) for case in cases)
        rows = dict.fromkeys(getattr(case, of) for case in cases)
        yield f"{title:<24}{'cases':>7}" + "".join(f"{name:>16}" for name in OUTCOMES)
        for row in rows:
            numbers = [counts[row, name] for name in OUTCOMES]
            yield f"{row:<24}{sum(numbers):>7}" + "".join(f"{number:>16}" for number in numbers)
        totals = Counter(case.outcome for case in cases)
        yield f"{'all':<24}{len(cases):>7}" + "".join(f"{totals[name]:>16}" for name in OUTCOMES)
        yield ""
    for case in cases:
        if case.outcome == LOST:
            yield f"LOST case {case.number}: {case.recipe}, {case.target}: {case.kind} {case.file}: {case.why}"


OUTCOMES = (DETECTED, HARMLESS, OTHER_RECIPE, LOST)


def main(arguments: list[str] | None = None) -> int:
    """Do the cases and print the table; return 1 if any is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.damage", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="do this case alone")
    parser.add_argument("--only", metavar="TARGET", help="damage these files alone, such as 'resume point'")
    parser.add_argument("--recipes", nargs="+", default=HELD, metavar="NAME", help="default: pix2pix vunet")
    args = parser.parse_args(arguments)
    cases, began = list[Case](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        damage = Damage(Path(folder), args.recipes)
        print(f"project made in {time.monotonic() - began:.0f} s", flush=True)
        for number in range(args.cases) if args.case is None else [args.case]:
            cases.append(damage.case(number, args.seed, args.only))
            if args.case is not None or cases[-1].outcome == LOST:
                print(cases[-1], flush=True)
    print(*table(cases), f"{time.monotonic() - began:.0f} s", sep="\n")
    return int(any(case.outcome == LOST for case in cases))


if __name__ == "__main__":
    sys.exit(main())

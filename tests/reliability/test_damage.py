"""Damaged files: every one is detected, with one clear message, or harmless; never does another result come of it.

A case damages one file of a tiny project (its bytes, not its times, as a disk does it) and runs the command that reads
it. The command must end with 1 and one bounded message, or with 0 and the results of an undisturbed run, byte by byte.
Of a recipe that people write, each other content that is valid is another recipe, and no damage; of a recipe in a model
folder it is damage.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pipeline.dag import recipes

from figura.base.yaml12 import read_yaml
from reliability import CASES, SEED
from reliability.small_project import Ended, SmallProject, dvc_repository, finished_project

pytestmark = pytest.mark.slow
RECIPES = ("pix2pix", "vunet") if CASES else ("pix2pix",)


@dataclass(frozen=True)
class Target:
    """Files that one command reads, as patterns below the project, and what the command makes of them."""

    files: str
    command: Callable[[SmallProject], Ended]
    results: tuple[str, ...]
    absent: tuple[str, ...] = ()
    """What is removed before beside the results, as it would spare the command from reading the files."""
    by_hand: bool = False
    dvc: bool = False
    """Whether the project is a repository of git and DVC."""
    expected: dict[str, bytes] = field(default_factory=dict)


def targets_of(recipe: str) -> list[Target]:
    """Return what can be damaged where all stages of a recipe have run."""
    run, params, data = f"runs/{recipe}", recipes()[recipe]["params"], f"data/prepared/{recipes()[recipe]['data']}/**/*"
    trained, dumped = (f"{run}/model", f"{run}/history"), (f"{run}/dump",)
    metrics = (f"metrics/{recipe}.json", f"metrics/full/{recipe}.json", f"plots/{recipe}")
    state = (f"{run}/resume", f"{run}/live", f"{run}/checkpoints")

    def stage(name: str) -> Callable[[SmallProject], Ended]:
        return lambda project: project.stage(name, recipe)

    def checkpoint(project: SmallProject) -> Ended:
        words = (params, run, "--checkpoint", f"{run}/checkpoints/step-000006", "--output", "dumped")
        return project.command("stages.eval_dump", *words)

    return [
        Target(f"{run}/resume/*/*", stage("train"), trained),
        Target(f"{run}/model/*", stage("eval_dump"), dumped),
        Target(f"{run}/checkpoints/step-000006/*", checkpoint, ("dumped",)),
        Target(f"{run}/dump/**/*", stage("metrics"), metrics),
        Target(f"{run}/history/*", stage("metrics"), metrics),
        Target(params, stage("train"), trained, state, by_hand=True),
        Target(data, stage("train"), trained, state),
        Target(data, stage("eval_dump"), dumped),
    ]


def targets_of_pix2pix() -> list[Target]:
    """Return what predictions read, what the gate reads, and DVC's cache, from which stages get files."""
    outputs = ("runs/pix2pix/model", "runs/pix2pix/dump", "data/prepared/pairs")
    whole = ("metrics/pix2pix.json", "metrics/full/pix2pix.json")

    def predict(project: SmallProject) -> Ended:
        words = ("recipes/pix2pix.yaml", "runs/pix2pix", "photos", "--output", "predicted")
        return project.command("figura.commands.predict", *words)

    def gate(project: SmallProject) -> Ended:
        return project.command("figura.commands.ci.check_reproduction", "--markdown", "gate.md")

    def from_cache(project: SmallProject) -> Ended:
        ended = project.command("dvc.cli", "checkout", "--force")
        if ended.code not in (None, 0):
            said = [line for line in ended.err.splitlines() if line.startswith("ERROR: ")]
            return replace(ended, code=1, err="".join(f"error: dvc: {line}\n" for line in said))
        for stage in ("metrics", "eval_dump"):
            if (ended := project.stage(stage, "pix2pix")).code != 0:
                break
        return ended

    return [
        Target("runs/pix2pix/model/*", predict, ("predicted",)),
        Target("metrics/full/pix2pix.json", gate, ("gate.md",), dvc=True),
        Target("dvc.lock", gate, ("gate.md",), dvc=True),
        Target(".dvc/cache/files/**/*", from_cache, ("runs/pix2pix/dump", *whole), outputs, dvc=True),
    ]


class Damage:
    """A project of these recipes, stopped in a training each too, and what the commands make of undamaged files."""

    def __init__(self, whole: SmallProject, folder: Path) -> None:
        self.whole, self.scratch = whole, folder / "case"
        self.repository = self.whole.copy(folder / "repository")
        dvc_repository(self.repository.folder, "pix2pix", "exact")
        self.targets = [one for name in RECIPES for one in targets_of(name)] + targets_of_pix2pix()
        for target in self.targets:
            project = self.ready(target)
            ended = target.command(project)
            assert ended.code == 0, ended.err
            target.expected.update(project.contents(*target.results))

    def ready(self, target: Target) -> SmallProject:
        """Return a copy of the project in which the command of a target has everything to do."""
        project = (self.repository if target.dvc else self.whole).copy(self.scratch)
        for name in (*target.absent, *target.results):
            project.remove(name)
        return project


@pytest.fixture(scope="module")
def damage(tmp_path_factory: pytest.TempPathFactory) -> Damage:
    whole = finished_project(RECIPES, tmp_path_factory.getbasetemp())
    return Damage(whole, tmp_path_factory.mktemp("damage"))


@pytest.mark.parametrize("number", range(CASES or 36))
def test_damage_is_detected_or_harmless(damage: Damage, number: int) -> None:
    """The same number and seed, on the same project, damage the same bytes."""
    chance, target = random.Random(f"{SEED}/{number}"), damage.targets[number % len(damage.targets)]
    project = damage.ready(target)
    files = sorted(path for path in project.folder.glob(target.files) if path.is_file())
    kind, path = chance.choice(KINDS), chance.choice(files)
    kind(path, chance, files)
    print(f"{path.relative_to(project.folder)}, {kind.__name__}")
    ended = target.command(project)
    ended.check()
    if ended.code == 0 and not (target.by_hand and read_yaml(path) != read_yaml(damage.whole.folder / target.files)):
        found = project.contents(*target.results)
        assert sorted(name for name in found | target.expected if found.get(name) != target.expected.get(name)) == []


def rewrite(path: Path, content: bytes) -> None:
    """Write in place, and leave times and mode as they are: a disk that loses bytes changes neither."""
    before = path.stat()
    path.chmod(0o644)  # DVC's cache is read-only
    with path.open("r+b") as file:
        file.truncate(len(content))
        file.write(content)
    path.chmod(before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncated(path: Path, chance: random.Random, files: Sequence[Path]) -> None:
    """Keep a beginning: none of it, all but a byte, or any."""
    content = path.read_bytes()
    rewrite(path, content[: chance.choice([0, max(len(content) - 1, 0), chance.randrange(len(content) + 1)])])


def zeroed(path: Path, chance: random.Random, files: Sequence[Path]) -> None:
    """Replace a range by zeros, up to all of it."""
    content = bytearray(path.read_bytes())
    begin = chance.choice([0, chance.randrange(len(content) + 1)])
    end = min(len(content), chance.choice([len(content), begin + 1, begin + 512]))
    content[begin:end] = bytes(end - begin)
    rewrite(path, bytes(content))


def flipped(path: Path, chance: random.Random, files: Sequence[Path]) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        rewrite(path, bytes(content))


def deleted(path: Path, chance: random.Random, files: Sequence[Path]) -> None:
    """Remove the file."""
    path.unlink()


def swapped(path: Path, chance: random.Random, files: Sequence[Path]) -> None:
    """Exchange the contents of two files of the same suffix, or two ranges of the one that is alone."""
    others = [one for one in files if one != path and one.suffix == path.suffix]
    content = path.read_bytes()
    if others:
        other = chance.choice(others)
        rewrite(path, other.read_bytes())
        rewrite(other, content)
        return
    length = chance.randint(1, max(len(content) // 4, 1))
    first = chance.randrange(max(len(content) - 2 * length, 1))
    second = first + length
    middle = content[second : second + length] + content[first:second]
    rewrite(path, content[:first] + middle + content[second + length :])


def appended(path: Path, chance: random.Random, files: Sequence[Path]) -> None:
    more = chance.choice([b"\0", b"\n", chance.randbytes(100), path.read_bytes()])
    rewrite(path, path.read_bytes() + more)


KINDS = (truncated, zeroed, flipped, deleted, swapped, appended)

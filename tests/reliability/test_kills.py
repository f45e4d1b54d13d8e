"""Kills at any moment, and two of anything at once: no result changes, no file is lost, no traceback is printed."""

import hashlib
import os
import random
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import pytest
from running import processes_in, workers

from figura.base.errors import Interrupted
from reliability import CASES, SEED
from reliability.workplace import LIMIT, Child, Workplace, copy, until, wait

pytestmark = pytest.mark.slow
KILL, TERM, USR1, INT = SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
RECIPES = ("pix2pix", "vunet", "pose", "detection", "super_resolution") if CASES else ("pix2pix",)
TARGETS = {"train": 4, "train in two": 2, "eval-dump": 2, "eval-dump in two": 1, "metrics": 1, "prepare": 1, "repro": 2}
"""What is killed in the long form, and how often beside the others."""
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
STOPPED = {TERM: Interrupted.code, USR1: Interrupted.code, INT: 130}
"""The exit statuses that docs/machines.md promises."""
DVC_STOPPED = (255, 252, 130)  # a stage failed; interrupted
TRACEBACK = "Traceback (most recent call last)"
ORPHAN = re.compile(
    r'Traceback \(most recent call last\):\n(?:  .*\n)*  File ".*/multiprocessing/spawn\.py".*\n(?:  .*\n)*'
    r"EOFError: Ran out of input\n"
)
"""What Python prints in a process that was just being started when its parent was killed."""
NOT_OURS = ("torchinductor_*", "pymp-*", "figura-launch-*")
"""PyTorch's cache, and what Python and PyTorch's launcher remove unless they are killed; the system clears them."""


@dataclass(frozen=True)
class Blow:
    """One kill: the signal, to whom, and when: `seconds` after the start, or after the `count`-th new match."""

    number: signal.Signals
    whom: str
    pattern: str | None = None
    count: int = 1
    seconds: float = 0.0


EVERY_STAGE = (
    Blow(KILL, "group", "data/prepared/.*.partial/*"),
    Blow(KILL, "group", "runs/*/resume/0*"),
    Blow(TERM, "stage", "runs/*/resume/0*"),
    Blow(KILL, "stage", "runs/*/history/*"),
    Blow(INT, "group", "runs/*/dump/*.zip"),
    Blow(KILL, "launcher", "plots/*/*"),
)


@pytest.fixture(scope="module", params=RECIPES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """The tiny project, after all stages of one recipe."""
    return Workplace(tmp_path_factory.mktemp("kills"), request.param)


@pytest.fixture
def work(place: Workplace) -> Workplace:
    """The same, as it was after its first run."""
    place.restore()
    return place


def test_whatever_is_killed_dvc_repro_ends_in_the_same_files_and_hashes(work: Workplace) -> None:
    assert torture(work, "repro", 1, EVERY_STAGE) == [True] * len(EVERY_STAGE)


@pytest.mark.skipif(not CASES, reason="the long form, which CASES in the environment asks for")
@pytest.mark.parametrize("number", range(CASES or 1))
def test_kills_that_are_drawn_change_nothing(work: Workplace, number: int) -> None:
    chance = random.Random(f"{SEED}/{work.recipe}/{number}")
    (target,) = chance.choices(list(TARGETS), list(TARGETS.values()))
    stage, processes = target.removesuffix(" in two"), 2 if target.endswith(" in two") else 1
    blows = [drawn(chance, work, stage, processes) for _ in range(chance.choice((1, 1, 2, 3)))]
    assert len(torture(work, stage, processes, blows)) == len(blows)


def drawn(chance: random.Random, work: Workplace, stage: str, processes: int) -> Blow:
    """Draw a kill: at any time, or when something is written."""
    whom = ["group", "launcher", *(["rank 0", "rank 1"] if processes > 1 else [])]
    number, to = chance.choice(SIGNALS), chance.choice(whom + ["stage"] * (stage == "repro"))
    if chance.random() < 0.4:
        return Blow(number, to, seconds=chance.uniform(0, work.seconds / (1 if stage == "repro" else 3)))
    pattern = chance.choice(WRITES[chance.choice(list(WRITES)) if stage == "repro" else stage])
    count = chance.choice((1, 1, 2, 3)) if pattern.endswith("*") else 1
    return Blow(number, to, pattern, count, chance.uniform(0, chance.choice((0.0, 0.02, 0.5))))


def torture(work: Workplace, stage: str, processes: int, blows: Sequence[Blow]) -> list[bool]:
    """Start a stage again and again, kill it, let it end, and check all files; return which blows met somebody."""
    expected = work.whole
    work.remove(work.outputs(stage))
    if (stage, processes) == ("train", 2):  # which rounds otherwise
        assert wait(work.start(stage, processes), LIMIT) == 0, work.said()
        expected = work.files()
        work.remove(work.outputs(stage))
    furthest, met = 0, []
    for blow in (*blows, None):
        if stage == "train":  # as DVC does
            work.remove(work.outputs(stage)[:2])
        child = work.start(stage, processes, **({} if stage == "repro" else {"DVC_STAGE": f"{stage}@{work.recipe}"}))
        reached = furthest
        if blow:
            reached = max(furthest, point_when(work, child, blow))
            met.append(strike(work, child, blow))
        status = wait(child, LIMIT)
        assert status is not None, f"{blow}: hung for {LIMIT} s"
        assert until(lambda: not processes_in(work.folder), LIMIT), f"{blow}: {processes_in(work.folder)}"
        said = ORPHAN.sub("", work.said()) if blow and blow.number == KILL else work.said()
        assert TRACEBACK not in said, f"{blow}: {said[-2000:]}"
        assert status in (statuses(stage, blow, said) if blow and met[-1] else {0}), f"{blow}: {said[-2000:]}"
        if furthest and re.search(r"\d+ steps of \d+ examples", said):
            resumed = [int(number) for number in re.findall(r"resumed after iteration (\d+)", said)]
            assert max(resumed, default=0) >= furthest, f"{blow}: there was a resume point of {furthest}"
        furthest = reached
    assert status == 0, work.said()
    assert work.differences(expected) == []
    assert stage != "repro" or work.project.outputs() == work.hashes
    left = [path for path in work.temporary.iterdir() if not any(map(path.match, NOT_OURS))]
    assert left == []
    return met


def statuses(stage: str, blow: Blow, said: str) -> set[int]:
    """Return the exit statuses that may come of a blow that met somebody."""
    number = blow.number
    if stage == "repro":
        return {0, *DVC_STOPPED, -number}
    if number == KILL:
        return {0, 1} if blow.whom.startswith("rank") else {0, -number}
    unheard = not re.search(r"^(launch|error|interrupted): ", said, re.MULTILINE) or stage in ("prepare", "metrics")
    if number == INT and not re.search(r"\d+ steps of \d+ examples", said):
        return {0, STOPPED[number], -number}  # PyTorch was loaded; shells tell both as 130
    return {0, STOPPED[number]} | ({-number} if unheard else set())  # Python itself was starting, or had ended


def point_when(work: Workplace, child: Child, blow: Blow) -> int:
    """Wait for the moment of a blow; return the last resume point that was there."""

    def matches() -> set[str]:  # others write and remove them meanwhile, which `Path.glob` does not take
        return set(glob(blow.pattern, root_dir=work.folder)) if blow.pattern else set()

    before, new = matches(), set[str]()

    def reached() -> bool:
        new.update(matches() - before)
        return blow.pattern is None or len(new) >= blow.count or child.poll() is not None

    until(reached, LIMIT, 0.002)
    time.sleep(blow.seconds)
    points = (path.name for path in (work.folder / work.run / "resume").glob("0*"))
    return max((int(name) for name in points if name.isdecimal()), default=0)


def strike(work: Workplace, child: Child, blow: Blow) -> bool:
    """Send the signal; return whether somebody was there to get it."""
    if child.poll() is not None:
        return False
    try:
        if blow.whom == "group":
            os.killpg(child.pid, blow.number)
        elif blow.whom == "launcher":
            os.kill(child.pid, blow.number)
        elif blow.whom.startswith("rank"):
            os.kill(workers(work.folder)[int(blow.whom.removeprefix("rank "))], blow.number)
        else:
            running = {number: one.arguments for number, one in processes_in(work.folder).items()}
            os.kill(next(n for n, words in running.items() if "-m" in words and words[0] != "/bin/sh"), blow.number)
    except (LookupError, StopIteration):  # no process of this number, or not yet
        return False
    return True


# Two at once


@contextmanager
def held(work: Workplace, stage: str, pattern: str) -> Iterator[Child]:
    """Inside, a stage stands still after a file appeared; then it goes on, and ends well."""
    work.remove(work.outputs(stage))
    child = work.start(stage)
    try:
        assert until(lambda: list(work.folder.glob(pattern)) or child.poll() is not None, LIMIT, 0.001)
        child.send_signal(signal.SIGSTOP)
        assert child.poll() is None, work.said()
        yield child
    finally:
        child.send_signal(signal.SIGCONT)
        status = wait(child, LIMIT)
    assert status == 0, work.said()


def refused(work: Workplace, stage: str) -> str:
    """Run a stage that must end with exit status 1 and one error; return its line."""
    log = work.log.with_name("refused")
    assert wait(work.start(stage, log=log), LIMIT) == 1
    (line,) = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
    return line


def test_a_run_that_is_in_training_refuses_others_and_says_who_is_at_work(work: Workplace) -> None:
    with held(work, "train", "runs/*/resume/0*") as child:
        copy(work.saved / work.run / "model", work.folder / work.run / "model")
        for stage in ("train", "eval-dump"):
            line = refused(work, stage)
            assert line.startswith(f"error: {work.run}: process {child.pid} on {socket.gethostname()}, since ")
            assert f"figura.launch train {work.params} {work.run}" in line
            assert line.endswith("is at work there; wait for it, or stop it")
        shutil.rmtree(work.folder / work.run / "model")
    assert work.differences() == []


def test_a_dataset_that_is_being_prepared_is_not_prepared_twice(work: Workplace) -> None:
    with held(work, "prepare", "data/prepared/.*.partial/*") as child:
        assert refused(work, "prepare").startswith(f"error: data/prepared/{work.data}: process {child.pid} on ")
    assert work.differences() == []


def test_two_predictions_into_one_folder_are_as_one(work: Workplace) -> None:
    if work.recipe != "pix2pix":
        pytest.skip("its pairs are prepared pictures, which can be predicted from")
    unpacked = work.log.with_name("unpacked")
    shutil.unpack_archive(work.folder / "data/prepared/pairs/validation.zip", unpacked)
    photos = [str(path) for path in sorted(unpacked.rglob("*.png"))[:4]]
    command = ["python", "-m", "figura", "predict", work.params, work.run, *photos]
    command += ["--set", "predict.data.layout=pairs", "--output"]
    logs = [work.log.with_name(f"predict-{number}") for number in range(3)]
    names = ("both", "both", "alone")
    children = [work.start([*command, name], log=log) for name, log in zip(names, logs, strict=True)]
    assert [wait(child, LIMIT) for child in children] == [0, 0, 0], [one.read_text() for one in logs]
    alone, both = (hashes(work.folder / name) for name in ("alone", "both"))
    work.remove(("alone", "both"))
    assert both == alone
    assert len(alone) >= 4


def hashes(folder: Path) -> dict[str, str]:
    """Return the MD5 of each file below a folder, as DVC has them."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.md5(path.read_bytes()).hexdigest() for path in paths}

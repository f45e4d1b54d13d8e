"""The short form of kill torture, and two of anything at once: refused with who is at work, or both right."""

import hashlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reliability.kill_torture import Blow, Torture
from reliability.workplace import LIMIT, Workplace, copy, until, wait

pytestmark = pytest.mark.slow
KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
EVERY_STAGE = (
    Blow(KILL, "group", 0, "data/prepared/.*.partial/*"),
    Blow(KILL, "group", 0, "runs/*/resume/0*"),
    Blow(TERM, "stage", 0, "runs/*/resume/0*"),
    Blow(KILL, "stage", 0, "runs/*/history/*"),
    Blow(INT, "group", 0, "runs/*/dump/*/*", 3),
    Blow(KILL, "launcher", 0, "plots/*/*"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """The tiny project, after all stages of one recipe."""
    return Workplace(tmp_path_factory.mktemp("storm"), "pix2pix")


@pytest.fixture
def work(place: Workplace) -> Workplace:
    """The same, as it was after its first run."""
    place.restore()
    return place


@contextmanager
def held(work: Workplace, stage: str, pattern: str) -> Iterator[subprocess.Popen[bytes]]:
    """Inside, a stage stands still after a file appeared; then it goes on, and ends well."""
    work.remove(work.outputs(stage))
    log = work.temporary.parent / "held.log"
    child = work.start(work.command(stage), log)
    try:
        assert until(lambda: list(work.folder.glob(pattern)) or child.poll() is not None, LIMIT, 0.001)
        child.send_signal(signal.SIGSTOP)
        assert child.poll() is None, log.with_suffix(".err").read_text()
        yield child
    finally:
        child.send_signal(signal.SIGCONT)
        status = wait(child, LIMIT)
    assert status == 0, log.with_suffix(".err").read_text()


def refused(work: Workplace, command: list[str]) -> str:
    """Run a command that must end with exit status 1 and one line; return the line."""
    log = work.temporary.parent / "refused.log"
    assert wait(work.start(command, log), LIMIT) == 1
    (line,) = [line for line in log.with_suffix(".err").read_text().splitlines() if line]
    return line


def test_whatever_is_killed_dvc_repro_ends_in_the_same_files_and_hashes(work: Workplace) -> None:
    done = Torture(work, seed=0).round("repro", EVERY_STAGE)
    assert done.lost == []
    assert [one.delivered for one in done.starts] == [True] * len(EVERY_STAGE) + [False]


def test_a_run_that_is_in_training_refuses_others_and_says_who_is_at_work(work: Workplace) -> None:
    with held(work, "train", "runs/*/resume/0*") as child:
        copy(work.saved / "runs/pix2pix/model", work.folder / "runs/pix2pix/model")
        for stage in ("train", "eval-dump"):
            line = refused(work, work.command(stage))
            assert line.startswith(f"error: runs/pix2pix: process {child.pid} on {socket.gethostname()}, since ")
            assert "figura.launch train recipes/pix2pix.yaml runs/pix2pix" in line
            assert line.endswith("is at work there; wait for it, or stop it")
        shutil.rmtree(work.folder / "runs/pix2pix/model")
    assert work.differences() == []


@pytest.mark.parametrize("host", [socket.gethostname(), "another"])
def test_who_held_a_run_once_holds_nobody_up(host: str, work: Workplace) -> None:
    """The process that is named lives, as one that got the number of a dead one; or it is of another machine."""
    work.remove(work.outputs("eval-dump"))
    holder = {"pid": 1, "host": host, "since": "2026-01-01 00:00:00+00:00", "command": "python -m figura.launch train"}
    (work.folder / "runs/pix2pix/.lock").write_text(json.dumps(holder))
    log = work.temporary.parent / "log"
    assert wait(work.start(work.command("eval-dump"), log), LIMIT) == 0, log.with_suffix(".err").read_text()
    assert work.differences() == []


def test_a_dataset_that_is_being_prepared_is_not_prepared_twice(work: Workplace) -> None:
    with held(work, "prepare", "data/prepared/.*.partial/*") as child:
        line = refused(work, work.command("prepare"))
        assert line.startswith(f"error: data/prepared/pairs: process {child.pid} on ")
    assert work.differences() == []


def test_two_predictions_into_one_folder_are_as_one(work: Workplace) -> None:
    photos = [str(path) for path in sorted((work.folder / "data/prepared/pairs/validation").rglob("*.png"))[:4]]
    command = ["python", "-m", "figura", "predict", work.params, "runs/pix2pix", *photos]
    command += ["--set", "predict.data.layout=pairs", "--output"]
    logs = [work.temporary.parent / f"predict-{number}" for number in range(3)]
    children = [work.start([*command, name], log) for name, log in zip(("both", "both", "alone"), logs, strict=True)]
    said = [log.with_suffix(".err") for log in logs]
    assert [wait(child, LIMIT) for child in children] == [0, 0, 0], [one.read_text() for one in said]
    alone, both = (files(work.folder / name) for name in ("alone", "both"))
    work.remove(("alone", "both"))
    assert both == alone
    assert len(alone) >= 4


def test_two_temporary_experiments_beside_each_other_are_both_right(work: Workplace) -> None:
    """The second starts when the first trains: while DVC makes an experiment, it lets no other in, and says so."""
    changes = {"twice": "losses.G_L1.weight=200", "other": "seed=5"}
    logs = {name: work.temporary.parent / f"{name}.log" for name in changes}
    children = []
    for name, change in changes.items():
        command = ["dvc", "exp", "run", "--temp", "--name", name, "-S", f"{work.params}:{change}", "train@pix2pix"]
        child = work.start(command, logs[name])
        children.append(child)
        assert until(lambda log=logs[name], child=child: "Running stage" in log.read_text() or child.poll(), LIMIT)
    ends = [wait(child, LIMIT) for child in children]
    assert ends == [0, 0], [path.with_suffix(end).read_text() for path in logs.values() for end in (".log", ".err")]
    assert work.differences() == []  # the workspace stays as it was
    refs = work.project.run("git", "for-each-ref", "--format=%(refname)", "refs/exps").stdout.split()
    for name, change in changes.items():
        key, value = change.split("=")
        work.remove(work.outputs("train"))
        work.project.set(work.params, {key: int(value)})
        try:
            work.project.run(*work.command("train"))
        finally:
            work.project.run("git", "checkout", "-q", "--", work.params)
        (ref,) = (ref for ref in refs if ref.endswith(f"/{name}"))
        lock = work.project.run("git", "show", f"{ref}:dvc.lock").stdout
        assert recorded(work, lock, "runs/pix2pix/model") == files(work.folder / "runs/pix2pix/model")


def files(folder: Path) -> dict[str, str]:
    """Return the MD5 of each file below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def recorded(work: Workplace, lock: str, output: str) -> dict[str, str]:
    """Return the MD5 of each file of an output of train in a dvc.lock, as DVC's cache has them."""
    from ruamel.yaml import YAML

    outs = YAML(typ="safe").load(lock)["stages"]["train@pix2pix"]["outs"]
    (digest,) = (out["md5"] for out in outs if out["path"] == output)
    listing = json.loads((work.folder / ".dvc/cache/files/md5" / digest[:2] / digest[2:]).read_text())
    return {one["relpath"]: one["md5"] for one in listing}

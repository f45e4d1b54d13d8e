"""GPUs and cores that each run has for itself; the GPUs are pretended."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from figura import launch
from figura.base.errors import Interrupted, UserError
from figura.base.lock import hold
from figura.launch import devices

ROOT = Path(__file__).parents[2]
VISIBLE = ["0", "GPU-5a", "7"]
LAUNCH = """
import sys
from figura import launch
launch.gpus = lambda environment: len(environment["CUDA_VISIBLE_DEVICES"].split(","))
sys.exit(launch.main(["probe"]))
"""
STAGE = """
import json, os, sys
def main(arguments):
    names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
    facts = {"process": os.getpid(), "cores": sorted(os.sched_getaffinity(0))}
    print(json.dumps(facts | {name: os.environ.get(name) for name in names}), flush=True)
    sys.stdin.read()
if __name__ == "__main__":
    main(sys.argv[1:])
"""

Start = Callable[..., subprocess.Popen[str]]
several_cores = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores, and a system that assigns them",
)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a launcher, whose stage says what it has and stays until the end of the test."""
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/__init__.py").touch()
    (tmp_path / "stages/probe.py").write_text(STAGE)
    (tmp_path / "launch.py").write_text(LAUNCH)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "FIGURA_", "OMP_"))}
    settings = {
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        "TMPDIR": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": ",".join(VISIBLE),
        "FIGURA_PROCESSES": "1",
    }
    children: list[subprocess.Popen[str]] = []

    def started(**variables: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "launch.py"], cwd=tmp_path, env=clean | settings | variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        children.append(child)
        return child

    yield started
    for child in children:
        child.kill()
        child.communicate()


def facts(child: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the stage says, after the launcher's lines."""
    line = next(line for line in child.stdout if line.startswith("{"))
    return json.loads(line)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this process's locks."""
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(devices, "SECONDS", (0.01, 0.02))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return tmp_path / f"figura-{os.getuid()}"


def test_each_run_has_gpus_that_no_other_has_and_waits_for_them(start: Start) -> None:
    one, two = start(FIGURA_DEVICES="1", DVC_EXP_NAME="kl-1"), start(FIGURA_DEVICES="1")
    found = [facts(one), facts(two)]
    assert sorted(each["CUDA_VISIBLE_DEVICES"] for each in found) == VISIBLE[:2]
    assert found[0]["process"] == one.pid  # the lock holds, though the launcher has become the stage
    three = start(FIGURA_DEVICES="2")
    assert three.stdout.readline() == "launch: waiting for 2 of gpu 0, GPU-5a, 7\n"
    said = sorted([three.stdout.readline(), three.stdout.readline()], key=lambda line: "kl-1" not in line)
    freed = found[0]["CUDA_VISIBLE_DEVICES"]
    assert f"gpu-{freed}: process {one.pid} on " in said[0]
    assert ", experiment kl-1) is at work there" in said[0]
    assert f"process {two.pid} on " in said[1]
    one.kill()
    assert facts(three)["CUDA_VISIBLE_DEVICES"] == ",".join(sorted([freed, "7"], key=VISIBLE.index))


def test_without_the_variables_nothing_is_taken(start: Start, tmp_path: Path) -> None:
    found = facts(start())
    assert found["CUDA_VISIBLE_DEVICES"] == ",".join(VISIBLE)
    assert found["cores"] == sorted(os.sched_getaffinity(0))
    assert not list(tmp_path.glob("figura-*"))


@several_cores
def test_each_run_has_cores_of_its_own(start: Start) -> None:
    found = [facts(start(FIGURA_CORES="1")) for _ in range(2)]
    assert [each["OMP_NUM_THREADS"] for each in found] == ["1", "1"]
    (first,), (second,) = (each["cores"] for each in found)
    assert first != second
    assert {first, second} <= os.sched_getaffinity(0)
    assert launch.threads(2, cores=6) == launch.threads(1, cores=3) == {"OMP_NUM_THREADS": "3"}


def test_a_run_that_waits_holds_nothing_and_hears_signals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, Interrupted.signals)
    ready, told = os.pipe()
    try:
        if (holder := os.fork()) == 0:
            with hold(folder / "gpu-7"):
                os.write(told, b"1")
                signal.sigwait([signal.SIGTERM])
                os._exit(0)
        assert os.read(ready, 1) == b"1"
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # other threads do not block it
        with ExitStack() as held, pytest.raises(Interrupted, match="stopped while it waited"):
            devices.take("gpu", VISIBLE, 3, held)
        assert f"gpu-7: process {holder} on " in capsys.readouterr().out
        with ExitStack() as held:
            assert devices.take("gpu", VISIBLE, 2, held) == VISIBLE[:2]
    finally:
        os.kill(holder, signal.SIGTERM)
        os.waitpid(holder, 0)
        signal.sigwait([signal.SIGUSR1])
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_job_of_slurm_has_its_own_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")  # its GPU 0 is another than that of job 13
    with ExitStack() as held:
        assert devices.take("gpu", ["0"], 1, held) == ["0"]
        assert [str(path.relative_to(folder)) for path in folder.rglob(".lock")] == ["12/gpu-0/.lock"]


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    uid = os.getuid()
    monkeypatch.setattr(devices.os, "getuid", lambda: uid + 1)
    folder.rename(folder.with_name(f"figura-{uid + 1}"))
    with ExitStack() as held, pytest.raises(UserError, match="belongs to another user; set TMPDIR"):
        devices.take("gpu", ["0"], 1, held)


@pytest.mark.parametrize("text", ["3", "0", "-1", "one", "1.5", "9" * 10])
def test_numbers_that_this_machine_has_not_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"FIGURA_DEVICES: found '{text}'; expected an integer from 1 to 2, GPUs"):
        devices.requested({"FIGURA_DEVICES": text}, "FIGURA_DEVICES", 2, "GPUs")
    with pytest.raises(UserError, match=f"FIGURA_DEVICES: found '{text}'; the number of GPUs is 0; leave it unset"):
        devices.requested({"FIGURA_DEVICES": text}, "FIGURA_DEVICES", 0, "the number of GPUs")
    assert (
        devices.requested({}, "FIGURA_DEVICES", 2, "GPUs")
        == devices.requested({"FIGURA_DEVICES": ""}, "FIGURA_DEVICES", 2, "")
        == 0
    )


def test_gpus_have_the_names_that_cuda_knows() -> None:
    assert devices.visible({}, 2) == ["0", "1"]
    assert devices.visible({"CUDA_VISIBLE_DEVICES": "3, GPU-5a,-1,2"}, 2) == ["3", "GPU-5a"]  # CUDA stops at -1

"""Starting a stage in one process or several, stopping it, and killing parts of it."""

import errno
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import toy
from running import processes_in, workers

from figura import launch
from figura.base.errors import UserError
from figura.launch import slurm

ROOT = Path(__file__).parents[2]
STEPS = 150
SLOW = {
    "data.train": {"ramps": {"type": "test_launch.Slow", "length": 22, "jitter": 0.1}},
    "train.steps": STEPS,
    "train.evaluate_every": 45,
    "runtime.resume_every": 5,
}


class Slow(toy.Ramps):
    """Ramps that take their time, so that a signal finds a training at work."""

    def example(self, index, random):
        time.sleep(0.008)
        return super().example(index, random)


class Failing(Slow):
    """Ramps that one of several processes cannot read."""

    def example(self, index, random):
        if index == 9 and os.environ.get("RANK") == "1":
            raise RuntimeError("the file is broken")
        return super().example(index, random)


@pytest.fixture(scope="module")
def code(tmp_path_factory) -> Path:
    """The code as it is now: who edits it while the tests run makes no resume point invalid."""
    folder = tmp_path_factory.mktemp("code")
    for name in ("figura", "models", "stages"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("toy.py", "running.py", "stages/test_launch.py"):
        shutil.copy(ROOT / "tests" / name, folder)
    return folder


@pytest.fixture
def start(code) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a stage as DVC would; it hears Ctrl-C, which a shell keeps from what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield functools.partial(started, code)
    signal.signal(signal.SIGINT, before)


def started(code: Path, folder: Path, *, stage: str = "train", changes=None, processes: int) -> subprocess.Popen[str]:
    """Start a stage on the slow toy in a folder."""
    (folder / "toy.yaml").write_text(json.dumps(toy.changed(SLOW | (changes or {}))))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "FIGURA_"))}
    settings = {
        "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "MALLOC_TOP_PAD_": "5",
        "TMPDIR": str(folder), "FIGURA_PROCESSES": str(processes), "FIGURA_INTERRUPTED": str(folder / "interrupted"),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "figura.launch", stage, "toy.yaml", "run"],
        cwd=folder, env=inherited | settings, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ended(child: subprocess.Popen[str], code: int, seconds: float = 300) -> str:
    """Wait for the end; return what was printed."""
    try:
        out = child.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise AssertionError(f"still there after {seconds} s:\n{child.communicate()[0]}") from None
    assert child.returncode == code, out
    return out


def outputs(folder: Path) -> dict[str, bytes]:
    """Return the files that a training leaves to DVC."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("model", "history")
        for path in sorted((folder / "run" / part).rglob("*"))
        if path.is_file()
    }
    assert files
    assert not (folder / "run/resume").exists()
    return files


def training(folder: Path, child: subprocess.Popen[str]) -> None:
    """Wait until a training writes another resume point than it started from."""
    before, deadline = points(folder), time.monotonic() + 300
    while not points(folder) - before:
        assert child.poll() is None, child.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def points(folder: Path) -> set[str]:
    return {path.name for path in (folder / "run/resume").glob("[0-9]*")}


def stopped_after(folder: Path) -> int:
    """Return the iteration of the latest resume point."""
    return max(int(point) for point in points(folder))


def wait_until_none_is_left(folder: Path) -> None:
    """Wait for the end of what dies with its launcher."""
    deadline = time.monotonic() + 60
    while processes_in(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_no_resume_would_follow_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("FIGURA_RESUME_ANYWAY", "true")
    with pytest.raises(UserError, match="FIGURA_RESUME_ANYWAY: found 'true'; expected 1"):
        launch.main(["train"])


def test_each_gpu_takes_one_process() -> None:
    assert launch.process_count({}, available=8) == 8
    assert launch.process_count({"FIGURA_PROCESSES": "2"}, available=8) == 2
    assert launch.process_count({"FIGURA_PROCESSES": "2"}, available=0) == 2
    with pytest.raises(UserError, match="FIGURA_PROCESSES: found 3; expected at most 2, one for each GPU"):
        launch.process_count({"FIGURA_PROCESSES": "3"}, available=2)


@pytest.mark.parametrize(
    ("batch", "most", "machines", "count"),
    [
        ("16", 8, 1, 8),
        ("4", 8, 1, 4),
        ("6", 4, 1, 3),
        ("7", 4, 1, 1),
        ("16", 8, 4, 4),
        ("4", 8, 3, 8),
        ("four", 8, 1, 8),
    ],
)
def test_a_training_takes_as_many_processes_as_can_share_its_batch(batch, most, machines, count, tmp_path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"data: {{batch_size: {batch}}}\n")
    found, said = launch.fitting_count(most, machines, recipe)
    assert found == count
    assert said == ("" if count == most else f" (not {most}, which cannot share data.batch_size {batch} evenly)")
    assert launch.fitting_count(most, machines, tmp_path / "none.yaml") == (most, "")
    heir = tmp_path / "heir.yaml"
    heir.write_text(f"data: {{extends: {recipe}#data}}\n")
    assert launch.fitting_count(most, machines, heir) == (found, said)
    heir.write_text("data: {extends: nothing.yaml#data}\n")
    assert launch.fitting_count(most, machines, heir) == (most, "")


def test_a_job_of_several_machines_without_srun_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4"}
    with pytest.raises(UserError, match="job 7 has 4 machines, and there is no `srun` here"):
        slurm.can_start(job)
    assert not slurm.can_start({"SLURM_JOB_ID": "7"})


@pytest.mark.parametrize("status", [0, 1, 74, 75, 130])
def test_the_status_of_a_failure_passes_through_srun(status, tmp_path) -> None:
    """One machine's, the highest of all; a failure counts more than how other machines end that it takes along."""
    told = slurm.raised(status)
    assert told < 256
    assert 0 < status < 75 or told == status
    code = (
        "from figura.launch.slurm import run_step; import os, sys; "
        f"sys.exit(run_step(['bash', '-c', 'exit {told}'], os.environ))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, env=os.environ | {"FIGURA_INTERRUPTED": ""}
    )
    assert done.returncode == status
    if 0 < status < 75:
        assert told > 128 + signal.SIGSYS  # the last but those of real time


def test_without_a_driver_pytorch_is_not_loaded() -> None:
    code = (
        "import sys, figura.launch as l; l.DRIVERS = (); l.shutil.which = lambda name: None; "
        "print(l.gpus({}), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"


def test_the_launcher_says_nothing_of_what_it_always_does(start, tmp_path) -> None:
    out = ended(start(tmp_path, stage="no_such_stage", processes=1), 1)
    assert out.splitlines() == ["error: python -m figura.launch: there is no stage 'no_such_stage'"]


IN_PLACE = """
import os, resource, sys, types
import numpy as np
from figura import launch
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(6_000_000)  # 46 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def stage(arguments):
    faults()
    print(os.getpid(), arguments, os.environ["MALLOC_TRIM_THRESHOLD_"], os.environ["GOMP_SPINCOUNT"], faults())
sys.modules["stages.probe"] = types.SimpleNamespace(main=stage)
launch.ctypes.util.find_library = lambda name: None  # tcmalloc would be preloaded into another process
print(os.getpid(), faults() > 100)
sys.exit(launch.main(["probe", "one"]))
"""


def test_one_process_is_the_launcher_itself_and_keeps_large_blocks() -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "FIGURA_", "MALLOC_"))}
    clean |= {"GOMP_SPINCOUNT": "7"}  # what the caller has set stays
    done = subprocess.run(
        [sys.executable, "-c", IN_PLACE], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    number, many = first.split()
    assert many == "True"
    assert last == f"{number} ['one'] {1 << 30} 7 0"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other OpenMP libraries")
def test_threads_of_a_stage_spin_for_a_short_time() -> None:
    stage = "import sys, types; from figura import launch; "
    stage += "sys.modules['stages.probe'] = types.SimpleNamespace(main=lambda arguments: __import__('torch')); "
    stage += "launch.main(['probe'])"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "FIGURA_", "OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", stage], cwd=ROOT, env=clean | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr  # libgomp has it from the environment


@pytest.mark.slow
def test_bad_input_is_said_once_by_several_processes(start, tmp_path) -> None:
    out = ended(start(tmp_path, changes={"train.steps": -3}, processes=2), 1)
    assert out.count("error:") == out.count("train.steps") == 1
    assert "Traceback" not in out
    assert not (tmp_path / "interrupted").exists()


@pytest.mark.slow
def test_one_of_two_fails_alone(start, tmp_path) -> None:
    data = {"ramps": SLOW["data.train"]["ramps"] | {"type": "test_launch.Failing"}}
    began = time.monotonic()
    out = ended(start(tmp_path, changes={"data.train": data}, processes=2), 1)
    assert time.monotonic() - began < 60
    assert "RuntimeError: the file is broken" in out
    assert "launch: process 1 (number " in out.splitlines()[-1]
    assert "ended with exit status 1; its error stands above" in out.splitlines()[-1]
    assert processes_in(tmp_path) == {}


def test_a_signal_that_comes_at_once_is_not_lost(start, tmp_path) -> None:
    child = start(tmp_path, processes=1)
    status, blocked = Path(f"/proc/{child.pid}/status"), 1 << signal.SIGUSR1 - 1
    while not int(status.read_text().partition("SigBlk:")[2].split()[0], 16) & blocked:
        time.sleep(0.01)
    child.send_signal(signal.SIGUSR1)  # while PyTorch is loaded
    assert "interrupted: SIGUSR1" in ended(child, 75)
    assert (tmp_path / "interrupted").exists()
    assert not (tmp_path / "run").exists()


@contextmanager
def ignoring(number: int) -> Iterator[None]:
    """Ignore a signal, as what is started within does until it says otherwise."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


LAST_MOMENT = """
import os, signal, sys
class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)  # Python has given up its handlers
late = Late()
"""
ENDINGS = {
    "a stage": """
from figura.base.exit_status import run
def main(arguments):
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.pause()
sys.exit(run(main))
""",
    "a launcher": """
from figura.launch.processes import start
stage = "import os, signal; os.kill(os.getppid(), signal.SIGUSR1); signal.pause()"
sys.exit(start([sys.executable, "-c", stage], 1, None))
""",
}


@pytest.mark.parametrize("what", ENDINGS)
def test_a_signal_at_the_last_moment_changes_nothing(what, code, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAST_MOMENT + ENDINGS[what]], cwd=code, capture_output=True, text=True, timeout=300,
        env=os.environ | {"FIGURA_INTERRUPTED": str(tmp_path / "interrupted")}, check=False,
    )  # fmt: skip
    assert done.returncode == 75, done
    assert (tmp_path / "interrupted").exists()


DEAF = """
import os, signal, time
from figura.base.exit_status import die_with_parent
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a process that waits inside NCCL
die_with_parent(os.environ.pop("FIGURA_LAUNCHER"))
os.kill(os.getppid(), signal.SIGINT)
time.sleep(100)
"""
IMPATIENT = f"""
import signal, sys
from figura.launch import processes
signal.signal(signal.SIGINT, signal.default_int_handler)
processes.AT_ONCE = 2
sys.exit(processes.start([sys.executable, "-c", {DEAF!r}], 1, None))
"""


def test_ctrl_c_ends_processes_that_do_not_hear_it(code, tmp_path) -> None:
    environment = os.environ | {"PYTHONPATH": str(code)}
    command = [sys.executable, "-c", IMPATIENT]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 130, done
    wait_until_none_is_left(tmp_path)


BEATING = """
import os, signal, sys, threading, time
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from figura.launch import processes
DynamicRendezvousHandler._keep_alive = lambda self: time.sleep(3)
threading.Timer(8, os.kill, [os.getpid(), signal.SIGTERM]).start()
status = processes.start([sys.executable, "-c", "import time; time.sleep(60)"], 1, None)
time.sleep(5)
sys.exit(status)
"""


@pytest.mark.slow
def test_nothing_is_printed_where_the_launcher_ends_during_a_heartbeat(code, tmp_path) -> None:
    """PyTorch's launcher beats every 5 s; a beat that outlives it ended in a traceback."""
    environment = os.environ | {"PYTHONPATH": str(code)}
    command = [sys.executable, "-c", BEATING]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (75, "", "")


@pytest.mark.slow
def test_two_processes_end_together_and_go_on_to_the_same_bytes(start, tmp_path_factory) -> None:
    whole, stopped = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("stopped")
    ended(start(whole, processes=2), 0)
    # each goes on from where the one before it ended
    for how, code in {
        "one hears": 75,
        "the launcher hears what DVC ignores": 75,
        "all hear": 75,
        "one is killed": 1,
        "the launcher is killed": -signal.SIGKILL,
        "ctrl-c": 130,
    }.items():
        with ignoring(signal.SIGTERM) if how == "the launcher hears what DVC ignores" else nullcontext():
            child = start(stopped, processes=2)
        training(stopped, child)
        ranks = workers(stopped)
        assert sorted(ranks) == [0, 1]
        if how == "one hears":
            os.kill(ranks[1], signal.SIGUSR1)
        elif how == "the launcher hears what DVC ignores":
            child.send_signal(signal.SIGTERM)
        elif how == "all hear":  # as in a job of Slurm; the launcher passes SIGTERM on once more
            for number, one in itertools.product((child.pid, *ranks.values()), (signal.SIGUSR1, signal.SIGTERM)):
                os.kill(number, one)
        elif how == "one is killed":
            os.kill(ranks[1], signal.SIGKILL)
        elif how == "the launcher is killed":  # nothing outlives it
            child.kill()
            wait_until_none_is_left(stopped)
        else:
            child.send_signal(signal.SIGINT)
        out = ended(child, code)
        assert processes_in(stopped) == {}, how
        assert (stopped / "interrupted").exists() == (code == 75), how
        if code == 75:
            assert out.count("interrupted:") == 1, out
            assert f"stopped after iteration {stopped_after(stopped)} of {STEPS}" in out
            assert "Traceback" not in out
            (stopped / "interrupted").unlink()
        elif code == 1:
            *_, last = out.splitlines()
            assert f"launch: process 1 (number {ranks[1]} on " in last
            assert "was killed by SIGKILL" in last
            assert "goes on from its last resume point" in last
    assert "resumed after iteration" in ended(start(stopped, processes=2), 0)
    assert outputs(stopped) == outputs(whole)


@pytest.mark.parametrize(
    ("codes", "status", "line"),
    [
        ((75, 1), 75, ""),
        ((1, 75), 75, ""),
        ((-9, 1), 1, "launch: process 0 (number 10 on "),
        ((1, 1), 1, "error: another "),
        ((-2, 1), 130, ""),  # Ctrl-C when it had ended, and Python was leaving
    ],
)
def test_who_lost_another_process_is_no_cause(codes, status, line, tmp_path, monkeypatch, capsys) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    from figura.base import exit_status as command
    from figura.launch import processes

    failures = {}
    for rank, code in enumerate(codes):
        file = tmp_path / f"{rank}.json"
        if code == 1:
            monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
            command._report(command.LEFT_ALONE, lost=True)
        failures[rank] = ProcessFailure(rank, 10 + rank, code, str(file))
    assert processes._ended(failures) == status
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert bool(said) == bool(line)


def test_half_a_report_is_never_left_for_the_launcher(tmp_path, monkeypatch, capsys) -> None:
    """The launcher may end a process that is writing its report, and the disk may be full."""
    from figura.base import exit_status

    def half(path: Path, content: bytes) -> None:
        path.write_text(content[: len(content) // 2].decode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    exit_status._report("the file is broken")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == "error: the file is broken\n"

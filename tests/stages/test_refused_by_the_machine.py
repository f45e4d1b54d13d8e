"""What the machine refuses (a path, space, memory) is one line and exit status 1; a bug keeps its traceback."""

import errno
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from torch import distributed
from two_processes import run_in_two

from figura.base.errors import printable
from figura.base.exit_status import refusal, run
from figura.base.files import write_text
from figura.base.yaml12 import to_yaml
from figura.commands.describe.command import main as describe
from stages import metrics, train


def said(main: Callable[[list[str]], None], capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run what fails; return its one line, without the prefix."""
    assert run(main, list(words)) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("launch")]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def calling(function: Callable[[], Any]) -> Callable[[list[str]], None]:
    return lambda _: function()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda: write_text(Path("file/below"), "x"),
            "file: File exists; remove or rename it, or choose another path",
        ),
        (
            lambda: Path("folder").write_text("x"),
            "folder: Is a directory; remove or rename it, or choose another path",
        ),
        (lambda: os.rename("nothing", "elsewhere"), "nothing -> elsewhere: No such file or directory"),
    ],
)  # fmt: skip
def test_paths_of_the_wrong_kind(call, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    assert said(calling(call), capsys) == line


def test_a_path_that_is_no_text_is_shown_as_escapes():
    assert refusal(OSError(errno.EIO, "Input/output error", "a\n\x1b[31m\udce9")) == (
        "a\\n\\x1b[31m\\udce9: Input/output error"
    )


@pytest.mark.parametrize(
    ("ask", "asked"),
    [
        (lambda: torch.zeros(10**14), "400000000000000 bytes"),
        (lambda: torch.zeros(2**62, 2), "sizes=[4611686018427387904, 2]"),
        (lambda: np.zeros(10**14), "728. TiB"),
        (lambda: bytearray(2**62), None),
    ],
)
def test_memory(ask, asked, capsys):
    what = "" if asked is None else f": {asked} were asked for"
    assert said(calling(ask), capsys) == (
        f"memory: more memory is needed than there is{what}; make the networks, the pictures or the batch smaller"
    )


@pytest.mark.parametrize("bug", [KeyError("x"), RuntimeError("x"), ValueError("y"), OSError("from a library")])
def test_a_bug_keeps_its_traceback(bug):
    def fail(_: list[str]) -> None:
        raise bug

    assert refusal(bug) is None
    with pytest.raises(type(bug)):
        run(fail, [])


def test_a_rank_whose_partner_ends_says_so(tmp_path):
    def left_alone() -> None:
        distributed.init_process_group("gloo")
        distributed.barrier()
        if distributed.get_rank() == 1:
            os._exit(0)
        try:
            for _ in range(1000):
                distributed.all_reduce(torch.zeros(100))
        except RuntimeError as error:
            (tmp_path / "said").write_text(str(refusal(error)))
        os._exit(0)

    run_in_two(left_alone)
    assert (tmp_path / "said").read_text() == (
        "another process of this run ended, and its own lines say why; `dvc repro` runs the stage again"
    )
    remote = "NCCL error in: x.cpp:1, remote process exited or there was a network error, NCCL version 2.27"
    assert refusal(distributed.DistBackendError(remote)) is not None


def test_a_file_where_the_run_or_the_output_should_be(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(to_yaml(toy.recipe()))
    Path("file").touch()
    Path("folder.svg").mkdir()
    assert said(train.main, capsys, "r.yaml", "file/run").startswith("file/run")
    assert "file/dump/" in said(metrics.main, capsys, "r.yaml", "file", "m.json", "plots")
    assert said(describe, capsys, "r.yaml", "--output", "folder.svg").startswith("folder.svg: Is a directory; remove")


def test_a_long_message_keeps_its_beginning_and_its_end():
    (line,) = printable("x" * 10**6 + "; do this").splitlines()
    assert line.startswith("x" * 700)
    assert line.endswith("x; do this")
    assert "[999,009 characters]" in line
    lines = printable("\n".join(map(str, range(1000)))).splitlines()
    assert lines == [*map(str, range(50)), "and 950 lines more"]
    assert printable("a\tb\x1b[2J\r\u202ec\ud800é空\nd") == "a\\tb\\x1b[2J\\r\\u202ec\\ud800é空\nd"


def hearing_ctrl_c(code):
    """Run Python code in a session of its own, where it hears SIGINT also if tests run in the background."""
    hears = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, preexec_fn=hears, timeout=300,
        start_new_session=True,
    )  # fmt: skip


def test_ctrl_c_leaves_no_traceback_while_a_stage_is_loaded_nor_later():
    code = (
        "import os, signal, sys\nsys.argv[0] = '-m'\nimport stages\n"  # as `python -m stages.train` does
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)\nfrom figura.base.exit_status import run\n"
        "sys.exit(run(lambda _: os.kill(os.getpid(), signal.SIGINT)))"
    )
    ended = hearing_ctrl_c(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "True\n", "error: interrupted\n")


def test_ctrl_c_in_a_finalizer_is_heard_and_what_it_left_half_made_is_silent():
    code = (
        "import os, signal, sys, time\nfrom figura.base.exit_status import run\n"
        "class Half:\n    def __del__(self):\n        raise AttributeError('half made')\n"
        "class Asks:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "def main(_):\n    Asks()\n    half = Half()\n    time.sleep(30)\n"
        "sys.exit(run(main, []))"
    )
    ended = hearing_ctrl_c(code)
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted\n")


def test_a_signal_in_a_finalizer_of_what_is_done_changes_nothing():
    code = (
        "import os, signal, sys, time\nfrom figura.base.exit_status import run\n"
        "class Asks:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGTERM)\n"
        "hook = sys.unraisablehook\nstatus = run(lambda _: Asks() and None, [])\n"
        "time.sleep(0.3)\nprint(status, sys.unraisablehook is hook)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 True\n", "")


def test_a_bug_after_a_signal_that_was_caught_keeps_its_traceback():
    code = (
        "import os, signal, sys\nfrom figura.base.exit_status import run\n"
        "def main(_):\n    try:\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n        pass\n    1 / 0\nsys.exit(run(main, []))"
    )
    ended = hearing_ctrl_c(code)
    assert ended.returncode == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_what_removes_semaphores_lives_through_a_signal_to_all():
    code = (
        "import os, signal, time\nfrom multiprocessing import resource_tracker\n"
        "from figura.synthetic.processes import processes\nwith processes(1, 8):\n"
        "    tracker = resource_tracker._resource_tracker._pid\n"
        "    os.kill(tracker, signal.SIGUSR1)\n    time.sleep(0.2)\n    print(os.waitpid(tracker, os.WNOHANG))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "(0, 0)\n"


@pytest.mark.parametrize(
    ("number", "name", "status", "line"),
    [
        ("SIGINT", "train.py", 130, "error: interrupted\n"),
        ("SIGTERM", "train.py", 75, "interrupted: SIGTERM; this stage begins again at the next `dvc repro`\n"),
        ("SIGTERM", "figura predict", 75, "interrupted: SIGTERM\n"),
    ],
)
def test_what_fails_because_a_signal_stopped_it_halfway_is_an_interruption(number, name, status, line):
    code = (
        f"import sys\nsys.argv[0] = '{name}'\n"
        "import os, signal, sys\nfrom figura.base.exit_status import run\n"
        "def main(_):\n    try:\n"
        f"        os.kill(os.getpid(), signal.{number})\n    finally:\n        raise RecursionError('half imported')\n"
        "sys.exit(run(main, []))"
    )
    ended = hearing_ctrl_c(code)
    assert (ended.returncode, ended.stderr) == (status, line)


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_processes_that_are_starting_say_nothing_of_ctrl_c(seconds):
    code = (
        "import os, signal, sys, threading\nfrom figura.synthetic.processes import processes\n"
        "from figura.base.exit_status import run\n"
        "def main(_):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"  # of the thread, which must not get it
        f"    threading.Timer({seconds}, os.killpg, [0, signal.SIGINT]).start()\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})\n"
        "    with processes(2, 16) as pool:\n        list(pool.map(abs, range(9)))\n"
        "        threading.Event().wait(20)\n"
        "sys.exit(run(main, []))"
    )
    ended = hearing_ctrl_c(code)
    assert (ended.returncode, ended.stderr) == (130, "error: interrupted\n")

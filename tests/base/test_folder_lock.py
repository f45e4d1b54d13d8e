"""One process at a time writes into the folder of a run."""

import errno
import fcntl
import json
import os
import signal
from contextlib import suppress

import pytest

from figura.base.errors import UserError
from figura.base.lock import hold


@pytest.fixture
def holder(run):
    """The number of a process that holds the lock, with a child that outlives it; both end with the test."""
    (ready, told), (waits, end) = os.pipe(), os.pipe()
    if (number := os.fork()) == 0:
        os.close(end)
        with hold(run):
            os.fork()
            os.write(told, b"1")
            os.read(waits, 1)  # until the test has closed its end
            os._exit(0)
    assert os.read(ready, 1) == b"1"
    yield number
    os.close(end)
    with suppress(ChildProcessError):
        os.waitpid(number, 0)


def test_a_second_process_is_refused_at_once_with_who_holds_it(run, holder):
    with pytest.raises(UserError) as caught, hold(run):
        pass
    said = str(caught.value)
    assert said.startswith(f"{run}: process {holder} on {os.uname().nodename}, since 20")
    assert "pytest" in said
    assert said.endswith(" is at work there; wait for it, or stop it")


def test_a_killed_process_holds_nothing_though_its_child_lives_on(run, holder):
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with hold(run), hold(run):
        assert json.loads((run / ".lock").read_text())["pid"] == os.getpid()


def test_other_folders_and_a_lock_left_by_anybody_are_free(run, holder):
    other = run.with_name("other")
    other.mkdir()
    (other / ".lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "2020", "command": "x"}) * 9)
    with hold(other):
        assert json.loads((other / ".lock").read_text())["pid"] == os.getpid()


def test_who_holds_it_is_unknown_where_the_text_is_damaged(run, holder):
    (run / ".lock").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"run: another process is at work there"), hold(run):
        pass


def test_a_file_system_without_locks_is_a_warning(run, monkeypatch, capsys):
    def no_locks(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with hold(run):
        pass
    assert capsys.readouterr().out == (
        f"warning: {run}/.lock: this file system has no locks (No locks available); start nothing else in {run}\n"
    )


def test_a_file_in_place_of_the_folder_is_told(run):
    run.touch()
    with pytest.raises(UserError, match=r"run/\.lock: cannot be written: File exists"), hold(run):
        pass

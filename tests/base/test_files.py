"""Files: replaced whole or not at all, read or refused, confirmed by sums, and locked by one process at a time."""

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
from contextlib import suppress

import pytest

from figura.base import files
from figura.base.checksums import damage, refuse_damaged, write_sums
from figura.base.errors import UserError
from figura.base.files import read_bytes, read_json, replacing, replacing_folder, tidy, write_bytes
from figura.base.lock import hold
from figura.base.tables import read_rows

OLD = {"a.txt": "old"}


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def status_of(call):
    """Return the exit status of a forked process that calls a function; negative for a signal, 1 for an error."""
    if (child := os.fork()) == 0:
        with suppress(Exception):
            call()
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("mask", "mode"), [("022", "644"), ("077", "600")])
def test_permissions_are_what_the_umask_leaves(tmp_path, mask, mode):
    def write():
        os.umask(int(mask, 8))
        files._umask.cache_clear()
        write_bytes(tmp_path / "a", b"a")

    assert status_of(write) == 0
    assert oct((tmp_path / "a").stat().st_mode)[-3:] == mode


def test_the_longest_name_that_the_system_takes_can_be_written(tmp_path):
    path = tmp_path / ("x" * 251 + ".png")
    write_bytes(path, b"a")
    assert path.read_bytes() == b"a"


def fill_the_disk(path):
    """A limit on the size of files stands for the disk: the write ends with an error in both cases."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write_bytes(path, b"x" * 1001)
    except OSError as error:
        os._exit(error.errno if error.filename == str(path) else 1)


def fail_while_writing(path):
    with replacing(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (path.parent, path.suffix)
        temporary.write_text("half")
        raise OSError("disk full")


def die_while_writing(path):
    with replacing(path) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("write", "status"), [(fill_the_disk, errno.EFBIG), (fail_while_writing, 1), (die_while_writing, -signal.SIGKILL)]
)
@pytest.mark.parametrize("before", [{}, OLD])
def test_a_failure_leaves_what_was_there(tmp_path, before, write, status):
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    assert status_of(lambda: write(tmp_path / "a.txt")) == status
    tidy(tmp_path)  # what a killed process leaves
    assert contents(tmp_path) == before


def unreadable(folder, kind):
    path = folder / kind
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "latin.json":
            path.write_bytes(b'{"a": "caf\xe9"}')
        case "deep.json":
            path.write_text("[" * 100_000)
        case "long.json":
            path.write_text("1" * 5_000)
        case "half.json":
            path.write_text('{"a": ')
        case "nul\0":
            pass
    return path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "no such file"),
        ("folder", "no regular file"),
        ("fifo", "no regular file"),
        ("device", "no regular file"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("nul\0", "no path of a file"),
        ("latin.json", "byte 10 is no UTF-8: the file is damaged or no text"),
        ("deep.json", "no readable JSON: nested too deeply"),
        ("long.json", "no readable JSON: Exceeds the limit (4300 digits)"),
        ("half.json", "no readable JSON: Expecting value: line 1 column 7"),
    ],
)
def test_what_cannot_be_read_is_an_error_with_advice(tmp_path, kind, reason):
    path = unreadable(tmp_path, kind)
    with pytest.raises(UserError) as raised:
        read_json(path, "run it again")
    assert reason in str(raised.value)
    assert str(path).split("\0")[0] in str(raised.value)
    assert str(raised.value).endswith("; run it again")


def replace_folder(path, dies_at=None):
    """Replace a folder whose file says old; the rename that dies, of two, is that to a path of this name."""
    rename = os.rename

    def dying(source, target):
        if os.path.basename(target) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    def replace():
        os.rename = dying
        with replacing_folder(path) as hidden:
            (hidden / "said").write_text("new")

    return status_of(replace)


@pytest.mark.parametrize("dies_at", [".run.old", "run"])
def test_a_kill_at_either_rename_of_a_folder_costs_nothing(tmp_path, dies_at):
    path = tmp_path / "run"
    path.mkdir()
    (path / "said").write_text("old")
    assert replace_folder(path, dies_at) == -signal.SIGKILL
    with pytest.raises(ZeroDivisionError), replacing_folder(path):
        raise ZeroDivisionError
    assert ((path / "said").read_text(), os.listdir(tmp_path)) == ("old", ["run"])
    assert replace_folder(path, dies_at) == -signal.SIGKILL
    assert replace_folder(path) == 0
    assert ((path / "said").read_text(), os.listdir(tmp_path)) == ("new", ["run"])


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    path = tmp_path / "run"
    path.mkdir()
    (path / "said").write_text("old")
    rename = os.rename

    def failing(source, target):
        if str(source).endswith(".partial"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"), replacing_folder(path):
        pass
    assert ((path / "said").read_text(), os.listdir(tmp_path)) == ("old", ["run"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"no column 'step'"),
        (b"a,b\n1,2\n", r"no column 'step'"),
        (b'step,a\n1,"open\n', r"line 1: no table: unexpected end of data"),
        (b"step\n1,2\n", r"row 1 has more cells than there are columns"),
        (b"step,a\n\xff,1\n", r"byte 7 is no UTF-8: the file is damaged or no text"),
    ],
)
def test_rows_of_a_table_are_texts_and_no_table_is_an_error_with_advice(tmp_path, content, reason):
    (tmp_path / "t.csv").write_bytes(b'step,a\n1,"x, y"\n2\n')
    assert read_rows(tmp_path / "t.csv", "step") == [{"step": "1", "a": "x, y"}, {"step": "2", "a": ""}]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=rf"t\.csv: {reason}; remove it$"):
        read_rows(tmp_path / "t.csv", "step", "remove it")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 42)  # 4 TiB of nothing
    with pytest.raises(UserError, match=r"sparse: has 4,398,046,511,104 bytes; at most 10 are allowed; cut it$"):
        read_bytes(path, "cut it", most=10)


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    (tmp_path / "below").mkdir()
    for name in ("one.json", "below/.one.json", "below/.gitignore"):
        (tmp_path / name).touch()
    wanted = sorted(tmp_path.rglob("*"))
    for path in (tmp_path / "one.json", tmp_path / "below/no_suffix", tmp_path / "below/two.csv"):
        status_of(lambda path=path: die_while_writing(path))
    assert len(list(tmp_path.rglob("*"))) == len(wanted) + 3
    tidy(tmp_path / "one.json")
    assert len(list(tmp_path.rglob("*"))) == len(wanted) + 2
    tidy(tmp_path)
    assert sorted(tmp_path.rglob("*")) == wanted


CAFE = os.fsdecode(b"caf\xe9")  # a name that is no text


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("a", "b.txt", "inner/ü"):
        (tmp_path / name).write_text(name)
    write_sums(tmp_path)
    return tmp_path


def test_the_tool_of_gnu_reads_them_and_each_flipped_bit_of_them_is_damage(folder):
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a:", "OK", "b.txt:", "OK", "inner/ü:", "OK"]
    assert damage(folder) is None
    content = (folder / "SHA256SUMS").read_bytes()
    for bit in range(0, 8 * len(content), 7):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        (folder / "SHA256SUMS").write_bytes(flipped)
        assert damage(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "a").write_text("b"), "a has another SHA-256 (SHA256SUMS)"),
        (lambda folder: (folder / "inner/ü").unlink(), "inner/ü is missing (SHA256SUMS)"),
        (lambda folder: (folder / "more").touch(), "more is not listed (SHA256SUMS)"),
        (lambda folder: (folder / "SHA256SUMS").unlink(), "SHA256SUMS: no such file"),
        (lambda folder: (folder / CAFE).write_text("b"), f"{CAFE} has another SHA-256 (SHA256SUMS)"),
        (lambda folder: os.truncate(folder / "SHA256SUMS", 99), "line 2: no checksum and file: it is damaged"),
    ],
)
def test_what_differs_is_named(change, said, folder):
    (folder / CAFE).touch()
    write_sums(folder)
    change(folder)
    assert damage(folder).endswith(said)


def test_a_file_is_read_only_if_its_sum_confirms_it(folder, tmp_path):
    refuse_damaged(folder / "a")
    (folder / "a").write_text("c")
    with pytest.raises(UserError, match=r"/a: its SHA-256 is another than in .*/SHA256SUMS: one of the two is damaged"):
        refuse_damaged(folder / "a")
    with pytest.raises(UserError, match="does not list it"):
        refuse_damaged(folder / "inner")
    (folder / "format.txt").write_text("2\n")
    write_sums(folder)
    with pytest.raises(UserError, match=r"/format\.txt: a newer figura wrote this folder; upgrade figura to read it"):
        refuse_damaged(folder / "a")
    (folder / "SHA256SUMS").unlink()
    refuse_damaged(folder / "a")  # of a stranger, without sums


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
    (run / ".lock").write_bytes(b"\xff")  # damaged
    with pytest.raises(UserError, match=r"run: another process is at work there"), hold(run):
        pass


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

import os
import signal
import subprocess
import sys

import pytest

from models.base.files import replacing, write_text


def test_the_new_file_takes_the_place(tmp_path):
    path = tmp_path / "folder" / "a.txt"
    write_text(path, "old")
    write_text(path, "näw\n")
    assert path.read_bytes() == "näw\n".encode()
    assert os.listdir(path.parent) == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_whoever_reads_the_old_file_reads_on(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "the old text")
    with path.open("rb", buffering=0) as reader:
        assert reader.read(4) == b"the "
        write_text(path, "the new text")
        assert reader.read() == b"old text"  # another file took the place; this one was not written to
    assert path.read_text() == "the new text"


def fail_while_writing(path):
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        fail_while_writing(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failure_where_nothing_was_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="disk full"):
        fail_while_writing(tmp_path / "a.txt")
    assert os.listdir(tmp_path) == []


def test_the_temporary_file_keeps_the_ending(tmp_path):
    with replacing(tmp_path / "picture.png") as temporary:
        assert temporary.suffix == ".png"
        assert temporary.parent == tmp_path
        temporary.write_bytes(b"x")


def test_a_kill_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    code = (
        "import os, signal, sys; from pathlib import Path; from models.base.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"

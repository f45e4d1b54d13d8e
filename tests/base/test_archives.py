"""Archives of small files: equal bytes, cut at a size, read from everywhere; damage is one line."""

import io
import multiprocessing
import subprocess
import sys
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from hashlib import sha256

import numpy as np
import pytest

from figura.base import archive_writer
from figura.base.archive_writer import ArchiveWriter
from figura.base.archives import ArchiveReader
from figura.base.errors import UserError

MEMBERS = {f"a/{index:06d}.png": np.random.default_rng(index).bytes(40) for index in range(50)}


def written(folder, members=MEMBERS):
    folder.mkdir(exist_ok=True)
    writer = ArchiveWriter(folder, "a.b")
    for name, content in members.items():
        writer.add(name, content)
    writer.end()
    return writer.sums


def test_archives_are_cut_at_a_size_and_have_the_same_bytes_again(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_writer, "MOST", 800)  # 20 members of 40 bytes
    sums, other = (written(tmp_path / name) for name in "xy")
    assert sums == other
    assert [*sums] == ["a.b.zip", "a.b.2.zip", "a.b.3.zip"]
    assert sums == {path.name: sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "x").iterdir()}
    counts = [len(zipfile.ZipFile(tmp_path / "x" / name).namelist()) for name in sums]
    assert counts == [20, 20, 10]
    reader = ArchiveReader(tmp_path / "x", "")
    assert {name: reader.read("a.b", name, sums) for name in MEMBERS} == MEMBERS
    assert reader.read("a.b", "a/000050.png", sums) is None
    assert reader.read("a", "a/000000.png", sums) is None
    large = written(tmp_path / "z", {"first": b"1", "large": bytes(900), "last": b"2"})
    assert len(large) == 3  # a member is in one archive, however large it is


def test_unzip_gives_the_bytes(tmp_path):
    """Info-ZIP is an independent reader; `-t` also compares its checksums."""
    written(tmp_path / "x")
    subprocess.run(["unzip", "-tq", "x/a.b.zip"], cwd=tmp_path, check=True)
    subprocess.run(["unzip", "-q", "x/a.b.zip"], cwd=tmp_path, check=True)
    assert {f"a/{path.name}": path.read_bytes() for path in (tmp_path / "a").iterdir()} == MEMBERS
    assert all(oct(path.stat().st_mode)[-3:] == "644" for path in (tmp_path / "a").iterdir())


@pytest.mark.parametrize("method", ["threads", "fork", "spawn"])
@pytest.mark.parametrize("opened", [False, True])
def test_threads_and_processes_read_at_once(tmp_path, method, opened):
    sums = written(tmp_path / "x")
    reader = ArchiveReader(tmp_path / "x", "")
    if opened:
        reader.read("a.b", next(iter(MEMBERS)), sums)
    context = None if method == "threads" else multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, context) if context else ThreadPoolExecutor(4) as pool:
        found = [pool.submit(reader.read, "a.b", name, sums) for name in MEMBERS]
        assert [one.result() for one in found] == [*MEMBERS.values()]


def test_each_byte_that_changes_is_noticed(tmp_path):
    """With the checksum of before, always; with one that fits, a member is refused or is what was written."""
    sums = written(tmp_path / "x", few := dict([*MEMBERS.items()][1:3]))  # no bit makes one of the names the other
    path = tmp_path / "x/a.b.zip"
    whole, refused = path.read_bytes(), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match=rf"^{path}: damaged: its checksum differs; again$"):
            ArchiveReader(path.parent, "again").read("a.b", "a/000001.png", sums)
        reader = ArchiveReader(path.parent, "again")
        fitting = {path.name: sha256(path.read_bytes()).hexdigest()}
        for name, content in few.items():
            try:
                assert reader.read("a.b", name, fitting) in (content, None)
            except UserError as error:
                assert str(error).startswith(f"{path}: ")  # noqa: PT017
                assert str(error).count("\n") == 0  # noqa: PT017
                refused += 1
    assert refused > 80  # at least the bytes of both members


def test_what_changes_after_it_was_opened_is_noticed(tmp_path):
    sums = written(tmp_path / "x")
    path, reader = tmp_path / "x/a.b.zip", ArchiveReader(tmp_path / "x", "again")
    reader.read("a.b", "a/000001.png", sums)
    path.write_bytes(path.read_bytes().replace(MEMBERS["a/000001.png"], bytes(40)))
    with pytest.raises(UserError, match=r"a\.b\.zip: a/000001\.png is damaged: its checksum differs; again"):
        reader.read("a.b", "a/000001.png", sums)


def of_others(compression=zipfile.ZIP_STORED, name="a/b.png"):
    with zipfile.ZipFile(file := io.BytesIO(), "w", compression) as archive:
        archive.writestr(name, bytes(1000))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (of_others(zipfile.ZIP_DEFLATED), "'a/b.png' is compressed or cut off"),
        (of_others()[:-1], "File is not a zip file"),
        (of_others()[500:], "Invalid argument"),  # members would begin before the file
        (b"", "File is not a zip file"),
    ],
)
def test_archives_of_others(content, reason, tmp_path):
    (tmp_path / "a.b.zip").write_bytes(content)
    sums = {"a.b.zip": sha256(content).hexdigest()}
    with pytest.raises(UserError, match=f"no readable archive: .*({reason}).*; again"):
        ArchiveReader(tmp_path, "again").read("a.b", "a/b.png", sums)


FULL = """
import resource, signal, sys
from pathlib import Path
from figura.base.archive_writer import ArchiveWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
writer = ArchiveWriter(Path(sys.argv[1]), "a.b")
try:
    for number in range(50):
        writer.add(f"a/{number}.png", bytes(40))
except OSError as error:
    print(error.strerror)
"""


def test_a_full_disk_is_one_error(tmp_path):
    """A limit on the size of files stands for the disk. What is left has no end, so that nothing reads it."""
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("File too large\n", "")
    assert not zipfile.is_zipfile(tmp_path / "a.b.zip")

"""SHA-256 sums beside files: what differs is named, by file."""

import os
import subprocess

import pytest

from figura.base.checksums import damage, refuse_damaged, write_sums
from figura.base.errors import UserError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    for name in ("a", "b.txt", "inner/ü"):
        (tmp_path / name).write_text(name)
    write_sums(tmp_path)
    return tmp_path


def test_the_tool_of_gnu_reads_them(folder):
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a:", "OK", "b.txt:", "OK", "inner/ü:", "OK"]
    assert damage(folder) is None


def test_each_flipped_bit_of_the_sums_is_damage(folder):
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
    ],
)
def test_what_differs_is_named(change, said, folder):
    change(folder)
    assert damage(folder).endswith(said)


def test_a_name_that_is_no_text_is_named_as_it_is(folder):
    name = os.fsdecode(b"caf\xe9")
    (folder / name).touch()
    write_sums(folder)
    assert damage(folder) is None
    (folder / name).write_text("b")
    assert damage(folder) == f"{name} has another SHA-256 (SHA256SUMS)"


def test_sums_that_are_cut_off_confirm_nothing(folder):
    path = folder / "SHA256SUMS"
    path.write_bytes(path.read_bytes()[:-10])
    assert damage(folder) == f"{path}: line 3: no checksum and file: it is damaged"
    with pytest.raises(UserError, match=r"SHA256SUMS: line 3: no checksum and file: it is damaged; get the folder aga"):
        refuse_damaged(folder / "a")


def test_a_file_is_read_only_if_its_sum_confirms_it(folder, tmp_path):
    refuse_damaged(folder / "a")
    (folder / "a").write_text("c")
    with pytest.raises(UserError, match=r"/a: its SHA-256 is another than in .*/SHA256SUMS: one of the two is damaged"):
        refuse_damaged(folder / "a")
    with pytest.raises(UserError, match="does not list it"):
        refuse_damaged(folder / "inner")
    (folder / "SHA256SUMS").unlink()
    refuse_damaged(folder / "a")  # of a stranger, without sums

import hashlib
import threading
from contextlib import suppress

import pytest
import torch

from figura.base.errors import UserError
from figura.dump import write_converted, write_value
from figura.evaluation import file_writer
from figura.evaluation.file_writer import MOST_THREADS, FileWriter, checksums

NAMES = ("a.npy", "b.image.png", "c.mask.png")


def test_files_are_what_the_values_were_when_added(tmp_path):
    value = torch.linspace(-1, 1, 3 * 40 * 50).reshape(3, 40, 50)
    expected = {name: write_value(tmp_path / "one_by_one" / name, value) for name in NAMES}
    with FileWriter(tmp_path / "threads") as writer:
        files = {}
        for name in NAMES:
            changing = value.clone()
            files[name] = writer.add(name, changing)
            changing.fill_(0.123)
        assert checksums(files) == expected
    for name in NAMES:
        content = (tmp_path / "threads" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == expected[name]


def test_an_error_of_the_disk_is_told_when_asked(tmp_path):
    (tmp_path / "poses").write_text("no folder")
    with FileWriter(tmp_path) as writer:
        files = {name: writer.add(name, torch.zeros(1, 2, 2)) for name in ("a.npy", "poses/b.npy")}
        with pytest.raises(UserError, match=r"poses/b\.npy: cannot be written: (File exists|Not a directory); remove"):
            checksums(files)
    assert (tmp_path / "a.npy").exists()


def test_what_waits_is_not_written_after_an_interruption(tmp_path, monkeypatch):
    go_on = threading.Event()

    def slow(path, content):
        go_on.wait()
        return write_converted(path, content)

    monkeypatch.setattr(file_writer, "write_converted", slow)
    with suppress(KeyboardInterrupt), FileWriter(tmp_path) as writer:
        files = [writer.add(f"{place}.npy", torch.zeros(1)) for place in range(MOST_THREADS + 5)]
        threading.Timer(0.1, go_on.set).start()
        raise KeyboardInterrupt
    assert sum(file.cancelled() for file in files) >= 5
    assert len(list(tmp_path.iterdir())) == sum(not file.cancelled() for file in files)

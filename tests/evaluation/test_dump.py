"""What a dump holds, and the threads that encode its files."""

import math
import threading
from contextlib import suppress

import cv2
import numpy as np
import pytest
import torch
from dumps_by_hand import sealed

from figura.base.errors import UserError
from figura.dump import Dump, RecordsFile, Table, decode_value, encoded, write_value
from figura.evaluation import dump_writer
from figura.evaluation.dump_writer import MOST_THREADS, Encoder

RANDOM = np.random.default_rng(5)


def read(path):
    return decode_value(path.read_bytes(), path)


@pytest.mark.parametrize(
    ("name", "channels", "low", "tolerance"),
    [("a.image.png", 3, -1.0, 1 / 255), ("a.image.png", 1, -1.0, 1 / 255), ("a.mask.png", 1, 0.0, 0.5 / 255)],
)
def test_pictures_come_back_in_their_range(tmp_path, name, channels, low, tolerance):
    value = RANDOM.uniform(low, 1, (channels, 5, 7)).astype(np.float32)
    value[:, 0, 0], value[:, 0, 1] = low, 1.0
    write_value(tmp_path / "deep" / name, torch.from_numpy(value))
    found = read(tmp_path / "deep" / name)
    assert found.shape == value.shape
    assert found.dtype == np.float32
    assert np.abs(found - value).max() <= tolerance + 1e-6  # half a level: 1/255 of [-1, 1], 0.5/255 of [0, 1]
    assert found[0, 0, 0] == low
    assert found[0, 0, 1] == 1.0


def test_levels_are_rounded_and_clipped_and_colours_keep_their_order(tmp_path):
    exact = torch.arange(256.0).reshape(1, 16, 16)
    values = {"a.image.png": (exact + 0.49) / 127.5 - 1, "a.mask.png": (exact - 0.49) / 255}
    for name, expected in {"a.image.png": exact / 127.5 - 1, "a.mask.png": exact / 255}.items():
        write_value(tmp_path / name, values[name])
        np.testing.assert_allclose(read(tmp_path / name), expected, atol=1e-6)
        write_value(tmp_path / name, torch.tensor([[[-3.0, 3.0]]]))
        assert read(tmp_path / name).tolist() == [[[float(expected.min()), 1.0]]]
    write_value(tmp_path / "a.image.png", torch.tensor([1.0, -1.0, -1.0])[:, None, None].expand(3, 2, 2))
    assert read(tmp_path / "a.image.png")[:, 0, 0].tolist() == [1.0, -1.0, -1.0]
    assert cv2.imread(str(tmp_path / "a.image.png"))[0, 0].tolist() == [0, 0, 255]  # red also for everybody else
    value = torch.from_numpy(RANDOM.normal(0, 1e3, (4, 2, 2)))
    write_value(tmp_path / "a.npy", value)
    found = read(tmp_path / "a.npy")
    assert found.dtype == np.float32
    assert np.array_equal(found, value.numpy().astype(np.float32))


def test_names_are_texts_whatever_they_look_like(tmp_path):
    table = Table(tmp_path / "examples.csv")
    names = ["NA", "null", "nan", "000139", 'with "quotes", and more']
    for index, name in enumerate(names):
        table.add({"mode": "NA", "index": index, "dataset": "None", "name": name, "area": [None, math.nan][index % 2]})
    table.add({"index": 5, "mode": "NA", "area": 2.5, "score": 0.5})  # a column that comes later
    table.close()
    pairs = Table(tmp_path / "grids.csv")
    pairs.add({"grid": "null", "row": 0, "column": 1})
    pairs.close()
    rows = Dump(sealed(tmp_path)).mode("NA")
    assert [row["name"] for row in rows][:5] == names
    assert rows.table["dataset"].tolist()[:5] == ["None"] * 5
    assert rows.table[["dataset", "name"]].isna().sum().tolist() == [1, 1]
    assert rows.table["area"].dropna().tolist() == [2.5]
    assert rows.table["score"].dropna().tolist() == [0.5]
    assert len(Dump(sealed(tmp_path)).grid("null")) == 1


def test_two_writers_of_one_table_do_not_meet(tmp_path):
    """Each writes the whole table; the one that ends last stays."""
    tables = [Table(tmp_path / "predictions.csv") for _ in range(2)]
    for number in range(2):
        for table in tables:
            table.add({"name": number, f"column{number}": 1})
    for table in tables:
        table.close()
        assert [path.name for path in tmp_path.glob("*.csv")] == ["predictions.csv"]
        assert (tmp_path / "predictions.csv").read_text() == "name,column0,column1\n0,1,\n1,,1\n"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def folder(tmp_path):
    """Three rows of two modes, one grid, one average."""
    table = Table(tmp_path / "examples.csv")
    for index, mode in enumerate(["plain", "prior", "plain"]):
        name = f"{mode}/{index:06d}.image.npy"
        write_value(tmp_path / name, torch.full((1, 2, 2), float(index)))
        other = name if mode == "plain" else ""
        table.add({"mode": mode, "index": index, "loss.a": index / 3, "file.image": name, "file.rare": other})
    table.close()
    grids = Table(tmp_path / "grids.csv")
    for row in range(2):
        for column in range(2):
            grids.add({"grid": "grid", "row": row, "column": column, "file.image": "plain/000002.image.npy"})
    grids.close()
    write_value(tmp_path / "averages" / "mean.npy", torch.ones(1, 2, 2))
    return tmp_path


def test_a_dump_reads_like_a_dataset(folder):
    dump = Dump(sealed(folder))
    assert len(dump) == 3
    assert dump[1]["mode"] == "prior"
    assert dump[1]["image"].tolist() == [[[1.0, 1.0], [1.0, 1.0]]]
    assert "rare" not in dump[1]
    assert "rare" in dump[2]
    assert [row["loss.a"] for row in dump] == [0.0, 1 / 3, 2 / 3]  # every digit
    assert dump.value(2, "image").mean() == 2
    plain = dump.mode("plain")
    assert plain.table["index"].tolist() == [0, 2]
    assert plain[1]["image"].mean() == 2
    assert plain.value(1, "image").mean() == 2
    assert dump.grid("grid").table[["row", "column"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert dump.grid("grid")[3]["image"].mean() == 2
    assert dump.average("mean").tolist() == [[[1.0, 1.0], [1.0, 1.0]]]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda dump: dump.mode("plan"), "examples.csv: no rows of mode 'plan'; there are plain, prior"),
        (lambda dump: dump.grid("gird"), "grids.csv: no grid 'gird'; there are grid"),
        (lambda dump: dump.average("median"), "median.npy: no such average; evaluate.averages names those"),
        (lambda dump: dump.value(0, "imag"), "nothing named 'imag' was saved; there are image, rare"),
        (lambda dump: Dump(dump.folder / "elsewhere"), "no such file; run the eval-dump stage first"),
    ],
)
def test_what_is_not_there(folder, use, said):
    with pytest.raises(UserError) as caught:
        use(Dump(sealed(folder)))
    assert said in str(caught.value)


def test_records_of_inputs_and_modes(tmp_path):
    for part, records in {"inputs": [[{"id": 1}], [], [{"id": 2}, {"id": 3}]], "poses": [[]]}.items():
        file = RecordsFile(tmp_path / part / "people.json")
        for some in records:
            file.add(some)
        file.close()
    table = Table(tmp_path / "examples.csv")
    table.add({"mode": "poses", "index": 0})
    table.close()
    assert Dump(sealed(tmp_path)).records("people") == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert Dump(sealed(tmp_path)).mode("poses").records("people") == []
    with pytest.raises(UserError, match=r"poses/boxes.json: no such file; save 'boxes' as records"):
        Dump(sealed(tmp_path)).mode("poses").records("boxes")


NAMES = ("a.npy", "b.image.png", "c.mask.png")


def test_files_are_what_the_values_were_when_added(tmp_path):
    value = torch.linspace(-1, 1, 3 * 40 * 50).reshape(3, 40, 50)
    for name in NAMES:
        write_value(tmp_path / name, value)
    with Encoder(tmp_path) as encoder:
        files = {}
        for name in NAMES:
            changing = value.clone()
            files[name] = encoder.add(name, changing)
            changing.fill_(0.123)
        for name, file in files.items():
            assert file.result() == (tmp_path / name).read_bytes()


def test_what_waits_is_dropped_after_an_interruption(tmp_path, monkeypatch):
    go_on = threading.Event()

    def slow(content):
        go_on.wait()
        return encoded(content)

    monkeypatch.setattr(dump_writer, "encoded", slow)
    with suppress(KeyboardInterrupt), Encoder(tmp_path) as encoder:
        files = [encoder.add(f"{index}.npy", torch.zeros(1)) for index in range(MOST_THREADS + 5)]
        threading.Timer(0.1, go_on.set).start()
        raise KeyboardInterrupt
    assert sum(file.cancelled() for file in files) >= 5

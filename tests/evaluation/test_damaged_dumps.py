"""Dumps on a full disk, dumps that were damaged, dumps of others: one line that names the file."""

import json
import os
import re
import shutil
import signal
import subprocess
import zipfile
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from dumps_by_hand import sealed
from PIL import Image
from toy import PAINT

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import to_yaml
from figura.dump import Dump, RecordsFile, write_value
from figura.engine.build import build_networks
from figura.evaluation.trained import write_dump
from figura.formats.skeletons import COCO
from models.pose.dump_evaluation import evaluate
from stages import metrics

CHANGES = {
    "evaluate.inputs": {"y": "array"},
    "evaluate.modes": {"plain": {"injectors": {"paint": PAINT}, "save": {"image": "image"}}},
    "evaluate.grids": {
        "pairs": {"rows": ["x"], "columns": ["y"], "size": 2, "injectors": {"paint": PAINT}, "save": {"image": "image"}}
    },
    "evaluate.averages": {"mean": {"of": "y", "examples": 2}},
    "metrics.scores": {
        "distance": {"type": "toy.Mean", "column": "loss.distance"},
        "fit": {"type": "test_damaged_dumps.Fit"},
    },
    "metrics.pictures": {
        "sheet": {"type": "images.Sheet", "mode": "plain", "columns": ["image"], "count": 1},
        "grid": {"type": "images.Grid", "grid": "pairs", "row": "image", "column": "image", "image": "image"},
    },
}
HISTORY = "step,distance.raw,distance.weight,distance.weighted\n4,0.5,1,0.5\n"


class Fit(toy.Score):
    """Reads every file of the mode, and an average."""

    def __call__(self, dump, bootstrap):
        pairs = [(row["image"], row["y"], dump.average("mean")) for row in dump.mode("plain")]
        return {"fit": float(np.mean([abs(image - y).mean() + abs(y - mean).mean() for image, y, mean in pairs]))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with a dump and a history, and its recipe."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = toy.checked(CHANGES)
    write_dump(recipe, build_networks(recipe), folder / "dump")
    (folder / "history").mkdir()
    for split in ("train", "validation"):
        (folder / "history" / f"{split}.csv").write_text(HISTORY)
    (folder / "recipe.yaml").write_text(to_yaml(toy.changed(CHANGES)))
    return folder


@pytest.fixture
def spoilt(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def said(folder, capsys):
    """Compute metrics; return the exit status and the lines of the error, without the scores that it is about.

    Scores and pictures that do not read what is damaged are written.
    """
    out = folder / "out"
    status = run(metrics.main, [str(folder / "recipe.yaml"), str(folder), str(out / "toy.json"), str(out / "plots")])
    lines = capsys.readouterr().err.splitlines()
    said = (line.removeprefix("error: ") for line in lines if "warning" not in line.lower())
    return status, *dict.fromkeys(re.sub(r"^\S+: metrics\.(scores|pictures)\.\w+: ", "", line) for line in said)


def test_checksums_are_those_of_all_files(whole, spoilt, capsys):
    """In the format of `sha256sum`, without a line that names no file."""
    assert said(spoilt, capsys) == (0,)
    done = subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=whole / "dump", check=False)
    assert done.returncode == 0
    listed = [line[66:] for line in (whole / "dump/SHA256SUMS").read_text().splitlines()]
    there = {path.relative_to(whole / "dump").as_posix() for path in (whole / "dump").rglob("*") if path.is_file()}
    assert sorted(listed) == sorted(there - {"SHA256SUMS"})
    assert there == {
        "SHA256SUMS", "averages/mean.npy", "examples.csv", "grids.csv", "inputs.y.zip", "pairs.image.zip",
        "plain.image.zip",
    }  # fmt: skip


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGES = {"flipped": flipped, "missing": lambda path: path.unlink(), "pipe": pipe}
REASONS = {"flipped": "damaged: its checksum differs", "missing": "no such file", "pipe": "no regular file"}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["examples.csv", "averages/mean.npy", "plain.image.zip", "SHA256SUMS"])
def test_any_damage_of_any_file_is_one_line(damage, name, spoilt, capsys):
    """tests/reliability damages more, at random."""
    path = spoilt / "dump" / name
    DAMAGES[damage](path)
    status, line = said(spoilt, capsys)
    advice = "the eval-dump stage first" if (name, damage) == ("examples.csv", "missing") else "eval-dump again"
    if (name, damage) == ("SHA256SUMS", "flipped"):  # a file that it no longer names rightly
        assert (status, line.startswith(str(spoilt / "dump")), line.endswith(advice)) == (1, True, True)
    else:
        assert (status, line) == (1, f"{path}: {REASONS[damage]}; run {advice}")


def test_a_member_that_is_missing_is_one_line(spoilt, capsys):
    with zipfile.ZipFile(spoilt / "dump/plain.image.zip", "w") as archive:
        archive.writestr("../plain/000000.image.image.png", b"outside")  # a name is only looked up
    sealed(spoilt / "dump")
    where = f"{spoilt}/dump/plain/000000.image.image.png"
    said_once = f"{where}: not in SHA256SUMS: it is damaged, or not of this dump; run eval-dump again"
    assert said(spoilt, capsys) == (1, said_once)


def test_a_dump_of_plain_files_has_the_same_metrics(spoilt, capsys):
    """As figura wrote them at first."""
    assert said(spoilt, capsys) == (0,)
    metrics_of_archives = (spoilt / "out/toy.json").read_bytes()
    for archive in (spoilt / "dump").glob("*.zip"):
        shutil.unpack_archive(archive, spoilt / "dump")
        archive.unlink()
    sealed(spoilt / "dump")
    assert (spoilt / "dump/plain/000000.image.image.png").is_file()
    assert said(spoilt, capsys) == (0,)
    assert (spoilt / "out/toy.json").read_bytes() == metrics_of_archives


class Deadly(toy.Ramps):
    """Kills the process that reads the last example."""

    deadly = False

    def example(self, index, random):
        if self.deadly and index == len(self) - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().example(index, random)


def test_a_dump_whose_writer_was_killed_is_none_and_is_written_anew(tmp_path, monkeypatch):
    data = {"ramps": {"type": "test_damaged_dumps.Deadly", "length": 6}}
    recipe = toy.checked(CHANGES | {"data.validation": data, "evaluate.batch_size": 1})
    folder = tmp_path / "dump"
    networks = build_networks(recipe)
    write_dump(recipe, networks, folder)
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(Deadly, "deadly", True)
    if (child := os.fork()) == 0:
        write_dump(recipe, networks, folder)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (folder / "plain.image.zip").exists()
    with pytest.raises(UserError, match="no such file; run the eval-dump stage first"):
        Dump(folder)
    monkeypatch.undo()
    write_dump(recipe, networks, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == whole


def test_a_mark_of_a_try_that_is_lost_or_added_is_detected(spoilt, capsys):
    (spoilt / "dump/try.txt").write_text("TRY\n")
    assert said(spoilt, capsys)[1].startswith(f"{spoilt}/dump/try.txt: not in SHA256SUMS")
    sealed(spoilt / "dump")
    (spoilt / "dump/try.txt").unlink()
    assert said(spoilt, capsys)[1].startswith(f"{spoilt}/dump/try.txt: no such file")


def npy(descr="<f4", shape="(1, 4, 4)", values=b"\0" * 64, version=b"\x01\x00"):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (64 - (len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + len(head).to_bytes(2, "little") + head + values


def picture(mode, size):
    """Return a function that encodes a picture."""

    def encoded():
        Image.new(mode, size).save(file := BytesIO(), "PNG")
        return file.getvalue()

    return encoded


NO_ARRAY = "no float32 array of np.save whose size is that of its head"
EMPTY, NO_NUMBERS = "no column 'mode', or it has empty cells", "holds NaN, infinite or no numbers"
CUT_OFF = "no table of numbers: its last line is cut off, or rows differ in length"
ROWS = HISTORY.encode()
ARRAY, PICTURE, TABLE = "dump/averages/mean.npy", "dump/plain/000000.image.image.png", "dump/examples.csv"
NUMBERS = "history/validation.csv"
OTHERS = [
    (ARRAY, npy("|O"), NO_ARRAY),  # a pickle
    (ARRAY, npy(shape="(1000000000000, 3)"), NO_ARRAY),
    (ARRAY, npy(shape="(" * 5000), NO_ARRAY),
    (ARRAY, npy(shape=f"(0, {10**30})", values=b""), NO_ARRAY),
    (ARRAY, npy(shape="(-1, -16)"), NO_ARRAY),
    (ARRAY, b"no array", NO_ARRAY),
    (ARRAY, npy(values=np.full(16, np.nan, "<f4").tobytes()), "16 of 16 values are NaN or infinite"),
    (PICTURE, picture("RGBA", (4, 4)), "4 channels; a picture of a dump has 1 or 3"),
    (PICTURE, picture("L", (8193, 8193)), "8193 x 8193 pixels; at most 67108864 are read"),
    (PICTURE, b"GIF89a", "no readable picture"),
    (TABLE, b"\xa4,\x00\n\xff\n", "no readable table: "),
    (TABLE, b"mode,loss.a\nplain,1,2,3\n", "no readable table: a row has more cells than there are columns"),
    (TABLE, b"index,loss.a\n0,1\n", EMPTY),
    (TABLE, b"mode,size\nplain,1e999\n", f"column 'size' {NO_NUMBERS}"),
    (NUMBERS, None, "no such file"),
    (NUMBERS, b"", "no table of numbers: No columns to parse from file"),
    (NUMBERS, bytes(99) + b"\n", "no column 'step', or it has empty cells"),
    (NUMBERS, ROWS.replace(b"0.5", b"0.0\x115"), "column 'distance.raw' holds texts"),
    (NUMBERS, ROWS + b"nan,1,1,1\n", "column 'step' holds nan; a finite number is needed"),
    (NUMBERS, ROWS + b"9" * 400 + b",1,1,1\n", "column 'step' holds texts, or too large numbers"),
    (NUMBERS, ROWS[:-3], CUT_OFF),
]


@pytest.mark.parametrize(("name", "content", "reason"), OTHERS, ids=range(len(OTHERS)))
def test_files_of_others(name, content, reason, spoilt, capsys):
    """With checksums that are right, as whoever writes a dump by hand can make them."""
    path = spoilt / name
    if name == PICTURE:  # where figura wrote pictures at first
        shutil.unpack_archive(spoilt / "dump/plain.image.zip", spoilt / "dump")
    path.unlink() if content is None else path.write_bytes(content() if callable(content) else content)
    sealed(spoilt / "dump")
    status, line = said(spoilt, capsys)
    assert (status, line.partition(": ")[0]) == (1, str(path))
    assert reason in line
    advice = "training writes it when it ends; run train again" if name == NUMBERS else "run eval-dump again"
    assert line.endswith(f"; {advice}")


def test_arrays_in_the_order_of_fortran_are_read(tmp_path):
    value = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(1, 2, 3))
    write_value(tmp_path / "a.npy", torch.from_numpy(value))
    assert b"'fortran_order': True" in (tmp_path / "a.npy").read_bytes()
    assert np.array_equal(Dump(sealed(tmp_path), pd.DataFrame()).decoded("a.npy"), value)


def test_a_metric_that_is_no_number_is_an_error(spoilt, capsys):
    content = toy.changed(CHANGES | {"metrics.scores": {"fit": {"type": "test_damaged_dumps.Nothing"}}})
    (spoilt / "recipe.yaml").write_text(to_yaml(content))
    why = "a score leaves out what it cannot compute"
    assert said(spoilt, capsys) == (1, f"its metric 'mean' is nan; {why}", f"its metric 'mean.high' is inf; {why}")


class Nothing(toy.Score):
    def __call__(self, dump, bootstrap):
        return {"mean": {"value": float("nan"), "low": 0.0, "high": float("inf")}}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"data.validation": {"ramps": {"type": "toy.Ramps", "length": 4, "broken_from": 2}}},
         "inputs, example 2, 'x': 16 of 16 values"),
        ({"evaluate.inputs": {}, "data.validation": {"ramps": {"type": "toy.Ramps", "length": 4, "broken_from": 3}}},
         "plain, example 3, 'loss.distance': 1 of 1 values"),
    ],
)  # fmt: skip
def test_what_is_not_finite_is_not_dumped(changes, where, tmp_path):
    recipe = toy.checked(CHANGES | {"evaluate.inputs": {"x": "image"}} | changes)
    with pytest.raises(UserError) as caught:
        write_dump(recipe, build_networks(recipe), tmp_path / "dump")
    advice = "are NaN or infinite; look at the weights and at this example"
    assert str(caught.value) == f"{tmp_path}/dump: {where} {advice}"
    assert not (tmp_path / "dump/examples.csv").exists()
    file = RecordsFile(tmp_path / "people.json")
    with pytest.raises(UserError, match=r"people\.json: NaN or infinity in the record \{'score': nan\}"):
        file.add([{"score": 1.0}, {"score": float("nan")}])


def test_records_of_people_are_checked(tmp_path):
    good = {"image_id": 1, "category_id": 1, "score": 0.5, "keypoints": [1.0] * 51, "bbox": [0, 0, 1, 1]}
    for change, reason in (
        ({"score": None}, "score is None; a finite number is needed"),
        ({"area": float("nan")}, "area is nan; a finite number is needed"),
        ({"keypoints": "a"}, "keypoints is 'a'; a list of finite numbers is needed"),
        ({"bbox": [0, 1]}, "bbox has 2 numbers; 4 are needed"),
        ({"image_id": "1"}, "image_id is '1'; an integer is needed"),
        ({"iscrowd": "0"}, "iscrowd is '0'; a whole number is needed"),
    ):
        for part, records in (("poses", [good, good | change]), ("inputs", [])):
            (tmp_path / part).mkdir(exist_ok=True)
            (tmp_path / part / ("people.json" if part == "poses" else "truth.json")).write_text(json.dumps(records))
        pd.DataFrame({"mode": ["poses"], "image_id": [1]}).to_csv(tmp_path / "examples.csv", index=False)
        dump = Dump(sealed(tmp_path))
        with pytest.raises(UserError) as caught:
            evaluate(dump, "poses", "people", "truth", COCO)
        assert f"'people': record 1 (counted from 0): {reason}" in str(caught.value)

import json
import math

import numpy as np
import pytest
from pycocotools import mask as run_lengths
from pycocotools.coco import COCO

from figura.base.errors import UserError
from figura.formats import coco
from figura.formats.coco import KEYPOINTS, read_head, read_records
from figura.formats.coco_writer import Spool, write_coco
from figura.formats.normalise import decode_runs
from figura.formats.records import UnusableError, check_size
from models.people.stored import image_fault
from tests.real_people import REAL

ANNOTATIONS = REAL / "annotations.json"


SMALL = {
    "info": {"année": '2017 \\ "}]'},
    "annotations": [{"id": 12, "x": [1.5, -2e3, True, None]}, [], 123456],
    "images": [],
    "licenses": [{"a": {"images": [1]}}],
    "categories": [{"id": 3, "name": "ball"}, {"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}],
}


# --- reading ---


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_stream_equals_json(tmp_path, monkeypatch, chunk, indent):
    monkeypatch.setattr(coco, "_CHUNK", chunk)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(SMALL, indent=indent, ensure_ascii=False), encoding="utf-8")
    head, counts = read_head(path)
    assert head == {key: SMALL[key] for key in ("info", "licenses", "categories")}
    assert counts == {"annotations": 3, "images": 0}
    assert list(read_records(path, "annotations")) == SMALL["annotations"]
    assert list(read_records(path, "images")) == []


RECORDS = [
    {"id": 12, "x": [1.5, -2e3, True, None, 0.1], "text": '"],}'}, {"id": 2**63 - 1}, [], "é\u2028", 123456, {"a": {}},
    math.inf, "\ud800", {"id": 3}, {"nan": -math.inf}, -0.0, 1e-320, 12,
]  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 64])
@pytest.mark.parametrize("between", [",\n", " ,\n ", ",\r\n", ", "])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_records_in_lines_equal_json(tmp_path, monkeypatch, chunk, between, ascii_only):
    monkeypatch.setattr(coco, "_CHUNK", chunk)
    monkeypatch.setattr(coco, "_AT_ONCE", 3 * chunk)
    lines = [json.dumps(one, ensure_ascii=ascii_only or one == "\ud800") for one in RECORDS]
    for number in (1, len(lines) - 1, len(lines)):
        path = tmp_path / f"{number}.json"
        text = f'{{"categories":[],"images":[{lines[0]}],"annotations":[\n{between.join(lines[:number])}]}}'
        path.write_bytes(text.encode())
        whole = json.loads(text)
        for section in ("images", "annotations"):
            for whole_file in (True, False):
                read = list(read_records(path, section, whole_file))
                assert list(map(repr, read)) == list(map(repr, whole[section]))
        assert read_head(path)[1] == {"images": 1, "annotations": number}
        assert read_head(path, whole=False) == ({"categories": []}, {})


@pytest.mark.parametrize("at_once", [20, 100, 1 << 15])
def test_written_records_are_parsed_many_at_once(tmp_path, monkeypatch, at_once):
    path, parsed = tmp_path / "a.json", []
    images = [{"file_name": f"{number}.jpg", "id": number} for number in range(50)]
    annotations = [{"id": number, "keypoints": [number] * (number % 7)} for number in range(80)]
    write_coco(path, {}, *([json.dumps(one).encode() for one in some] for some in (images, annotations)))
    monkeypatch.setattr(coco, "_AT_ONCE", at_once)
    monkeypatch.setattr(coco.orjson, "loads", lambda text: parsed.append(text) or json.loads(text))
    monkeypatch.setattr(coco.orjson, "JSONDecodeError", json.JSONDecodeError)
    assert list(read_records(path, "images", whole=False)) == images
    assert list(read_records(path, "annotations", whole=False)) == annotations
    assert (max(text.count('"id"') for text in parsed) > 1) == (at_once > 20)


def test_every_cut_is_noticed(tmp_path):
    text = json.dumps(SMALL)
    path = tmp_path / "cut.json"
    for length in range(0, len(text), 3):
        path.write_text(text[:length])
        with pytest.raises(UserError, match=r"cut\.json: "):
            read_head(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "holds a list; a COCO file is an object"),
        ("%PDF-1.4", "it is a PDF"),
        ('{"images": [], "annotations": [], "categories": []} x', "follows the closing brace"),
        ('{"images": [], "annotations": [1 2], "categories": []}', "not valid JSON"),
        ('{"images": [], "annotations": []}', "categories is missing"),
        ("{}", "images is missing"),
        ('{"annotations": [], "categories": []}', "images is missing"),
        ('{"images": {}, "annotations": [], "categories": []}', "images: must be a list, found dict"),
        ('{"images": [], "annotations": [' + "[" * 100_000, "not valid JSON"),
    ],
)
def test_faulty_files(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_head(path)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"images": "\xff\xfe"}')
    with pytest.raises(UserError, match="UTF-8"):
        read_head(path)


def test_written_file_is_sorted_and_loads(tmp_path, capsys):
    annotations = [{"id": number, "image_id": 5, "category_id": 1, "extra": "ü"} for number in (30, 2, 11)]
    with Spool(tmp_path) as images, Spool(tmp_path) as records:
        images.add({"id": 5, "file_name": "a.jpg", "width": 3, "height": 4})
        for record in annotations:
            records.add(record)
        with pytest.raises(ValueError, match="JSON compliant"):
            records.add({"id": 1, "x": math.nan})
        head = {"categories": [{"id": 1, "name": "person"}]}
        write_coco(tmp_path / "a.json", head, images.lines(), records.lines())
    assert json.loads((tmp_path / "a.json").read_text())["annotations"] == sorted(
        annotations, key=lambda one: one["id"]
    )
    assert sorted(COCO(str(tmp_path / "a.json")).getAnnIds()) == [2, 11, 30]
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


# --- run lengths, sizes ---


def test_run_lengths_decode_like_pycocotools():
    random = np.random.default_rng(1)
    for share in (0.0, 0.02, 0.5, 1.0):
        mask = np.asfortranarray(random.random((37, 53)) < share).astype(np.uint8)
        text = run_lengths.encode(mask)["counts"].decode()
        flat = mask.flatten(order="F")
        changes = np.flatnonzero(np.diff(np.concatenate([[0], flat])))
        expected = np.diff(np.concatenate([[0], changes, [flat.size]]))
        assert decode_runs(text) == expected.tolist()
    assert decode_runs("P" * 1000) is None  # never ends
    assert decode_runs("é!") is None


@pytest.mark.parametrize("width", [0, -1, 65536, 4.0, True, "4", None])
def test_sizes_of_images(width):
    """Prepared records have whole numbers."""
    record = {"id": 3, "file_name": "a.jpg", "width": 65535, "height": 1}
    assert check_size(record) == (65535, 1)
    assert image_fault(record) is None
    record["width"] = width
    why = f"image size is not two whole numbers: width {width!r}, height 1; each must be from 1 to 65535"
    with pytest.raises(UnusableError) as caught:
        check_size(record)
    assert (str(caught.value), image_fault(record)) == (why, why)

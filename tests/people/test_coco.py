import copy
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as run_lengths
from pycocotools.coco import COCO

from figura.base.errors import UserError
from figura.data.formats import coco
from figura.data.formats.coco import (
    KEYPOINTS,
    Spool,
    categories_by_id,
    check_keypoints,
    read_head,
    read_records,
    write_coco,
)
from figura.data.formats.records import Size, UnusableError, decode_runs
from figura.data.preparation.validation import (
    Categories,
    Seen,
    check_annotation,
    check_image_record,
    store_image,
)
from models.people.persons import image_fault
from tests.real_people import REAL, needs_real

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
    coco.write_coco(path, {}, *([json.dumps(one).encode() for one in some] for some in (images, annotations)))
    monkeypatch.setattr(coco, "_AT_ONCE", at_once)
    monkeypatch.setattr(coco.orjson, "loads", lambda text: parsed.append(text) or json.loads(text))
    monkeypatch.setattr(coco.orjson, "JSONDecodeError", json.JSONDecodeError)
    assert list(read_records(path, "images", whole=False)) == images
    assert list(read_records(path, "annotations", whole=False)) == annotations
    assert (max(text.count('"id"') for text in parsed) > 1) == (at_once > 20)


@needs_real
def test_stream_equals_json_on_real_data():
    whole = json.loads(ANNOTATIONS.read_text())
    assert list(read_records(ANNOTATIONS, "annotations")) == whole["annotations"]
    assert list(read_records(ANNOTATIONS, "images")) == whole["images"]


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
        ("%PDF-1.4", "not valid JSON"),
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


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ([{"id": "1", "name": "person"}], "whole number"),
        ([{"id": 1, "name": "person"}, {"id": 1, "name": "ball"}], "whole number of its own"),
    ],
)
def test_faulty_categories(categories, message):
    with pytest.raises(UserError, match=message):
        categories_by_id(Path("a.json"), categories)


@pytest.mark.parametrize("joints", [["nose", "nose"], "nose", ["nose"], None, 3, ["nose", 2]])
def test_faulty_keypoints(joints):
    with pytest.raises(UserError, match=re.escape(f"a.json: categories: dog: keypoints: found {joints}; expected two")):
        check_keypoints(Path("a.json"), {"id": 1, "name": "dog", "keypoints": joints})


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


# --- records ---

SIZE = Size(width=40, height=30)
CATEGORIES = Categories(frozenset({1, 2}), people=frozenset({1}), joints=KEYPOINTS)
KEYS = [10.0, 10.0, 2] * 5 + [40, 30, 1] + [0, 0, 0] * 11
RLE = run_lengths.encode(np.asfortranarray(np.eye(30, 40, dtype=np.uint8)))["counts"].decode()


def annotation(**changes):
    record = {
        "id": 7, "image_id": 1, "category_id": 1, "iscrowd": 0, "bbox": [5, 5, 20.5, 20], "area": 300.0,
        "keypoints": list(KEYS), "num_keypoints": 6, "segmentation": [[5, 5, 25, 5, 25.5, 25]], "person_id": 3,
    }  # fmt: skip
    return {key: value for key, value in {**record, **changes}.items() if value != "absent"}


def keys(**changes):
    flat = list(KEYS)
    for place, value in changes.items():
        flat[int(place[1:])] = value
    return flat


def seen():
    return Seen(images={1: SIZE, 2: None}, annotations={99})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"keypoints": "absent", "num_keypoints": "absent"},
        {"keypoints": [0] * 51, "num_keypoints": 0},
        {"iscrowd": 1, "segmentation": {"size": [30, 40], "counts": [1000, 200]}},
        {"segmentation": {"size": [30, 40], "counts": RLE}},
        {"segmentation": "absent"},
        {"segmentation": []},
        {"category_id": 2, "keypoints": [1, 2]},
        {"bbox": [-5, -5, 60, 60]},
        {"parts": {"top": {"size": [30, 40], "counts": RLE}}},
    ],
)
def test_usable_annotations(changes):
    check_annotation(annotation(**changes), seen(), CATEGORIES)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": 99}, "id used twice"),
        ({"id": "7"}, "id is not a whole number"),
        ({"id": True}, "id is not a whole number"),
        ({"id": 2**63}, "id is not a whole number"),
        ({"image_id": 5}, "annotation without image"),
        ({"image_id": "absent"}, "annotation without image"),
        ({"image_id": [1]}, "annotation without image"),
        ({"image_id": 2}, "image of the annotation rejected"),
        ({"category_id": 3}, "category unknown"),
        ({"iscrowd": 2}, "iscrowd is neither 0 nor 1"),
        ({"bbox": [1, 2, 3]}, "box is not four finite numbers"),
        ({"bbox": [1, 2, 3, math.inf]}, "box is not four finite numbers"),
        ({"bbox": [1, 2, "3", 4]}, "box is not four finite numbers"),
        ({"bbox": "absent"}, "box is not four finite numbers"),
        ({"bbox": [1, 2, 0, 4]}, "box without extent"),
        ({"bbox": [40, 2, 5, 4]}, "box outside of the image"),
        ({"bbox": [0, 0, 1e9, 4]}, "box outside of the image"),
        ({"keypoints": KEYS[:-1]}, "keypoints are not 17 x 3 numbers"),
        ({"keypoints": None}, "keypoints are not 17 x 3 numbers"),
        ({"keypoints": keys(_0=math.nan)}, "keypoint not finite"),
        ({"keypoints": keys(_50=math.nan)}, "keypoint not finite"),
        ({"keypoints": keys(_1="1")}, "keypoint not finite"),
        ({"keypoints": keys(_2=3)}, "visibility is not 0, 1 or 2"),
        ({"keypoints": keys(_2=0.5)}, "visibility is not 0, 1 or 2"),
        ({"keypoints": keys(_0=40.5)}, "keypoint outside of the image"),
        ({"keypoints": keys(_1=-1)}, "keypoint outside of the image"),
        ({"num_keypoints": 5}, "num_keypoints disagrees"),
        ({"keypoints": "absent"}, "num_keypoints disagrees"),
        ({"segmentation": 5}, "mask is neither polygons nor run lengths"),
        ({"segmentation": [[1, 2, 3, 4]]}, "polygon is not three or more finite points"),
        ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "polygon is not three or more finite points"),
        ({"segmentation": [[1, 2, 3, 4, 5, math.nan]]}, "polygon is not three or more finite points"),
        ({"segmentation": [[1, 2, 3, 4, 5, 1e9]]}, "polygon outside of the image"),
        ({"segmentation": {"size": [40, 30], "counts": RLE}}, "run lengths of another image size"),
        ({"segmentation": {"size": [30, 40], "counts": RLE + "1"}}, "run lengths do not fill the image"),
        ({"segmentation": {"size": [30, 40], "counts": [1200, 1]}}, "run lengths do not fill the image"),
        ({"segmentation": {"size": [30, 40], "counts": [1201, -1]}}, "run lengths do not fill the image"),
        ({"segmentation": {"size": [30, 40]}}, "run lengths do not fill the image"),
        ({"parts": {"top": {"size": [30, 40], "counts": "zz"}}}, "run lengths do not fill the image"),
        ({"parts": []}, "parts are not masks by name"),
        ({"area": -1}, "area is not a number of at least 0"),
        ({"person_id": "ann"}, "person_id is not a whole number"),
    ],
)
def test_unusable_annotations(changes, reason):
    record = annotation(**changes)
    before = copy.deepcopy(record)
    with pytest.raises(UnusableError) as caught:
        check_annotation(record, seen(), CATEGORIES)
    assert caught.value.reason == reason
    assert repr(record) == repr(before)


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


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ([], "not an object"),
        ({"id": 1, "file_name": "a.jpg", "width": 4, "height": 4}, "id used twice"),
        ({"id": 3, "width": 4, "height": 4}, "file name missing"),
        ({"id": 3, "file_name": "used.jpg", "width": 4, "height": 4}, "image file used twice"),
        ({"id": 3, "file_name": "a.jpg", "width": 4.5, "height": 4}, "image size is not two whole numbers"),
        ({"id": 3, "file_name": "a.jpg", "width": 4, "height": 0}, "image size is not two whole numbers"),
        ({"id": 3, "file_name": "a.jpg", "width": 4, "height": 4, "gain": math.inf}, "number not finite"),
    ],
)
def test_unusable_image_records(record, reason):
    with pytest.raises(UnusableError) as caught:
        check_image_record(record, Seen(images={1: SIZE}, files={"used.jpg": "used.jpg"}))
    assert caught.value.reason == reason


@pytest.mark.parametrize("width", [0, -1, 65536, 4.0, True, "4", None])
def test_sizes_of_images(width):
    """Raw and prepared records obey the same rule."""
    record = {"id": 3, "file_name": "a.jpg", "width": 65535, "height": 1}
    assert check_image_record(record, Seen()) == (65535, 1)
    assert image_fault(record) is None
    record["width"] = width
    why = f"image size is not two whole numbers: width {width!r}, height 1; each must be from 1 to 65535"
    with pytest.raises(UnusableError) as caught:
        check_image_record(record, Seen())
    assert (str(caught.value), image_fault(record)) == (why, why)


def jpeg(width=40, height=30):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def test_image_files(tmp_path):
    root = tmp_path / "raw"
    images = root / "images"
    images.mkdir(parents=True)
    (images / "good.jpg").write_bytes(jpeg())
    for name, kept in (("cut.jpg", 0.5), ("end.jpg", 0.99), ("head.jpg", 0.02), ("empty.jpg", 0)):
        (images / name).write_bytes(jpeg()[: int(len(jpeg()) * kept)])
    (images / "text.jpg").write_text("no picture")
    (images / "folder.jpg").mkdir()
    (tmp_path / "secret.jpg").write_bytes(jpeg())
    (images / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (images / "near.jpg").symlink_to(images / "good.jpg")
    (images / "circle.jpg").symlink_to("circle.jpg")
    Image.new("RGB", SIZE).save(images / "other.tif")
    for name in ("good.jpg", "near.jpg", "other.tif"):
        assert store_image(images, name, SIZE, root, None).pixels.shape == (30, 40, 3)
    reasons = {
        "cut.jpg": "image file broken", "end.jpg": "image file broken", "head.jpg": "image file broken",
        "empty.jpg": "image file broken", "text.jpg": "image file broken", "nul\0.jpg": "image file broken",
        "folder.jpg": "image file missing", "none.jpg": "image file missing", "circle.jpg": "image file missing",
        "link.jpg": "path leaves the data root", "../../secret.jpg": "path leaves the data root",
        "../images/good.jpg": "path leaves the data root", str(tmp_path / "secret.jpg"): "path leaves the data root",
    }  # fmt: skip
    for name, reason in reasons.items():
        with pytest.raises(UnusableError) as caught:
            store_image(images, name, SIZE, root, None)
        assert caught.value.reason == reason, name
    with pytest.raises(UnusableError, match="40 x 30 instead of 30 x 40"):
        store_image(images, "good.jpg", Size(30, 40), root, None)

"""What the field's tools write: each file is read as it was meant, or refused in one line that says what to do."""

import io
import json
import os
import re
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from prepared_files import content, rows, write_entry

from figura.base.exit_status import run
from figura.formats.coco import KEYPOINTS, SKELETON
from figura.formats.skeletons import COCO
from figura.preparation import people_sheet
from stages.prepare import main

pytestmark = pytest.mark.usefixtures("project")

COUNT = 12
WIDTH, HEIGHT = 160, 130
PREPARED = Path("data/prepared/people")


def write_params(max_rejected=0.0, **section):
    section = {"images": "images", "annotations": "annotations.json", "shares": {"validation": 0.4}} | section
    write_entry("people", {"kind": "coco", "source": "raw", "seed": 3, "max_rejected": max_rejected, "coco": section})


@cache
def jpeg(number):
    pixels = np.add.outer(np.arange(HEIGHT), np.arange(WIDTH))[..., None] * [1, 2, 3] + 7 * number
    file = io.BytesIO()
    Image.fromarray((pixels % 256).astype(np.uint8)).save(file, "JPEG", quality=50)
    return file.getvalue()


def person(number):
    """A standing person in a box 5 pixels around the joints."""
    scale, left, top = 7 + number % 3, 12 + 8 * number, 15 + number
    places = (COCO.standing_pose - (-1.75, 9.7)) * (scale, -scale) + (left, top)
    joints = [value for x, y in places.round(1).tolist() for value in (x, y, 2)]
    (x, y), (right, bottom) = places.min(0) - 5, places.max(0) + 5
    box = [round(float(one), 1) for one in (x, y, right - x, bottom - y)]
    return {
        "id": number, "image_id": number, "category_id": 1, "bbox": box, "keypoints": joints, "num_keypoints": 17,
        "iscrowd": 0, "area": round(box[2] * box[3] * 0.6, 1),
    }  # fmt: skip


def document():
    return {
        "images": [
            {"id": n, "file_name": f"{n:03}.jpg", "width": WIDTH, "height": HEIGHT} for n in range(1, COUNT + 1)
        ],
        "annotations": [person(number) for number in range(1, COUNT + 1)],
        "categories": [
            {"id": 1, "name": "person", "keypoints": list(KEYPOINTS), "skeleton": [list(pair) for pair in SKELETON]}
        ],
    }


@pytest.fixture
def prepare(capsys, monkeypatch):
    """A function that prepares a changed document; it returns what came of it."""
    monkeypatch.setattr(people_sheet, "_SIDE", 32)  # a sheet of usual size would take half of the time

    def prepare(change=None, max_rejected=0.0, pictures=None, **section):
        Path("raw/images").mkdir(parents=True)
        for number in range(1, COUNT + 1):
            Path(f"raw/images/{number:03}.jpg").write_bytes(jpeg(number))
        raw = document()
        if pictures:
            pictures(Path("raw/images"))
        if change:
            raw = change(raw) or raw
        Path("raw/annotations.json").write_text(raw if isinstance(raw, str) else json.dumps(raw))
        before = content(Path("raw"))
        write_params(max_rejected, **section)
        code = run(main, ["people"])
        assert content(Path("raw")) == before
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        errors = [line for line in printed.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == code
        if code:
            return SimpleNamespace(error=errors[0], lines=printed.out.splitlines())
        splits = [json.loads((PREPARED / f"{split}.json").read_text()) for split in ("train", "validation")]
        statistics = json.loads((PREPARED / "statistics.json").read_text()).values()
        repaired = Counter()
        for one in statistics:
            repaired.update({kind: each["count"] for kind, each in one["repaired"].items()})
        listed = rows(PREPARED / "repaired.csv") if (PREPARED / "repaired.csv").exists() else []
        assert Counter(row["kind"] for row in listed) == repaired
        return SimpleNamespace(
            error=None,
            images=sorted((one for split in splits for one in split["images"]), key=lambda one: one["id"]),
            people=sorted((one for split in splits for one in split["annotations"]), key=lambda one: one["id"]),
            category=splits[0]["categories"][0],
            repaired=dict(repaired),
            rejected=[(row["kind"], row["id"], row["reason"]) for row in rows(PREPARED / "rejected.csv")],
            lines=[line for line in printed.out.splitlines() if "sha256" not in line],
            persons=sum(one["persons"] for one in statistics),
            with_joints=sum(one["persons_with_keypoints"] for one in statistics),
            crowds=sum(one["crowds"] for one in statistics),
        )

    return prepare


def each(change):
    """Return a change of a document: `change(annotation)` of each."""

    def changed(raw):
        for one in raw["annotations"]:
            change(one)

    return changed


def put(**values):
    return each(lambda one: one.update(values))


def without(*keys):
    return each(lambda one: [one.pop(key, None) for key in keys])


def joints(change):
    """Return a change of x, y and flag of each joint, at its place."""

    def changed(one):
        flat = one["keypoints"]
        one["keypoints"] = [value for n in range(17) for value in change(n, *flat[3 * n : 3 * n + 3])]

    return each(changed)


def box(change):
    return each(lambda one: one.update(bbox=change(*one["bbox"])))


def images(change):
    def changed(raw):
        for one in raw["images"]:
            change(one)

    return changed


def both(*changes):
    def changed(raw):
        for change in changes:
            change(raw)

    return changed


TRIPLES = each(lambda one: one.update(keypoints=np.reshape(one["keypoints"], (17, 3)).tolist()))
COUNTS = "num_keypoints that disagree with the joints"
TEXTS = "numbers written as text, or whole numbers as 1.0"
FROM_JOINTS = "boxes that are missing or empty, taken from the joints"
FORM = "keypoints in another form"
BOXES = "boxes in another form"
POLYGONS = "polygons of masks dropped: fewer than three points, without area, or far outside of the image"
BESIDE = "masks dropped: beside their box, as those of another picture or size"
CROWD = "objects whose iscrowd is neither 0 nor 1, treated as crowd regions"
NAMES = "file names in another form"
SIZES = "sizes of images taken from the file"


def test_a_right_file_stays_as_it_is(prepare):
    found = prepare()
    assert found.people == document()["annotations"]
    assert found.repaired == {}
    assert [line.split(":")[0] for line in found.lines] == ["train", "validation"]


FROM_0 = [[a - 1, b - 1] for a, b in SKELETON if b > 1]
# Changes that say the same in another way: people come out as they are in the right file.
SAME = {
    "count": (put(num_keypoints=16), {COUNTS: COUNT}),
    "count null": (put(num_keypoints=None), {}),
    "count 17.0": (put(num_keypoints=17.0), {TEXTS: COUNT}),
    "no iscrowd": (put(iscrowd=None), {}),
    "iscrowd false": (put(iscrowd=False), {}),
    "iscrowd as text": (put(iscrowd="0"), {}),
    "iscrowd 0.0, ignore 0": (put(iscrowd=0.0, ignore=0), {}),
    "person_id null": (put(person_id=None), {}),
    "person_id empty": (put(person_id=""), {"person_id that is no whole number": COUNT}),
    "category 1.0": (put(category_id=1.0), {TEXTS: COUNT}),
    "no category": (without("category_id"), {"annotations without category_id, of the only category": COUNT}),
    "texts": (
        each(lambda one: one.update(id=str(one["id"]), image_id=f"{one['image_id']:05}", area=str(one["area"]))),
        {TEXTS: COUNT},
    ),
    "joints as texts": (joints(lambda n, x, y, flag: (str(x), f" {y} ", str(flag))), {TEXTS: COUNT}),
    "box as texts": (box(lambda *four: [f" {one} " for one in four]), {TEXTS: COUNT}),
    "nested": (TRIPLES, {FORM: COUNT}),
    "objects": (joints(lambda n, x, y, flag: [{"x": x, "y": y, "v": flag}]), {FORM: COUNT}),
    "by name": (
        each(lambda one: one.update(keypoints={
            name: one["keypoints"][3 * n : 3 * n + 3] for n, name in enumerate(KEYPOINTS)
        })),
        {FORM: COUNT},
    ),
    "box by name": (box(lambda x, y, w, h: {"x": x, "y": y, "width": w, "height": h}), {BOXES: COUNT}),
    "area as text": (each(lambda one: one.update(area=str(one["area"]))), {}),
    "mask null": (put(segmentation=None), {}),
    "mask empty": (put(segmentation=[]), {}),
    "mask a text": (put(segmentation="no"), {"masks dropped: neither polygons nor run lengths": COUNT}),
    "mask of a point": (put(segmentation=[[5, 5]]), {POLYGONS: COUNT}),
    "mask of corners": (put(segmentation=[[5, 5, 50, 50]]), {POLYGONS: COUNT}),
    "mask odd": (put(segmentation=[[5, 5, 50, 50, 5, 50, 7]]), {POLYGONS: COUNT}),
    "mask a line": (put(segmentation=[[5, 5, 50, 50, 5, 5]]), {POLYGONS: COUNT}),
    "mask right of the picture": (put(segmentation=[[200, 50, 210, 50, 210, 60]]), {BESIDE: COUNT}),
    "mask far": (put(segmentation=[[5, 5, 50, 50, 5, 9000]]), {POLYGONS: COUNT}),
    "ids repeat": (put(id=4), {"annotation ids that are missing or repeat": COUNT - 1}),
    "ids missing": (without("id"), {"annotation ids that are missing or repeat": COUNT}),
    "ids at the end": (
        each(lambda one: one.update(id=2**63 - 1 if one["id"] < 3 else 2**63)),
        {"annotation ids that are missing or repeat": COUNT - 1},
    ),
    "sizes missing": (images(lambda one: one.update(width=None, height=None)), {SIZES: COUNT}),
    "sizes 0": (images(lambda one: one.update(width=0, height=0)), {SIZES: COUNT}),
    "sizes as text": (images(lambda one: one.update(width=str(WIDTH), height=float(HEIGHT))), {SIZES: COUNT}),
    "sizes swapped": (images(lambda one: one.update(width=HEIGHT, height=WIDTH)), {SIZES: COUNT}),
    "sizes rounded": (images(lambda one: one.update(width=WIDTH + 1)), {SIZES: COUNT}),
    "sizes halved": (images(lambda one: one.update(width=WIDTH // 2, height=HEIGHT // 2)), {SIZES: COUNT}),
    "images as text": (
        images(lambda one: one.update(id=str(one["id"]))),
        {"image ids that are no whole numbers": COUNT},
    ),
    "names ./": (images(lambda one: one.update(file_name=f"./{one['file_name']}")), {}),
    "names \\": (images(lambda one: one.update(file_name=f"images\\{one['file_name']}")), {NAMES: COUNT}),
    "names of Linux": (images(lambda one: one.update(file_name=f"/home/me/{one['file_name']}")), {NAMES: COUNT}),
    "names of Windows": (images(lambda one: one.update(file_name=f"C:\\data\\{one['file_name']}")), {NAMES: COUNT}),
    "names upper": (images(lambda one: one.update(file_name=one["file_name"].upper())), {NAMES: COUNT}),
    "names %": (images(lambda one: one.update(file_name=one["file_name"].replace("0", "%30"))), {NAMES: COUNT}),
    "names blank": (images(lambda one: one.update(file_name=f"{one['file_name']} ")), {NAMES: COUNT}),
    "names .png": (images(lambda one: one.update(file_name=one["file_name"].replace("jpg", "png"))), {NAMES: COUNT}),
    "names ?": (
        images(lambda one: one.update(file_name=f"s3://b/{one['file_name']}?X-Amz-Date=1")), {NAMES: COUNT}
    ),
    "names of Label Studio": (
        images(lambda one: one.update(file_name=f"a/1a2b3c4d-{one['file_name']}")), {NAMES: COUNT}
    ),
    "names ../": (images(lambda one: one.update(file_name=f"../{one['file_name']}")), {NAMES: COUNT}),
    "names of LVIS": (
        images(lambda one: one.update(coco_url=f"http://images.cocodataset.org/val2017/{one.pop('file_name')}")),
        {"images without file_name, named by their coco_url": COUNT},
    ),
    "skeleton from 0": (lambda raw: raw["categories"][0].update(skeleton=FROM_0), {}),
    "category as text": (lambda raw: raw["categories"][0].update(id="1"), {}),
    "annotations first": (lambda raw: dict(sorted(raw.items())), {}),
    "person_id huge": (put(person_id=10**400), {"person_id that is no whole number": COUNT}),
    "infinity elsewhere": (put(note=float("inf")), {"keys whose value JSON does not have": COUNT}),
}  # fmt: skip


@pytest.mark.parametrize("change", SAME)
def test_what_means_the_same_is_read_as_the_same(prepare, change):
    change, repaired = SAME[change]
    found = prepare(change)
    assert found.error is None
    assert (found.repaired, found.rejected) == (repaired, [])
    kept = ("bbox", "area", "keypoints", "num_keypoints")
    by_image = sorted(found.people, key=lambda one: one["image_id"])
    assert [[one[key] for key in kept] for one in by_image] == [
        [one[key] for key in kept] for one in document()["annotations"]
    ]
    assert [one["image_id"] for one in by_image] == list(range(1, COUNT + 1))
    assert all(type(one[key]) is int for one in found.people for key in ("id", "image_id", "category_id"))
    assert len({one["id"] for one in found.people}) == COUNT
    assert [(one["width"], one["height"]) for one in found.images] == [(WIDTH, HEIGHT)] * COUNT
    assert sorted(Path(one["file_name"]).name for one in found.images) == [f"{n:03}.jpg" for n in range(1, COUNT + 1)]
    assert (found.persons, found.with_joints, found.crowds) == (COUNT, COUNT, 0)
    assert found.category["skeleton"] == [list(pair) for pair in SKELETON]


def first(key, value):
    return lambda raw: raw["annotations"][0].update({key: value})


def first_joint(*point):
    return lambda raw: raw["annotations"][0]["keypoints"].__setitem__(slice(0, 3), list(point))


def around(one):
    """Return the box of a standing person's joints with a tenth of the height on each side, by hand."""
    x, y = one["keypoints"][::3], one["keypoints"][1::3]
    height = float(np.hypot(max(x) - min(x), max(y) - min(y)) * 9.7 / np.hypot(3.5, 9.7))
    margin = height / 10
    left, top = max(min(x) - margin, 0), max(min(y) - margin, 0)
    right, bottom = min(max(x) + margin, WIDTH), min(max(y) + margin, HEIGHT)
    return [left, top, right - left, bottom - top]


def tight(one):
    x, y = one["keypoints"][::3], one["keypoints"][1::3]
    one["bbox"] = [min(x), min(y), max(x) - min(x), max(y) - min(y)]


def corners(one):
    x, y, width, height = one["bbox"]
    one["bbox"] = [x, y, x + width, y + height]


@pytest.mark.parametrize(
    ("change", "section", "repaired"),
    [
        (without("bbox"), {}, FROM_JOINTS),
        (put(bbox=[0, 0, 10**400, 9]), {}, FROM_JOINTS),
        (each(tight), {}, "boxes tight around their joints, widened"),
        (each(corners), {"boxes": "joints"}, None),
    ],
)
def test_boxes_of_joints(prepare, change, section, repaired):
    found = prepare(both(change, without("area")), **section)
    assert found.repaired == ({repaired: COUNT} if repaired else {})
    for one, before in zip(found.people, document()["annotations"], strict=True):
        assert np.allclose(one["bbox"], around(before), atol=0.02)
        assert np.isclose(one["area"], one["bbox"][2] * one["bbox"][3])
    assert found.persons == COUNT


TRIANGLE = [50, 40, 90, 40, 90, 90]


@pytest.mark.parametrize(
    "mask",
    [
        TRIANGLE,
        [TRIANGLE, [1, 1]],
        [[[50, 40], [90, 40], [90, 90]]],
        [[50, 40], [90, 40], [90, 90]],
        [[*map(str, TRIANGLE)]],
    ],
)
def test_masks_in_other_forms(prepare, mask):
    found = prepare(both(put(segmentation=mask), without("bbox", "keypoints")), coordinates="pixels")
    assert {tuple(one["segmentation"][0]) for one in found.people} == {tuple(TRIANGLE)}
    assert {len(one["segmentation"]) for one in found.people} == {1}
    assert {tuple(one["bbox"]) for one in found.people} == {(50, 40, 40, 50)}
    assert {one["area"] for one in found.people} == {40 * 50 / 2}


@pytest.mark.parametrize(
    ("values", "repaired"),
    [
        ({"iscrowd": 1}, {}),
        ({"iscrowd": True}, {}),
        ({"iscrowd": 1, "ignore": 0}, {}),
        ({"iscrowd": "1"}, {}),
        ({"iscrowd": 2}, {CROWD: 1}),
        ({"isCrowd": 1}, {}),
        ({"ignore": 1}, {"ignored objects, treated as crowd regions": 1}),
        ({"ignore": True, "iscrowd": 0}, {"ignored objects, treated as crowd regions": 1}),
    ],
)
def test_crowds_under_other_names(prepare, values, repaired):
    found = prepare(lambda raw: raw["annotations"][2].update(values))
    assert (found.persons, found.crowds) == (COUNT - 1, 1)
    assert found.people[2]["iscrowd"] == 1
    assert found.repaired == repaired


@pytest.mark.parametrize("keypoints", [None, [], [0] * 51, "absent"])
def test_people_without_joints_stay(prepare, keypoints):
    def change(raw):
        for one in raw["annotations"][:3]:
            del one["num_keypoints"]
            one["keypoints"] = keypoints
            if keypoints == "absent":
                del one["keypoints"]

    found = prepare(change)
    assert found.repaired == {}
    assert (found.persons, found.with_joints) == (COUNT, COUNT - 3)


def named(name):
    return lambda raw: raw["images"][0].update(file_name=name)


def test_pictures_without_joints_are_counted(prepare):
    def change(raw):
        for one in raw["annotations"][:4]:
            one["keypoints"] = [0] * 51

    found = prepare(change)
    counts = [re.search(r"(\d+) images, .*\((\d+) with joints, in (\d+) images,", line) for line in found.lines[-2:]]
    numbers = [[int(one) for one in found.groups()] for found in counts if found]
    assert sum(images - posed for images, _, posed in numbers) == 4
    assert all(people == posed for _, people, posed in numbers)


def test_categories_of_one_name_are_told(prepare):
    def change(raw):
        raw["categories"] = [{"id": n, "name": name} for n, name in enumerate(("cat", "cat", "dog"), 1)]
        for one in raw["annotations"]:
            one["category_id"] = 1 + one["id"] % 3
            del one["keypoints"]

    told = [line for line in prepare(change).lines if "several categories" in line]
    assert len(told) == 1
    assert told[0].endswith("several categories are named cat, and count apart: give them one id")


REGION = "regions ignored in training and evaluation"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (first_joint(9000, 40, 2), "keypoint far outside of the image"),
        (first("category_id", 9), "category unknown"),
        (first("category_id", "person"), "category unknown"),
        (first("category_id", 10**400), "category unknown"),
    ],
)
def test_people_who_cannot_be_used_become_crowd_regions(prepare, change, reason):
    found = prepare(change, max_rejected=0.1)
    assert found.rejected == [("annotation", "1", reason)]
    assert found.repaired == {REGION: 1}
    assert (found.persons, found.crowds) == (COUNT - 1, 1)
    region = next(one for one in found.people if one.get("iscrowd"))
    assert region["bbox"] == document()["annotations"][0]["bbox"]
    assert (region["image_id"], region["category_id"]) == (1, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (first("image_id", 99), "annotation without image"),
        (first("image_id", None), "annotation without image"),
        (first("image_id", True), "annotation without image"),
        (first("image_id", "\ud800"), "annotation without image"),
        (first("image_id", 10**400), "annotation without image"),
        (lambda raw: raw["annotations"].__setitem__(0, 5), "not an object"),
        (lambda raw: raw["annotations"][0].update(bbox=[900, 5, 9, 9], keypoints=None), "box outside of the image"),
        (named("none.jpg"), "image file missing"),
        (named("twice/x.jpg"), "image file missing"),  # there are two of this name, in other folders
        (named("a" * 5000), "file name that no file can have"),
        (named("a\0b.jpg"), "file name that no file can have"),
        (named("\ud800.jpg"), "file name that no file can have"),
        (named("../../etc/passwd"), "path leaves the data root"),
        (named("/etc/passwd"), "path leaves the data root"),
        (named(""), "file name missing"),
        (named(5), "file name missing"),
    ],
)
def test_what_cannot_be_known_is_rejected(prepare, change, reason):
    def twice(folder):
        for name in ("a", "b"):
            (folder / name).mkdir()
            (folder / name / "x.jpg").write_bytes(jpeg(1))

    found = prepare(change, max_rejected=0.1, pictures=twice)
    kind = "image" if "file" in reason or "path" in reason else "annotation"
    assert [(one[0], one[2]) for one in found.rejected] == [(kind, reason)]
    assert (found.persons, found.crowds) == (COUNT - 1, 0)


# --- images ---


def test_ids_that_are_names(prepare):
    def change(raw):
        for one, image in zip(raw["annotations"], raw["images"], strict=True):
            one["image_id"] = image["id"] = image["file_name"]

    found = prepare(change)
    assert found.repaired == {"image ids that are no whole numbers": COUNT, TEXTS: COUNT}
    names = {one["id"]: Path(one["file_name"]).name for one in found.images}
    assert {one["id"]: names[one["image_id"]] for one in found.people} == {n: f"{n:03}.jpg" for n in names}


def test_ids_that_only_look_like_numbers_stay_apart(prepare):
    def change(raw):
        names = ["12_3", "1_23", "1e5", "100000", "2" * 30]
        for name, one, image in zip(names, raw["annotations"], raw["images"], strict=False):
            one["image_id"] = image["id"] = name

    found = prepare(change)
    assert (found.persons, found.rejected) == (COUNT, [])
    names = {one["id"]: Path(one["file_name"]).name for one in found.images}
    assert {one["id"]: names[one["image_id"]] for one in found.people} == {
        n: f"{n:03}.jpg" for n in range(1, COUNT + 1)
    }


def test_an_id_of_two_images_costs_both(prepare):
    found = prepare(lambda raw: raw["images"][1].update(id=1), max_rejected=0.2)
    assert found.rejected == [
        ("image", "1", "images of the same id"),
        ("image", "1", "images of the same id"),
        ("annotation", "2", "annotation without image"),
    ]
    assert found.persons == COUNT - 2


def test_names_with_accents_written_apart(prepare):
    def rename(folder):
        (folder / "001.jpg").rename(folder / unicodedata.normalize("NFC", "é1.jpg"))

    change = lambda raw: raw["images"][0].update(file_name=unicodedata.normalize("NFD", "é1.jpg"))
    found = prepare(change, pictures=rename)
    assert (found.repaired, len(found.images)) == ({NAMES: 1}, COUNT)


@pytest.mark.parametrize("below", [False, True])
def test_absolute_names_of_this_machine(prepare, below):
    """A name that joins to the raw file itself must not become the place to write to."""

    def change(raw):
        folder = Path("raw/images").resolve() if below else Path("raw").resolve()
        raw["images"][0]["file_name"] = str(folder / "001.jpg")

    found = prepare(change)
    assert found.images[0]["file_name"].split("/", 1)[1] == "001.jpg"
    assert len(content(PREPARED / "images")) == COUNT


# --- pictures that EXIF turns ---


def turned(orientation):
    def change(folder):
        for path in folder.iterdir():
            exif = Image.Exif()
            exif[0x0112] = orientation
            with Image.open(path) as picture:
                picture.load()
                picture.save(path, exif=exif, quality=50)

    return change


def lying(raw):
    """Let people fit the upright picture alone: 130 wide, 160 high."""
    for one in raw["annotations"]:
        one["keypoints"] = [v if n % 3 != 1 else v + 45 for n, v in enumerate(one["keypoints"])]
        one["keypoints"] = [v if n % 3 else v * 0.5 for n, v in enumerate(one["keypoints"])]
        x, y, width, height = one["bbox"]
        one |= {"bbox": [x / 2, y + 45, width / 2, height], "area": one["area"] / 2}


def sized(*sides):
    return images(lambda one: one.update(zip(("width", "height"), sides, strict=True)))


@pytest.mark.parametrize(
    ("change", "size"),
    [(both(lying, sized(*stated)), (HEIGHT, WIDTH)) for stated in ((None, None), (WIDTH, HEIGHT), (HEIGHT, WIDTH))]
    + [(None, (WIDTH, HEIGHT))],
)
def test_annotations_say_whether_they_mean_the_upright_or_the_stored_picture(prepare, change, size):
    found = prepare(change, pictures=turned(6))
    assert [(one["width"], one["height"]) for one in found.images] == [size] * COUNT
    assert found.persons == COUNT
    with Image.open(io.BytesIO(content(PREPARED / "images")[found.images[0]["file_name"]])) as picture:
        assert picture.size == size
        assert picture.getexif().get(0x0112, 1) == 1


# --- files as a whole ---


def relative(unit, beyond=1.0):
    def change(one):
        one["bbox"] = [v * unit * beyond / (WIDTH, HEIGHT)[n % 2] for n, v in enumerate(one["bbox"])]
        sides = (WIDTH, HEIGHT, unit * beyond)
        one["keypoints"] = [v * unit * beyond / sides[n % 3] for n, v in enumerate(one["keypoints"])]
        one["area"] = None

    return each(change)


def few(count, change):
    def changed(raw):
        raw["annotations"] = raw["annotations"][-count:]
        change(raw)

    return changed


def kept(key):
    return [one[key] for one in document()["annotations"]]


@pytest.mark.parametrize(
    ("change", "section"),
    [
        (relative(1), {"coordinates": "relative"}),
        (relative(100), {"coordinates": "percent"}),
        (both(relative(1), joints(lambda n, x, y, flag: (x, y))), {"coordinates": "relative"}),
        (each(corners), {"boxes": "corners"}),
    ],
)
def test_numbers_that_settings_explain(prepare, change, section):
    found = prepare(change, **section)
    assert np.allclose([one["bbox"] for one in found.people], kept("bbox"))
    assert np.allclose([one["keypoints"] for one in found.people], kept("keypoints"))
    assert set(found.repaired) <= {BOXES, "joints without visibility, visible unless at 0, 0"}


# --- categories and skeletons ---

FIVE = ["root", "a_left", "a_right", "b_left", "b_right"]


def thing(names=FIVE, skeleton=([1, 2], [1, 3], [2, 4], [3, 5]), **more):
    """Let the category have these five joints, which are COCO's shoulders and elbows, and the nose."""

    def change(raw):
        for one in raw["annotations"]:
            one["keypoints"] = one["keypoints"][:3] + one["keypoints"][15:27]
            one["num_keypoints"] = 5
        category = {"id": 1, "name": "thing", "keypoints": names, "skeleton": skeleton}
        raw["categories"] = [{key: value for key, value in (category | more).items() if value is not None}]

    return change


def facts():
    return json.loads((PREPARED / "facts.json").read_text())["skeleton"]


SIDES = {"a_left": "a_right", "b_left": "b_right"}
FROM_1 = [[1, 2], [1, 3], [2, 4], [3, 5]]


@pytest.mark.parametrize(
    ("change", "flip"),
    [
        (thing(), SIDES),
        (thing(skeleton=[[0, 1], [0, 2], [1, 3], [2, 4]], flip_pairs=[[1, 2], [3, 4]]), SIDES),
        (thing(flip_pairs=[[2, 3], [4, 5]]), SIDES),
        (thing(skeleton=[["root", "a_left"], ["root", "a_right"], ["a_left", "b_left"], ["a_right", "b_right"]],
               flip_pairs=[["a_left", "a_right "], ["b_left", "b_right"]]), SIDES),
        (thing(skeleton=[[1.0, "2"], [1, 3], [2, 4], [3, 5]]), SIDES),
        (thing(names=["root", "a_left ", " a_right", "b_left", "b_right"]), SIDES),
        (thing(names=["root", "Left a", "right a", "left b", "Right b"]), {"Left a": "right a", "left b": "Right b"}),
        (thing(names=["root", "lknee", "rknee", "lhip", "rhip"]), {"lknee": "rknee", "lhip": "rhip"}),
        (thing(names=["root", "linke Hand", "rechte Hand", "左膝", "右膝"]),
         {"linke Hand": "rechte Hand", "左膝": "右膝"}),
        (thing(names=["root", "NearEye", "OffEye", "lft_1", "rgt_1"]), {"NearEye": "OffEye", "lft_1": "rgt_1"}),
    ],
)  # fmt: skip
def test_sides_and_pairs_of_a_skeleton(prepare, change, flip):
    found = prepare(change)
    assert found.category["skeleton"] == FROM_1
    assert facts()["flip"] == flip
    assert not any("flip" in line and line.startswith("warning") for line in found.lines)


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ({"name": "Person"}, "person"),
        ({"name": " person "}, "person"),
        ({"name": "PERSON", "supercategory": "none"}, "person"),
        ({"name": "person", "keypoints": None, "skeleton": None}, "person"),
        ({"name": "person", "keypoints": []}, "person"),
    ],
)
def test_people_under_another_name(prepare, category, name):
    def change(raw):
        raw["categories"] = [{"id": 3, "name": "bicycle"}, {"id": 1, "skeleton": [], **category}]

    found = prepare(change)
    assert json.loads((PREPARED / "facts.json").read_text())["people"] == name
    assert (found.persons, found.with_joints) == (COUNT, COUNT)


@pytest.mark.parametrize("section", [{}, {"category": "person"}])
def test_a_category_above_of_the_same_name(prepare, section):
    """Roboflow's first category is the group of the others, without joints or annotations."""
    above = {"id": 0, "name": "person", "supercategory": "none"}
    found = prepare(lambda raw: raw["categories"].insert(0, above), **section)
    assert (found.persons, found.with_joints) == (COUNT, COUNT)
    assert {one["category_id"] for one in found.people} == {1}


# --- copies of a picture ---


def copy_name(number, letter, size):
    """Return a name as Roboflow gives it; pictures are copies of one in groups of this size."""
    return f"{letter}{number // size}_jpg.rf.{number:032x}.jpg"


def renamed(letter, size):
    """Return what renames the pictures, and what renames them in the records."""

    def files(folder):
        for number in range(1, COUNT + 1):
            os.rename(folder / f"{number:03}.jpg", folder / copy_name(number, letter, size))

    def records(raw):
        for one in raw["images"]:
            one["file_name"] = copy_name(one["id"], letter, size)

    return files, records


copies, name_copies = renamed("p", 4)
each_file_alone, each_copy_alone = renamed("z", 1)


@pytest.mark.parametrize(
    ("change", "pictures", "section"),
    [
        (name_copies, copies, {}),
        (images(lambda one: one.update(video={"id": one["id"] // 4})), None, {"group_by": "video.id"}),
        (name_copies, copies, {"group_by": r"^(p\d+)_"}),
        (
            both(each_copy_alone, images(lambda one: one.update(video_id=one["id"] // 4))),
            each_file_alone,
            {"group_by": "video_id"},
        ),
    ],
)
def test_copies_and_frames_stay_together(prepare, change, pictures, section):
    found = prepare(change, pictures=pictures, shares={"validation": 0.5}, **section)
    split_of = {one["id"]: one["file_name"].split("/")[0] for one in found.images}
    for group in range(COUNT // 4 + 1):
        assert len({split_of[number] for number in split_of if number // 4 == group}) == 1
    assert any("12 images in 4 groups, at most 4 in one" in line for line in found.lines)


def in_videos(form):
    """Return what names the pictures as frames of two videos, and what renames them in the records."""

    def files(folder):
        for number in range(1, COUNT + 1):
            path = folder / form.format(number // 7, number)
            path.parent.mkdir(exist_ok=True)
            (folder / f"{number:03}.jpg").rename(path)

    return files, images(lambda one: one.update(file_name=form.format(one["id"] // 7, one["id"])))


APART = "warning: shares: frames of 2 of 2 videos are in several splits, such as those of {}: `group_by`, a key such as"


@pytest.mark.parametrize(
    ("form", "key", "section", "told"),
    [
        ("{1:03}.jpg", {"video_id": 7}, {}, APART.format("0")),
        ("vid{}/{:04}.jpg", {}, {}, APART.format("'vid0/'")),
        ("camA{}_{:04}.jpg", {}, {}, APART.format("'camA0_'")),
        ("clip{}_frame_{:04}.jpg", {}, {}, APART.format("'clip0_frame_'")),
        ("camel{}_{:04}.jpg", {}, {}, None),
        ("vid{}/{:04}.jpg", {}, {"group_by": r"^(vid\d+)/"}, None),
    ],
)
def test_frames_of_a_video_that_are_drawn_apart_are_told(prepare, form, key, section, told):
    files, records = in_videos(form)
    keys = images(lambda one: one.update({name: one["id"] // number for name, number in key.items()}))
    found = prepare(both(keys, records), pictures=files, shares={"validation": 0.5}, **section)
    lines = [line for line in found.lines if line.startswith("warning: ")]
    assert len(lines) == (told is not None)
    assert all(line.startswith(told) for line in lines)


# --- determinism ---


def test_a_repaired_file_prepares_to_the_same_bytes(prepare):
    change = both(
        without("bbox"), put(id=4, iscrowd=None), images(lambda one: one.update(width=None)), first_joint(0, 0, 2)
    )
    prepare(change)
    before = content(PREPARED)
    assert run(main, ["people"]) == 0
    assert content(PREPARED) == before


# --- what is refused, and what is told ---


def listed_for_each_object(raw):
    """List each picture twice; the second record's people are also those of the next picture, of a group of four."""
    again = [{**one, "id": one["id"] + 100} for one in raw["images"]]
    people = [{**one, "id": one["id"] + 100, "image_id": one["image_id"] + 100} for one in raw["annotations"]]
    for one in raw["annotations"]:
        one["person_id"] = one["id"] // 4
    for one in people:
        one["person_id"] = (one["id"] % 100 + 1) // 4
    raw["images"] += again
    raw["annotations"] += people


def apart(raw):
    for one in raw["annotations"][:4]:
        one["bbox"] = [0.1, 0.1, 0.2, 0.3]


def flags(flag):
    return joints(lambda n, x, y, _: (x, y, flag))


def category(*entries):
    return lambda raw: raw.update(categories=[*entries])


LETTERS = [f"k{n}" for n in range(5)]
JOINT_BY_JOINT = [{"id": n, "name": name} for n, name in enumerate(KEYPOINTS)]


def counted_from(annotations, categories):
    """Give each annotation another category; they count from one number, and the categories from another."""

    def changed(raw):
        raw["categories"] = [{"id": categories + n, "name": f"kind {n}"} for n in range(COUNT)]
        for number, one in enumerate(raw["annotations"], annotations):
            one["category_id"] = number
            del one["keypoints"]

    return changed


REFUSED = [
    (relative(1), {}, "12 boxes and 12 poses are about 1 or less, as shares.*`coordinates: relative` to .*people.coco"),
    (relative(1, 1.2), {}, "`coordinates: relative`"),
    (both(relative(1), without("bbox")), {}, "0 boxes and 12 poses are about 1 or less"),
    (both(relative(1), TRIPLES), {}, "`coordinates: relative`"),
    (relative(100), {}, "no coordinate of 12 boxes and 12 poses is above 100.*`coordinates: percent`"),
    (each(corners), {}, "fit x1, y1, x2, y2 better.*`boxes: corners` to .*people.coco, `boxes: joints`"),
    (both(each(corners), without("keypoints", "num_keypoints")), {}, "fit x1, y1, x2, y2 better.*`boxes: corners`"),
    (box(lambda x, y, w, h: [x + 70 if x < 60 else x - 55, y, w, h]), {}, "12 of 12 people most joints are outside"),
    (None, {"boxes": "corners"}, "boxes cannot be x1, y1, x2, y2, as `boxes: corners`"),
    (images(lambda one: one.update(width=2 * WIDTH, height=2 * HEIGHT)), {}, "image size disagrees"),
    (category({"id": 1, "name": "face"}), {},
     "12 of 12 annotations have 51 numbers, 17 joints, and no category names them; write `keypoints: co"),
    (each(lambda one: one.update(keypoints=one["keypoints"] * 8)), {}, "408 numbers, 136 joints, and the category"),
    (each(lambda one: one.update(keypoints=str(one["keypoints"]))), {}, "in 12 of 12 annotations, bbox or keypoints"),
    (each(lambda one: one.update(bbox=",".join(map(str, one["bbox"])))), {}, "keypoints are one text, as of a table"),
    (lambda raw: raw.update(annotations=[]), {}, "list of annotations is empty; the split train needs them"),
    (lambda raw: raw.pop("annotations") and None, {}, "annotations is missing, as in COCO's image-info files"),
    (both(lambda raw: raw.update(annotations=[]), category(*JOINT_BY_JOINT)), {},
     "no annotation, and 17 of 17 categories are named as joints: export a skeleton"),
    (both(box(lambda x, y, w, h: [x, y, 1, 1]), without("keypoints"), category(*JOINT_BY_JOINT)), {},
     "all boxes are points, and 17 of 17 categories are named as joints: export a skeleton"),
    (lambda raw: json.dumps(raw)[:-5], {}, "not valid JSON"),
    (category(), {}, "categories: the list is empty"),
    (lambda raw: raw["categories"].append({"id": 1, "name": "x"}), {}, "each needs a whole number of its own"),
    *((thing(**more), {}, "thing") for more in (
        {"skeleton": [[0, 5]]}, {"skeleton": [[1, 1]]}, {"skeleton": 5}, {"skeleton": "ab"}, {"skeleton": [[1, [2]]]},
        {"skeleton": [[1, 10**400]]}, {"flip_pairs": 7}, {"flip_pairs": [["root", "nose"]]},
        {"keypoints": ["a", "a ", "b", "c", "d"]}, {"keypoints": ["a", "", "b", "c", "d"]}, {"keypoints": 5},
    )),
    (None, {"group_by": "video_id"}, "coco.group_by: no image of .* has 'video_id'"),
    (None, {"group_by": "(x)?"}, r"coco.group_by: no image of .* has '\(x\)\?'"),
    (None, {"group_by": "(frame"}, r"coco.group_by: found '\(frame'; no regular expression"),
    (None, {"group_by": r"\(x"}, "coco.group_by: .*it has no group in round brackets"),
    (put(category_id=0), {}, "annotations name the categories 0, and there are 1"),
    (each(lambda one: one.update(keypoints=[n for start in range(3) for n in one["keypoints"][start::3]])), {},
        "in 12 of 12 annotations, keypoints are x of all joints, then y, then the flags; write x, y and flag"),
    (put(category_id=7), {}, r"12 category unknown; the first: 7; there are 1 \(person\)"),
    (counted_from(0, 1), {}, "annotations name the categories 0 to 11, and there are 1 to 12"),
    (counted_from(1, 0), {}, "annotations name the categories 1 to 12, and there are 0 to 11"),
    (counted_from(0, 2), {}, "annotations name the categories 0 to 11, and there are 2 to 13"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "section", "message"), REFUSED)
def test_files_that_contradict_themselves_or_the_settings_are_refused(prepare, change, section, message):
    assert re.search(message, prepare(change, **section).error)


TOLD = [
    (few(3, each(corners)), {}, "warning: .*3 boxes fit x1, y1, x2, y2 better"),
    (lambda raw: raw["annotations"].append({**raw["annotations"][3], "id": 99}), {},
     "warning: .*1 annotations say the same as"),
    (box(lambda x, y, w, h: [x, y, 1.8 * w, h]), {},
     "warning: .*12 of 12 people the joints lie in the left part of the box"),
    (apart, {}, f"in 4 of {COUNT} people most joints are outside"),
    (flags("visible"), {}, f"warning: .*: {COUNT} annotations have joints, none of which counts"),
    (flags(0), {}, f"warning: .*: {COUNT} annotations have joints, none of which counts"),
    (each(lambda one: one.update(keypoints={"x": one["keypoints"][:3]})), {},
     f"warning: .*: {COUNT} annotations have joints, none of which counts"),
    (put(iscrowd=1), {}, f"warning: .*: all {COUNT} annotations have iscrowd 1"),
    (lambda raw: raw.update(annotations=raw["annotations"][:4]), {},
     r"warning: .*: \d+ of \d+ images have no annotation: they count as empty"),
    (thing(names=["top", "a_left", "a_right", "lefthip", "righthip"]), {},
     "warning: .*flip: lefthip, righthip have a side and no partner"),
    (None, {"pictures": turned(3)}, "fit both ways.*`orientation`"),
    (lambda raw: raw["categories"][0].update(skeleton=FROM_0), {}, "count joints from 0"),
    (thing(names=LETTERS), {}, "warning: .*flip: no name tells left from right"),
    (thing(skeleton=[[1, 2], [2, 4], [3, 5]]), {},
     "warning: .*they form 2 parts.*root, a_left, b_left; a_right, b_ri"),
    (thing(skeleton=[[1, 2], [1, 3]]), {}, "warning: .*none reaches b_left, b_right"),
    (thing(skeleton=[[1, 2], [2, 3], [3, 4]], names=LETTERS), {}, "from 0 or from 1; read from 1"),
    (thing(flip_pairs=[["root", "a_left"]]), {}, "warning: .*exchanges joints that are not left and right by name"),
    (listed_for_each_object, {"shares": {"validation": 0.5}}, "24 images in 1 groups"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "section", "line"), TOLD)
def test_what_looks_wrong_is_told(prepare, change, section, line):
    assert any(re.search(line, one) for one in prepare(change, **section).lines)


@pytest.mark.parametrize(
    ("change", "section"),
    [(few(3, both()), {}), (few(1, both()), {}), (None, {"pictures": turned(3), "orientation": "stored"})],
)
def test_what_looks_right_is_not(prepare, change, section):
    lines = [line for line in prepare(change, **section).lines if line.startswith("warning:") or "both ways" in line]
    assert all("images have no annotation" in line for line in lines)


# --- files in another frame: 30 pictures with two people each ---

BROAD = (320, 240)


def many(size=BROAD, rows=1.0):
    """Return 30 pictures of this width and height with two people each, in the upper part of their rows."""
    random, (width, height) = np.random.default_rng(5), size
    people = []
    for number in range(60):
        scale = random.uniform(4, 9)
        left = random.uniform(4 * scale, width - 4 * scale)
        top = random.uniform(2 * scale, rows * height - 12 * scale)
        places = (COCO.standing_pose - (0, 9.7)) * (scale, -scale) + (left, top)
        (x, y), (right, bottom) = places.min(0) - 5, places.max(0) + 5
        flat = [value for x, y in places.tolist() for value in (x, y, 2)]
        one = {"id": number + 1, "image_id": number // 2 + 1, "category_id": 1, "iscrowd": 0, "keypoints": flat}
        people.append(one | {"bbox": [x, y, right - x, bottom - y]})
    raw = document()
    raw["images"] = [{"id": n, "file_name": f"{n:03}.jpg", "width": width, "height": height} for n in range(1, 31)]
    return raw | {"annotations": people}


def broad(folder):
    """Write 30 pictures that lie: 320 x 240."""
    for number in range(1, 31):
        pixels = np.random.default_rng(number).integers(0, 256, (24, 32, 3), np.uint8)
        Image.fromarray(pixels).resize(BROAD).save(folder / f"{number:03}.jpg")


def of_many(*changes, size=BROAD, rows=1.0):
    def changed(_):
        raw = many(size, rows)
        both(*changes)(raw)
        return raw

    return changed


bare = without("keypoints")
lie = joints(lambda n, x, y, flag: (y, x, flag))
boxes_lie = box(lambda x, y, w, h: [y, x, h, w])
centred = box(lambda x, y, w, h: [x + w / 2, y + h / 2, w, h])
of_y_and_x = box(lambda x, y, w, h: [y, x, y + h, x + w])
half = both(joints(lambda n, x, y, flag: (x / 2, y / 2, flag)), box(lambda *numbers: [one / 2 for one in numbers]))
double = both(joints(lambda n, x, y, flag: (2 * x, 2 * y, flag)), box(lambda *numbers: [2 * one for one in numbers]))
from_below = both(joints(lambda n, x, y, flag: (x, 240 - y, flag)), box(lambda x, y, w, h: [x, 240 - y - h, w, h]))
letters = category({"id": 1, "name": "thing", "keypoints": [f"k{n}" for n in range(17)], "skeleton": []})
upright = sized(*BROAD[::-1])
unsized = images(lambda one: one.update(width=None, height=None))
shares = both(
    joints(lambda n, x, y, flag: (x / 320, y / 240, flag)), box(lambda x, y, w, h: [x / 320, y / 240, w / 320, h / 240])
)
dogs = both(put(category_id=2), lambda raw: raw["categories"].append({"id": 2, "name": "dog"}))
SIDEWAYS = {"size": BROAD[::-1]}


def in_the_first(count, change):
    """Return a change of a file's first annotations."""

    def changed(raw):
        part = {**raw, "annotations": raw["annotations"][:count]}
        change(part)
        raw["annotations"][:count] = part["annotations"]

    return changed


def masks(change):
    """Replace boxes and joints by masks whose corners are those of the boxes."""

    def changed(one):
        x, y, w, h = one.pop("bbox")
        del one["keypoints"]
        corners = [(x, y), (x + w, y), (x + w, y + h), (x, y + h)]
        one["segmentation"] = [[value for corner in corners for value in change(*corner)]]

    return each(changed)


FRAMES = {
    "masks right": (of_many(masks(lambda x, y: (x, y))), {}, None),
    "masks in shares": (of_many(masks(lambda x, y: (x / 320, y / 240))), {}, "error: .*`coordinates: relative`"),
    "masks in per cent": (of_many(masks(lambda x, y: (x / 3.2, y / 2.4))), {}, "error: .*`coordinates: percent`"),
    "masks of half": (of_many(masks(lambda x, y: (x / 2, y / 2))), {}, "warning: .*lie in the upper left"),
    "masks exchanged": (of_many(masks(lambda x, y: (y, x))), {"max_rejected": 0.9}, "x and y exchanged"),
    "x and y exchanged": (of_many(lie, boxes_lie), {}, "error: .*60 annotations fit x and y exchanged better"),
    "without names": (of_many(letters, lie, boxes_lie), {}, "error: .*60 annotations fit x and y exchanged, or pict"),
    "boxes alone, exchanged": (of_many(bare, boxes_lie), {}, "error: .*fit x and y exchanged, or pictures turned"),
    "joints exchanged": (of_many(lie), {}, "error: .*fit x and y of the joints exchanged .*`coordinates: pixels`"),
    "boxes exchanged": (of_many(boxes_lie), {}, "error: .*60 boxes fit x and y of the boxes exchanged"),
    "from the centre": (of_many(centred), {}, "error: .*60 boxes fit x and y of the centre, .*`boxes: centre` to"),
    "from the centre, bare": (of_many(bare, centred), {}, "warning: .*60 boxes fit x and y of the centre"),
    "corners": (of_many(each(corners)), {}, "error: .*60 boxes fit x1, y1, x2, y2 better"),
    "y first": (of_many(of_y_and_x), {}, "error: .*60 boxes fit y1, x1, y2, x2 better"),
    "y first, bare": (of_many(bare, of_y_and_x), {}, "error: .*60 boxes fit y1, x1, y2, x2 better"),
    "height first": (of_many(box(lambda x, y, w, h: [x, y, h, w])), {}, "error: .*60 boxes fit x, y, height, width"),
    "turned": (of_many(**SIDEWAYS), {}, "error: .*image turned by 90 degrees; the first: .* 320 x 240 instead of 240"),
    "turned, no size": (of_many(unsized, **SIDEWAYS), {}, "error: .*fit pictures turned by 90 degrees.*pictures"),
    "turned, fits": (of_many(rows=0.75, **SIDEWAYS), {}, "warning: 30 images whose record has width and height exch"),
    "sizes exchanged": (of_many(upright), {}, None),
    "of larger pictures": (of_many(double), {"max_rejected": 0.5}, r"warning: .*\d+ of 1080 joints and middles of box"),
    "of smaller pictures": (of_many(half), {}, "warning: .*all of 60 annotations lie in the upper left"),
    "from below": (of_many(from_below), {}, "warning: .*60 of 60 people have their head below their hips"),
    "a third in corners": (of_many(in_the_first(20, each(corners))), {},
        "warning: .*17 of 60 boxes leave their picture or their joints, and 17 of these fit x1, y1, x2, y2: correct"),
    "a third in shares": (of_many(in_the_first(20, shares)), {}, "warning: .*all coordinates of 20 of 60 annotations"),
    "boxes of pictures": (of_many(box(lambda *_: [0, 0, 320, 240])), {}, "warning: .*60 of 60 people the joints cover"),
    "joints of dogs": (of_many(in_the_first(20, dogs)), {},
        "warning: .*20 annotations of dog have joints, which do not count; `category` in"),
    "stated category": (of_many(in_the_first(20, dogs)), {"category": "person"}, None),
    "stated centre": (of_many(centred), {"boxes": "centre"}, None),
    "stated pixels": (of_many(lie, boxes_lie), {"coordinates": "pixels"}, None),
    "right": (of_many(), {}, None),
    "right, bare": (of_many(bare), {}, None),
}  # fmt: skip


@pytest.mark.parametrize("frame", FRAMES)
def test_a_file_in_another_frame(prepare, frame):
    change, section, told = FRAMES[frame]
    found = prepare(change, pictures=broad, **{"max_rejected": 0.2, **section})
    lines = [found.error or "", *(line for line in found.lines if line.startswith("warning: "))]
    assert re.search(told, "\n".join(lines)) if told else lines == [""]
    if frame == "stated centre":
        assert np.allclose([one["bbox"] for one in found.people], [one["bbox"] for one in many()["annotations"]])


def yolo(change=lambda *numbers: numbers, joint=lambda x, y: (x, y), kept=range(1, 31), names=True, more=""):
    """Return what writes labels of 60 people: x and y of the box's centre, width, height and joints, as shares."""

    def changed(_):
        rows = {number: [] for number in kept}
        for one in many()["annotations"]:
            x, y, w, h = np.array(one["bbox"]) / (*BROAD, *BROAD)
            triples = np.reshape(one["keypoints"], (17, 3)).tolist()
            points = [(*joint(x / BROAD[0], y / BROAD[1]), flag) for x, y, flag in triples]
            row = [0, *change(x + w / 2, y + h / 2, w, h), *(number for point in points if names for number in point)]
            rows.get(one["image_id"], []).append(" ".join(f"{number:.6f}".removesuffix(".000000") for number in row))
        Path("raw/labels").mkdir()
        for number, lines in rows.items():
            Path(f"raw/labels/{number:03}.txt").write_text("\n".join(lines) + "\n")
        data = "train: images\nnames: [person]\n" + "kpt_shape: [17, 3]\n" * names
        Path("raw/data.yaml").write_text(data + more)

    return changed


LABELS = {
    "right": (yolo(), {}, None),
    "right, bare": (yolo(names=False), {}, None),
    "some empty": (yolo(kept=range(1, 28)), {}, None),
    "a key misspelt": (yolo(more="vall: images\n"), {}, "warning: data.yaml: the key 'vall' is not read; is it 'val'"),
    "keys of others": (yolo(more="download: http://x\nroboflow: {license: MIT}\nchannels: 3\n"), {}, None),
    "most missing": (yolo(kept=range(1, 8)), {}, "warning: data.yaml: 23 of 30 pictures of train have no label file"),
    "corner": (yolo(lambda x, y, w, h: (x - w / 2, y - h / 2, w, h)), {}, "error: .*60 boxes fit x, y, width, height"),
    "corner, bare": (
        yolo(lambda x, y, w, h: (x - w / 2, y - h / 2, w, h), names=False), {},
        "warning: .*60 boxes fit x, y, width, height better than x and y of the centre",
    ),
    "corners": (
        yolo(lambda x, y, w, h: (x - w / 2, y - h / 2, x + w / 2, y + h / 2), names=False), {},
        "error: .*60 boxes fit x1, y1, x2, y2 better than x and y of the centre",
    ),
    "joints exchanged": (yolo(joint=lambda x, y: (y, x)), {}, "error: .*joints exchanged.*`coordinates: relative`"),
    "stated": (yolo(lambda x, y, w, h: (x - w / 2, y - h / 2, w, h)), {"boxes": "xywh"}, None),
    "all exchanged": (
        yolo(lambda x, y, w, h: (y, x, h, w), lambda x, y: (y, x)), {}, "warning: .*60 people have their head left of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("labels", LABELS)
def test_labels_of_yolo_in_another_frame(prepare, labels):
    change, section, told = LABELS[labels]
    found = prepare(change, pictures=broad, annotations="data.yaml", **section)
    lines = [found.error or "", *(line for line in found.lines if line.startswith("warning: "))]
    assert re.search(told, "\n".join(lines)) if told else lines == [""]


# --- names and ids that two pictures could mean ---


def again(folder=None, names=lambda number: f"{number:03}.jpg", people=True):
    """List 12 more pictures, with other people, under names of another folder or video."""

    def change(raw):
        raw["images"] += [{**one, "id": one["id"] + 100, "file_name": names(one["id"])} for one in raw["images"]]
        for one in document()["annotations"] if people else ():
            moved = {**one, "id": one["id"] + 100, "image_id": one["image_id"] + 100}
            raw["annotations"].append(moved | {"bbox": [one["bbox"][0] + 1, *one["bbox"][1:]]})

    return change


def into(name):
    def move(folder):
        (folder / name).mkdir()
        for path in [*folder.glob("*.jpg")]:
            path.rename(folder / name / path.name)

    return move


def in_folder(name):
    return images(lambda one: one.update(file_name=f"{name}/{one['file_name']}"))


MISSING = "error: .*12 (image file missing|path leaves the data root)"
JOINED = "warning: 12 image files listed under two ids, both with annotations, which are joined"
NAMED = {
    "two videos": (again(), None, {}, JOINED),
    "no other people": (again(people=False), None, {}, None),
    "half a download": (
        both(in_folder("camA"), again(names=lambda number: f"camB/{number:03}.jpg")), into("camA"), {}, MISSING,
    ),
    "of another machine": (
        both(in_folder("/home/me/camA"), again(names=lambda number: f"/home/me/camB/{number:03}.jpg")),
        into("camA"), {}, MISSING,
    ),
    "one folder of two": (
        both(in_folder("images"), again(names=lambda number: f"other/{number:03}.jpg")), None, {}, MISSING,
    ),
    "both without folder": (
        both(in_folder("camA"), again(names=lambda number: f"camB/{number:03}.jpg")), None, {}, "24 image file missing",
    ),
    "a folder renamed": (in_folder("train2017"), into("small"), {}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_names_that_two_pictures_could_mean(prepare, case):
    change, pictures, section, told = NAMED[case]
    found = prepare(change, pictures=pictures, **section)
    lines = [found.error or "", *(line for line in found.lines if line.startswith("warning: "))]
    assert re.search(told, "\n".join(lines)) if told else lines == [""]
    assert not any("listed twice" in line for line in found.lines) or told is None

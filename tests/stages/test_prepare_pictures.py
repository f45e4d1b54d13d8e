"""Pictures of every kind in raw data: prepared upright, on white and plain; each repair is counted and listed."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from prepared_files import content, rows, write_entry, write_picture

from figura.base.exit_status import run
from figura.base.raw_pictures import read_picture
from figura.prediction.inputs import Photo
from models.images.pairs import ImagePairs
from models.images.photos import Photos
from models.people.persons import Persons
from models.super_resolution.patches import Patches
from stages.prepare import main

PREPARED = Path("data/prepared/mine")
pytestmark = pytest.mark.usefixtures("project")

SHADES = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)
"""A picture 6 wide and 4 high, in which each pixel has a grey of its own."""


def write_params(kind="images", **section):
    write_entry("mine", {"kind": kind, "source": "raw", "seed": 7, "max_rejected": 0.0, kind: section})


def prepared(capsys):
    assert run(main, ["mine"]) == 0
    return capsys.readouterr().out.splitlines()


def save(path, image, **options):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def save_turned(path, orientation):
    """Write SHADES enlarged as a JPEG with this orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(path, Image.fromarray(np.kron(SHADES, np.ones((16, 16), np.uint8))), quality=100, exif=exif)


def write_kinds(folder, count=3):
    """Write `count` pictures each that are turned, of 16 bits and plain, of 96 x 64; return what 6 x 4 of them show."""
    shown, grey = {}, np.kron(SHADES, np.ones((16, 16), np.uint8))
    for number in range(count):
        save_turned(f"{folder}/turned{number}.jpg", 3)
        save(f"{folder}/deep{number}.tif", Image.fromarray(grey.astype(np.uint16) * 256 + 99))
        save(f"{folder}/plain{number}.jpg", Image.fromarray(grey).convert("RGB"), quality=100)
        shown |= {f"turned{number}": SHADES[::-1, ::-1], f"deep{number}": SHADES, f"plain{number}": SHADES}
    return shown


LINES = [
    "repaired: 3 pictures turned upright by their EXIF orientation (e.g. ",
    "repaired: 3 pictures of 16 bits cut to the upper byte (e.g. ",
    "repaired: 3 pictures of GIF, TIFF or AVIF stored as PNG (e.g. ",
]


def check(name, pixels, shown):
    middles = np.asarray(pixels)[8::16, 8::16, 0].astype(int)
    assert np.abs(middles - shown[name]).max() <= 4, name


@pytest.mark.parametrize("kind", ["images", "coco", "market1501"])
def test_pictures_of_each_kind(kind, capsys):
    folder = {"images": "raw/train", "coco": "raw/images", "market1501": "raw/bounding_box_train"}[kind]
    shown = write_kinds(folder)
    write_picture("raw/validation/0001_c1s1_000001_00.png", 1)
    Path(folder, "notes.txt").touch()
    names = sorted(path.name for path in Path(folder).iterdir() if path.suffix != ".txt")
    if kind == "coco":
        images = [{"id": n, "file_name": name, "width": 96, "height": 64} for n, name in enumerate(names, 1)]
        person = {"category_id": 1, "bbox": [0, 0, 96, 64], "area": 6144, "iscrowd": 0}
        annotations = [{"id": one["id"], "image_id": one["id"], **person} for one in images]
        categories = [{"id": 1, "name": "person"}]
        Path("raw/annotations.json").write_text(
            json.dumps({"images": images, "annotations": annotations, "categories": categories})
        )
        write_params("coco", images="images", annotations={"test": "annotations.json"}, category="person")
    elif kind == "market1501":
        for number, name in enumerate(names):
            Path(folder, name).rename(Path(folder, f"0002_c1s1_000451_{number:02}.{name}"))
        write_params("market1501", folders={"train": ["bounding_box_train"], "validation": ["validation"]})
    else:
        write_params("images", train="train", validation="validation")
    lines = prepared(capsys)
    for line in LINES:
        assert any(one.startswith(line) for one in lines), line
    assert any(one.startswith("left out: 1 files of .txt") for one in lines) == (kind != "coco")
    listed = rows(PREPARED / "repaired.csv")
    assert len(listed) == 3 * 3
    kinds = {row["kind"] for row in listed if "turned0" in row["record"]}
    assert kinds == {"pictures turned upright by their EXIF orientation"}
    assert any("3 images turned by EXIF whose annotations fit both ways" in one for one in lines) == (kind == "coco")
    for path, stored in ((Path(name), one) for name, one in content(PREPARED / "images").items()):
        raw = next(Path("raw").rglob(path.name)).read_bytes()
        assert (stored == raw) == ("plain" in path.name or path.stem.startswith("0001"))
    split = "test" if kind == "coco" else "train"
    patches = Patches(root=str(PREPARED), split=split, scale=2, size=None)
    for index in range(len(patches)):
        hq = patches.example(index, np.random.default_rng(0))["hq"]
        name = patches.paths[index].stem.rpartition(".")[2] or patches.paths[index].stem
        check(name, ((hq + 1) * 127.5).transpose(1, 2, 0), shown)
    if kind == "coco":
        persons = Persons(PREPARED, "test", min_keypoints=0, min_height=1)
        assert len(persons) == len(shown)
        for row in range(len(persons)):
            check(Path(names[row]).stem, persons.image(row), shown)


@pytest.mark.parametrize(("orientation", "shown"), [(None, np.rot90(SHADES, -1)), ("stored", SHADES)])
def test_coco_as_stored(orientation, shown, capsys):
    save_turned("raw/images/1.jpg", 6)
    images = [{"id": 1, "file_name": "1.jpg", "width": 64, "height": 96}]
    Path("raw/1.json").write_text(json.dumps({"images": images}))
    write_params("coco", images="images", annotations={"test": "1.json"}, orientation=orientation)
    kind = "stored without their EXIF orientation" if orientation else "turned upright by their EXIF orientation"
    assert any(f"1 pictures {kind}" in line for line in prepared(capsys))
    file = Path("1.jpg")
    file.write_bytes(content(PREPARED / "images/test")["1.jpg"])
    for pixels in (read_picture(file), cv2.imread(str(file))):
        check("", pixels, {"": shown})


def test_a_folder_of_pictures_that_are_not_read(capsys):
    for number in range(12):
        Path("raw/train").mkdir(parents=True, exist_ok=True)
        Path(f"raw/train/IMG_{number}.HEIC").write_bytes(b"?")
    write_params("images", train="train", shares={"validation": 0.3})
    assert run(main, ["mine"]) == 1
    assert "left out: 12 files of .heic" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "folders"), [("images", [""]), ("paired", ["a/", "b/"]), ("unpaired", ["a/", "b/"])])
def test_frames_of_a_video_in_two_splits(kind, folders, capsys):
    for number in range(12):
        for side, folder in enumerate(folders):
            write_picture(f"raw/train/{folder}clip_{number:04}.png", 20 * side + number)
    write_params(kind, train="train", shares={"validation": 0.5})
    told = "warning: shares: frames of 1 of 1 videos are in several splits, such as those of "
    assert any(line.startswith(told) and "put the frames" in line for line in prepared(capsys))


# --- pairs ---


@pytest.mark.parametrize(
    ("places", "paired"),
    [
        (("{}/a", "{}/b"), {}),
        (("{}/A", "{}/B"), {}),
        (("{}/LR", "{}/HR"), {}),
        (("{}A", "{}B"), {}),
        (("A/{}", "B/{}"), {}),
        (("all/{}_a", "all/{}_b"), {"train": "all/train", "validation": "all/validation"}),
    ],
)
def test_layouts_of_pairs(places, paired, capsys):
    for split, count in (("train", 3), ("validation", 2)):
        for side, place in enumerate(places):
            for number in range(count):
                write_picture(f"raw/{place.format(split)}/{number}.png", 10 * side + number, (16, 16))
    write_params("paired", **(paired or {"train": "train", "validation": "validation"}))
    assert "train: 3 pairs, 0 rejected" in prepared(capsys)
    for side, place in zip("ab", places, strict=True):
        assert content(PREPARED / f"train/{side}") == content(Path("raw", place.format("train")))
    pairs = ImagePairs(root=str(PREPARED), split="train", direction="a_to_b", crop_size=16)
    assert [one["name"] for one in pairs] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (["A", "B"], "holds A and B without splits, which `train: .` reads"),
        (["trainA", "trainB", "testA", "testB"], "holds testA, testB, trainA, trainB"),
    ],
)
def test_layouts_that_need_a_setting(folders, said, capsys):
    for folder in folders:
        for number in range(4):
            write_picture(f"raw/{folder}/{number}.png", number)
    write_params("paired", train="train", validation="val")
    assert run(main, ["mine"]) == 1
    assert said in capsys.readouterr().err
    write_params("paired", **({"train": ".", "shares": {"validation": 0.3}} if len(folders) == 2 else
                              {"train": "train", "validation": "test"}))  # fmt: skip
    assert "train: " in "\n".join(prepared(capsys))


def test_sizes_of_super_resolution(capsys):
    for number in range(3):
        write_picture(f"raw/train/LR/{number}.png", number, (8, 8))
        write_picture(f"raw/train/HR/{number}.png", number, (16, 16))
    write_params("paired", train="train", shares={"validation": 0.3})
    assert run(main, ["mine"]) == 1
    said = "3 A and B differ in size; super-resolution takes HR alone, a dataset of kind images"
    assert said in capsys.readouterr().err


def test_pairs_are_repaired_and_doubted(capsys):
    for number in range(4):
        ink = np.zeros((32, 32, 4), np.uint8)
        ink[8:24, 8:24, 3] = 255  # a black square on nothing
        save(f"raw/train/a/{number}.png", Image.fromarray(ink))
        save(f"raw/train/b/{number}.png", Image.fromarray(np.full((32, 32), number * 300, np.uint16)))
    Path("raw/train/a/list.txt").touch()
    Path("raw/train/b/.hidden.txt").touch()
    write_params("paired", train="train", shares={"validation": 0.3})
    lines = prepared(capsys)
    first = "repaired: 4 transparent pictures composed on white (e.g. "
    assert any(line.startswith(first) for line in lines)
    low = "warning: 4 pictures of 16 bits end below 16384 of 65535, so they use a quarter of it or less; scale them up "
    (told,) = (line for line in lines if line.startswith(low))
    assert told.endswith(": its maximum is 0 of 255)")
    assert any(line.startswith("warning: 4 pictures have one colour all over (e.g. ") for line in lines)
    assert "left out: 1 files of .txt" in lines
    statistics = json.loads((PREPARED / "statistics.json").read_text())
    for one in statistics.values():
        assert one["a"]["mean"] == [191.25] * 3  # a quarter of it is black
    training = ImagePairs(root=str(PREPARED), split="train", direction="a_to_b", crop_size=32)[0]["x"]
    assert (training[:, 0, 0].tolist(), training[:, 16, 16].tolist()) == ([1.0] * 3, [-1.0] * 3)


def photo_of(width, height):
    """Return a smooth picture in which neighbours are alike and nothing is plain."""
    small = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    return Image.fromarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC))


@pytest.mark.parametrize(("kind", "doubted"), [("square", True), ("wide", True), ("pair", False), ("plain", False)])
def test_single_pictures_that_are_no_pairs(kind, doubted, capsys):
    """A square one has narrow halves; in a wide one, B continues A."""
    for number in range(4):
        picture = photo_of(64 if kind == "square" else 128, 64)
        if kind == "pair":
            whole = np.array(picture)
            whole[:, 64:] = 255 - whole[:, 64:][:, ::-1]
            picture = Image.fromarray(whole)
        if kind == "plain":  # the same background on both sides of the seam
            picture = Image.new("RGB", (128, 64), (9, 99, 199))
            picture.putpixel((number, number), (0, 0, 0))
        save(f"raw/train/{number}.png", picture)
    write_params("paired", train="train", shares={"validation": 0.3})
    found = [line for line in prepared(capsys) if "may be single ones" in line]
    assert [line.partition(":")[2].split(":")[0].strip() for line in found] == ["train", "validation"] * doubted


def test_plain_folders_and_photos_are_read_the_same():
    shown = write_kinds("raw/train/a", 1)
    write_kinds("raw/train/b", 1)
    pairs = ImagePairs(root="raw", split="train", direction="a_to_b", crop_size=(64, 96))
    patches = Patches(root="raw", split="train", scale=2, size=None)
    assert (len(pairs), len(patches)) == (len(shown), 2 * len(shown))
    for name, image in [(one["name"], one["x"]) for one in pairs] + [
        (Path(one["name"]).name, one["hq"]) for one in patches
    ]:
        check(name, ((image + 1) * 127.5).transpose(1, 2, 0), shown)
    photos = Photos(image_size=(64, 96), layout="whole")
    for path in sorted(Path("raw/train/b").iterdir()):
        (one,) = photos.examples(Photo(path, path.stem, 1))
        check(path.stem, ((one["x"] + 1) * 127.5).transpose(1, 2, 0), shown)

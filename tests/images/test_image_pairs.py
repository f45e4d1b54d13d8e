"""Pairs of images: which files make a pair and what is read of them, and the examples of the dataset."""

import json
import re
from pathlib import Path
from zipfile import ZipFile

import cv2
import numpy as np
import pytest
from pictures_by_hand import bytes_of, noise, write

from figura.base.errors import UserError
from figura.base.files import sha256
from figura.base.manifest import read_manifest
from figura.formats.pair_files import Fault, Loaded, Pair, find_pairs, load_pair, with_channels
from figura.preparation.outcome import write_manifest
from figura.recipe.expansion import read_recipe
from models.images.argument_types import crop_and_load
from models.images.pairs import ImagePairs, resized


def pairs(root, split="train", direction="a_to_b", load_size=8, crop_size=8, **arguments):
    return ImagePairs(
        root=str(root), split=split, direction=direction, load_size=load_size, crop_size=crop_size, **arguments
    )


def example(dataset, index=0, seed=0):
    return dataset.example(index, np.random.default_rng(seed))


@pytest.mark.parametrize("layout", ["one folder", "two folders"])
@pytest.mark.parametrize("direction", ["a_to_b", "b_to_a"])
def test_an_example(layout, direction, tmp_path):
    a, b = noise(6, 8, 1), noise(6, 8, 2)
    for name in ("second", "first"):
        if layout == "one folder":
            write(tmp_path / f"train/{name}.png", np.hstack([a, b]))
        else:
            write(tmp_path / f"train/a/{name}.png", a)
            write(tmp_path / f"train/b/{name}.bmp", b)
    dataset = pairs(tmp_path, direction=direction, load_size=(6, 8), crop_size=(6, 8))
    assert len(dataset) == 2
    files = "first.png" if layout == "one folder" else "a/first.png, b/first.bmp"
    assert dataset.row(0) == {"name": "first", "file": files}
    one = example(dataset, 1)
    assert tuple(one) == dataset.names == ("x", "y", "index", "name")
    assert (one["index"], one["name"], example(dataset, 0)["name"]) == (1, "second", "first")
    for key, image in zip(("x", "y"), (a, b) if direction == "a_to_b" else (b, a), strict=True):
        assert one[key].dtype == np.float32
        assert one[key].flags.c_contiguous
        np.testing.assert_allclose(one[key], image.transpose(2, 0, 1) / 127.5 - 1, atol=1e-7)


def test_baselines_by_hand(tmp_path):
    """Mean colours by label of two training pairs; a label that is not there has the mean of all; targets in turn."""
    red, blue, green = (200, 0, 0), (0, 0, 200), (0, 200, 0)
    targets = {"1": [[10, 20], [30, 40]], "2": [[50, 60], [70, 80]]}
    for name, grey in targets.items():
        label = np.array([[red, red], [red, blue]], np.uint8)
        target = np.repeat(np.array(grey, np.uint8)[..., None], 3, axis=2)
        write(tmp_path / f"train/{name}.png", np.hstack([label, target]))
    for name in ("1", "2"):
        label = np.array([[red, blue], [green, (203, 0, 0)]], np.uint8)  # 203 and 200 are one level of 16
        write(tmp_path / f"test/{name}.png", np.hstack([label, noise(2, 2)]))
    arguments = {"load_size": 2, "crop_size": 2, "baselines": "train"}
    dataset = pairs(tmp_path, "test", **arguments)
    first, second = (example(dataset, index) for index in (0, 1))
    assert tuple(first) == ImagePairs.provides(arguments) == ("x", "y", "index", "name", "palette", "linear", "other")
    palette = [[40, 60], [45, 40]]  # (10 + 20 + 30 + 50 + 60 + 70) / 6, (40 + 80) / 2, and (240 + 120) / 8
    for one in (first, second):
        np.testing.assert_allclose(one["palette"], np.repeat([np.array(palette) / 127.5 - 1], 3, axis=0), atol=1e-6)
        assert one["palette"].dtype == np.float32
    assert [bytes_of(one["other"])[..., 0].tolist() for one in (first, second)] == [targets["2"], targets["1"]]


def test_the_linear_baseline_is_ridge_regression(tmp_path):
    """By the normal equations of centred pixels, where figura solves for one weight a pair."""
    for split, count in (("train", 5), ("test", 3)):
        for number in range(count):
            write(tmp_path / f"{split}/{number}.png", noise(2, 4, 10 * count + number))
    sizes = {"load_size": 2, "crop_size": 2}
    fitted, judged = pairs(tmp_path, "train", **sizes), pairs(tmp_path, "test", **sizes, baselines="train")
    x, y = (np.stack([example(fitted, i)[side].ravel() for i in range(5)]).astype(float) for side in ("x", "y"))
    away = x - x.mean(axis=0)
    penalty = (away**2).sum(axis=1).mean() * np.eye(12)
    weights = np.linalg.inv(away.T @ away + penalty) @ away.T @ (y - y.mean(axis=0))
    for index in range(3):
        one = example(judged, index)
        expected = y.mean(axis=0) + (one["x"].ravel() - x.mean(axis=0)) @ weights
        assert one["linear"].dtype == np.float32
        np.testing.assert_allclose(one["linear"], np.clip(expected, -1, 1).reshape(3, 2, 2), atol=1e-5)


def test_in_the_same_split_no_pair_is_its_own_baseline(tmp_path):
    for number in range(3):
        write(tmp_path / f"train/{number}.png", noise(2, 4, number))
    dataset = pairs(tmp_path, load_size=2, crop_size=2, baselines="train")
    shown = [example(dataset, index) for index in range(3)]
    assert not any(np.array_equal(one["y"], one["other"]) for one in shown)
    assert sorted(one["other"].tobytes() for one in shown) == sorted(one["y"].tobytes() for one in shown)


@pytest.mark.parametrize("size", [16, 48, (48, 16), (16, 48)])
def test_no_half_bleeds_into_the_other(size, tmp_path):
    """The mistake A17 of the reference: resized before it is cut, a black and white pair is grey at the seam."""
    white = np.full((32, 32, 3), 255, dtype=np.uint8)
    write(tmp_path / "train/1.png", np.hstack([np.zeros_like(white), white]))
    one = example(pairs(tmp_path, load_size=size, crop_size=size))
    assert (one["x"] == -1).all()
    assert (one["y"] == 1).all()
    assert one["x"].shape[1:] == one["y"].shape[1:] == ((size, size) if isinstance(size, int) else size)


def test_resizing():
    image = noise(12, 16)
    # by area: the mean of 3 x 4 blocks
    blocks = image.reshape(4, 3, 4, 4, 3).mean((1, 3))
    assert np.abs(resized(image, (4, 4), nearest=False) - blocks).max() <= 0.5 + 1e-6
    # one side shrinks and the other grows: shrunk by area first
    mixed = resized(image, (4, 32), nearest=False)
    rows = np.rint(image.reshape(4, 3, 16, 3).mean(1)).astype(np.uint8)
    assert np.abs(mixed.astype(int) - cv2.resize(rows, (32, 4), interpolation=cv2.INTER_CUBIC)).max() <= 2
    # bicubic growth keeps straight lines away from the border: 0, 8, 16, ... becomes steps of 4
    ramp = np.repeat(np.arange(0, 128, 8, dtype=np.uint8)[None, :, None], 4, axis=0)
    grown = resized(ramp, (4, 32), nearest=False)
    assert grown.shape == (4, 32, 1)
    assert np.abs(grown[0, 4:-4, 0] - (np.arange(32) * 4.0 - 2)[4:-4]).max() <= 0.5
    # nearest: the pixel that holds the centre of the new one; from odd sides no centre falls between two
    odd = image[:11, :13]
    for size in ((5, 7), (24, 40), (3, 31)):
        y, x = (np.floor((np.arange(n) + 0.5) * old / n).astype(int) for n, old in zip(size, (11, 13), strict=True))
        np.testing.assert_array_equal(resized(odd, size, nearest=True), odd[y][:, x])
    half = image[:, 8:]
    same = resized(half, (12, 8), nearest=False)
    np.testing.assert_array_equal(same, half)
    assert same.flags.c_contiguous


@pytest.mark.parametrize("direction", ["a_to_b", "b_to_a"])
def test_label_maps_gain_no_colours(direction, tmp_path):
    colours = np.array([[255, 0, 0], [0, 0, 255], [0, 200, 0]], dtype=np.uint8)
    labels = colours[np.random.default_rng(0).integers(0, 3, (20, 20))]
    write(tmp_path / "train/1.png", np.hstack([labels, noise(20, 20)]))
    side = "x" if direction == "a_to_b" else "y"
    for size in (13, 33):
        one = example(pairs(tmp_path, direction=direction, load_size=size, crop_size=size, label_maps=[side]))
        found = np.unique(bytes_of(one[side]).reshape(-1, 3), axis=0)
        np.testing.assert_array_equal(found, np.unique(colours, axis=0))
        one = example(pairs(tmp_path, direction=direction, load_size=size, crop_size=size))
        assert len(np.unique(bytes_of(one[side]).reshape(-1, 3), axis=0)) > 3


def test_channels(tmp_path):
    write(tmp_path / "train/1.png", noise(8, 16))
    coloured = example(pairs(tmp_path))
    one = example(pairs(tmp_path, x_channels=1))
    assert (one["x"].shape, one["y"].shape) == ((1, 8, 8), (3, 8, 8))
    grey = bytes_of(coloured["x"]) @ [0.299, 0.587, 0.114]
    assert np.abs(bytes_of(one["x"])[..., 0] - grey).max() <= 0.51
    np.testing.assert_array_equal(one["y"], coloured["y"])
    assert example(pairs(tmp_path, y_channels=1, load_size=11, crop_size=9))["y"].shape == (1, 9, 9)


def test_the_crop_is_one_for_both_and_moves(tmp_path):
    coordinates = np.stack([*np.mgrid[:12, :12], np.zeros((12, 12))], axis=-1).astype(np.uint8)
    write(tmp_path / "train/1.png", np.hstack([coordinates, coordinates]))
    dataset = pairs(tmp_path, load_size=12, crop_size=(9, 10))
    corners = set()
    for seed in range(60):
        one = example(dataset, seed=seed)
        np.testing.assert_array_equal(one["x"], one["y"])
        found = bytes_of(one["x"])
        top, left = found[0, 0, :2]
        np.testing.assert_array_equal(found, coordinates[top : top + 9, left : left + 10])
        corners.add((top, left))
    assert corners == {(top, left) for top in range(4) for left in range(3)}


def test_all_faults_in_one_message(tmp_path):
    for number in range(12):
        write(tmp_path / f"train/a/{number:02}.png", noise(4, 4))
    write(tmp_path / "train/b/03.png", noise(4, 4))
    with pytest.raises(UserError) as caught:
        pairs(tmp_path)
    head, *lines = str(caught.value).splitlines()
    assert head.startswith(f"{tmp_path / 'train'}: 11 pairs cannot be used; mend or remove the files")
    assert lines[0] == f"  {tmp_path / 'train/a/00.png'}: missing partner (no image '00' in b)"
    assert len(lines) == 11
    assert lines[-1] == "  and 1 more"


@pytest.mark.parametrize(
    ("folders", "files", "message"),
    [
        (["pairs/val"], ["pairs/manifest.json"], "no such folder; {root} has the splits val; bring 'train' to"),
        (
            ["pairs/facades", "people", "pears"],
            ["pears/manifest.json"],
            "no such folder; {root} is no prepared dataset, which has a manifest.json; {root.parent} has pears (did",
        ),
        (["pairs/train"], ["pairs/train/notes.txt"], "has no image pairs; it may hold A|B images (.avif, "),
    ],
)
def test_unusable_folders(folders, files, message, tmp_path):
    root = tmp_path / "pairs"
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    for file in files:
        (tmp_path / file).write_text('{"sha256": "0"}')
    with pytest.raises(UserError, match=re.escape(f"{root / 'train'}: {message.format(root=root)}")):
        pairs(root)


@pytest.mark.parametrize("name", ["2", "caf\udce9"])
def test_a_picture_that_is_gone_is_missed(name, tmp_path):
    """Pairs are what the folder holds, so that nothing else would tell that there were more.

    They are files where an earlier version wrote them, or the name is no Unicode, so that no archive can have it.
    """
    for file in ("train/1", "train/new", "validation/a/1", "validation/b/1"):
        write(tmp_path / f"{file}.png", noise(8, 16))
    (tmp_path / "train/new.png").rename(tmp_path / f"train/{name}.png")
    write_manifest(tmp_path)
    if name == "2":
        with ZipFile(tmp_path / "train.zip") as archive:
            archive.extractall(tmp_path)
        (tmp_path / "train.zip").unlink()
        hashes = {f"train/{one}.png": sha256(tmp_path / f"train/{one}.png") for one in "12"}
        content = read_manifest(tmp_path)
        content["hashes"] = {key: value for key, value in content["hashes"].items() if key != "train.zip"} | hashes
        (tmp_path / "manifest.json").write_text(json.dumps(content))
    assert [len(pairs(tmp_path, split)) for split in ("train", "validation")] == [2, 1]
    assert [one["name"] for one in pairs(tmp_path)] == ["1", name]
    (tmp_path / f"train/{name}.png").unlink()
    counts = "1 of the 2" if name == "2" else "0 of the 1"
    with pytest.raises(UserError, match=f"train: has {counts} files in "):
        pairs(tmp_path)
    assert len(pairs(tmp_path, "validation")) == 1


@pytest.mark.parametrize(
    ("width", "message"), [(9, "odd width (9 x 4"), (None, "image file unreadable (no readable picture")]
)
def test_what_shows_only_when_read(width, message, tmp_path):
    write(tmp_path / "train/1.png", noise(4, 8))
    if width:
        write(tmp_path / "train/2.png", noise(4, width))
    else:
        (tmp_path / "train/2.png").write_bytes((tmp_path / "train/1.png").read_bytes()[:-40])
    dataset = pairs(tmp_path)
    assert example(dataset, 0)["name"] == "1"
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'train/2.png'}: {message}")):
        example(dataset, 1)


SHIPPED = {
    "pix2pix": (64, 66), "unpaired/cut": (64, 66), "unpaired/cyclegan": (64, 66),
    "published/pix2pix_facades": (256, 286), "published/cut_horse2zebra": (256, 286),
    "published/cyclegan_horse2zebra": (256, 286),
}  # fmt: skip
"""Recipe -> its crop_size, and the pixels to which it resizes pictures before."""


@pytest.mark.parametrize("side", [64, 128, 256])
@pytest.mark.parametrize("file", SHIPPED)
def test_one_number_changes_the_resolution_of_a_recipe(file, side, monkeypatch):
    crop, load = SHIPPED[file]
    monkeypatch.chdir(Path(__file__).parents[2])
    data = read_recipe(Path(f"recipes/{file}.yaml"))["data"]
    (entry,) = data["train"].values()
    assert crop_and_load(data["common"]["crop_size"], entry["load_size"]) == ((crop, crop), (load, load))
    assert crop_and_load(side, entry["load_size"])[1] == pytest.approx((side * load / crop,) * 2, abs=0.51)


def test_crops_that_are_larger_than_the_pictures(tmp_path):
    with pytest.raises(ValueError, match=re.escape("crop_size (9, 8): at most load_size, (8, 10)")):
        pairs(tmp_path, load_size=(8, 10), crop_size=(9, 8))


# --- files ---


def test_pairs_are_files_of_one_name(tmp_path):
    """What makes none is in `test_prepare_pairs.py`."""
    one, two = tmp_path / "one", tmp_path / "two"
    hidden = (".hidden.png", "notes.txt", "png", "x.png.bak")
    for name in ("b-1.png", "b.JPG", "10.jpeg", "9.webp", "a.x.tif", "B.bmp", *hidden, "folder.png/1.png"):
        write_empty(one / name)
    pairs, faults = find_pairs(one, tmp_path)
    assert [pair.name for pair in pairs] == ["10", "9", "B", "a.x", "b", "b-1"]
    assert (pairs[0].files, faults) == (("10.jpeg",), [])
    for name in ("a/2.png", "a/1.jpg", "b/1.png", "b/2.PNG", "aside.png", "b/notes.txt"):
        write_empty(two / name)
    expected = [Pair("1", ("a/1.jpg", "b/1.png")), Pair("2", ("a/2.png", "b/2.PNG"))]
    assert find_pairs(two, tmp_path) == (expected, [])


def write_empty(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_links_stay_in_the_root(tmp_path):
    root, folder, outside = tmp_path / "root", tmp_path / "root" / "train", tmp_path / "outside"
    for path in (folder / "real.png", root / "other" / "inner.png", outside / "secret.png"):
        write(path, noise(4, 8))
    (folder / "inner.png").symlink_to("../other/inner.png")
    (folder / "leak.png").symlink_to(outside / "secret.png")
    (folder / "circle.png").symlink_to("circle.png")
    pairs, faults = find_pairs(folder, root)
    assert [pair.name for pair in pairs] == ["circle", "inner", "real"]
    leak = ("leak.png", "path leaves the data root", f"leak.png is a link to {outside / 'secret.png'}")
    assert faults == [leak]
    assert isinstance(load_pair(folder, pairs[1]), Loaded)
    circle = load_pair(folder, pairs[0])
    assert isinstance(circle, Fault)
    assert circle.reason == "image file unreadable"
    # the same by a link to a folder
    (root / "val").symlink_to(outside)
    assert find_pairs(root / "val", root) == ([], [Fault(".", "path leaves the data root", str(outside))])
    (root / "two").mkdir()
    (root / "two" / "a").symlink_to(folder)
    (root / "two" / "b").symlink_to(outside)
    assert find_pairs(root / "two", root) == ([], [Fault("b", "path leaves the data root", str(outside))])


def test_grey_of_a_grey_file_is_the_file():
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    np.testing.assert_array_equal(with_channels(np.repeat(levels, 3, axis=2), 1), levels)

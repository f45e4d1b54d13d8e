import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from figura.base.errors import UserError
from figura.data.preparation.manifest import write_manifest
from models.images.augmentation import PairAugmentation
from models.images.pairs import ImagePairs, resized

FACADES = Path(__file__).parents[3] / "shared/data/facades_real"


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def write(path, image):
    """Write an RGB or grey image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), image[..., ::-1] if image.ndim == 3 else image)


def pairs(root, split="train", direction="a_to_b", load_size=8, crop_size=8, **arguments):
    return ImagePairs(
        root=str(root), split=split, direction=direction, load_size=load_size, crop_size=crop_size, **arguments
    )


def example(dataset, index=0, seed=0):
    return dataset.example(index, np.random.default_rng(seed))


def bytes_of(image):
    """(C, h, w) in [-1, 1] as (h, w, C) in 0..255."""
    return np.rint((image.transpose(1, 2, 0).astype(np.float64) + 1) * 127.5).astype(int)


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
    one = example(dataset, 1)
    assert tuple(one) == dataset.names == ("x", "y", "index", "name")
    assert (one["index"], one["name"], example(dataset, 0)["name"]) == (1, "second", "first")
    for key, image in zip(("x", "y"), (a, b) if direction == "a_to_b" else (b, a), strict=True):
        assert one[key].dtype == np.float32
        assert one[key].flags.c_contiguous
        np.testing.assert_allclose(one[key], image.transpose(2, 0, 1) / 127.5 - 1, atol=1e-7)


def test_rows_name_the_files(tmp_path):
    write(tmp_path / "one/train/first.png", noise(6, 12))
    assert pairs(tmp_path / "one").row(0) == {"name": "first", "file": "first.png"}
    write(tmp_path / "two/train/a/first.png", noise(6, 6))
    write(tmp_path / "two/train/b/first.bmp", noise(6, 6))
    assert pairs(tmp_path / "two").row(0) == {"name": "first", "file": "a/first.png, b/first.bmp"}


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


def test_the_same_random_numbers_the_same_example(tmp_path):
    write(tmp_path / "train/1.png", noise(16, 32))
    settings = PairAugmentation.model_validate(
        {"both": {"horizontal_flip": {"chance": 0.5}}, "input": {"gaussian_noise": {"chance": 1.0, "std": (0.1, 0.2)}}}
    )
    dataset = pairs(tmp_path, load_size=16, augmentation=settings)
    first, second, other = (example(dataset, seed=seed) for seed in (1, 1, 2))
    plain = example(pairs(tmp_path, load_size=16), seed=1)
    for key in ("x", "y"):
        np.testing.assert_array_equal(first[key], second[key])
        assert (first[key] != other[key]).any()
    assert (first["x"] != plain["x"]).any()


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


def make_no_folder(root):
    (root / "val").mkdir()
    (root / "manifest.json").touch()


def make_no_dataset(root):
    (root / "facades").mkdir()
    (root.parent / "people").mkdir()
    (root.parent / "pears").mkdir()
    (root.parent / "pears/manifest.json").touch()


def make_empty(root):
    (root / "train").mkdir()
    (root / "train/notes.txt").touch()


def make_link(root):
    (root / "train").symlink_to("/")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_no_folder, "no such folder; {root} has the splits val; bring 'train' to `datasets.pairs` in data/params"),
        (
            make_no_dataset,
            "no such folder; {root} is no prepared dataset, which has a manifest.json; {root.parent} has pears (did",
        ),
        (make_empty, "has no image pairs; it may hold A|B images (.bmp, .jpeg, .jpg, .png, .tif, .tiff, .webp), or"),
        (make_link, "1 pair cannot be used"),
    ],
)
def test_unusable_folders(make, message, tmp_path):
    root = tmp_path / "pairs"
    root.mkdir()
    make(root)
    with pytest.raises(UserError, match=re.escape(f"{root / 'train'}: {message.format(root=root)}")):
        pairs(root)


def test_a_picture_that_is_gone_is_missed(tmp_path):
    """Pairs are what the folder holds, so that nothing else would tell that there were more."""
    for name in ("train/1", "train/2", "validation/a/1", "validation/b/1"):
        write(tmp_path / f"{name}.png", noise(8, 16))
    write_manifest(tmp_path)
    assert [len(pairs(tmp_path, split)) for split in ("train", "validation")] == [2, 1]
    (tmp_path / "train/2.png").unlink()
    with pytest.raises(UserError, match=re.escape("train: has 1 of the 2 files in ")):
        pairs(tmp_path)
    assert len(pairs(tmp_path, "validation")) == 1


@pytest.mark.parametrize(("width", "message"), [(9, "odd width (9 x 4"), (None, "image file unreadable (damaged")])
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"load_size": 8, "crop_size": 9}, "crop_size 9: at most load_size, 8"),
        ({"load_size": (8, 10), "crop_size": (9, 8)}, "crop_size (9, 8): at most load_size, (8, 10)"),
        ({"load_size": 0, "crop_size": 1}, "load_size 0: a whole number of at least 1"),
        ({"crop_size": (8, -1)}, "crop_size (8, -1): a whole number of at least 1"),
        ({"direction": "AtoB"}, "direction 'AtoB': one of 'a_to_b', 'b_to_a'"),
        ({"x_channels": 4}, "x_channels 4: one of 1, 3"),
        ({"label_maps": ["a"]}, "label_maps 'a': one of 'x', 'y'"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        pairs(tmp_path, **arguments)


@pytest.mark.skipif(not FACADES.is_dir(), reason=f"no sample data at {FACADES}")
def test_real_facades():
    dataset = pairs(FACADES, "val", "b_to_a", load_size=286, crop_size=256, label_maps=["x"])
    assert len(dataset) == 40
    for index in (0, 39):
        one = example(dataset, index)
        assert one["x"].shape == one["y"].shape == (3, 256, 256)
        assert np.abs(one["x"]).max() <= 1
    whole = example(pairs(FACADES, "val", "b_to_a", load_size=256, crop_size=256), 0)
    file = cv2.imread(str(FACADES / "val" / f"{whole['name']}.jpg"))[..., ::-1]
    np.testing.assert_array_equal(bytes_of(whole["x"]), file[:, 256:])
    np.testing.assert_array_equal(bytes_of(whole["y"]), file[:, :256])

from unittest.mock import Mock

import numpy as np
import pytest
from pictures_by_hand import bytes_of, noise, write

from figura.base.errors import UserError
from figura.prediction.inputs import Photo
from models.images.augmentation_settings import Chance, GeometricTransforms
from models.super_resolution.degradation_settings import Degradation
from models.super_resolution.patches import Patches
from models.super_resolution.photos import Photos
from models.super_resolution.resampling import resample

AREA = Degradation(kernels={"area": 1.0})


def patches(root, scale=2, size=8, degradation=AREA, split="train", **arguments):
    return Patches(root=str(root), split=split, scale=scale, size=size, degradation=degradation, **arguments)


def example(dataset, index=0, seed=0):
    return dataset.example(index, np.random.default_rng(seed))


@pytest.mark.parametrize("place", ["train", "images/train"])
def test_an_example(place, tmp_path):
    image = noise(12, 20)
    write(tmp_path / place / "b/one.png", image)
    write(tmp_path / place / "a.JPG", noise(12, 20, 1))
    (tmp_path / place / "notes.txt").write_text("no image")
    (tmp_path / place / ".hidden.png").write_text("no image")
    dataset = patches(tmp_path, baselines=("bicubic", "lanczos"))
    assert dataset.row(0) == {"file": "a.JPG", "height": 12, "width": 20}
    assert len(dataset) == 2
    found = example(dataset, 1)
    assert tuple(found) == ("lq", "hq", "bicubic", "lanczos", "index", "name", "grey")
    assert set(dataset.provides({"baselines": ["bicubic", "lanczos"]})) == set(found)
    assert (found["index"], found["name"]) == (1, "b/one")
    centre = image[2:10, 6:14]
    assert (bytes_of(found["hq"]) == centre).all()
    lq = resample(centre, (4, 4), "area")
    assert (bytes_of(found["lq"]) == lq).all()
    assert (bytes_of(found["lanczos"]) == resample(lq, (8, 8), "lanczos")).all()
    assert found["hq"].dtype == found["lq"].dtype == np.float32


def test_random_places_turns_and_their_small_selves(tmp_path):
    image = noise(16, 12)
    write(tmp_path / "train/one.png", image)
    both = GeometricTransforms(horizontal_flip=Chance(chance=0.5), rotate90=Chance(chance=1.0))
    dataset = patches(tmp_path, crop="random", augmentation=both)
    possible = {
        np.rot90(part[:, ::flip], turns).tobytes(): (y, x, flip, turns)
        for y in range(9) for x in range(5) for flip in (1, -1) for turns in range(4)
        for part in [image[y : y + 8, x : x + 8]]
    }  # fmt: skip
    seen = set()
    for seed in range(200):
        found = example(dataset, seed=seed)
        hq = bytes_of(found["hq"])
        seen.add(possible[hq.tobytes()])
        assert (bytes_of(found["lq"]) == resample(hq, (4, 4), "area")).all()  # aligned with it
    for axis, values in enumerate((range(9), range(5), (1, -1), range(4))):
        assert {one[axis] for one in seen} == set(values)


def test_whole_images(tmp_path):
    image = noise(13, 11)
    write(tmp_path / "train/one.png", image)
    write(tmp_path / "train/three.png", noise(15, 9))
    write(tmp_path / "train/two.png", noise(6, 6))
    dataset = patches(tmp_path, size=None, scale=4)
    found = example(dataset)
    assert (bytes_of(found["hq"]) == image[:12, :8]).all()
    default = example(patches(tmp_path, size=None, scale=4, degradation=None))  # the papers'
    assert (bytes_of(default["lq"]) == resample(image[:12, :8], (3, 2), "bicubic")).all()
    assert found["lq"].shape == (3, 3, 2)
    assert dataset.group(0) == dataset.group(1) != dataset.group(2)  # 12 x 8 of both; 4 x 4
    assert example(dataset, 1)["hq"].shape == found["hq"].shape
    assert patches(tmp_path, size=4).group(0) == patches(tmp_path, size=4).group(2)


@pytest.mark.parametrize(("size", "left"), [(8, ["large"]), (4, ["large", "wide"]), (None, ["large", "thin", "wide"])])
def test_images_smaller_than_a_patch_are_left_out(size, left, tmp_path, capsys):
    for name, sides in {"large": (8, 9), "thin": (3, 9), "wide": (7, 30)}.items():
        write(tmp_path / f"train/{name}.png", noise(*sides))
    few = f"warning: {tmp_path}/train: {3 - len(left)} of 3 images are smaller than {size} x {size} pixels, a patch"
    dataset = patches(tmp_path, size=size)
    assert capsys.readouterr().err.startswith(few) == (len(left) < 3)
    assert [path.stem for path in dataset.paths] == left
    for index in range(len(dataset)):
        assert size is None or example(dataset, index)["hq"].shape == (3, size, size)


@pytest.mark.parametrize(("size", "least"), [(8, 8), (None, 2)])
def test_a_small_image_whose_head_tells_nothing(size, least, tmp_path, monkeypatch):
    monkeypatch.setattr("models.super_resolution.patches.picture_facts", Mock(side_effect=UserError))
    write(tmp_path / "train/odd.png", noise(1, 6))
    with pytest.raises(UserError, match=rf"odd\.png: 6 x 1 pixels, smaller than {least} x {least}, a patch; remove it"):
        example(patches(tmp_path, size=size))


def test_folders_and_files_that_cannot_be_used(tmp_path):
    with pytest.raises(ValueError, match="size 9: a multiple of scale, 2"):
        patches(tmp_path, size=9)
    with pytest.raises(UserError, match=r"no such folder.*is no prepared dataset"):
        patches(tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(UserError, match="has no images"):
        patches(tmp_path)
    (tmp_path / "train/one.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"one\.png: no readable picture"):
        example(patches(tmp_path))
    write(tmp_path / "validation/thin.png", noise(1, 9))
    with pytest.raises(UserError, match="all 1 images are smaller than 2 x 2 pixels"):
        patches(tmp_path, size=None, split="validation")


def test_a_photo_is_taken_pixel_for_pixel(tmp_path):
    write(tmp_path / "a.png", noise(5, 7))
    (found,) = Photos().examples(Photo(tmp_path / "a.png", "a", 1))
    assert (bytes_of(found["lq"]) == noise(5, 7)).all()
    assert found["name"] == "a"
    assert set(found) == set(Photos.names)

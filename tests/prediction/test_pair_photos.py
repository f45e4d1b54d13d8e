"""Photos as inputs of image translation: which part of a picture is the input, what is refused, what is true."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from figura.base.errors import UserError
from figura.prediction.inputs import Photo
from models.images.pairs import ImagePairs
from models.images.photos import Photos

A, B = (np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8) for seed in (1, 2))


def write(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), image[..., ::-1])
    return Photo(path, path.stem, 1)


def photos(**arguments):
    return Photos(**({"image_size": (12, 16), "direction": "a_to_b"} | arguments))


@pytest.mark.parametrize("direction", ["a_to_b", "b_to_a"])
@pytest.mark.parametrize("layout", ["one file", "two folders"])
def test_pairs_are_those_of_the_dataset(direction, layout, tmp_path):
    pictures = {"1.png": np.hstack([A, B])} if layout == "one file" else {"a/1.png": A, "b/1.png": B}
    files = [write(tmp_path / "val" / file, picture) for file, picture in pictures.items()]
    data = photos(layout="pairs", direction=direction, image_size=(8, 12), y_channels=1, label_maps=("x",))
    (one,) = (example for photo in files for example in data.examples(photo))
    root = {"root": str(tmp_path), "split": "val", "direction": direction, "crop_size": (8, 12)}
    true = ImagePairs(**root, y_channels=1, label_maps=("x",)).example(0, np.random.default_rng(0))
    assert one["name"] == true["name"]
    for name in ("x", "y"):
        np.testing.assert_array_equal(one[name], true[name])


def test_each_prediction_looks_into_the_folders_anew(tmp_path):
    for name in ("1", "2"):
        photo = write(tmp_path / f"val/a/{name}.png", A)
        write(tmp_path / f"val/b/{name}.png", B)
        assert [one["name"] for one in photos(layout="pairs").examples(photo)] == [name]


def test_the_halves_of_a_frame():
    frame = np.hstack([A, B])
    photo = Photo(Path("clip.mp4"), "clip-000003", 2, frame, 3)
    (one,) = photos(layout="pairs", direction="b_to_a").examples(photo)
    for name, image in {"x": B, "y": A}.items():
        np.testing.assert_allclose(one[name], image.transpose(2, 0, 1) / 127.5 - 1, atol=1e-6)


def test_a_picture_of_a_pair_is_refused_with_the_key_that_decides(tmp_path):
    photo = write(tmp_path / "1.png", np.hstack([A, B]))
    message = (
        "1.png: 32 x 12 pixels would be squeezed to 16 x 12; is it an A|B picture? predict.data.layout=pairs takes"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        photos().examples(photo)
    with pytest.raises(UserError, match=re.escape("(direction b_to_a: B)")):
        photos(direction="b_to_a").examples(photo)
    (whole,) = photos(layout="whole").examples(photo)
    assert list(whole) == ["x", "name"]
    assert whole["x"].shape == (3, 12, 16)


@pytest.mark.parametrize("size", [(12, 16), (40, 53), (12, 12), (12, 34), (6, 32)])
def test_other_shapes_need_no_layout(size, tmp_path):
    photo = write(tmp_path / "1.png", np.zeros((*size, 3), np.uint8))
    (one,) = photos().examples(photo)
    assert one["x"].shape == (3, 12, 16)
    squeezed = "squeezed by more than 5 % to 16 x 12 pixels; predict.data.image_size=[HEIGHT,WIDTH] sets another size"
    assert [*photo.suspicions] == [f"pictures {squeezed}"] * (size not in ((12, 16), (40, 53)))


def test_pairs_that_cannot_be_read(tmp_path):
    data = photos(layout="pairs")
    with pytest.raises(UserError, match=re.escape("1.png: its half, 8 x 12 pixels, would be stretched to 16 x 12")):
        data.examples(write(tmp_path / "1.png", A))
    odd = np.zeros((12, 31, 3), np.uint8)
    for photo in (write(tmp_path / "1.png", odd), Photo(Path("000001"), "000001", 1, odd)):
        with pytest.raises(UserError, match=re.escape("odd width (31 x 12; A and B are halves of one image)")):
            data.examples(photo)
    alone = write(tmp_path / "val/a/2.png", A)
    (tmp_path / "val/b").mkdir()
    with pytest.raises(UserError, match=re.escape("missing partner (no image '2' in b)")):
        data.examples(alone)

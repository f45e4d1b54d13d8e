from pathlib import Path

import cv2
import drawn_scenes
import numpy as np
import pytest
import torch

from figura.interfaces import Networks, State
from figura.prediction.inputs import Photo
from models.pose.decode.injectors import PhotoOverlays
from models.pose.decode.overlays import OverlayStyle
from models.pose.photos import Photos
from models.pose.scenes import Scenes

HEADS = {"cif": {"kind": "cif", "stride": 8}}
PERSON = {
    "image_id": 1, "category_id": 1, "score": 0.9, "bbox": [20, 10, 60, 60],
    "keypoints": [value for joint in range(17) for value in (25 + 3 * joint, 12 + 3 * joint, 0.8)],
}  # fmt: skip


def photo_of(path, pixels, number=3):
    cv2.imwrite(str(path), pixels[..., ::-1])
    return Photo(path, path.stem, number)


def noise(height, width):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_a_photo_is_shown_as_a_scene_of_a_dataset(tmp_path):
    drawn_scenes.write(tmp_path, 1)
    (scene,) = (Scenes(root=str(tmp_path), split="validation", side=49, multiple=8, heads=HEADS)[0],)
    (example,) = Photos(side=49, multiple=8).examples(Photo(tmp_path / "images/1.png", "1", 1))
    for name in ("image", "valid_area", "to_original"):
        assert np.array_equal(example[name], scene[name])
    assert [example[name] for name in ("image_id", "width", "height")] == [1, 65, 65]


def test_size_and_way_back(tmp_path):
    photo = photo_of(tmp_path / "a.png", noise(60, 101))
    (example,) = Photos(side=41, multiple=16).examples(photo)
    # 41 x 24 pixels, in the middle of 49 x 33 (3 and 1 times 16, plus 1: 24 pixels span 23, more than 16)
    assert example["image"].shape == (3, 33, 49)
    corner = example["to_original"] @ [4, 4, 1]
    assert corner == pytest.approx([0, 0], abs=1e-4)
    assert example["to_original"] @ [4 + 40, 4 + 23, 1] == pytest.approx([100, 59], abs=1e-4)
    assert (example["image_id"], example["index"], example["name"]) == (3, 2, "a")


def test_a_photo_as_it_is(tmp_path):
    pixels = noise(33, 49)
    (example,) = Photos(side=0, multiple=16).examples(photo_of(tmp_path / "a.png", pixels))
    expected = (pixels / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    assert np.abs(example["image"] - expected.transpose(2, 0, 1)).max() < 1e-5


def test_overlays_have_the_size_of_each_photo(tmp_path):
    pixels = noise(390, 500), noise(400, 300)
    photos = [photo_of(tmp_path / f"{n}.png", one) for n, one in enumerate(pixels)]
    weak = {**PERSON, "score": 0.1}
    state = State({"photo": photos, "people": [[PERSON], [weak]], "objects": [[], []]})
    injector = PhotoOverlays("photo", "drawn", people="people", objects="objects", style=OverlayStyle(least_score=0.2))
    injector(state, Networks({}, {}), 0)
    first, second = (one.permute(1, 2, 0).numpy() for one in state["drawn"])
    assert state["drawn"][0].dtype == torch.uint8
    assert np.array_equal(second, pixels[1])  # its only person is too weak
    changed = (first != pixels[0]).any(axis=2)
    assert changed[12:60, 25:73].any()
    changed[:100, :140] = False  # joints to (73, 60), a label at the box
    assert not changed.any()


def test_upright_by_its_exif_tag(tmp_path):
    stored = np.zeros((16, 32, 3), np.uint8)
    stored[:, :16] = 255
    encoded = cv2.imencode(".jpg", stored)[1].tobytes()
    # APP1 with one tag: orientation 6, to be turned clockwise by 90 degrees
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    Path(tmp_path / "a.jpg").write_bytes(
        encoded[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + encoded[2:]
    )
    pixels = Photo(tmp_path / "a.jpg", "a", 1).pixels()
    assert pixels.shape == (32, 16, 3)
    assert pixels[:12].min() > 200
    assert pixels[20:].max() < 50

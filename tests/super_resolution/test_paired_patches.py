"""Patches whose small versions are files: always the same place, however it is flipped and turned."""

from pathlib import Path

import numpy as np
import pytest
from pictures_by_hand import bytes_of, noise, write

from figura.base.errors import UserError
from figura.recipe.schema import Declaration
from models.images.augmentation_settings import Chance, GeometricTransforms
from models.super_resolution.paired_patches import PairedPatches


def write_pair(root: Path, name: str, small: str, height: int, width: int, scale: int = 2) -> None:
    """Write an image of squares of `scale` pixels of the small version's colours, so that places are known."""
    picture = noise(height, width, sum(map(ord, name)))
    write(root / "images/train_small" / small, picture)
    write(root / "images/train" / name, picture.repeat(scale, axis=0).repeat(scale, axis=1))


def paired(root: Path, **arguments) -> PairedPatches:
    return PairedPatches(
        **{"root": str(root), "split": "train", "small": "train_small", "scale": 2, "size": 8} | arguments
    )


@pytest.mark.parametrize("crop", ["random", "centre"])
def test_both_show_the_same_place(crop, tmp_path):
    write_pair(tmp_path, "deep/0801.png", "deep/0801x2.png", 9, 12)
    write_pair(tmp_path, "b.png", "b.bmp", 8, 6)
    moves = GeometricTransforms(horizontal_flip=Chance(chance=0.5), rotate90=Chance(chance=1.0))
    dataset = paired(tmp_path, crop=crop, augmentation=moves, baselines=("nearest",))
    assert len(dataset) == 2
    seen = set()
    for seed in range(20):
        found = dataset.example(1, np.random.default_rng(seed))
        assert found["name"] == "deep/0801"
        lq, hq = bytes_of(found["lq"]), bytes_of(found["hq"])
        assert lq.shape == (4, 4, 3)
        assert (lq.repeat(2, axis=0).repeat(2, axis=1) == hq).all()
        seen.add(hq.tobytes())
        assert (bytes_of(dataset.example(1, np.random.default_rng(seed))["hq"]) == hq).all()
    assert len(seen) > (10 if crop == "random" else 3)


def test_whole_images_lose_what_exceeds_the_scale(tmp_path):
    write_pair(tmp_path, "a.png", "a.png", 5, 7)
    image = noise(11, 15)
    write(tmp_path / "images/train/b.png", image)
    write(tmp_path / "images/train_small/b.png", noise(5, 7, 3))
    found = paired(tmp_path, size=None).example(1, np.random.default_rng(0))
    assert (bytes_of(found["hq"]) == image[:10, :14]).all()
    assert (bytes_of(found["lq"]) == noise(5, 7, 3)).all()


def test_what_is_no_pair_is_told(tmp_path):
    write_pair(tmp_path, "a.png", "a.png", 8, 8)
    write(tmp_path / "images/train/b.png", noise(16, 16))
    with pytest.raises(UserError, match=r"1 of 2 images have no small version there, such as b\.png \(or bx2\.png\)"):
        paired(tmp_path)
    write(tmp_path / "images/train_small/b.png", noise(8, 9))
    message = (
        r"train_small: 1 of 2 small versions have another size; the first, b\.png: 9 x 8 pixels; at scale 2, the small "
        r"version of b\.png has 8 x 8"
    )
    with pytest.raises(UserError, match=message):
        paired(tmp_path)
    bent = GeometricTransforms.model_construct(further={"bend": Declaration(type="albumentations.ElasticTransform")})
    with pytest.raises(ValueError, match=r"augmentation\.further: .* only be flipped and turned"):
        paired(tmp_path, augmentation=bent)
    with pytest.raises(UserError, match="no such folder"):
        paired(tmp_path, small="missing")

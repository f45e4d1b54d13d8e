"""What tests of `prepare` share: one entry of `data/params.yaml`, and what the stage wrote."""

import csv
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import cv2
import numpy as np
from ruamel.yaml import YAML

CATALOGUE = {
    "image_size": 32, "pairs": {"train": 5, "validation": 2, "test": 2},
    "tops": 2, "bottoms": 2, "skins": 2, "hairs": 2, "shoes": 1,
    "height_range": [0.8, 0.9], "views": {"front": 1.0}, "poses": {"standing": 1.0},
    "limb_thickness": 1.2, "head_size": 1.2,
}  # fmt: skip
"""Settings of small drawn pictures of people in a room."""


def write_entry(name: str, entry: dict[str, Any]) -> None:
    """Write a `data/params.yaml` with this dataset alone."""
    Path("data").mkdir(exist_ok=True)
    YAML(typ="safe", pure=True).dump({"datasets": {name: entry}}, Path("data/params.yaml"))


def write_picture(path: str | Path, number: int, size: tuple[int, int] = (32, 48)) -> None:
    """Write a picture of noise, other for each number, of a height and width."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
    assert cv2.imwrite(str(path), pixels)


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file, by path; those of archives there, or in a folder above, as unzipped."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".zip"}
    for path in {*folder.rglob("*.zip"), *folder.parent.glob("*.zip"), *folder.parent.parent.glob("*.zip")}:
        with ZipFile(path) as archive:
            files |= {path.parent / name: archive.read(name) for name in archive.namelist()}
    return {path.relative_to(folder).as_posix(): files[path] for path in files if path.is_relative_to(folder)}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))

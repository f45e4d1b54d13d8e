"""Draw full splits of the synthetic dataset in parallel and write them as COCO files."""

import json
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from pycocotools import mask as rle

from figura.formats.coco import KEYPOINTS, PERSON, SKELETON
from figura.formats.coco_writer import write_coco
from figura.synthetic.canvas import Cloth, cloth_of, instance_of
from figura.synthetic.objects import WIDTHS
from figura.synthetic.processes import in_processes
from figura.synthetic.randomness import SPLITS, Split
from figura.synthetic.scene import Scene, draw_scene
from figura.synthetic.settings import SyntheticSettings

CATEGORIES = (PERSON, *WIDTHS)
IDS_PER_IMAGE = 100  # annotation id = image id times this, plus the instance


class Drawn(NamedTuple):
    """The records of a scene whose picture is on disk, as JSON."""

    image: bytes
    annotations: list[bytes]


def write_synthetic(
    settings: SyntheticSettings, seed: int, folder: Path, progress: bool, *, workers: int | None = None
) -> None:
    """Write `folder/images/<split>/*.jpg` and, last, `folder/<split>.json` (COCO) for each split.

    The same settings and seed give the same bytes, for any number of `workers` (processes; by default one per usable
    core). Raises `FileExistsError` if the folder has pictures of an earlier run.
    """
    for split in SPLITS:
        (folder / "images" / split).mkdir(parents=True)
    head = {"info": {"description": "SyntheticPeople, drawn by figura"}, "licenses": [], "categories": categories()}
    for split, scenes in in_processes(partial(_draw, settings, seed, folder), settings.scenes, progress, workers):
        images, records = zip(*scenes, strict=True)
        write_coco(folder / f"{split}.json", head, images, chain.from_iterable(records))


def _draw(settings: SyntheticSettings, seed: int, folder: Path, split: Split, index: int) -> Drawn:
    scene = draw_scene(settings, seed=seed, split=split, index=index)
    image_id = index + 1
    name = f"{split}/{image_id:06d}.jpg"
    done, data = cv2.imencode(".jpg", scene.picture, [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality])
    assert done, "OpenCV could not encode a picture as JPEG"
    (folder / "images" / name).write_bytes(data.tobytes())
    side = settings.image_size
    image = {"id": image_id, "file_name": name, "width": side, "height": side}
    return Drawn(json.dumps(image).encode(), [json.dumps(one).encode() for one in annotations(scene, image_id)])


def categories() -> list[dict[str, Any]]:
    """Return the file's categories: people with their skeleton (joints from 1), then things."""
    entries: list[dict[str, Any]] = [
        {"id": number, "name": name, "supercategory": PERSON if name == PERSON else "thing"}
        for number, name in enumerate(CATEGORIES, start=1)
    ]
    entries[0] |= {"keypoints": list(KEYPOINTS), "skeleton": [list(pair) for pair in SKELETON]}
    return entries


def annotations(scene: Scene, image_id: int) -> list[dict[str, Any]]:
    """Return one record for every instance with at least one visible pixel."""
    instances = instance_of(scene.labels)
    records = []
    for number, (actor, keypoints) in enumerate(zip(scene.actors, scene.keypoints, strict=True), start=1):
        mask = instances == number
        if not mask.any():
            continue
        record: dict[str, Any] = {
            "id": image_id * IDS_PER_IMAGE + number,
            "image_id": image_id,
            "category_id": CATEGORIES.index(actor.category) + 1,
            "bbox": _extent(mask),
            "area": int(mask.sum()),
            "iscrowd": int(actor.crowd),
            "segmentation": encode(mask),
        }
        if keypoints is not None:
            record |= _person(scene.labels, mask, keypoints) | dict(actor.facts)
        records.append(record)
    return records


def encode(mask: np.ndarray) -> dict[str, Any]:
    """Encode a mask (h, w) as compressed RLE for JSON."""
    encoded = rle.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": list(mask.shape), "counts": encoded["counts"].decode("ascii")}


def _person(labels: np.ndarray, mask: np.ndarray, keypoints: np.ndarray) -> dict[str, Any]:
    cloth = cloth_of(labels)
    flat = np.floor(keypoints * 100.0) / 100.0  # rounding up could leave the image
    return {
        "keypoints": [int(value) if value == int(value) else value for value in flat.ravel().tolist()],
        "num_keypoints": int((keypoints[:, 2] > 0).sum()),
        "parts": {"top": encode(mask & (cloth == Cloth.TOP)), "bottom": encode(mask & (cloth == Cloth.BOTTOM))},
    }


def _extent(mask: np.ndarray) -> list[int]:
    """Return the tight box around a mask: left, top, width, height in integer pixels."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    left, top = int(columns[0]), int(rows[0])
    return [left, top, int(columns[-1]) + 1 - left, int(rows[-1]) + 1 - top]

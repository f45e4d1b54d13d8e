"""Write full splits of the synthetic dataset in parallel."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import cv2
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.files import replacing
from figura.synthetic.annotation import annotations, categories
from figura.synthetic.processes import CHUNK, processes
from figura.synthetic.randomness import SPLITS, Split
from figura.synthetic.scene import draw_scene
from figura.synthetic.settings import SyntheticSettings


class Drawn(NamedTuple):
    """The records of a scene whose picture is on disk, as compact JSON."""

    image: str
    annotations: tuple[str, ...]


def write_synthetic(
    settings: SyntheticSettings, seed: int, folder: Path, progress: bool, *, workers: int | None = None
) -> None:
    """Write `folder/images/<split>/*.jpg` and, last, `folder/<split>.json` (COCO) for both splits.

    The same settings and seed give the same bytes, for any number of `workers` (processes; by default one per usable
    core). Raises `UserError` if the folder has pictures of an earlier run.
    """
    for split in SPLITS:
        if any((folder / "images" / split).glob("*")):
            raise UserError(f"{folder / 'images' / split}: is not empty; remove it or choose another folder")
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
    with processes(workers, max(getattr(settings.scenes, split) for split in SPLITS)) as pool:
        for split in SPLITS:
            count = getattr(settings.scenes, split)
            scenes = pool.map(partial(_draw, settings, seed, split, folder), range(count), chunksize=CHUNK)
            _write(folder / f"{split}.json", tqdm(scenes, f"draw {split}", count, unit="scene", disable=not progress))


def _draw(settings: SyntheticSettings, seed: int, split: Split, folder: Path, index: int) -> Drawn:
    scene = draw_scene(settings, seed=seed, split=split, index=index)
    image_id = index + 1
    name = f"{split}/{image_id:06d}.jpg"
    done, data = cv2.imencode(".jpg", scene.picture, [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality])
    assert done, "OpenCV could not encode a picture as JPEG"
    (folder / "images" / name).write_bytes(data.tobytes())
    side = settings.image_size
    image = {"id": image_id, "file_name": name, "width": side, "height": side}
    return Drawn(_compact(image), tuple(_compact(record) for record in annotations(scene, image_id)))


def _write(path: Path, scenes: Iterable[Drawn]) -> None:
    """Write the split's file record by record, in constant memory."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        header = {
            "info": {"description": "SyntheticPeople, drawn by figura"},
            "licenses": [],
            "categories": categories(),
        }
        file.write(_compact(header)[:-1] + ',"annotations":[')
        images = list(_stream(file, scenes))
        file.write('],"images":[' + ",".join(images) + "]}")


def _stream(file: IO[str], scenes: Iterable[Drawn]) -> Iterator[str]:
    comma = ""
    for image, records in scenes:
        for record in records:
            file.write(comma + record)
            comma = ","
        yield image


def _compact(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False)

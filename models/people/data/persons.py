"""The usable persons of a prepared split, in a few flat arrays."""

import json
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as run_lengths

from data.formats.coco import KEYPOINTS, person_category, read_head, read_records
from models.base.errors import UserError


class Texts:
    """A list of short texts in one block of bytes: no Python object per text, so forked processes share the memory."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._block += text.encode()
        self._ends.append(len(self._block))

    def __getitem__(self, index: int) -> str:
        return self._block[self._ends[index] : self._ends[index + 1]].decode()


def is_usable(record: Mapping[str, Any], *, person: int, min_keypoints: int, min_height: float) -> bool:
    """Tell whether an annotation is a person, not a crowd, with enough labelled joints and a box high enough."""
    return (
        record["category_id"] == person
        and not record.get("iscrowd", 0)
        and sum(flag > 0 for flag in record.get("keypoints", ())[2::3]) >= min_keypoints
        and record["bbox"][3] >= min_height
    )


class Persons:
    """The usable persons of `<root>/<split>.json`, sorted by annotation id.

    Arrays with one row per person: `ids` and `person_ids` int64 (the annotation id if there is no `person_id`), `boxes`
    float32 `(n, 4)` (x, y, width, height), `keypoints` float32 `(n, 17, 3)`.
    Raises UserError for prepared files that are missing or not in the format of `prepare`.
    """

    def __init__(self, root: Path, split: str, *, min_keypoints: int, min_height: float) -> None:
        self.root, self.path = root, root / f"{split}.json"
        self.remedy = f"run `dvc repro prepare@{root.name}`"
        if not self.path.is_file():
            raise UserError(f"{self.path}: no such file; {self.remedy}")
        person = person_category(self.path, read_head(self.path)[0]["categories"])
        places = self._read_images()
        ids, person_ids, images, boxes, keypoints = array("q"), array("q"), array("q"), array("f"), array("f")
        self._masks, self._parts = Texts(), Texts()
        for record in self._in_order("annotations"):
            if not is_usable(record, person=person, min_keypoints=min_keypoints, min_height=min_height):
                continue
            ids.append(record["id"])
            person_ids.append(record.get("person_id", record["id"]))
            images.append(places[record["image_id"]])
            boxes.extend(record["bbox"])
            keypoints.extend(record.get("keypoints") or [0.0] * 3 * len(KEYPOINTS))
            self._masks.append(json.dumps(record.get("segmentation")))
            self._parts.append(json.dumps(record.get("parts", {})))
        self.ids, self.person_ids, self._images = (np.array(one, dtype=np.int64) for one in (ids, person_ids, images))
        self.boxes = np.array(boxes, dtype=np.float32).reshape(-1, 4)
        self.keypoints = np.array(keypoints, dtype=np.float32).reshape(-1, len(KEYPOINTS), 3)

    def __len__(self) -> int:
        return len(self.ids)

    def _in_order(self, section: str) -> Iterator[dict[str, Any]]:
        last = None
        for record in read_records(self.path, section):
            if last is not None and record["id"] <= last:
                raise UserError(f"{self.path}: {section} are not in the order of their ids; {self.remedy}")
            last = record["id"]
            yield record

    def _read_images(self) -> dict[int, int]:
        """Fill the arrays of images and return image id -> row."""
        self._names, sizes, places = Texts(), array("q"), {}
        for record in self._in_order("images"):
            places[record["id"]] = len(self._names)
            self._names.append(record["file_name"])
            sizes.extend((record["height"], record["width"]))
        self._sizes = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        return places

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of the person's image, pixels."""
        height, width = self._sizes[self._images[index]].tolist()
        return height, width

    def image(self, index: int) -> NDArray[np.uint8]:
        """Read the person's image, BGR uint8 `(height, width, 3)`."""
        path = self.root / "images" / self._names[self._images[index]]
        # Annotations refer to the stored pixels; without the flag OpenCV would rotate images by their EXIF tag.
        image = cv2.imread(str(path), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        if image is None or image.shape[:2] != self.size(index):
            problem = "cannot be read" if image is None else f"is {image.shape[1]} x {image.shape[0]} pixels"
            height, width = self.size(index)
            raise UserError(f"{path}: {problem}, but {self.path} promises {width} x {height}; {self.remedy}")
        return image

    def mask(self, index: int) -> NDArray[np.uint8]:
        """Return the person's mask, uint8 0/1 `(height, width)`; the box if the annotation has no mask."""
        height, width = self.size(index)
        mask = decode_mask(json.loads(self._masks[index]), height, width)
        if mask is None:
            mask = np.zeros((height, width), dtype=np.uint8)
            x, y, w, h = self.boxes[index].tolist()
            mask[max(round(y), 0) : max(round(y + h), 0), max(round(x), 0) : max(round(x + w), 0)] = 1
        return mask

    def part(self, index: int, name: str) -> NDArray[np.uint8]:
        """Return the mask of a named part of the person, uint8 0/1 `(height, width)`; zeros if there is none."""
        height, width = self.size(index)
        mask = decode_mask(json.loads(self._parts[index]).get(name), height, width)
        return np.zeros((height, width), dtype=np.uint8) if mask is None else mask


def decode_mask(mask: Any, height: int, width: int) -> NDArray[np.uint8] | None:
    """Decode COCO's polygons or run lengths (compressed or not) to uint8 0/1 `(height, width)`; None for no mask."""
    if not mask:
        return None
    if isinstance(mask, list):
        mask = run_lengths.merge(run_lengths.frPyObjects(mask, height, width))
    elif isinstance(mask["counts"], list):
        mask = run_lengths.frPyObjects(mask, height, width)
    return np.asarray(run_lengths.decode(mask), dtype=np.uint8)

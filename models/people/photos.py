"""Persons in photos as inputs of VUNet, with joints that a pose network predicted or somebody annotated."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from data.formats.coco import read_head, read_records
from data.formats.skeletons import COCO, Skeleton, skeleton_from
from models.base.errors import UserError
from models.interfaces import Example
from models.people.data.crops import square
from models.people.data.pairs import IMAGE_SIZE, MARGIN, channels_first
from models.people.data.persons import Texts, decode_mask, is_usable, joints_needed, people_category
from models.people.data.stickman import pose_picture
from models.prediction.inputs import Photo, PhotoExamples


class PersonPhotos(PhotoExamples):
    """Square crops of the persons in photos, prepared as `people.PersonPairs` prepares those of a dataset.

    By default, `image_size`, `margin`, `background`, `min_keypoints`, the skeleton (K joints; COCO's 17 if None) and
    the category of people (an id) are those of the training data.

    The persons come from `<name>.people.json`, COCO results of this category in pixels of the photo. `tools.predict`
    writes these files with a pose recipe. They lie in the folder `people` (its `--output`, for the same inputs), or
    beside the photo if `people` is not set. Alternatively, `annotations` names a COCO file; a photo belongs to the
    image whose `file_name` is the end of the photo's path.

    A predicted box encloses the joints, not the outline of the body, so `padding` of its longer side is added on each
    side. The examples are the persons with a score of at least `min_score` (annotated persons have 1), with
    `min_keypoints` joints of a confidence of at least `min_confidence` (annotated joints have 1 or 2), and with a box
    at least `min_height` pixels high. `background` in [-1, 1] replaces the pixels outside the annotated mask, or
    outside the box if there is no mask; None keeps them.

    An example has, with P = `image_size`: `pose` float32 `(3, P, P)` RGB in [-1, 1]; `target` and `appearance`, the
    same picture, likewise; `mask` float32 `(1, P, P)` in [0, 1]; `name`, the photo's name, a hyphen and the number of
    the person from 1.

    Raises ValueError for arguments out of range, UserError for annotations that cannot be read.
    """

    names: ClassVar[tuple[str, ...]] = ("pose", "appearance", "target", "mask", "name")
    from_data: ClassVar[tuple[str, ...]] = (
        "image_size", "margin", "background", "min_keypoints", "skeleton", "category",
    )  # fmt: skip

    def __init__(
        self,
        *,
        min_height: float,
        image_size: int = IMAGE_SIZE,
        margin: float = MARGIN,
        min_keypoints: float = 1,
        background: float | None = None,
        skeleton: Mapping[str, Any] | None = None,
        category: int = 1,
        min_confidence: float = 0.0,
        min_score: float = 0.0,
        padding: float = 0.0,
        people: str | None = None,
        annotations: str | None = None,
    ) -> None:
        if image_size < 1:
            raise ValueError(f"image_size {image_size}: a whole number from 1 is needed")
        if not 0 <= margin < 10:
            raise ValueError(f"margin {margin}: a number from 0 to 10 is needed")
        if not 0 <= padding < 10:
            raise ValueError(f"padding {padding}: a number from 0 to 10 is needed")
        if background is not None and not -1 <= background <= 1:
            raise ValueError(f"background {background}: a number from -1 to 1 is needed, or null")
        if people is not None and annotations is not None:
            raise ValueError(f"people {people!r} and annotations {annotations!r}: one of them is needed")
        self.image_size, self.margin, self.background = image_size, margin, background
        self.category = category
        self.skeleton = COCO if skeleton is None else skeleton_from(skeleton)
        self.min_keypoints, self.min_height = joints_needed(min_keypoints, self.skeleton), min_height
        self.min_confidence, self.min_score, self.padding = min_confidence, min_score, padding
        self.people = None if people is None else Path(people)
        self.annotations = None if annotations is None else _Annotations(Path(annotations), self.skeleton)

    def examples(self, photo: Photo) -> list[Example]:
        """Return the usable persons of the photo, in the order of the records; possibly none."""
        pixels = photo.pixels()
        if self.annotations is None:
            records, person = self._predicted(photo), self.category
        else:
            records, person = self.annotations.of(photo.path, pixels.shape[:2]), self.annotations.person
        examples: list[Example] = []
        for record in records:
            joints = np.array(record.get("keypoints") or np.zeros(self._numbers), dtype=np.float64).reshape(-1, 3)
            joints[joints[:, 2] < self.min_confidence] = 0.0
            record = {**record, "keypoints": joints.ravel().tolist()}
            if record.get("score", 1.0) < self.min_score:
                continue
            if is_usable(record, person=person, min_keypoints=self.min_keypoints, min_height=self.min_height):
                name = f"{photo.name}-{len(examples) + 1}"
                examples.append({**self._views(pixels, record, joints), "name": name})
        return examples

    @property
    def _numbers(self) -> int:
        return 3 * len(self.skeleton.keypoints)

    def _predicted(self, photo: Photo) -> list[dict[str, Any]]:
        if self.people is not None:
            path = self.people / f"{photo.name}.people.json"
        else:
            stem = photo.path.stem if photo.frame is None else Path(photo.name).name
            path = photo.path.with_name(f"{stem}.people.json")
        try:
            records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
            for record in records:
                sizes = len(record["keypoints"]), len(record["bbox"])
                if sizes != (self._numbers, 4) or not isinstance(record["category_id"], int):
                    raise ValueError(f"category_id, keypoints and bbox: 1, {self._numbers} and 4 numbers are needed")
                record["bbox"] = _padded(record["bbox"], self.padding)
            categories = sorted({record["category_id"] for record in records})
        except OSError as error:
            raise UserError(
                f"{photo.path}: {path}: {error.strerror}; predict with a pose recipe first, and name its --output in "
                "predict.data.people"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{photo.path}: {path}: no COCO results of people: {error}") from None
        if categories and self.category not in categories:
            raise UserError(
                f"{photo.path}: {path}: nobody has the category_id {self.category}; there are {categories}; write the "
                "id of people in these results to predict.data.category"
            )
        return records

    def _views(
        self, pixels: NDArray[np.uint8], record: Mapping[str, Any], joints: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float32]]:
        height, width = pixels.shape[:2]
        box = np.array(record["bbox"], dtype=np.float64)
        crop = square(box, self.margin, self.image_size)
        inside = crop.inside(height, width)
        mask = decode_mask(record.get("segmentation"), height, width)
        if mask is None:
            mask = np.zeros((height, width), dtype=np.uint8)
            left, top, right, bottom = np.maximum(np.rint([*box[:2], *(box[:2] + box[2:])]), 0).astype(int)
            mask[top:bottom, left:right] = 1
        person = np.ascontiguousarray(mask[inside])
        picture = pixels[inside] * np.float32(2 / 255) - 1
        fill, shown = (0.0, None) if self.background is None else (self.background, person)
        image = np.clip(channels_first(crop.resized(picture, height, width, fill, shown)), -1, 1)
        stickman = pose_picture(crop.joints(joints), self.skeleton, self.image_size)
        return {
            "pose": channels_first(stickman.astype(np.float32) / 127.5 - 1),
            "target": image,
            "appearance": image,
            "mask": np.clip(crop.resized(person.astype(np.float32), height, width, fill=0.0), 0, 1)[None],
        }


def _padded(box: list[float], padding: float) -> list[float]:
    x, y, width, height = box
    more = padding * max(width, height)
    return [x - more, y - more, width + 2 * more, height + 2 * more]


class _Annotations:
    """The annotations of a COCO file by image, in one block of text."""

    def __init__(self, path: Path, skeleton: Skeleton) -> None:
        self.path = path
        self.person = people_category(path, read_head(path)[0]["categories"], skeleton)
        self._images: dict[str, list[dict[str, Any]]] = {}  # by the last part of the file name
        for image in read_records(path, "images"):
            self._images.setdefault(Path(image["file_name"]).name, []).append(image)
        self._records, self._places = Texts(), dict[int, list[int]]()
        for record in read_records(path, "annotations"):
            if record["category_id"] == self.person:
                self._places.setdefault(record["image_id"], []).append(len(self._records))
                self._records.append(json.dumps(record))

    def of(self, photo: Path, size: tuple[int, ...]) -> list[dict[str, Any]]:
        """Return the persons in a photo of `size` (height, width)."""
        parts = photo.resolve().parts
        named = self._images.get(photo.name, [])
        images = [
            image for image in named if parts[-len(Path(image["file_name"]).parts) :] == Path(image["file_name"]).parts
        ]
        if len(images) != 1:
            problem = "no image has" if not images else f"{len(images)} images have"
            raise UserError(f"{photo}: {self.path}: {problem} a file_name with which this path ends")
        image = images[0]
        if size != (image["height"], image["width"]):
            raise UserError(
                f"{photo}: is {size[1]} x {size[0]} pixels, upright, but {self.path} says "
                f"{image['width']} x {image['height']}"
            )
        return [json.loads(self._records[place]) for place in self._places.get(image["id"], ())]

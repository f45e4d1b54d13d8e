"""Persons in photos as inputs of VUNet, with predicted joints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.base.files import read_json, short_name
from figura.formats.normalise import check_result
from figura.formats.records import Size, UnusableError
from figura.formats.skeletons import COCO, skeleton_from
from figura.interfaces import Example
from figura.prediction.inputs import Photo, PhotoExamples

from .crops import square
from .pairs import IMAGE_SIZE, MARGIN, Background, ImageSize, Margin, channels_first
from .persons import is_usable, joints_needed, person_mask
from .stickman import pose_picture

MOST = 1000  # people per photo
SAID = 10  # reported faults per file
LARGEST_FILE = 1 << 28  # maximum bytes of a photo's people file
LARGEST_CROP = 1 << 27  # maximum pixels of the square around a person: 1.6 GB


class PersonPhotos(PhotoExamples):
    """Square crops of the persons in photos, preprocessed like in `people.PersonPairs`.

    By default, `image_size`, `margin`, `background`, `min_keypoints`, the skeleton (K joints; COCO's 17 if None) and
    the category of people (an id) are those of the training data.

    The persons come from `<name>.people.json`, COCO results of this category in pixels of the photo. `figura predict`
    writes these files with a pose recipe. They are in the folder `people` (its `--output`, for the same inputs), or
    beside the photo if `people` is not set.

    A predicted box encloses the joints, not the outline of the body, so `padding` of its longer side is added on each
    side. The examples are the persons with a score of at least `min_score` (1 if the record has none), with
    `min_keypoints` joints of a confidence of at least `min_confidence`, and with a box at least `min_height` pixels
    high. `background` in [-1, 1] replaces the pixels outside the record's mask (`segmentation`), or outside the box if
    it has none; None keeps them.

    An example has, with P = `image_size`: `pose` float32 `(3, P, P)` RGB in [-1, 1]; `target` and `appearance`, the
    same picture, likewise; `mask` float32 `(1, P, P)` in [0, 1]; `name`, the photo's name, a hyphen and the number of
    the person from 1.

    An unusable record only skips this person, with a line in the photo's `faults`. So does each person after the first
    1,000 of a photo.

    Raises UserError for files that cannot be read.
    """

    expects: ClassVar[str | None] = "a photo of people, whom a pose recipe finds first"
    reads: ClassVar[str | None] = "people"
    names: ClassVar[tuple[str, ...]] = ("pose", "appearance", "target", "mask", "name")
    from_data: ClassVar[tuple[str, ...]] = (
        "image_size", "margin", "background", "min_keypoints", "skeleton", "category",
    )  # fmt: skip

    def __init__(
        self,
        *,
        min_height: float,
        image_size: ImageSize = IMAGE_SIZE,
        margin: Margin = MARGIN,
        min_keypoints: float = 1,
        background: Background | None = None,
        skeleton: Mapping[str, Any] | None = None,
        category: int = 1,
        min_confidence: float = 0.0,
        min_score: float = 0.0,
        padding: Margin = 0.0,
        people: str | None = None,
    ) -> None:
        self.image_size, self.margin, self.background = image_size, margin, background
        self.category = category
        self.skeleton = COCO if skeleton is None else skeleton_from(skeleton)
        self.min_keypoints, self.min_height = joints_needed(min_keypoints, self.skeleton), min_height
        self.min_confidence, self.min_score, self.padding = min_confidence, min_score, padding
        self.people = None if people is None else Path(people)

    def examples(self, photo: Photo) -> list[Example]:
        """Return the usable persons of the photo, in the order of the records; possibly none."""
        pixels = photo.pixels()
        size = Size(pixels.shape[1], pixels.shape[0])
        source, records = self._predicted(photo)
        people = self._checked(records[:MOST], size, f"{photo.path}: {source}", photo.faults)
        if len(records) > MOST:
            photo.faults.append(f"{photo.path}: {source}: has {len(records)} people; the first {MOST} are taken")
        self._check_category(people, f"{photo.path}: {source}")
        examples: list[Example] = []
        for record in people:
            no_joints = [0.0] * 3 * len(self.skeleton.keypoints)
            joints = np.array(record.get("keypoints") or no_joints, dtype=np.float64).reshape(-1, 3)
            joints[joints[:, 2] < self.min_confidence] = 0.0
            record = {**record, "keypoints": joints.ravel().tolist()}
            if record.get("score", 1.0) < self.min_score:
                continue
            if is_usable(record, person=self.category, min_keypoints=self.min_keypoints, min_height=self.min_height):
                name = f"{photo.name}-{len(examples) + 1}"
                examples.append({**self._views(pixels, record, joints), "name": name})
        return examples

    def _checked(self, records: Sequence[Any], size: Size, where: str, faults: list[str]) -> list[dict[str, Any]]:
        """Return the usable records; add lines about the others to `faults`."""
        people, lines = [], list[str]()
        for index, record in enumerate(records):
            try:
                check_result(record, size, len(self.skeleton.keypoints))
                record["bbox"] = _padded(record["bbox"], self.padding)
                side = square(np.array(record["bbox"], dtype=np.float64), self.margin, self.image_size).side
                if side**2 > LARGEST_CROP:
                    raise UnusableError("box too large", f"its square has {side} x {side} pixels")
                people.append(record)
            except UnusableError as fault:
                lines.append(f"{where}: record {index} (counted from 0): {fault}")
        faults += lines[:SAID]
        if len(lines) > SAID:
            faults.append(f"{where}: and {len(lines) - SAID} more of its records")
        return people

    def _predicted(self, photo: Photo) -> tuple[Path, list[Any]]:
        """Return the file with the people of a photo, and its unchecked records."""
        if self.people is not None:
            path = self.people / f"{photo.name}.people.json"
        else:
            stem = photo.path.stem if photo.frame is None else Path(photo.name).name
            path = photo.path.with_name(f"{short_name(stem)}.people.json")
        advice = "predict with a pose recipe first, and name its --output in predict.data.people"
        try:
            records = read_json(path, advice, LARGEST_FILE)
        except UserError as error:
            raise UserError(f"{photo.path}: {error}") from None
        if not isinstance(records, list):
            raise UserError(f"{photo.path}: {path}: no COCO results of people: found {repr(records)[:80]}")
        return path, records

    def _check_category(self, people: Sequence[Mapping[str, Any]], where: str) -> None:
        categories = sorted({record["category_id"] for record in people})
        if categories and self.category not in categories:
            raise UserError(
                f"{where}: no person has the category_id {self.category}; there are {categories[:SAID]}; write the "
                "id of people in these results to predict.data.category"
            )

    def _views(
        self, pixels: NDArray[np.uint8], record: Mapping[str, Any], joints: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float32]]:
        box = np.array(record["bbox"], dtype=np.float64)
        crop = square(box, self.margin, self.image_size)
        person = person_mask(record.get("segmentation"), box, *pixels.shape[:2])
        picture, mask = crop.view(pixels, person, self.background)
        image = channels_first(picture)
        stickman = pose_picture(crop.joints(joints), self.skeleton, self.image_size)
        return {
            "pose": channels_first(stickman.astype(np.float32) / 127.5 - 1),
            "target": image,
            "appearance": image,
            "mask": mask,
        }


def _padded(box: list[float], padding: float) -> list[float]:
    x, y, width, height = box
    more = padding * max(width, height)
    return [x - more, y - more, width + 2 * more, height + 2 * more]

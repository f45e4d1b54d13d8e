"""The dataset of person pairs: a pose and an appearance of one person, and the picture that they should give."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError, nearest
from models.interfaces import Example, Examples
from models.people.data.crops import Crop, square
from models.people.data.persons import Persons
from models.people.data.stickman import coco_to_openpose18, draw_stickman

Appearance = Literal["other_view", "self"]

PARTS = ("top", "bottom")

_MID_GRAY = 0.0


class PersonPairs(Examples):
    """Square crops of persons from a prepared people dataset (`root/<split>.json`, `root/images`), by annotation id.

    The dataset uses persons (not crowd regions) with at least `min_keypoints` labelled joints and a box at least
    `min_height` pixels high. The crop is the square around the box, plus `margin` of the longer side on each side.
    `appearance` is the crop of another annotation of the same `person_id` in the split, if there is one ("other_view"),
    or the target itself ("self"). `background` in [-1, 1] replaces the pixels outside the person's mask in all crops;
    None keeps them, with mid-gray outside the image.

    An example has, with P = `image_size`: `pose`, `appearance`, `target` float32 `(3, P, P)` RGB in [-1, 1]; `mask` of
    the target float32 `(1, P, P)` in [0, 1]; the integers `index`, `annotation_id`, `appearance_id`, `person_id`.
    `parts` adds `top`, `bottom`, `appearance_top`, `appearance_bottom`: masks of clothes like `mask`, zeros if unknown.
    `foreign` adds `foreign` and `foreign_id`: the crop of a different person (with `parts`, also `foreign_top` and
    `foreign_bottom`).

    Raises UserError for settings out of range, missing or damaged prepared files, and a split without usable persons.
    """

    names: ClassVar[tuple[str, ...]] = (
        "pose",
        "appearance",
        "target",
        "mask",
        "index",
        "annotation_id",
        "appearance_id",
        "person_id",
    )

    def __init__(
        self,
        *,
        root: str,
        split: str,
        min_keypoints: int,
        min_height: int,
        appearance: Appearance,
        background: float | None,
        image_size: int = 64,
        margin: float = 0.1,
        parts: bool = False,
        foreign: bool = False,
    ) -> None:
        _check(appearance=appearance, background=background, image_size=image_size, margin=margin)
        self.image_size, self.margin = image_size, margin
        self.appearance, self.background = appearance, background
        self.parts = PARTS if parts else ()
        self.foreign = foreign
        # an object can provide more names than its class promises
        self.names = self.provides({"parts": parts, "foreign": foreign})  # type: ignore[misc]
        self.persons = Persons(Path(root), split, min_keypoints=min_keypoints, min_height=min_height)
        if not len(self.persons):
            raise UserError(
                f"{self.persons.path}: no person has {min_keypoints} labelled keypoints and a height of {min_height} "
                "pixels; lower min_keypoints or min_height, or bring more data"
            )
        self._group()

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return `names` and the names that `parts` and `foreign` add."""
        foreign = ("foreign", "foreign_id") if arguments.get("foreign") else ()
        prefixes = ("", "appearance_", "foreign_") if foreign else ("", "appearance_")
        parts = PARTS if arguments.get("parts") else ()
        return (*cls.names, *foreign, *(prefix + part for prefix in prefixes for part in parts))

    def _group(self) -> None:
        """Sort annotations by person; store each one's position there, and its person's first position and count."""
        persons = self.persons.person_ids
        self._order = np.argsort(persons, kind="stable")
        self._place = np.argsort(self._order, kind="stable")
        _, first, group, length = np.unique(
            persons[self._order], return_index=True, return_inverse=True, return_counts=True
        )
        self._first, self._length = first[group][self._place], length[group][self._place]
        if self.foreign and len(first) < 2:
            raise UserError(f"{self.persons.path}: all usable annotations show one person, so none is foreign to it")

    def __len__(self) -> int:
        return len(self.persons)

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` chooses the other view and the foreign person uniformly."""
        other = self._other_view(index, random) if self.appearance == "other_view" else index
        crop = square(self.persons.boxes[index], self.margin, self.image_size)
        pose = draw_stickman(coco_to_openpose18(crop.joints(self.persons.keypoints[index])), self.image_size)
        target, masks = self._view(index)
        appearance, other_masks = (target, masks) if other == index else self._view(other)
        example = {
            "pose": channels_first(pose.astype(np.float32) / 127.5 - 1),
            "appearance": appearance,
            "target": target,
            "mask": masks["mask"],
            "index": index,
            "annotation_id": int(self.persons.ids[index]),
            "appearance_id": int(self.persons.ids[other]),
            "person_id": int(self.persons.person_ids[index]),
        }
        example |= {part: masks[part] for part in self.parts}
        example |= {f"appearance_{part}": other_masks[part] for part in self.parts}
        if self.foreign:
            stranger = self._stranger(index, random)
            example["foreign"], masks = self._view(stranger)
            example["foreign_id"] = int(self.persons.ids[stranger])
            example |= {f"foreign_{part}": masks[part] for part in self.parts}
        return example

    def _other_view(self, index: int, random: np.random.Generator) -> int:
        others = int(self._length[index]) - 1
        if not others:
            return index
        place = self._first[index] + random.integers(others)
        return int(self._order[place + (place >= self._place[index])])

    def _stranger(self, index: int, random: np.random.Generator) -> int:
        place = random.integers(len(self) - self._length[index])
        return int(self._order[place + self._length[index] * (place >= self._first[index])])

    def _view(self, index: int) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Return the crop `(3, P, P)` and the masks `(1, P, P)`: `mask` and those of the parts."""
        crop = square(self.persons.boxes[index], self.margin, self.image_size)
        height, width = self.persons.size(index)
        inside = crop.inside(height, width)
        person = np.ascontiguousarray(self.persons.mask(index)[inside])
        picture = self.persons.image(index)[inside] * np.float32(2 / 255)
        picture -= 1
        fill, shown = (_MID_GRAY, None) if self.background is None else (self.background, person)
        blue_first = crop.resized(picture, height, width, fill, shown)
        masks = {"mask": _mask(crop, person, height, width)}
        for part in self.parts:
            masks[part] = _mask(crop, self.persons.part(index, part)[inside], height, width)
        image = channels_first(blue_first[..., ::-1])
        return np.clip(image, -1, 1, out=image), masks


def channels_first(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image `(height, width, channels)` as contiguous `(channels, height, width)`."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def _mask(crop: Crop, part: NDArray[np.uint8], height: int, width: int) -> NDArray[np.float32]:
    resized = crop.resized(part.astype(np.float32), height, width, fill=0.0)
    return np.clip(resized, 0, 1, out=resized)[None]


def _check(*, appearance: str, background: float | None, image_size: int, margin: float) -> None:
    if appearance not in get_args(Appearance):
        allowed = get_args(Appearance)
        near = nearest(str(appearance), allowed)
        raise UserError(f"appearance: found {appearance!r}{near}; allowed are {', '.join(allowed)}")
    if background is not None and not -1 <= background <= 1:
        raise UserError(f"background: found {background!r}; allowed are null and numbers from -1 to 1")
    if image_size < 1:
        raise UserError(f"image_size: found {image_size!r}; allowed are whole numbers from 1")
    if not 0 <= margin < 10:
        raise UserError(f"margin: found {margin!r}; allowed are numbers from 0 to 10")

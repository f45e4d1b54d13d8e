"""Dataset of person pairs: a pose and an appearance of one person, and the target picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from figura.base.errors import UserError
from figura.base.files import read_text
from figura.formats.prepared import read_facts
from figura.formats.skeletons import skeleton_from
from figura.interfaces import Example, ExampleDataset, Records

from .crops import square
from .persons import Persons
from .stickman import pose_picture

ImageSize = Annotated[int, Field(ge=1)]
Margin = Annotated[float, Field(ge=0.0, lt=10.0)]
Background = Annotated[float, Field(ge=-1.0, le=1.0)]

CLOTHES = ("top", "bottom")
IMAGE_SIZE, MARGIN = 64, 0.1


class PersonPairs(ExampleDataset):
    """Square crops of persons from a prepared people dataset (`root/<split>.json`, `root/images`), by annotation id.

    The dataset uses persons (not crowd regions) with at least `min_keypoints` labelled joints (below 1: a fraction of
    the skeleton's joints) and a box at least `min_height` pixels high. The crop is the square around the box, plus
    `margin` of the longer side on each side. `background` in [-1, 1] replaces the pixels outside the person's mask in
    all crops; None keeps them, with mid-gray outside the image. Annotations without a mask use their box: in pictures
    of one person each, such as Market-1501's, everything is then the person.

    `appearance` selects the source of the appearance:
        self: the target itself.
        other_view: the crop of another annotation of the same `person_id` in the split; the target if there is none.
        pairs: `root/<split>.pairs.csv`, whose columns `appearance_id` and `annotation_id` (the target) name
            annotations. The examples are its rows, in order, except rows with a person excluded by the settings above.
            This is the protocol of papers that publish such lists.

    An example has, with P = `image_size`: `pose`, `appearance`, `target` float32 `(3, P, P)` RGB in [-1, 1]; `mask` of
    the target float32 `(1, P, P)` in [0, 1]; `joints` float32 `(K, 3)`, the target pose: x and y in pixels of the crop,
    0 at the centre of the first, and COCO's visibility (0: not labelled); the integers `index`, `annotation_id`,
    `appearance_id`, `person_id`, and `has_other_view`, 1 if the appearance differs from the target, else 0: only such
    examples measure appearance transfer. The pose is `stickman.pose_picture` of `skeleton`, by default that of the
    training data; its joints must be the dataset's. `truth` adds `truth`, the person in COCO's format, in pixels of the
    crop, with `index` as image id, and the area of the mask. `parts` adds `top`, `bottom`, `appearance_top`,
    `appearance_bottom`: masks of clothes like `mask`, zeros if unknown. `foreign` adds `foreign` and `foreign_id`: the
    crop of a different person (with `parts`, also `foreign_top` and `foreign_bottom`). Annotations without `person_id`
    are each treated as a different person. `baselines`, the name of a split, adds two pictures to compare a network
    with: `flat`, the `flat_colours` of the appearance's person, and with `parts` of its clothes, in the masks of the
    target; and `other`, the crop of an unrelated person of this split, another one in each example if there are enough.

    Raises UserError for a dataset with other joints than `skeleton`, missing or damaged prepared
    files, and a split without usable persons.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton",)
    drawing: ClassVar[str | None] = "people.PersonDrawing"
    names: ClassVar[tuple[str, ...]] = (
        "pose",
        "appearance",
        "target",
        "mask",
        "joints",
        "index",
        "annotation_id",
        "appearance_id",
        "person_id",
        "has_other_view",
    )

    def __init__(
        self,
        *,
        root: str,
        split: str,
        min_keypoints: float,
        min_height: float,
        appearance: Literal["other_view", "self", "pairs"],
        background: Background | None,
        image_size: ImageSize = IMAGE_SIZE,
        margin: Margin = MARGIN,
        parts: bool = False,
        foreign: bool = False,
        truth: bool = False,
        baselines: str | None = None,
        skeleton: dict[str, Any] | None = None,
    ) -> None:
        self.image_size, self.margin = image_size, margin
        self.appearance, self.background = appearance, background
        self.parts = CLOTHES if parts else ()
        self.foreign, self.truth = foreign, truth
        # an instance can provide more names than its class declares
        self.names = self.provides(  # type: ignore[misc]
            {"parts": parts, "foreign": foreign, "truth": truth, "baselines": baselines}
        )
        self.persons = Persons(Path(root), split, min_keypoints=min_keypoints, min_height=min_height)
        self.skeleton = self.persons.skeleton if skeleton is None else skeleton_from(skeleton)
        self._check_joints()
        everybody = np.arange(len(self.persons))
        self._targets, self._appearances = self._listed() if appearance == "pairs" else (everybody, everybody)
        self._group()
        self.unrelated: Persons | None = None
        if baselines is not None:
            self.unrelated = Persons(Path(root), baselines, min_keypoints=min_keypoints, min_height=min_height)

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return `names` and the names that `parts`, `foreign`, `truth` and `baselines` add."""
        foreign = ("foreign", "foreign_id") if arguments.get("foreign") else ()
        prefixes = ("", "appearance_", "foreign_") if foreign else ("", "appearance_")
        parts = CLOTHES if arguments.get("parts") else ()
        truth = ("truth",) if arguments.get("truth") else ()
        baselines = ("flat", "other") if arguments.get("baselines") is not None else ()
        return (*cls.names, *foreign, *(prefix + part for prefix in prefixes for part in parts), *truth, *baselines)

    @classmethod
    def facts(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts that pictures of persons must match.

        These are `image_size`, `margin`, `background`, `min_keypoints`, `skeleton`, and `category`, the id of people.
        """
        own = {key: arguments[key] for key in ("background", "min_keypoints")}
        sizes = {"image_size": arguments.get("image_size", IMAGE_SIZE), "margin": arguments.get("margin", MARGIN)}
        known = read_facts(Path(arguments["root"]))
        ids = {one["name"]: one["id"] for one in known.get("categories", ())}
        skeleton = arguments.get("skeleton") or known.get("skeleton")
        of_data = {"skeleton": skeleton, "category": ids.get(known.get("people"))}
        return sizes | own | {name: fact for name, fact in of_data.items() if fact is not None}

    def _check_joints(self) -> None:
        own, drawn = self.persons.skeleton.keypoints, self.skeleton.keypoints
        if own != drawn:
            raise UserError(
                f"{self.persons.path}: its people have {len(own)} keypoints, {', '.join(own)}; `skeleton`, by default "
                f"that of the training data, has {len(drawn)}, {', '.join(drawn)}; a network needs the same ones"
            )

    def _listed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of targets and appearances in the split's list of pairs, only usable ones."""
        path = self.persons.path.with_suffix(".pairs.csv")
        if path.is_file():
            self.persons.manifest.check(path)
        listed = read_pairs(path, self.persons.annotated)
        usable = np.isin(listed, self.persons.ids).all(axis=1)
        if not usable.any():
            raise UserError(
                f"{path}: in none of its {len(listed)} pairs both persons have min_keypoints and min_height; lower them"
            )
        appearances, targets = np.searchsorted(self.persons.ids, listed[usable]).T
        return targets, appearances

    def _group(self) -> None:
        """Sort annotations by person; store each annotation's position, and its person's first position and count."""
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
        return len(self._targets)

    def target(self, index: int) -> int:
        """Return the index of example `index`'s target in `persons`."""
        return int(self._targets[index])

    def row(self, index: int) -> dict[str, int | float | str]:
        """Return ids and file of the target, its labelled joints, its box's height in pixels, and its `other_views`.

        These are the other annotations of the person. A list of pairs adds the `appearance_id`.
        """
        own = self.target(index)
        row: dict[str, int | float | str] = {
            "annotation_id": int(self.persons.ids[own]),
            "person_id": int(self.persons.person_ids[own]),
            "file": self.persons.file(own),
            "joints": int(np.count_nonzero(self.persons.keypoints[own, :, 2] > 0)),
            "height": round(float(self.persons.boxes[own, 3]), 1),
            "other_views": int(self._length[own]) - 1,
        }
        if self.appearance == "pairs":
            row["appearance_id"] = int(self.persons.ids[self._appearances[index]])
        return row

    def example(self, index: int, random: np.random.Generator) -> Example:
        """Return example `index`; `random` chooses the other view and the foreign person uniformly."""
        own, other = self.target(index), int(self._appearances[index])
        if self.appearance == "other_view":
            other = self._other_view(own, random)
        crop = square(self.persons.boxes[own], self.margin, self.image_size)
        joints = crop.joints(self.persons.keypoints[own])
        pose = pose_picture(joints, self.skeleton, self.image_size)
        target, masks = self._view(own)
        appearance, other_masks = (target, masks) if other == own else self._view(other)
        example = {
            "pose": channels_first(pose.astype(np.float32) / 127.5 - 1),
            "appearance": appearance,
            "target": target,
            "mask": masks["mask"],
            "joints": joints.astype(np.float32),
            "index": index,
            "annotation_id": int(self.persons.ids[own]),
            "appearance_id": int(self.persons.ids[other]),
            "person_id": int(self.persons.person_ids[own]),
            "has_other_view": int(other != own),
        }
        example |= {part: masks[part] for part in self.parts}
        example |= {f"appearance_{part}": other_masks[part] for part in self.parts}
        if self.foreign:
            stranger = self._stranger(own, random)
            example["foreign"], foreign_masks = self._view(stranger)
            example["foreign_id"] = int(self.persons.ids[stranger])
            example |= {f"foreign_{part}": foreign_masks[part] for part in self.parts}
        if self.unrelated is not None:
            count = len(self.unrelated)
            place = (index * count // len(self) + count // 2) % count  # in the same split, not the target itself
            example["flat"] = flat_colours(appearance, other_masks, masks, self.background or 0.0)
            example["other"], _ = self._view(place, self.unrelated)
        if self.truth:
            box = crop.box(self.persons.boxes[own])
            example["truth"] = Records([self._annotation(own, index, joints, box, float(masks["mask"].sum()))])
        return example

    def _annotation(
        self, person: int, index: int, joints: NDArray[np.floating], box: NDArray[np.floating], area: float
    ) -> dict[str, Any]:
        """Return the person of example `index` in COCO's format, given joints, box and area in pixels of the crop."""
        return {
            "id": int(self.persons.ids[person]),
            "image_id": index,
            "category_id": self.persons.category,
            "keypoints": joints.round(2).ravel().tolist(),
            "num_keypoints": int((joints[:, 2] > 0).sum()),
            "bbox": box.round(2).tolist(),
            "area": area,
            "iscrowd": 0,
        }

    def _other_view(self, person: int, random: np.random.Generator) -> int:
        others = int(self._length[person]) - 1
        if not others:
            return person
        place = self._first[person] + random.integers(others)
        return int(self._order[place + (place >= self._place[person])])

    def _stranger(self, person: int, random: np.random.Generator) -> int:
        place = random.integers(len(self.persons) - self._length[person])
        return int(self._order[place + self._length[person] * (place >= self._first[person])])

    def _view(
        self, index: int, persons: Persons | None = None
    ) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """Return the crop `(3, P, P)` and the masks `(1, P, P)`: `mask` and those of the parts."""
        persons = persons or self.persons
        crop = square(persons.boxes[index], self.margin, self.image_size)
        blue_first, mask = crop.view(persons.image(index), persons.mask(index), self.background)
        masks = {part: crop.mask(persons.part(index, part)) for part in self.parts}
        return channels_first(blue_first[..., ::-1]), {"mask": mask, **masks}


def flat_colours(
    shown: NDArray[np.float32],
    shown_masks: Mapping[str, NDArray[np.float32]],
    masks: Mapping[str, NDArray[np.float32]],
    background: float,
) -> NDArray[np.float32]:
    """Paint masks (1, P, P) on a background, each in the median colour that a picture (3, P, P) has in its own one.

    Later masks cover earlier ones. One that is empty in the picture is not painted.
    """
    painted = np.full_like(shown, background)
    for name, mask in masks.items():
        inside = shown[:, shown_masks[name][0] > 0.5]
        if inside.size:
            painted += mask * (np.median(inside, axis=1)[:, None, None] - painted)
    return painted


def read_pairs(path: Path, annotated: NDArray[np.int64]) -> NDArray[np.int64]:
    """Read a list of pairs, (n, 2) annotation ids: appearance, target; both are among the sorted ids `annotated`.

    Raises:
        UserError: the file is missing or damaged, or lists an unknown annotation.
    """
    header = "appearance_id,annotation_id"
    head, *lines = read_text(path, f"`appearance: pairs` needs this list, {header}").splitlines() or [""]
    if head.replace(" ", "") != header:
        raise UserError(f"{path}: line 1: found {head[:80]!r}; expected {header}")
    if not lines:
        raise UserError(f"{path}: the list is empty: it has only the line {header}")
    pairs = np.zeros((len(lines), 2), dtype=np.int64)
    for row, line in enumerate(lines):
        try:
            appearance, target = line.split(",")
            pairs[row] = int(appearance), int(target)
        except (ValueError, OverflowError):  # more than 64 bits
            raise UserError(f"{path}: line {row + 2}: found {line[:80]!r}; expected two annotation ids") from None
    if (unknown := ~np.isin(pairs, annotated)).any():
        row, column = np.argwhere(unknown)[0]
        raise UserError(
            f"{path}: line {row + 2}: {header.split(',')[column]} {pairs[row, column]} is no person of the split"
        )
    return pairs


def channels_first(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an image `(height, width, channels)` as contiguous `(channels, height, width)`."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))

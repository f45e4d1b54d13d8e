"""The usable persons of a prepared split, in a few flat arrays.

Persons are the annotations of the category with joints, regardless of its name: `people` in the dataset's facts.json.
Without that file, it is `person`, with COCO's 17 joints.
"""

import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as run_lengths

from figura.base.errors import REPRO, UserError
from figura.formats.coco import KEYPOINTS, PERSON, read_head, read_records
from figura.formats.person_check import check_person
from figura.formats.prepared import FACTS, Manifest, read_facts
from figura.formats.records import Size, UnusableError, check_id
from figura.formats.skeletons import COCO, Skeleton, skeleton_from
from figura.formats.split_advice import without_split

from .stored import Texts, image_fault, read_stored


def is_usable(record: Mapping[str, Any], *, person: int, min_keypoints: float, min_height: float) -> bool:
    """Return whether an annotation is a person, not a crowd, with enough labelled joints and a high enough box."""
    return (
        record["category_id"] == person
        and not record.get("iscrowd", 0)
        and labelled_joints(record) >= min_keypoints
        and record["bbox"][3] >= min_height
    )


def labelled_joints(record: Mapping[str, Any]) -> int:
    """Count the joints of an annotation with a flag above zero."""
    return sum(flag > 0 for flag in (record.get("keypoints") or ())[2::3])


def joints_needed(min_keypoints: float, skeleton: Skeleton) -> float:
    """Return a number of joints: `min_keypoints` itself if at least 1; below, a fraction of the skeleton's joints."""
    return min_keypoints if min_keypoints >= 1 else min_keypoints * len(skeleton.keypoints)


def people_category(path: Path, categories: Sequence[Any], skeleton: Skeleton, name: str | None = None) -> int:
    """Return the id of the category `name`, or by default of the only one with the joints of a skeleton.

    A category `person` that lists no joints has COCO's. `path` is the COCO file, for errors.

    Raises:
        UserError: there is no such category, or its joints differ.
    """
    listed = {str(one.get("name")): one.get("keypoints") for one in categories}
    if skeleton.keypoints == KEYPOINTS and PERSON in listed:
        listed[PERSON] = listed[PERSON] or KEYPOINTS
    fitting = [one for one in listed if tuple(listed[one] or ()) == skeleton.keypoints and name in (None, one)]
    if len(fitting) > 1:
        raise UserError(
            f"{path}: categories: {len(fitting)} have the {len(skeleton.keypoints)} joints "
            f"{', '.join(skeleton.keypoints[:3])}, ...: {', '.join(sorted(fitting))}; leave one of them in the file, "
            "or prepare it as a dataset, whose `coco.category` names one or joins several"
        )
    if not fitting:
        called = "" if name is None else f" {name!r}"
        raise UserError(
            f"{path}: categories: found {', '.join(sorted(listed)) or 'none'}; one{called} with the "
            f"{len(skeleton.keypoints)} joints {', '.join(skeleton.keypoints[:3])}, ... is needed"
        )
    return int(next(one["id"] for one in categories if str(one.get("name")) == fitting[0]))


class Persons:
    """The usable persons of `<root>/<split>.json`, sorted by annotation id, with the K joints of `skeleton`.

    `min_keypoints` is a number of joints, or below 1 a fraction of K. Arrays with one row per person: `ids` and
    `person_ids` int64 (without `person_id`, a unique one: -1 minus the annotation's id), `boxes` float32 `(n, 4)` (x,
    y, width, height), `keypoints` float32 `(n, K, 3)`. `annotated` has the ids of all persons, usable or not, without
    crowd regions. `category` is the id of their category. Raises UserError for prepared files that are missing or not
    in the format of `prepare`, and if no person is usable.
    """

    def __init__(self, root: Path, split: str, *, min_keypoints: float, min_height: float) -> None:
        self.root, self.path = root, root / f"{split}.json"
        self.remedy = f"run `{REPRO} prepare@{root.name}`"
        if not self.path.is_file():
            raise UserError(f"{self.path}: no such file; {without_split(root, split)}")
        self.manifest = Manifest(root)
        self.checked = self.manifest.check(self.path)
        self.manifest.archived(root / "images" / split)
        if (root / FACTS).is_file():
            self.manifest.check(root / FACTS)
        facts = read_facts(root)
        self.skeleton = skeleton_from(facts["skeleton"]) if facts.get("skeleton") else COCO
        joints, enough = len(self.skeleton.keypoints), joints_needed(min_keypoints, self.skeleton)
        categories = read_head(self.path, whole=not self.checked)[0]["categories"]
        person = self.category = people_category(self.path, categories, self.skeleton, facts.get("people"))
        places = self._read_images()
        ids, person_ids, images, boxes, keypoints = array("q"), array("q"), array("q"), array("f"), array("f")
        annotated, labelled, heights = array("q"), array("i"), array("f")
        self._masks, self._parts = Texts(), Texts()
        for record in self._in_order("annotations"):
            of = record.get("image_id")
            image = places.get(of, -1) if isinstance(of, int) else -1
            if not self.checked:
                self._check(record, image, person)
            if is_usable(record, person=person, min_keypoints=0, min_height=0):
                annotated.append(record["id"])
                labelled.append(labelled_joints(record))
                heights.append(record["bbox"][3])
            if not is_usable(record, person=person, min_keypoints=enough, min_height=min_height):
                continue
            ids.append(record["id"])
            person_ids.append(record.get("person_id", -1 - record["id"]))
            images.append(image)
            boxes.extend(record["bbox"])
            keypoints.extend(record.get("keypoints") or [0.0] * 3 * joints)
            self._masks.append(json.dumps(record.get("segmentation")))
            self._parts.append(json.dumps(record.get("parts", {})))
        if not ids:
            self._refuse(np.array(labelled), np.array(heights), enough, min_height)
        self.annotated = np.array(annotated, dtype=np.int64)
        self.ids, self.person_ids, self._images = (np.array(one, dtype=np.int64) for one in (ids, person_ids, images))
        self.boxes = np.array(boxes, dtype=np.float32).reshape(-1, 4)
        self.keypoints = np.array(keypoints, dtype=np.float32).reshape(-1, joints, 3)

    def _refuse(
        self, labelled: NDArray[np.signedinteger], heights: NDArray[np.floating], joints: float, height: float
    ) -> NoReturn:
        """Raise UserError with the number of persons that other settings would leave."""
        if not len(labelled):
            raise UserError(f"{self.path}: it has no annotated persons; bring annotations, or name another split")
        lower = math.ceil(joints / 2), height / 2
        left = int(((labelled >= lower[0]) & (heights >= lower[1])).sum())
        raise UserError(
            f"{self.path}: none of its {len(labelled)} persons has {math.ceil(joints)} labelled keypoints and a height "
            f"of {height:g} pixels: {int((labelled >= joints).sum())} have so many keypoints (of "
            f"{len(self.skeleton.keypoints)}), {int((heights >= height).sum())} are so high; half of both, "
            f"min_keypoints {lower[0]} and min_height {lower[1]:g}, would leave {left}"
        )

    def __len__(self) -> int:
        return len(self.ids)

    def _check(self, record: dict[str, Any], image: int, person: int) -> None:
        """Raise UserError unless an annotation, of the image in this row, can be an example."""
        try:
            if image < 0:
                raise UnusableError("annotation without image", f"image_id {repr(record.get('image_id'))[:80]}")
            height, width = self._sizes[image].tolist()
            check_person(deepcopy(record), Size(width, height), self.skeleton.keypoints, {person})
        except UnusableError as fault:
            raise UserError(f"{self.path}: annotation {record['id']}: {fault}; {self.remedy}") from None

    def _in_order(self, section: str) -> Iterator[dict[str, Any]]:
        last = None
        for record in read_records(self.path, section, whole=not self.checked):
            try:
                check_id(record)
            except UnusableError as fault:
                raise UserError(f"{self.path}: {section}: {fault}; {self.remedy}") from None
            if last is not None and record["id"] <= last:
                raise UserError(f"{self.path}: {section} are not in the order of their ids; {self.remedy}")
            last = record["id"]
            yield record

    def _read_images(self) -> dict[int, int]:
        """Fill the arrays of images and return image id -> row."""
        self._names, sizes, places = Texts(), array("q"), {}
        for record in self._in_order("images"):
            if fault := image_fault(record):
                raise UserError(f"{self.path}: image {record['id']}: {fault}; {self.remedy}")
            places[record["id"]] = len(self._names)
            self._names.append(record["file_name"])
            sizes.extend((record["height"], record["width"]))
        self._sizes = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        return places

    def size(self, index: int) -> tuple[int, int]:
        """Return height and width of the person's image, pixels."""
        height, width = self._sizes[self._images[index]].tolist()
        return height, width

    def file(self, index: int) -> str:
        """Return the path of the person's image below `root/images`."""
        return self._names[self._images[index]]

    def image(self, index: int) -> NDArray[np.uint8]:
        """Read the person's image, BGR uint8 `(height, width, 3)`."""
        path = self.root / "images" / self.file(index)
        return read_stored(self.manifest, path, self.size(index))

    def mask(self, index: int) -> NDArray[np.uint8]:
        """Return the person's mask, uint8 0/1 `(height, width)`; the box if the annotation has no mask."""
        box = self.boxes[index].astype(np.float64)
        return person_mask(json.loads(self._masks[index]), box, *self.size(index))

    def part(self, index: int, name: str) -> NDArray[np.uint8]:
        """Return the mask of a named part of the person, uint8 0/1 `(height, width)`; zeros if there is none."""
        height, width = self.size(index)
        mask = decode_mask(json.loads(self._parts[index]).get(name), height, width)
        return np.zeros((height, width), dtype=np.uint8) if mask is None else mask


def person_mask(mask: Any, box: NDArray[np.float64], height: int, width: int) -> NDArray[np.uint8]:
    """Decode a mask, uint8 0/1 `(height, width)`; without one, that of a box `(4,)` (x, y, width, height)."""
    decoded = decode_mask(mask, height, width)
    if decoded is None:
        decoded = np.zeros((height, width), dtype=np.uint8)
        left, top, right, bottom = np.maximum(np.rint([*box[:2], *(box[:2] + box[2:])]), 0).astype(int)
        decoded[top:bottom, left:right] = 1
    return decoded


def decode_mask(mask: Any, height: int, width: int) -> NDArray[np.uint8] | None:
    """Decode COCO's polygons or run lengths (compressed or not) to uint8 0/1 `(height, width)`; None for no mask."""
    if not mask:
        return None
    if isinstance(mask, list):
        mask = run_lengths.merge(run_lengths.frPyObjects(mask, height, width))
    elif isinstance(mask["counts"], list):
        mask = run_lengths.frPyObjects(mask, height, width)
    return np.asarray(run_lengths.decode(mask), dtype=np.uint8)

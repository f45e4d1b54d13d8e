"""The annotations of full images of a prepared people dataset, as flat arrays."""

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.formats.coco import categories_by_id, read_head, read_records
from figura.formats.prepared import Manifest
from figura.formats.records import UnusableError, check_id, is_finite
from figura.formats.skeletons import Skeleton
from figura.formats.split_advice import without_split
from figura.interfaces import Records

from ..people.stored import Texts, image_fault, read_stored
from .annotations import Annotations

FARTHEST = 1e6
"""Pixels from the corner of an image. Larger coordinates are errors, and would overflow grid indices."""

_TOO_FAR = f"a box or keypoint is no finite number, or farther than {FARTHEST:,.0f} pixels away; correct or remove it"


class SceneTable:
    """The images and annotations of `<root>/<split>.json` in flat arrays, both sorted by id.

    Reads the annotations of the category named `people` if there is a `skeleton`. Reads objects of all categories if
    `fields` maps category ids to detection fields. `person_field` is the field of people, -1 if they have none. `names`
    maps the file's category ids to names.

    Raises:
        UserError: the message has the file and the annotation that cannot be read.
    """

    def __init__(
        self, root: Path, split: str, skeleton: Skeleton | None, people: str, fields: Mapping[int, int] | None
    ) -> None:
        self.root, self.path, self.skeleton = root, root / f"{split}.json", skeleton
        self.joints = 0 if skeleton is None else len(skeleton.keypoints)
        self.manifest = Manifest(root)
        self.checked = self.path.is_file() and self.manifest.check(self.path)  # by `prepare`
        self.manifest.archived(root / "images" / split)
        known = {one["id"]: one for one in read_categories(self.path, whole=not self.checked)}
        self.names = {number: str(one.get("name")) for number, one in known.items()}
        person, self._reads_objects = self._person(known, people), fields is not None
        self.person_field = 0 if fields is None else fields.get(person, -1)
        self._read_annotations(self._read_images(), person, fields)

    def _person(self, known: Mapping[int, Mapping[str, Any]], people: str) -> int:
        """Return the id of the category of people (-1 without one); UserError if it does not match the skeleton."""
        person = next((number for number, name in self.names.items() if name == people), -1)
        if self.skeleton is not None:
            if person < 0:
                names = sorted(self.names.values())
                raise UserError(f"{self.path}: categories: found {names}, but none is named {people!r}")
            joints = tuple(known[person].get("keypoints", self.skeleton.keypoints))
            if joints != self.skeleton.keypoints:
                raise UserError(
                    f"{self.path}: categories: {people} has {len(joints)} keypoints, {', '.join(joints)}; the skeleton "
                    f"has {self.joints}, {', '.join(self.skeleton.keypoints)}; give the dataset's own as `skeleton`"
                )
        return person

    def _read_images(self) -> dict[int, int]:
        """Fill the arrays of images and return image id -> row."""
        ids, sizes, names = array("q"), array("q"), Texts()
        for record in self._records("images"):
            if not self.checked and (fault := image_fault(record)):
                raise UserError(f"{self.path}: image {record['id']}: {fault}")
            ids.append(record["id"])
            sizes.append(record["height"])
            sizes.append(record["width"])
            names.append(record["file_name"])
        order = np.argsort(np.array(ids, dtype=np.int64), kind="stable")
        self.image_ids, self._names, self._name_places = np.array(ids, dtype=np.int64)[order], names, order
        self._sizes = np.array(sizes, dtype=np.int64).reshape(-1, 2)[order]
        return {number: row for row, number in enumerate(self.image_ids.tolist())}

    def _read_annotations(self, places: Mapping[int, int], person: int, fields: Mapping[int, int] | None) -> None:
        ids, rows, kinds, crowd = array("q"), array("q"), array("q"), array("b")
        boxes, areas = array("d"), array("d")
        keypoints, keypoint_rows, people = array("f"), array("q"), array("q")
        known = self.names.keys() if fields is None else self.names.keys() & fields.keys()
        for record in self._records("annotations"):
            kind = record.get("category_id")
            if type(kind) is not int or kind not in known:
                limit = "" if fields is None else f", and detection fields for {sorted(fields)}"
                raise self._fault(record, f"category_id {kind!r} is unknown; there are {sorted(self.names)}{limit}")
            is_person = self.skeleton is not None and kind == person
            if not is_person and fields is None:
                continue
            if type(record.get("image_id")) is not int or record["image_id"] not in places:
                image = repr(record.get("image_id"))[:80]
                raise self._fault(record, f"image_id {image} is none of the file's images")
            if not self.checked:
                self._check_box(record)
            ids.append(record["id"])
            rows.append(places[record["image_id"]])
            kinds.append(kind)
            crowd.append(bool(record.get("iscrowd", 0)))
            boxes.fromlist(box := record["bbox"])
            areas.append(record.get("area") or box[2] * box[3])
            keypoint_rows.append(len(people) if is_person else -1)
            if is_person:
                keypoints.fromlist(self._keypoints(record))
                people.append(record["id"])
        order = np.lexsort((np.array(ids, dtype=np.int64), np.array(rows, dtype=np.int64)))
        self._ids, self._kinds, self._keypoint_rows = (
            np.array(one, dtype=np.int64)[order] for one in (ids, kinds, keypoint_rows)
        )
        own = {person: 0} if fields is None else fields
        self._fields = np.array([own[kind] for kind in self._kinds.tolist()], dtype=np.int64)
        self._crowd = np.array(crowd, dtype=bool)[order]
        self._boxes = np.array(boxes, dtype=np.float64).reshape(-1, 4)[order]
        self._areas = np.array(areas, dtype=np.float64)[order]
        self._joints = np.asarray(keypoints, dtype=np.float32).reshape(len(people), self.joints, 3)
        far = (np.abs(self._joints) > FARTHEST).any(axis=(1, 2))  # `prepare` only bounds labelled joints
        if far.any():
            raise self._fault({"id": people[int(far.argmax())]}, _TOO_FAR)
        self._rows = np.array(rows, dtype=np.int64)[order]
        self._first = np.searchsorted(self._rows, np.arange(len(self.image_ids) + 1))

    def _fault(self, record: Mapping[str, Any], what: str) -> UserError:
        return UserError(f"{self.path}: annotation {record['id']}: {what}")

    def _check_box(self, record: Mapping[str, Any]) -> None:
        box = record.get("bbox")
        if not isinstance(box, list) or len(box) != 4:
            raise self._fault(record, f"bbox {repr(box)[:80]}; four numbers are needed: x, y, width, height")
        if not is_finite(box, FARTHEST):
            raise self._fault(record, _TOO_FAR)
        if not (box[2] > 0 and box[3] > 0):
            raise self._fault(record, f"bbox {box} has no area; remove the annotation, or give it a width and a height")
        if not is_finite([record.get("area") or 0]):
            raise self._fault(record, f"area {repr(record['area'])[:80]}; a number is needed")

    def _keypoints(self, record: Mapping[str, Any]) -> list[float]:
        flat: list[float] = record.get("keypoints") or [0.0] * 3 * self.joints
        if not self.checked and not isinstance(flat, list):
            raise self._fault(record, f"keypoints {repr(flat)[:80]}; numbers are needed")
        if not self.checked and not is_finite(flat, FARTHEST):
            raise self._fault(record, _TOO_FAR)
        if len(flat) != 3 * self.joints:
            what = f"has {len(flat)} numbers as keypoints; the skeleton's {self.joints} keypoints need"
            raise self._fault(record, f"{what} {3 * self.joints}, x, y and visibility each")
        return flat

    def usable(self, min_keypoints: int, keep_empty: bool, image_ids: tuple[int, ...] | None) -> NDArray[np.int64]:
        """Return the rows of the images to use; raises UserError if there are none."""
        judged = ~self._crowd
        labelled = judged & (self._keypoint_rows >= 0)
        labelled[labelled] = (self._joints[self._keypoint_rows[labelled], :, 2] > 0).any(axis=1)
        count = len(self.image_ids)
        some = np.bincount(self._rows[judged], minlength=count) >= (0 if keep_empty else 1)
        enough = np.bincount(self._rows[labelled], minlength=count) >= min_keypoints
        chosen = np.ones(count, dtype=bool)
        if image_ids is not None:
            if missing := sorted(set(image_ids) - set(self.image_ids.tolist())):
                raise UserError(f"{self.path}: image_ids: {missing[:10]} are none of the file's images")
            chosen = np.isin(self.image_ids, image_ids)
        rows = np.flatnonzero(some & enough & chosen)
        if not len(rows):
            raise UserError(
                f"{self.path}: none of {int(chosen.sum())} images has an annotation that is no crowd region and "
                f"{min_keypoints} persons with a labelled keypoint; lower min_keypoint_annotations, or bring more data "
                "(pictures without annotations, as of a test set, need keep_empty: true and min_keypoint_annotations: "
                "0)"
            )
        return rows

    def annotations(self, row: int) -> Annotations:
        """Return the annotations of an image, in its pixels; annotations without keypoints have zeros."""
        these = self._annotated(row)
        places = self._keypoint_rows[these]
        keypoints = np.zeros((len(places), self.joints, 3), dtype=np.float32)
        keypoints[places >= 0] = self._joints[places[places >= 0]]
        boxes = self._boxes[these].astype(np.float32)
        return Annotations(keypoints, boxes, self._crowd[these], self._fields[these], self._ids[these])

    def truth(self, row: int) -> Records:
        """Return the annotations of an image in COCO's format, for evaluation; a missing area becomes the box's."""
        records, image = Records(), int(self.image_ids[row])
        for index in range(*self._annotated(row).indices(len(self._ids))):
            record: dict[str, Any] = {
                "id": int(self._ids[index]),
                "image_id": image,
                "category_id": int(self._kinds[index]),
            }
            record |= {"iscrowd": int(self._crowd[index]), "area": float(self._areas[index])}
            record["bbox"] = self._boxes[index].tolist()
            if self._keypoint_rows[index] >= 0:
                keypoints = self._joints[self._keypoint_rows[index]]
                record |= {"num_keypoints": int((keypoints[:, 2] > 0).sum()), "keypoints": keypoints.ravel().tolist()}
            records.append(record)
        return records

    def size(self, row: int) -> tuple[int, int]:
        """Return width and height of an image, pixels."""
        height, width = self._sizes[row].tolist()
        return width, height

    def file(self, row: int) -> str:
        """Return the path of an image below `root/images`."""
        return self._names[self._name_places[row]]

    def counts(self, row: int) -> dict[str, int]:
        """Count annotations of an image: `crowds`, and without them `people`, labelled `joints`, other `objects`."""
        these = self._annotated(row)
        judged, people = ~self._crowd[these], self._fields[these] == self.person_field
        counts = {"crowds": int(np.count_nonzero(~judged))}
        if self.person_field >= 0:
            counts["people"] = int(np.count_nonzero(judged & people))
        if self.skeleton is not None:
            places = self._keypoint_rows[these]
            joints = self._joints[places[judged & (places >= 0)], :, 2]
            counts["joints"] = int(np.count_nonzero(joints > 0))
        if self._reads_objects:
            counts["objects"] = int(np.count_nonzero(judged & ~people))
        return counts

    def _annotated(self, row: int) -> slice:
        return slice(int(self._first[row]), int(self._first[row + 1]))

    def image(self, row: int) -> NDArray[np.uint8]:
        """Read an image, uint8 (height, width, 3) BGR."""
        path = self.root / "images" / self.file(row)
        width, height = self.size(row)
        return read_stored(self.manifest, path, (height, width))

    def _records(self, section: str) -> Iterator[dict[str, Any]]:
        records = read_records(self.path, section, whole=not self.checked)
        return records if self.checked else self._with_ids(records, section)

    def _with_ids(self, records: Iterator[Any], section: str) -> Iterator[dict[str, Any]]:
        for record in records:
            try:
                check_id(record)
            except UnusableError as fault:
                raise UserError(f"{self.path}: {section}: {fault}; correct or remove it") from None
            yield record


def read_categories(path: Path, whole: bool = True) -> list[dict[str, Any]]:
    """Return the categories of a prepared split, by id; raises UserError if there is no such file.

    Without `whole`, the file must be written by `prepare`, and is only read up to them.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; {without_split(path.parent, path.stem)}, or correct root and split")
    known = categories_by_id(path, read_head(path, whole)[0].get("categories", []))
    return [known[number] for number in sorted(known)]

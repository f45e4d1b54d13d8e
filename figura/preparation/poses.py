"""Joints for pictures of one person: those of a COCO file, of `figura predict`, or of another export."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from figura.base.errors import UserError
from figura.base.files import short_name
from figura.formats.coco import PERSON, categories_by_id, check_keypoints, read_head
from figura.formats.exports import Entry, Export, entries_of_coco, open_export
from figura.formats.records import UnusableError, is_finite, real_numbers, whole_number
from figura.preparation.matching import Joints, check_size
from figura.preparation.outcome import Rejected
from figura.preparation.picture_names import PictureNames
from figura.preparation.pictures import size_of


def open_poses(path: Path, key: str, names: Sequence[str], min_confidence: float) -> Export:
    """Return the poses in a file or folder: a COCO file, or the results of a pose network.

    `key` is the dotted key of the settings, `names` are the joints there, and `min_confidence` is theirs, which a COCO
    file cannot meet.

    Raises:
        UserError: there are none, they are of another format, or their joints have no names.
    """
    if not path.exists():
        raise UserError(
            f"{key}.poses: no {path}; it is a COCO file, a folder of *.people.json, or another tool's results"
        )
    export = open_export(path, f"{key}.poses")
    if export is None and min_confidence:
        raise UserError(
            f"{key}.min_confidence: found {min_confidence}; joints of {path.name}, a COCO file, have no confidence, so "
            "leave it out"
        )
    if export is not None and not export.predicted:
        raise UserError(
            f"{key}.poses: {path.name}: {export.format}; poses are a COCO file or the results of a pose network"
        )
    return export or _annotated(path, names, key)


def _annotated(path: Path, names: Sequence[str], key: str) -> Export:
    """Return the persons of a COCO file."""
    categories = categories_by_id(path, read_head(path)[0].get("categories", []))
    with_joints = [one for one in categories.values() if one.get("keypoints")]
    if names and not with_joints:
        with_joints = list(categories.values())
    if not with_joints:
        raise UserError(
            f"{path}: categories: none has keypoints; poses need the names of the joints: write them to {key}.keypoints"
        )
    chosen = next((one for one in with_joints if one.get("name") == PERSON), with_joints[0])
    check_keypoints(path, chosen)
    kept = ("keypoints", "num_keypoints", "segmentation", "bbox")

    def entries() -> Iterator[Entry]:
        for entry in entries_of_coco([path], path.parent):
            record = entry.record
            if not isinstance(record, dict):
                yield entry
            elif (
                _category(record, categories) == chosen["id"] and not record.get("iscrowd") and record.get("keypoints")
            ):
                yield entry._replace(record={name: record[name] for name in kept if name in record})

    joints = tuple(chosen.get("keypoints") or ())
    return Export(path, "COCO file", entries, joints, ({**chosen, "id": 1, "name": PERSON},), predicted=False)


def _category(record: Mapping[str, Any], categories: Mapping[int, Any]) -> int | None:
    """Return the id of a record's category, also of a text; without one, the only category."""
    if record.get("category_id") is None and len(categories) == 1:
        return next(iter(categories))
    return whole_number(record.get("category_id"))


class PicturePoses:
    """The people of an export by file name; of several in a picture, the first of the highest score, or largest box.

    `images` is the folder of the pictures, `pictures` the number of those found so far; `faults` are unusable records.
    All people that count are in memory.
    """

    def __init__(self, export: Export, joints: Joints, images: Path) -> None:
        self.export, self.joints, self.images, self.pictures = export, joints, images, 0
        self.faults: list[Rejected] = []
        self._people: dict[str, Entry] = {}
        best: dict[str, tuple[float, float]] = {}
        for entry in export.entries():
            name, record = str(entry.picture), entry.record
            if isinstance(record, UnusableError):
                row = Rejected(export.path.name, "pose", entry.number[:80], record.reason, record.detail)
                self.faults.append(row)
            elif (one := self._rank(record)) > best.get(name, (-2.0, 0.0)):
                self._people[name], best[name] = entry, one
        self._names = PictureNames(list(self._people))

    def _rank(self, record: Mapping[str, Any] | None) -> tuple[float, float]:
        if record is None:
            return -1.0, 0.0
        box = real_numbers(record.get("bbox")) or []
        area = box[2] * box[3] if len(box) == 4 else 0.0
        return (_score(record), area) if self.export.predicted else (area, 0.0)

    def of(self, file: str) -> dict[str, Any]:
        """Return `keypoints`, and other keys of an annotation, of the person in a picture; empty without one.

        Raises:
            UserError: the pictures cannot be told apart by name, or the poses are of pictures of another size.
        """
        try:
            name = self._names.find("/".join(map(short_name, PurePosixPath(file).parts)))
        except UnusableError as fault:
            if fault.reason == "image file missing":
                return {}
            raise UserError(f"{self.export.path}: {fault}; write names with their folders there") from None
        entry = self._people[name]
        self.pictures += 1
        if entry.size is not None:
            check_size(entry, size_of(self.images / file), self.export.path, file)
        record = entry.record if isinstance(entry.record, dict) else {}
        return {key: record[key] for key in ("keypoints", "num_keypoints", "segmentation") if key in record}


def _score(record: Mapping[str, Any]) -> float:
    """Return the score, or the mean confidence of the joints if there is none."""
    score, keypoints = record.get("score"), record.get("keypoints")
    if score is not None and is_finite([score]):
        return float(score)
    sure = keypoints[2::3] if isinstance(keypoints, list) else []
    return sum(sure) / len(sure) if sure and is_finite(sure) else 0.0

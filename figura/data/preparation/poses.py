"""Joints for pictures of one person: a COCO file, `<name>.people.json` of `figura predict`, or another export."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from figura.base.errors import UserError
from figura.base.files import read_json, short_name
from figura.data.formats.coco import (
    KEYPOINTS,
    PERSON,
    SKELETON,
    categories_by_id,
    check_keypoints,
    read_head,
)
from figura.data.formats.exports import Entry, Export, entries_of_coco
from figura.data.formats.records import Size, UnusableError, check_result, is_finite, real_numbers
from figura.data.preparation.matching import Confidences, Joints, PictureNames, check_size
from figura.data.preparation.validation import Rejected

LARGEST = 1 << 28
"""Maximum bytes of a picture's people file."""


class PoseSource(Protocol):
    """The joints of pictures. `category` is the person's, with the names of its joints, and the id 1.

    `path` is the source file or folder.
    """

    path: Path
    category: dict[str, Any]
    pictures: int = 0
    """The number of pictures found."""
    faults: list[Rejected]
    """Unusable records so far."""
    notes: Sequence[str] = ()
    """Lines on the joints, to print."""

    def of(self, file: str, size: Size) -> dict[str, Any] | None:
        """Return `keypoints`, and other keys of an annotation, of the person in a picture; None if there is none."""

    def check(self) -> None:
        """Raise UserError if the poses read so far cannot be those of the pictures."""
        return


class PredictedPoses(PoseSource):
    """The people detected in pictures, with one file of records per picture.

    A file is named after a suffix of the picture's path: `Img/img/WOMEN/a/02_1_front.jpg` belongs to
    `img/WOMEN/a/02_1_front.people.json` below `folder`, or to `a/02_1_front.people.json`, and so on. Of several people,
    the one with the highest score is used. A joint is used if its confidence is at least `min_confidence` and above 0,
    and if it is inside the picture. Raises UserError for people of a picture of another `width` and `height`.

    Args:
        folder: the folder of the files.
        images: the folder of the pictures, relative to the source.
        min_confidence: see above.
        names: the joints, COCO's if there are none.
        key: the dotted key of the settings in messages.
    """

    def __init__(self, folder: Path, images: Path, min_confidence: float, names: Sequence[str], key: str) -> None:
        self.path, self.images, self.key = folder, images, key
        self._confidences = Confidences(min_confidence)
        self.names = tuple(names) or KEYPOINTS
        self.category = {"id": 1, "name": PERSON, "keypoints": list(self.names)}
        if self.names == KEYPOINTS:
            self.category["skeleton"] = [list(pair) for pair in SKELETON]
        self._pictures: dict[Path, str] = {}  # by records file
        self.faults = []

    def of(self, file: str, size: Size) -> dict[str, Any] | None:
        """Return `keypoints` and `num_keypoints` of the person with the highest score; None without a usable one."""
        path = next((path for path in self._candidates(file) if path.is_file()), None)
        if path is None:
            return None
        if (other := self._pictures.setdefault(path, file)) != file:
            raise UserError(f"{path}: stands for {other} and for {file}; predict all pictures in one call")
        self.pictures += 1
        people = [] if size == Size(1, 1) else list(self._people(path, size))  # not a picture
        if not people:
            return None
        best = max(people, key=lambda one: (one["score"], one["bbox"][2] * one["bbox"][3]))
        stated = Size(best.get("width", size.width), best.get("height", size.height))
        if stated != size:
            raise UserError(
                f"{path}: predicted in a picture of {repr(stated.width)[:20]} x {repr(stated.height)[:20]} pixels, but "
                f"{file} is {size.width} x {size.height}; poses are in pixels of the pictures"
            )
        return _labelled(self._confidences.flagged(best["keypoints"], size))

    def check(self) -> None:
        """Raise UserError if too many joints lie outside of their pictures."""
        self._confidences.check(self.path)

    def _candidates(self, file: str) -> Iterator[Path]:
        parts = (*self.images.parts, *PurePosixPath(file).with_suffix("").parts)
        for first in range(len(parts)):
            yield self.path.joinpath(*map(short_name, parts[first:-1]), f"{short_name(parts[-1])}.people.json")

    def _people(self, path: Path, size: Size) -> Iterator[dict[str, Any]]:
        try:
            people = read_json(path, most=LARGEST)
        except UserError as error:
            return self._reject(path, "", UnusableError("poses cannot be read", error))
        if not isinstance(people, list):
            found = UnusableError("poses are no list of people, as `figura predict` writes them", repr(people)[:80])
            return self._reject(path, "", found)
        for place, one in enumerate(people):
            try:
                self._check(one, size)
                yield one
            except UnusableError as fault:
                self._reject(path, str(place), fault)

    def _check(self, record: Any, size: Size) -> None:
        if isinstance(record, dict) and "score" not in record:
            raise UnusableError("score is not a finite number", "it is missing")
        if isinstance(record, dict) and "category_id" not in record:
            record["category_id"] = 1
        try:
            check_result(record, size, len(self.names))
        except UnusableError as fault:
            if fault.reason.startswith("keypoints are not"):
                names = f"write the names of others to {self.key}.keypoints"
                raise UnusableError(f"{fault.reason}; {names}", fault.detail) from None
            raise

    def _reject(self, path: Path, number: str, fault: UnusableError) -> None:
        name = path.relative_to(self.path).as_posix()
        self.faults.append(Rejected(name, "pose", number, fault.reason, fault.detail))


class _NamedPoses(PoseSource):
    """The people of one file or folder by file name; one in a picture, the first of the highest `rank`."""

    def __init__(self, path: Path, entries: Iterable[Entry], rank: Callable[[Mapping[str, Any]], float]) -> None:
        self.path, self.faults = path, []
        self._people: dict[str, Entry] = {}
        best: dict[str, float] = {}
        for entry in entries:
            name, record = str(entry.picture), entry.record
            if isinstance(record, UnusableError):
                self._reject(entry, record)
            elif (one := rank(record) if record else -1.0) > best.get(name, -2.0):
                self._people[name], best[name] = entry, one
        self._names = PictureNames(list(self._people))

    def of(self, file: str, size: Size) -> dict[str, Any] | None:
        """Return the keys of the chosen person; None without one.

        Raises:
            UserError: the pictures cannot be told apart by name, or the poses are of pictures of another size.
        """
        try:
            name = self._names.find(file)
        except UnusableError as fault:
            if fault.reason == "image file missing":
                return None
            raise UserError(f"{self.path}: {fault}") from None
        entry = self._people[name]
        self.pictures += 1
        check_size(entry, size, self.path, file)
        if not isinstance(entry.record, dict) or not entry.record.get("keypoints") or size == Size(1, 1):
            return None
        try:
            return self._keys(entry.record, size)
        except UnusableError as fault:
            self._reject(entry, fault)
            return None

    def _keys(self, record: dict[str, Any], size: Size) -> dict[str, Any]:
        """Return `keypoints` and other keys of an annotation; raises UnusableError if they cannot be used."""
        raise TypeError(f"{type(self).__name__} reads no poses")

    def _reject(self, entry: Entry, fault: UnusableError) -> None:
        self.faults.append(Rejected(self.path.name, "pose", entry.number[:80], fault.reason, fault.detail))


class ExportedPoses(_NamedPoses):
    """The people of another tool's results, by file name; of several in a picture, the one with the highest score.

    Args:
        export: the results.
        min_confidence: as of `PredictedPoses`.
        names: the joints in the settings; empty for those of the export.
        key: the dotted key of the settings in messages.

    Raises:
        UserError: the joints have no names, or none of those in the settings.
    """

    def __init__(self, export: Export, min_confidence: float, names: Sequence[str], key: str) -> None:
        super().__init__(export.path, export.entries(), _score)
        self._joints, self._confidences = Joints(export, names, key), Confidences(min_confidence)
        self.category = {"id": 1, "name": PERSON, "keypoints": list(self._joints.names)}

    def _keys(self, record: dict[str, Any], size: Size) -> dict[str, Any]:
        return _labelled(self._confidences.flagged(self._joints.ordered(record["keypoints"]), size))

    def check(self) -> None:
        """Raise UserError if too many joints lie outside of their pictures, or all are fractions."""
        self.notes = self._joints.notes
        self._confidences.check(self.path)


def _score(record: Mapping[str, Any]) -> float:
    """Return the score, or the mean confidence of the joints if there is none."""
    score, keypoints = record.get("score"), record.get("keypoints")
    if score is not None and is_finite([score]):
        return float(score)
    sure = keypoints[2::3] if isinstance(keypoints, list) else []
    return sum(sure) / len(sure) if sure and is_finite(sure) else 0.0


def _labelled(keypoints: list[float]) -> dict[str, Any]:
    return {"keypoints": keypoints, "num_keypoints": sum(flag > 0 for flag in keypoints[2::3])}


class AnnotatedPoses(_NamedPoses):
    """The persons of a COCO file, by file name; of several in a picture, the one with the largest box.

    `names` are the joint names if the file has none; `key` is the dotted key of the settings in messages. Raises
    UserError for a file without keypoints.
    """

    def __init__(self, path: Path, names: Sequence[str], key: str) -> None:
        categories = categories_by_id(path, read_head(path)[0].get("categories", []))
        with_joints = [one for one in categories.values() if one.get("keypoints")]
        if names and not with_joints:
            with_joints = list(categories.values())
        if not with_joints:
            raise UserError(
                f"{path}: categories: none has keypoints; poses need the names of the joints: write them to "
                f"{key}.keypoints"
            )
        chosen = next((one for one in with_joints if one.get("name") == PERSON), with_joints[0])
        check_keypoints(path, chosen)
        self.category = {**chosen, "id": 1, "name": PERSON}

        def is_posed(record: Any) -> bool:
            posed = record.get("category_id") == chosen["id"] and not record.get("iscrowd") and record.get("keypoints")
            return bool(posed)

        entries = entries_of_coco([path], path.parent)
        super().__init__(
            path, (one for one in entries if not isinstance(one.record, dict) or is_posed(one.record)), _area
        )

    def _keys(self, record: dict[str, Any], size: Size) -> dict[str, Any]:
        return {key: record[key] for key in ("keypoints", "num_keypoints", "segmentation") if key in record}


def _area(record: Mapping[str, Any]) -> float:
    box = real_numbers(record.get("bbox")) or []
    return box[2] * box[3] if len(box) == 4 else 0.0

"""Exports of other tools -> a COCO file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.pictures import Orientation
from figura.data.formats.coco import Spool, write_coco
from figura.data.formats.exports import Entry, Export
from figura.data.formats.records import Size, UnusableError
from figura.data.preparation.matching import Confidences, Joints, PictureNames, check_size
from figura.data.preparation.pictures import picture_files, size_of
from figura.data.preparation.validation import Rejected


@dataclass
class Converted:
    """What `write_export` wrote: the pictures by id, lines to print, and records that could not be read."""

    files: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[Rejected] = field(default_factory=list)

    def reject(self, export: Export, entry: Entry, fault: UnusableError) -> None:
        """Keep why an entry is not used."""
        row = Rejected(export.path.name, "annotation", entry.number[:80], fault.reason, fault.detail)
        self.faults.append(row)


def write_export(
    path: Path,
    export: Export,
    images: Path,
    stated: Sequence[str],
    least: float,
    key: str,
    first: int = 1,
    orientation: Orientation = "upright",
) -> Converted:
    """Write an export as a COCO file of pictures below `images`; memory holds names and sizes of the pictures.

    Pictures that the export does not mention are left out, as nobody knows who is in them.

    Args:
        path: the file to write.
        export: the records.
        images: the folder of the pictures.
        stated: the joints in the settings; empty for the export's own.
        least: the confidence from which a joint counts; 0 for an export without.
        key: the dotted key of the settings.
        first: the first number of pictures and annotations.
        orientation: which way up the records take the pictures.

    Raises:
        UserError: nothing belongs to any picture, or to pictures of this size; names of joints are missing.
    """
    joints, confidences, done = Joints(export, stated, key), Confidences(least), Converted()
    files = list(picture_files(images))
    names, numbers, sizes = PictureNames(files), dict[str, int](), dict[str, Size]()
    people = 0
    with Spool(path.parent) as pictures, Spool(path.parent) as annotations:
        for entry in export.entries():
            try:
                if isinstance(entry.record, UnusableError):
                    raise entry.record
                file = names.find(entry.picture)
                if file not in numbers:
                    numbers[file], sizes[file] = first + len(numbers), size_of(images / file, orientation)
                    stated_size = None if export.confident else entry.size  # preparation decides about it
                    own = {"id": numbers[file], "file_name": file, **(stated_size or sizes[file])._asdict()}
                    pictures.add({**entry.image, **own})
                if export.confident:
                    check_size(entry, sizes[file], export.path, file)
                if entry.record is not None:
                    record = _annotation(entry.record, export, joints, confidences, sizes[file])
                    annotations.add({**record, "id": first + people, "image_id": numbers[file]})
                    people += 1
            except UnusableError as fault:
                done.reject(export, entry, fault)
            except (ValueError, RecursionError) as error:
                done.reject(export, entry, UnusableError("number not finite", error))
        _check_usable(export, images, files, len(numbers), people, done.faults, key)
        confidences.check(export.path)
        write_coco(path, {"categories": _categories(export, joints)}, pictures.lines(), annotations.lines())
    done.files = {number: file for file, number in numbers.items()}
    done.notes += joints.notes
    done.notes.append(f"{export.path.name}: {export.format}, {people} records of {len(numbers)} pictures")
    done.notes += confidences.notes(export.path.name)
    if (unknown := len(files) - len(numbers)) and not export.relative:
        done.notes.append(f"{export.path.name}: says nothing about {unknown} pictures below {images.name}: left out")
    return done


def _check_usable(
    export: Export, images: Path, files: Sequence[str], pictures: int, people: int, faults: Sequence[Rejected], key: str
) -> None:
    """Raise UserError if no picture was found, or no record can be used though there are as many as pictures."""
    if people or not faults or len(faults) < pictures:
        return
    where, first = f"{key}.annotations: {export.path}", faults[0]
    if pictures:
        raise UserError(
            f"{where}: {export.format}: none of {len(faults)} records can be used; the first, {first.id}: "
            f"{first.reason}: {first.detail}"
        )
    have = f"{len(files)} pictures, such as {files[0]}" if files else "no picture"
    raise UserError(
        f"{where}: nothing of these {export.format} belongs to a picture below {images}: {first.reason}: "
        f"{first.detail}; there is {have}"
    )


def _annotation(
    record: Mapping[str, Any], export: Export, joints: Joints, confidences: Confidences, size: Size
) -> dict[str, Any]:
    made = dict(record)
    if made.get("keypoints") and (export.confident or export.relative or joints.moved):
        ordered = joints.ordered(made["keypoints"])
        if export.relative:
            ordered = _scaled(ordered, size, 3)
        if export.confident or any(flag not in (0, 1, 2) for flag in ordered[2::3]):
            ordered = confidences.flagged(ordered, size)
        made |= {"keypoints": ordered, "num_keypoints": sum(flag > 0 for flag in ordered[2::3])}
    if export.relative:
        made["bbox"] = _scaled(made["bbox"], size, 2)
        if "segmentation" in made:
            made["segmentation"] = [_scaled(polygon, size, 2) for polygon in made["segmentation"]]
    return made


def _scaled(numbers: Sequence[float], size: Size, dims: int) -> list[float]:
    """Return fractions as pixels, rounded to a thousandth; of each `dims` numbers the first two are x and y."""
    sides = (size.width, size.height, None)
    return [
        number if (side := sides[place % dims]) is None else round(number * side, 3)
        for place, number in enumerate(numbers)
    ]


def _categories(export: Export, joints: Joints) -> list[dict[str, Any]]:
    told: dict[str, Any] = {}
    if joints.names:
        told["keypoints"] = list(joints.names)
        if export.flip and len(export.flip) == len(joints.names):
            told["flip"] = {
                joints.names[one]: joints.names[other] for one, other in enumerate(export.flip) if one < other
            }
    return [{"id": number, "name": name, **told} for number, name in export.categories.items()]

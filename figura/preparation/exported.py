"""Records of other formats than COCO's, and pictures by themselves -> a COCO file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.pictures import picture_files
from figura.base.raw_pictures import Orientation
from figura.formats.coco_writer import Spool, write_coco
from figura.formats.exports import Export
from figura.formats.records import Size, UnusableError
from figura.preparation.matching import Joints, check_size
from figura.preparation.outcome import Rejected
from figura.preparation.picture_names import PictureNames
from figura.preparation.pictures import size_of


@dataclass
class Converted:
    """What `write_export` wrote: the pictures by id, lines to print, and records that could not be read."""

    files: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[Rejected] = field(default_factory=list)


def write_export(
    path: Path,
    export: Export,
    joints: Joints,
    images: Path,
    key: str,
    first: int = 1,
    orientation: Orientation = "upright",
    progress: bool = False,
) -> Converted:
    """Write an export as a COCO file of pictures below `images`; memory holds names and sizes of the pictures.

    Pictures that the export does not mention are left out, as nobody knows who is in them. Joints are in the dataset's
    order; all else of a record stays for `normalise`. Files that are no pictures get the size 1 x 1: `Preparation`
    reads each and rejects them. If the export has no category, the file has only images, like COCO's
    `image_info_*.json`.

    Args:
        path: the file to write.
        export: the records.
        joints: those of its records, and the dataset's.
        images: the folder of the pictures.
        key: the dotted key of the settings.
        first: the first number of pictures and annotations.
        orientation: which way up the records take the pictures.
        progress: whether to show a progress bar.

    Raises:
        UserError: nothing belongs to any picture, or to pictures of this size.
    """
    done = Converted()
    files = list(picture_files(images))
    names, numbers, sizes, people, again = PictureNames(files), dict[str, int](), dict[str, Size](), 0, 0
    with Spool(path.parent) as pictures, Spool(path.parent) as annotations:
        for entry in tqdm(export.entries(), f"{path.stem[1:]}: pictures", disable=not progress):
            try:
                if isinstance(entry.record, UnusableError):
                    raise entry.record
                file = names.find(entry.picture)
                again += entry.record is None and file in numbers
                if file not in numbers:
                    numbers[file], sizes[file] = first + len(numbers), size_of(images / file, orientation)
                    size = sizes[file] if export.predicted else entry.size or sizes[file]  # preparation compares them
                    pictures.add(
                        {**entry.image, "id": numbers[file], "file_name": file, **size._asdict()}, strict=False
                    )
                if export.predicted:
                    check_size(entry, sizes[file], export.path, file)
                if entry.record is not None:
                    own = {"id": first + people, "image_id": numbers[file]}
                    annotations.add({**joints.ordered(entry.record), **own}, strict=False)
                    people += 1
            except UnusableError as fault:
                row = Rejected(export.path.name, "annotation", entry.number[:80], fault.reason, fault.detail)
                done.faults.append(row)
        _check_usable(export, images, files, len(numbers), people, done.faults, key)
        if export.categories:
            write_coco(path, {"categories": _categories(export, joints)}, pictures.lines(), annotations.lines())
        else:
            write_coco(path, {}, pictures.lines())
    done.files = {number: file for file, number in numbers.items()}
    done.notes.append(f"{export.path.name}: {export.format}, {people} records of {len(numbers)} pictures")
    if again:
        done.notes.append(
            f"warning: {export.path.name}: {again} pictures are listed twice, and all their people are joined; of two "
            "videos with the same names of frames, give each a folder, and name it in `file_name`"
        )
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


def _categories(export: Export, joints: Joints) -> list[dict[str, Any]]:
    """Return the categories with the dataset's joints; what else they say of joints is of the export's order.

    Of categories that name joints, those with the export's get them; others stay as they are, or without if it moves.
    """
    named, told = any(one.get("keypoints") for one in export.categories), dict[str, Any]()
    if named and not joints.moved:
        return [dict(one) for one in export.categories]
    if joints.names:
        told["keypoints"] = list(joints.names)
        if export.flip and len(export.flip) == len(joints.names):
            pairs = enumerate(export.flip)
            told["flip"] = {joints.names[one]: joints.names[other] for one, other in pairs if one < other}
    kept = ("id", "name") if joints.moved else None
    return [
        {key: one[key] for key in kept or one} | (told if not named or one.get("keypoints") == [*export.joints] else {})
        for one in export.categories
    ]

"""People who are not in COCO files: exports of other tools, and pictures that each show one person or nobody."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from figura.formats.exports import Entry, Export
from figura.formats.normalise import Conventions
from figura.preparation.exported import Converted, write_export
from figura.preparation.identities import Picture
from figura.preparation.matching import Joints
from figura.preparation.people import Preparation, Raw
from figura.preparation.poses import PicturePoses
from figura.preparation.raw_folder import RawFolder
from figura.preparation.splits import in_order


def converted(
    preparation: Preparation, export: Export, joints: Joints, raw: Raw, source: RawFolder
) -> tuple[Raw, Converted]:
    """Write an export to a COCO file in the prepared folder; return its raw file, and what was written."""
    path = preparation.folder / f".{raw.splits[0]}.json"
    orientation, first = raw.orientation or "upright", preparation.converted + 1
    done = write_export(path, export, joints, raw.images, source.key, first, orientation, preparation.progress)
    preparation.converted += len(done.files)
    conventions = raw.conventions._replace(predicted=export.predicted)
    return replace(raw, annotations=path, name=raw.title, origin=export.path, conventions=conventions), done


def add_converted(preparation: Preparation, raw: Raw, done: Converted) -> None:
    """Add a raw file, and the records that could not be converted."""
    preparation.add(raw)
    if raw.origin is not None:
        raw.annotations.unlink()
    for fault in done.faults:
        preparation.add_rejected(raw.splits[0], fault)


def add_pictures(
    preparation: Preparation,
    pictures: Iterable[Picture],
    splits: Iterable[str],
    images: Path,
    source: RawFolder,
    poses: PicturePoses | None = None,
    min_confidence: float = 0.0,
) -> None:
    """Add pictures below `images`, and the people who fill them, split by split."""
    by_split: dict[str, list[Picture]] = {split: [] for split in in_order(splits)}
    for one in pictures:
        by_split[one.split].append(one)
    told = poses.export if poses else Export(images, "pictures", lambda: iter(()), predicted=False)
    joints = poses.joints if poses else Joints(told, (), source.key)
    root = source.folder.resolve()
    for split, these in by_split.items():
        known = any(one.person for one in these)
        entries = partial(_entries, these, poses)
        export = replace(told, entries=entries, categories=told.categories if known else ())
        raw = Raw(
            annotations=images,
            images=images,
            root=root,
            splits=(split,),
            name=split if images == root else images.relative_to(root).as_posix(),
            plain=not known,
            orientation="upright",
            conventions=Conventions("picture", "pixels", min_confidence),
        )
        add_converted(preparation, *converted(preparation, export, joints, raw, source))


def _entries(pictures: Iterable[Picture], poses: PicturePoses | None) -> Iterator[Entry]:
    for one in pictures:
        found = poses.of(one.file) if poses and one.person else {}
        yield Entry(one.file, one.person and {**one.person, **found, "category_id": 1, "iscrowd": 0}, one.file)

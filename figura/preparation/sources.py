"""Dataset settings -> raw files: one function per kind of dataset, in `KINDS`."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.pictures import picture_files
from figura.formats.exports import Entry, Export, open_export
from figura.formats.normalise import Conventions
from figura.formats.records import UnusableError, whole_number
from figura.formats.yolo import open_yolo, yolo_file
from figura.preparation.categories import stated_names
from figura.preparation.exported import Converted, write_export
from figura.preparation.identities import Picture, Reading, read_deepfashion, read_market1501
from figura.preparation.image_records import record_key
from figura.preparation.matching import Joints
from figura.preparation.outcome import Outcome
from figura.preparation.pair_list import write_pair_list
from figura.preparation.pairs import PairPreparation
from figura.preparation.people import Preparation, Raw
from figura.preparation.pictures import inside
from figura.preparation.poses import PicturePoses, open_poses
from figura.preparation.settings import Coco, DeepFashion, Folders, Identities, Market1501, check_splits
from figura.preparation.splits import (
    OF_ONE_VIDEO,
    TRAIN,
    drawn_apart,
    drawn_split,
    in_order,
    joined_groups,
    video_of,
)
from figura.preparation.unpaired import UnpairedPreparation
from figura.synthetic import SyntheticSettings, write_synthetic
from figura.synthetic.catalogue import CatalogueSettings, write_catalogue
from figura.synthetic.day_night import write_day_night
from figura.synthetic.randomness import SPLITS


@dataclass(frozen=True)
class RawFolder:
    """The folder of raw data of a dataset. `key` is the dotted key of its settings, for errors."""

    folder: Path
    key: str
    seed: int

    def path(self, path: str, key: str) -> Path:
        """Return a path below the folder, with links resolved; raises UserError if it leaves the folder."""
        try:
            return inside(self.folder, path, self.folder)
        except UnusableError as fault:
            link = fault.detail.removeprefix(path)
            raise UserError(f"{self.key}.{key}: {path} leaves the source {self.folder}{link}") from fault

    def directory(self, path: str, key: str) -> Path:
        """Return a folder below the folder; raises UserError if there is none."""
        folder = self.path(path, key)
        if not folder.is_dir():
            raise UserError(f"{self.key}.{key}: no folder {folder}")
        return folder


def add_synthetic(preparation: Preparation, settings: SyntheticSettings, source: RawFolder) -> list[str]:
    """Draw people, with their images at the final paths, and add them."""
    folder = preparation.folder
    write_synthetic(settings, source.seed, folder, preparation.progress)
    for split in SPLITS:
        preparation.add(Raw(folder / f"{split}.json", folder / "images", folder, (split,), in_place=True))
    return []


def add_drawn(
    write: Callable[..., None],
    preparation: PairPreparation | UnpairedPreparation,
    settings: CatalogueSettings,
    source: RawFolder,
) -> list[str]:
    """Draw people in rooms by `write`, and add them."""
    folder = preparation.folder
    write(settings, source.seed, folder, preparation.progress)
    for split in SPLITS:
        preparation.add((split,), folder / split, folder, split, partial(drawn_split, 0, {}, rest=split))
    return []


def add_coco(preparation: Preparation, coco: Coco, source: RawFolder) -> list[str]:
    """Add annotation files, COCO's or other exports, with their images; return lines to print."""
    lines, grouped, seen = list[str](), list[str](), set[str]()
    root, names = source.folder.resolve(), stated_names(coco.keypoints)
    for split, (annotations, export) in _exports(coco, source).items():
        own = export is not None and export.relative
        shares = coco.shares if split == TRAIN else {}
        raw = Raw(
            annotations=annotations,
            images=root if own else source.path(coco.images[split], f"images.{split}"),
            root=root,
            splits=(split, *in_order(shares)),
            conventions=Conventions(coco.boxes, coco.coordinates, coco.min_confidence),
            orientation=coco.orientation,
        )
        done = Converted()
        if export is not None:
            if own:
                asked = coco.coordinates is None
                raw = replace(raw, conventions=Conventions(coco.boxes, "relative", coco.min_confidence, centred=asked))
            joints = Joints(export, names, source.key)
            raw, done = _converted(preparation, export, joints, raw, source)
            lines += [note for note in (*export.notes, *joints.notes, *done.notes) if note not in lines]
            if own and (twice := seen & set(done.files.values())):
                lines.append(f"warning: {annotations.name}: {len(twice)} pictures of {split} are in another split, too")
            seen |= set(done.files.values())
        groups = _Groups(source, coco, done.files) if shares else None
        if groups is not None:
            raw = replace(raw, split_of=groups.split_of, look=groups.look)
        _add(preparation, raw, done)
        grouped += groups.lines() if groups is not None else []
    return lines + grouped


def _converted(
    preparation: Preparation, export: Export, joints: Joints, raw: Raw, source: RawFolder
) -> tuple[Raw, Converted]:
    """Write an export to a COCO file in the prepared folder; return its raw file, and what was written."""
    path = preparation.folder / f".{raw.splits[0]}.json"
    orientation, first = raw.orientation or "upright", preparation.converted + 1
    done = write_export(path, export, joints, raw.images, source.key, first, orientation, preparation.progress)
    preparation.converted += len(done.files)
    conventions = raw.conventions._replace(predicted=export.predicted)
    return replace(raw, annotations=path, name=raw.title, origin=export.path, conventions=conventions), done


def _add(preparation: Preparation, raw: Raw, done: Converted) -> None:
    """Add a raw file, and the records that could not be converted."""
    preparation.add(raw)
    if raw.origin is not None:
        raw.annotations.unlink()
    for fault in done.faults:
        preparation.add_rejected(raw.splits[0], fault)


def _exports(coco: Coco, source: RawFolder) -> dict[str, tuple[Path, Export | None]]:
    """Return split -> the annotations, and what they are if they are no COCO file."""
    paths = {split: source.path(path, f"annotations.{split}") for split, path in coco.annotations.items()}
    exports: dict[str, tuple[Path, Export | None]] = {}
    where = "annotations"
    for split in in_order(paths):
        labels = yolo_file(paths[split])
        if labels is None:
            exports[split] = paths[split], open_export(paths[split], f"{source.key}.annotations.{split}")
        elif len(paths) > 1:
            raise UserError(
                f"{source.key}.annotations.{split}: {labels.name} names the splits itself; write it alone: "
                f"`annotations: {coco.annotations[split]}`"
            )
        else:
            opened, where = open_yolo(labels, source.folder), labels.name
            exports = {one: (labels, opened[one]) for one in in_order(opened)}
    try:
        check_splits(exports, coco.shares, where)
    except ValueError as error:
        raise UserError(f"{source.key}: {error}") from error
    return exports


_COPIES = re.compile(r"(.+)\.rf\.[0-9a-zA-Z]+\.\w+$")
"""Names of Roboflow's copies of one picture."""


_VIDEO = ("video_id", "video", "video_name", "vid_id", "seq_id", "sequence", "clip_id", "clip")
"""Keys of image records that name their video."""


class _Groups:
    """Assigns images to the splits of `shares`, the same to those that share a person, what `group_by` says, or a file.

    Copies by Roboflow go with each other, too. All records are to be looked at before the first split is asked for.

    Args:
        source: the raw folder, with the seed.
        coco: the settings.
        files: image id -> file, which then decides about an image without a group instead of its id.
    """

    def __init__(self, source: RawFolder, coco: Coco, files: Mapping[int, str]) -> None:
        self.source, self.coco, self.files = source, coco, files
        self.by_name = _name_rule(coco.group_by, source.key)
        self.members: list[tuple[Any, Any]] = []
        self.first: dict[str, Any] = {}
        self.grouped = 0
        self.videos: dict[Any, object] = {}

    def look(self, section: str, record: Any) -> None:
        """Read what an image, or the image of an annotation, shares with others."""
        known = record if isinstance(record, dict) else {}
        image = record_key(known.get("image_id" if section == "annotations" else "id"))
        if image is None:
            return
        if section == "annotations":
            shows: list[Any] = [whole_number(known.get("person_id"))]
        else:
            name = str(known.get("file_name"))
            value = _first_group(self.by_name, name) if self.by_name else _value(known, self.coco.group_by)
            self.grouped += value not in (None, "")
            stated = next((one for key in _VIDEO if (one := known.get(key)) is not None), None)
            if (video := stated if isinstance(stated, (int, str)) else video_of(name)) is not None:
                self.videos[image] = video
            shows = [None if value in (None, "") else f"{value}", _first_group(_COPIES, name)]
            if (first := self.first.setdefault(name, image)) != image:  # listed twice, as once for each object
                self.members += [(first, (name,)), (image, (name,))]
        self.members += [(image, one) for one in shows if one is not None]

    @cached_property
    def of(self) -> dict[Any, Any]:
        """Image key -> group; raises UserError if no image has what `group_by` says."""
        if self.coco.group_by and not self.grouped:
            raise UserError(
                f"{self.source.key}.group_by: no image of {self.coco.annotations[TRAIN]} has {self.coco.group_by!r}"
            )
        return joined_groups(self.members)

    def split_of(self, image: Any) -> str:
        """Return an image's split by the key of its group, its file if one is known, or itself; train for no image."""
        if image is None:
            return TRAIN
        key = f"person {self.of[image]}" if image in self.of else self.files.get(image, image)
        return drawn_split(self.source.seed, self.coco.shares, key)

    def lines(self) -> list[str]:
        """Return a line on the groups, if there are any."""
        sizes = Counter(self.of.values())
        line = f"{len(self.of)} images in {len(sizes)} groups, at most {max(sizes.values(), default=0)} in one"
        lines = [f"shares: images of one person, video or original go together: {line}"] if sizes else []
        frames = ((video, self.split_of(image)) for image, video in self.videos.items())
        cure = "`group_by`, a key such as video_id or a regular expression of names, keeps them together"
        return lines + ([] if self.coco.group_by else drawn_apart(frames, cure))


def _first_group(rule: re.Pattern[str], name: str) -> str | None:
    found = rule.search(name)
    return found[1] if found else None


def _name_rule(group_by: str | None, key: str) -> re.Pattern[str] | None:
    """Return `group_by` as a regular expression of file names; None if it is a key of image records."""
    if group_by is None or not {*"(\\^$*"} & {*group_by}:
        return None
    try:
        by_name = re.compile(group_by)
        if not by_name.groups:
            raise re.error("it has no group in round brackets")
    except re.error as error:
        raise UserError(f"{key}.group_by: found {group_by!r}; no regular expression: {error}") from error
    return by_name


def _value(record: Mapping[str, Any], dotted: str | None) -> Any:
    """Return the value at a dotted key, or None."""
    value: Any = record if dotted else None
    for part in (dotted or "").split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def add_folders(preparation: PairPreparation | UnpairedPreparation, folders: Folders, source: RawFolder) -> list[str]:
    """Add the folders of image pairs, or of two sets of pictures, split by split."""
    for split in in_order(folders.splits):
        shares = folders.shares if split == TRAIN else {}
        split_of = partial(drawn_split, source.seed, shares, rest=split)
        folder, key = source.path(folders.splits[split], split), f"{source.key}.{split}"
        preparation.add((split, *in_order(shares)), folder, source.folder, key, split_of)
    return []


def add_images(preparation: Preparation, folders: Folders, source: RawFolder) -> list[str]:
    """Add folders of pictures without annotations."""
    for split in in_order(folders.splits):
        folder = source.directory(folders.splits[split], split)
        shares = folders.shares if split == TRAIN else {}
        files = picture_files(folder, preparation.left_out)
        pictures = [Picture(file, drawn_split(source.seed, shares, file, rest=split)) for file in files]
        _add_pictures(preparation, pictures, (split, *shares), folder, source)
        frames = ((video, one.split) for one in pictures if (video := video_of(one.file)))
        preparation.notes += drawn_apart(frames, OF_ONE_VIDEO)
    return []


def _add_pictures(
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
        _add(preparation, *_converted(preparation, export, joints, raw, source))


def _entries(pictures: Iterable[Picture], poses: PicturePoses | None) -> Iterator[Entry]:
    for one in pictures:
        found = poses.of(one.file) if poses and one.person else {}
        yield Entry(one.file, one.person and {**one.person, **found, "category_id": 1, "iscrowd": 0}, one.file)


def add_market1501(preparation: Preparation, market: Market1501, source: RawFolder) -> list[str]:
    """Add Market-1501; return lines to print."""
    for split, folders in market.folders.items():
        for folder in folders:
            source.directory(folder, f"folders.{split}")
    reading = read_market1501(source.folder, market.folders)
    return _add_identities(preparation, market, reading, source.folder.resolve(), tuple(market.folders), source)


def add_deepfashion(preparation: Preparation, fashion: DeepFashion, source: RawFolder) -> list[str]:
    """Add DeepFashion In-shop; return lines to print."""
    images = source.directory(fashion.images, "images")
    partition = source.path(fashion.partition, "partition")
    if not partition.is_file():
        raise UserError(f"{source.key}.partition: no file {partition}")
    reading = read_deepfashion(partition, fashion.statuses, fashion.identity)
    return _add_identities(preparation, fashion, reading, images, tuple(fashion.statuses), source)


def _add_identities(
    preparation: Preparation,
    settings: Identities,
    reading: Reading,
    images: Path,
    splits: tuple[str, ...],
    source: RawFolder,
) -> list[str]:
    shares, lines = settings.shares, list[str]()
    pictures = [
        one._replace(split=drawn_split(source.seed, shares, f"person {one.group}"))
        if one.split == TRAIN and shares
        else one
        for one in reading.pictures
    ]
    preparation.left_out += reading.left_out
    every = (*splits, *shares)
    if settings.poses is None:
        _add_pictures(preparation, pictures, every, images, source)
        lines.append(f"nobody has joints; {source.key}.poses can bring them")
    else:
        names = stated_names(settings.keypoints)
        export = open_poses(source.path(settings.poses, "poses"), source.key, names, settings.min_confidence)
        poses = PicturePoses(export, Joints(export, names, source.key), images)
        _add_pictures(preparation, pictures, every, images, source, poses, settings.min_confidence)
        if not poses.pictures:
            raise UserError(f"{source.key}.poses: nothing in {settings.poses} belongs to any picture")
        lines += [*poses.joints.notes, f"poses: {settings.poses} has {poses.pictures} of {len(pictures)} pictures"]
        reading.faults += [(in_order(every)[0], fault) for fault in poses.faults]
    for split, fault in reading.faults:
        preparation.add_rejected(split, fault)
    return lines + _add_pair_lists(preparation, settings.pairs, source)


def _add_pair_lists(preparation: Preparation, pairs: Mapping[str, str], source: RawFolder) -> list[str]:
    lines = []
    for split, listing in pairs.items():
        path = source.path(listing, f"pairs.{split}")
        count, faults = write_pair_list(path, preparation.folder, split)
        if not count:
            detail = f"; {faults[0].reason}: {faults[0].detail}" if faults else ""
            raise UserError(f"{source.key}.pairs.{split}: {path} has no pair of images of this split{detail}")
        preparation.records += count
        for fault in faults:
            preparation.add_rejected(split, fault)
        lines.append(f"{split}: {count} pairs of {listing}, {len(faults)} rejected")
    return lines


KINDS: dict[str, tuple[type[Outcome], Callable[[Any, Any, RawFolder], list[str]]]] = {
    "synthetic": (Preparation, add_synthetic),
    "coco": (Preparation, add_coco),
    "market1501": (Preparation, add_market1501),
    "deepfashion": (Preparation, add_deepfashion),
    "images": (Preparation, add_images),
    "catalogue": (PairPreparation, partial(add_drawn, write_catalogue)),
    "paired": (PairPreparation, add_folders),
    "day_night": (UnpairedPreparation, partial(add_drawn, write_day_night)),
    "unpaired": (UnpairedPreparation, add_folders),
}
"""Kind of a dataset -> its preparation, and what adds the records of its section and returns lines to print."""

"""People in annotation files: COCO's, those of other tools, YOLO's folders."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from figura.base.dotted_keys import value_at
from figura.base.errors import UserError
from figura.formats.coco import file_name_of
from figura.formats.exports import Export, open_export
from figura.formats.normalise import Conventions
from figura.formats.yolo import open_yolo, yolo_file
from figura.preparation.categories import stated_names
from figura.preparation.exported import Converted
from figura.preparation.image_records import record_key
from figura.preparation.matching import Joints
from figura.preparation.people import Preparation, Raw
from figura.preparation.pictured import add_converted, converted
from figura.preparation.raw_folder import RawFolder
from figura.preparation.settings import Coco, check_splits
from figura.preparation.splits import TRAIN, drawn_apart, drawn_split, in_order, joined_groups, video_of

PREPARATION = Preparation


def add(preparation: Preparation, coco: Coco, source: RawFolder) -> list[str]:
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
            raw, done = converted(preparation, export, joints, raw, source)
            lines += [note for note in (*export.notes, *joints.notes, *done.notes) if note not in lines]
            if own and (twice := seen & set(done.files.values())):
                lines.append(f"warning: {annotations.name}: {len(twice)} pictures of {split} are in another split, too")
            seen |= set(done.files.values())
        groups = _Groups(source, coco, done.files) if shares else None
        if groups is not None:
            raw = replace(raw, split_of=groups.split_of, look=groups.look)
        add_converted(preparation, raw, done)
        grouped += groups.lines() if groups is not None else []
    return lines + grouped


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


_COPIES = re.compile(r"(.+)\.rf\.[0-9a-zA-Z]+\.\w+$")  # names of Roboflow's copies of one picture


_VIDEO = ("video_id", "video", "video_name", "vid_id", "seq_id", "sequence", "clip_id", "clip")
"""Keys of image records that name their video."""


class _Groups:
    """Assigns images to the splits of `shares`, the same to those that share a person, what `group_by` says, or a file.

    Copies by Roboflow go with each other, too. All records are to be looked at before the first split is asked for.

    Args:
        source: the raw folder, with the seed.
        coco: the settings.
        files: image id -> file of records that were converted; other records name their file themselves. The file
            decides about an image without a group, since tools number images anew when some are added.
    """

    def __init__(self, source: RawFolder, coco: Coco, files: Mapping[int, str]) -> None:
        self.source, self.coco, self.files = source, coco, dict[Any, str](files)
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
            shows: list[Any] = [record_key(known.get("person_id"))]
        else:
            name = str(file_name_of(known))
            self.files.setdefault(image, name.encode(errors="backslashreplace").decode())  # half characters of JSON
            if self.by_name:
                value: Any = _first_group(self.by_name, name)
            else:
                value = value_at(known, self.coco.group_by) if self.coco.group_by else None
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
        """Return an image's split by the key of its group, or its file; train for no image."""
        if image is None:
            return TRAIN
        key = f"person {self.of[image]}" if image in self.of else self.files[image]
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

"""Prepare a people dataset from raw COCO files: records made right, one canonical JSON per split, statistics."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.files import write_text
from figura.base.raw_pictures import store_picture
from figura.formats.coco import KEYPOINTS, RECORDS, read_head, read_records
from figura.formats.coco_writer import Spool, to_json, write_coco
from figura.formats.normalise import (
    AS_COCO,
    AS_TEXT,
    Conventions,
    Joints,
    Repair,
    drop_unwritable,
    normalise,
    place_of,
    shown,
)
from figura.formats.prepared import FACTS
from figura.formats.records import Size, UnusableError, whole_number
from figura.formats.skeletons import Skeleton
from figura.preparation.categories import People, choose_people, standing_pose_of, written_categories
from figura.preparation.image_records import (
    ImageRecord,
    ImageRecords,
    Orientation,
    Scan,
    ignored_polygons,
    reach_of,
    record_key,
)
from figura.preparation.outcome import Outcome, Rejected, Repaired
from figura.preparation.people_sheet import Examples, write_people
from figura.preparation.questions import Plausibility
from figura.preparation.settings import KeypointSettings
from figura.preparation.skeletons import Poses, Source, build_skeleton
from figura.preparation.splits import TRAIN
from figura.preparation.statistics import Statistics
from figura.preparation.wholebody import with_all_joints

_AT_ONCE = 64


@dataclass(frozen=True)
class Raw:
    """One annotation file and its images.

    No image path may leave the folder `root`. `splits` are the splits that the file contributes to; `split_of` maps an
    image id to one of several, after `look` got each record and its section. With `in_place`, the images are already at
    their final paths and keep their names. `name` replaces the annotation file in `rejected.csv` and progress bars;
    default: its path below `root`. Errors about categories and joints refer to `origin` instead. With `plain`, the
    split train may have no annotations.
    `conventions` and `orientation` say how its numbers and pictures are read.
    """

    annotations: Path
    images: Path
    root: Path
    splits: tuple[str, ...]
    split_of: Callable[[object], str] | None = None
    look: Callable[[str, Any], None] | None = None
    in_place: bool = False
    name: str = ""
    origin: Path | None = None
    plain: bool = False
    conventions: Conventions = AS_COCO
    orientation: Orientation | None = None

    @property
    def title(self) -> str:
        """The name, or the annotation file's path below `root`."""
        return self.name or self.annotations.relative_to(self.root).as_posix()

    @property
    def source(self) -> Path:
        """The file that defines categories and joints."""
        return self.origin or self.annotations


class Preparation(Outcome):
    """Converts raw files to `<split>.json` and `images/<split>/` below `folder`; collects statistics and repairs.

    All splits have the same category of people and the same joints, defined by the first file, so add that of the split
    train first. `category` is that of people in the files, or several to merge (`choose_people`); it and `keypoints`
    are the settings at the dotted `key`.
    """

    columns = Rejected._fields

    def __init__(
        self,
        folder: Path,
        progress: bool = False,
        category: str | Sequence[str] | None = None,
        keypoints: KeypointSettings | None = None,
        key: str = "coco",
    ) -> None:
        super().__init__(folder, progress)
        self.category, self.key = category, key
        self.settings = keypoints or KeypointSettings()
        self.people: People | None = None
        self.skeleton: Skeleton | None = None
        self.categories: dict[int, str] = {}
        self.written: list[dict[str, Any]] = []
        self.examples: dict[str, Examples] = {}
        self.converted = 0
        """The number of pictures in converted files."""

    @classmethod
    def of(cls, section: Any, key: str, folder: Path, progress: bool) -> Self:
        """Return a preparation by the section of an entry of `data/params.yaml`, whose dotted key is `key`."""
        category, keypoints = (getattr(section, name, None) for name in ("category", "keypoints"))
        return cls(folder, progress, category, keypoints, key)

    def add(self, raw: Raw) -> None:
        """Make every record of a raw file right, write its splits; raises UserError if the file is invalid."""
        scan = Scan(raw.look)
        head, counts = read_head(raw.annotations, look=scan.look)
        try:
            to_json(head)
        except ValueError as error:
            raise UserError(f"{raw.annotations}: holds a number that JSON does not have: {error}") from error
        if TRAIN in raw.splits and not raw.plain and not counts.get("annotations"):
            raise UserError(_without_annotations(raw.source, head, counts))
        people = self._choose(raw, head, counts)
        scan.check_categories(raw.source, {one["id"] for one in head["categories"]})
        joints = people.keypoints if people else ()
        scan.joints.check(raw.source, people.members if people else None, len(joints), self.key)
        self.records += sum(counts.values())
        annotated = counts.get("annotations", 0) > 0
        for split in raw.splits:
            self.statistics[split] = Statistics(people.id if people else None, joints, annotated)
            self.examples[split] = Examples()
        with ExitStack() as stack:
            spools = {
                kind: {split: stack.enter_context(Spool(self.folder)) for split in raw.splits} for kind in RECORDS
            }
            file = _File(self, raw, scan, spools, counts, head["categories"], people)
            file.read_images()
            if "annotations" in counts:
                file.read_annotations()
            self.notes += [*file.questions.check(raw.source, self.key), *_named_twice(raw.source, file.names, people)]
            if annotated and raw.origin is None and 2 * (bare := file.bare()) > file.counts["images"]:
                line = f"{bare} of {file.counts['images']} images have no annotation: they count as empty"
                self.notes.append(f"warning: {raw.source}: {line}; remove those that nobody annotated")
            if people is None and file.questions.are_points and (named := _named_as_joints(head)):
                raise UserError(f"{raw.source}: all boxes are points, and {named}")
            if people:
                labelled = sum(self.statistics[split].with_keypoints for split in raw.splits)
                self.notes += scan.joints.unlabelled(raw.source, people.members, labelled)
                if self.category is None:
                    self.notes += scan.joints.left_out(raw.source, people.members, file.names, self.key)
            self._decide_skeleton(raw, people, file.poses)
            head["categories"] = written_categories(head["categories"], people, self.skeleton)
            self.written = self.written or head["categories"]
            for split in raw.splits:
                lines = (spools[kind][split].lines() for kind in RECORDS)
                write_coco(self.folder / f"{split}.json", head, *lines)

    def _choose(self, raw: Raw, head: dict[str, Any], counts: Mapping[str, int]) -> People | None:
        """Return the file's category of people, the same as in earlier files.

        An image-info file gets the categories of earlier files.
        """
        if "annotations" not in counts and (self.written or not head.get("categories")):
            head["categories"] = self.written
            return self.people
        choose = partial(choose_people, raw.source, head["categories"], settings=self.settings, key=self.key)
        people, first = choose(self.category), self.people
        if people is not None and first is not None:
            if len(people.members) > 1 == len(first.members):
                people = choose(first.name) or people
            people = _agreeing(people, first, raw.source)
        if people is not None and self.written and people.entry.get("keypoints") and not (first and first.keypoints):
            raise UserError(
                f"{raw.source}: categories: {people.name} has keypoints, but not in the file of "
                f"{next(iter(self.statistics))}; write their names to {self.key}.keypoints"
            )
        self._collect(raw, head["categories"], people)
        self.people = self.people or people
        return people

    def _collect(self, raw: Raw, categories: Any, people: People | None) -> None:
        """Add the names of the categories by id; raises UserError if an id had another name in an earlier file."""
        for category in written_categories(categories, people, None):
            number, name = category["id"], str(category.get("name"))
            if self.categories.setdefault(number, name) != name:
                raise UserError(
                    f"{raw.source}: categories: id {number} is {name!r}, and {self.categories[number]!r} in the "
                    "file of another split; a category has one id in all splits"
                )

    def _decide_skeleton(self, raw: Raw, people: People | None, poses: Poses) -> None:
        """Build the skeleton of the first file that has joints."""
        if people is None or not people.keypoints or self.skeleton is not None:
            return
        if not poses.count and not people.entry.get("keypoints") and self.settings == KeypointSettings():
            return
        source = Source(raw.source, people, poses, f"{self.key}.keypoints")
        self.skeleton, notes = build_skeleton(source, self.settings)
        self.notes += notes

    def add_rejected(self, split: str, rejected: Rejected) -> None:
        """Count an unreadable record of an added split."""
        self.records += 1
        self.reject(split, rejected)

    def finish(self) -> None:
        """Write `facts.json` and `plots/people.png`, and what every preparation writes."""
        facts = {
            "skeleton": None if self.skeleton is None else self.skeleton.settings(),
            "categories": [{"id": number, "name": name} for number, name in sorted(self.categories.items())],
            "people": self.people.name if self.people else None,
            "annotated": {split: one.facts() for split, one in self.statistics.items()},
        }
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in facts.items())
        write_text(self.folder / FACTS, f"{{\n{lines}\n}}\n")
        write_people(self.examples, self.folder / "images", self.skeleton, self.folder / "plots" / "people.png")
        super().finish()

    def lines(self) -> Iterator[str]:
        """Yield what was repaired, the rules applied to the joints, one line each, and a summary of each split."""
        yield from super().lines()
        if self.people is None and self.categories:
            names = ", ".join(self.categories.values())
            yield f"{self.key}.category: no category has keypoints, so there are only boxes; categories: {names}"
        elif self.people is not None and len(self.people.members) > 1:
            names = ", ".join(str(one.get("name")) for one in self.people.members.values())
            yield f"{self.key}.category: {self.people.name} is {names}"
        for split, one in self.statistics.items():
            yield f"{split}: {one.line()}"


def _named_twice(path: Path, names: Mapping[int, str], people: People | None) -> list[str]:
    """Return a warning if categories share a name; those of people are merged."""
    counts = Counter(name for number, name in names.items() if people is None or number not in people.members)
    twice = [name for name, count in counts.items() if count > 1]
    if not twice:
        return []
    return [f"warning: {path}: several categories are named {', '.join(twice)}, and count apart: give them one id"]


def _named_as_joints(head: Mapping[str, Any]) -> str:
    """Return what to do about categories most of which are named as joints; empty for others."""
    names = [str(one.get("name")) for one in head.get("categories", ()) if isinstance(one, dict)]
    joints = sum(name in KEYPOINTS for name in names)
    if joints <= len(names) / 2:
        return ""
    return f"{joints} of {len(names)} categories are named as joints: export a skeleton, one category with keypoints"


def _without_annotations(path: Path, head: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    if named := _named_as_joints(head):
        return f"{path}: no annotation, and {named}"
    what = (
        "the list of annotations is empty"
        if "annotations" in counts
        else "annotations is missing, as in COCO's image-info files"
    )
    return f"{path}: {what}; the split train needs them, other splits may do without"


class _File:
    """Reads the records of a raw file and spools those that can be used.

    A person who cannot be used but whose place is known becomes a crowd region: training and evaluation ignore it.
    """

    def __init__(
        self,
        preparation: Preparation,
        raw: Raw,
        scan: Scan,
        spools: dict[str, dict[str, Spool]],
        counts: Mapping[str, int],
        categories: Sequence[Mapping[str, Any]],
        people: People | None,
    ) -> None:
        self.preparation, self.raw, self.spools, self.counts, self.people = preparation, raw, spools, counts, people
        self.names = {one["id"]: str(one.get("name")) for one in categories}
        self.joints = Joints(people.keypoints, standing_pose_of(people, preparation.settings)) if people else Joints()
        self.poses, self.questions = Poses(len(self.joints.names)), Plausibility(self.joints.names, raw.conventions)
        self.images = ImageRecords(raw.images, raw.root, scan, raw.orientation, self._repair, self._suspect)
        self.sizes: dict[Any, Size | None] = {}
        """Image id -> its size; None if the image was rejected, then also by its key in the file."""
        self.splits: dict[int, str] = {}
        self.ignored: dict[int, list[list[float]]] = {}
        self.seen: set[int] = set()
        self.next = scan.largest_annotation + 1
        self.split = raw.splits[0]

    def _repair(self, record: str, kind: str, before: str, after: str) -> None:
        repairs = self.preparation.statistics[self.split].repairs
        repairs.add_row(Repaired(self.raw.title, record, kind, before, after))

    def _suspect(self, kind: str, image: str) -> None:
        self.preparation.suspicions.add(kind, f"{self.raw.title} image {image}")

    # --- images ---

    def read_images(self) -> None:
        """Check and copy the images; spool their records."""
        records = self._watched("images")
        undecided: list[ImageRecord] = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while batch := list(islice(records, _AT_ONCE)):
                declared = [image for record in batch if (image := self._declared(record))]
                faults = zip(declared, pool.map(self.images.look, declared), strict=True)
                settled = [(image, fault or self.images.settle(image)) for image, fault in faults]
                undecided += [image for image, outcome in settled if outcome is None]
                self._bring(pool, settled)
            reach = self._reach({image.id for image in undecided}) if undecided else {}
            self._bring(pool, self.images.settle_by_reach(undecided, reach))

    def _declared(self, record: Any) -> ImageRecord | None:
        try:
            key = record_key(record.get("id")) if isinstance(record, dict) else None
            self.split = self.raw.split_of(key) if self.raw.split_of else self.raw.splits[0]
            image = self.images.declare(record)
        except UnusableError as fault:
            self._reject_image(record, key, fault)
            return None
        if image is not None:
            self.splits[image.id] = self.split
        return image

    def _bring(
        self, pool: ThreadPoolExecutor, settled: Iterable[tuple[ImageRecord, Orientation | UnusableError | None]]
    ) -> None:
        """Copy images to their final paths, made plain where they are not; rename them in their records."""
        ready: list[tuple[ImageRecord, Orientation]] = []
        for image, way in settled:
            if isinstance(way, UnusableError):
                self._reject_image(image.record, image.id, way)
            elif way:
                ready.append((image, way))
        for (image, _), outcome in zip(ready, pool.map(lambda pair: self._stored(*pair), ready), strict=True):
            if isinstance(outcome, UnusableError):
                self._reject_image(image.record, image.id, outcome)
                continue
            self.split = self.splits[image.id]
            done, suspicions = outcome
            for kind in done:
                self._repair(f"image {image.file}", kind, "", "")
            for kind, detail in suspicions.items():
                self._suspect(kind, f"{image.file}{detail}")
            record = image.record
            record |= {"id": image.id, "file_name": image.file if self.raw.in_place else f"{self.split}/{image.file}"}
            self.sizes[image.id] = Size(record["width"], record["height"])
            if polygons := ignored_polygons(record):
                self.ignored[image.id] = polygons
            self._spool("images", record)
            self.preparation.statistics[self.split].add_image(record)
            self.preparation.examples[self.split].add_image(record)

    def _stored(self, image: ImageRecord, way: Orientation) -> tuple[Sequence[str], Mapping[str, str]] | UnusableError:
        """Write an image at its final path; return the kinds of changes that took, and of what looks wrong in it."""
        path, place = self.raw.images / image.file, self.preparation.folder / "images" / self.splits[image.id]
        try:
            reading = store_picture(path, None if self.raw.in_place else place / image.file, way)
        except UserError as error:
            return UnusableError("image file broken", str(error).replace(str(path), image.file))
        return reading.done, reading.suspicions

    def _reach(self, images: set[int]) -> dict[int, tuple[float, float]]:
        """Return how far the annotations of these images reach."""
        reach: dict[int, tuple[float, float]] = {}
        if "annotations" not in self.counts or self.raw.conventions.coordinates not in (None, "pixels"):
            return reach
        for record in read_records(self.raw.annotations, "annotations"):
            image = self._image_of(record) if isinstance(record, dict) else None
            if image in images and (far := reach_of(record, self.joints.names, self.raw.conventions)):
                known = reach.get(image, far)
                reach[image] = max(known[0], far[0]), max(known[1], far[1])
        return reach

    def _reject_image(self, record: Any, number: Any, fault: UnusableError) -> None:
        if number is not None:
            self.sizes.setdefault(number, None)
            self.split = self.splits.get(number, self.split)
        self._reject("image", record, fault)

    # --- annotations ---

    def read_annotations(self) -> None:
        """Spool the annotations made right, and crowd regions for people who cannot be used."""
        for record in self._watched("annotations"):
            try:
                size = self._picture_of(record)
                if size is None:
                    self.preparation.statistics[self.split].rejected["annotation of a rejected image"] += 1
                    continue
                self.questions.add(record, size)
                fixed, name, is_person, repairs = self._read(record, size)
            except UnusableError as fault:
                self._reject("annotation", record, fault)
                self._ignore(record)
                continue
            self._accept(fixed, name, is_person, repairs)
        for image, polygons in self.ignored.items():
            self.split = self.splits[image]
            for polygon in polygons:
                self._add_region(image, {"segmentation": [polygon]})

    def bare(self) -> int:
        """Return the number of usable images without any annotation."""
        annotated = {self.images.ids.get(key, key) for key in self.images.scan.annotated}
        return sum(size is not None and image not in annotated for image, size in self.sizes.items())

    def _image_of(self, record: Mapping[str, Any]) -> Any:
        key = record_key(record.get("image_id"))
        return self.images.ids.get(key, key)

    def _picture_of(self, record: Any) -> Size | None:
        """Return the size of an annotation's image; None if that is rejected. Sets the split."""
        if not isinstance(record, dict):
            raise UnusableError("not an object", repr(record)[:80])
        image = self._image_of(record)
        if image not in self.sizes:
            raise UnusableError("annotation without image", f"image_id {record.get('image_id')!r}"[:80])
        self.split = self.splits.get(image, self.split)
        return self.sizes[image]

    def _read(self, record: dict[str, Any], size: Size) -> tuple[dict[str, Any], str, bool, list[Repair]]:
        """Return an annotation made right, its category's name in the file, and whether it is of people."""
        category = whole_number(record.get("category_id"))
        if record.get("category_id") is None and len(self.names) == 1:
            category = next(iter(self.names))
        if category is None or category not in self.names:
            known = ", ".join(f"{number} ({name})" for number, name in self.names.items())
            raise UnusableError("category unknown", f"{record.get('category_id')!r:.40}; there are {known}"[:120])
        is_person = self.people is not None and category in self.people.members
        if is_person:
            record = with_all_joints(record, self.joints.names, size)
        fixed, repairs = normalise(record, size, self.joints if is_person else None, self.raw.conventions)
        if record.get("category_id") is None:
            repairs.append(Repair("annotations without category_id, of the only category", "", str(category)))
        name = self.names[category]
        fixed |= {"image_id": self._image_of(record), "category_id": category}
        if is_person and self.people is not None and self.people.renames(category, name):
            fixed |= {"category_id": self.people.id, "source_category": name}
        number = whole_number(record.get("id"))
        if number is None or number in self.seen:
            repairs.append(
                Repair("annotation ids that are missing or repeat", repr(record.get("id"))[:60], str(self.next))
            )
            number, self.next = self.next, self.next + 1
        elif not {type(record.get(key)) for key in ("id", "image_id", "category_id")} <= {int, type(None)}:
            whole = [record.get(key) for key in ("id", "image_id", "category_id")]
            repairs.append(Repair(AS_TEXT, shown(whole), shown([number, fixed["image_id"], category])))
        fixed["id"] = number
        return fixed, name, is_person, repairs

    def _accept(self, record: dict[str, Any], name: str, is_person: bool, repairs: Sequence[Repair]) -> None:
        self.seen.add(record["id"])
        for repair in repairs:
            self._repair(f"annotation {record['id']}", *repair)
        self._spool("annotations", record)
        self.preparation.statistics[self.split].add_annotation(record, name)
        self.preparation.examples[self.split].add_annotation(record, name, is_person)
        keypoints = record.get("keypoints", ())
        if is_person and not record.get("iscrowd", 0) and any(keypoints[2::3]):
            self.poses.add(record["bbox"], keypoints)

    def _ignore(self, record: Any) -> None:
        """Make a crowd region of a rejected person, if it is known where the person is."""
        if self.people is None or not isinstance(record, dict):
            return
        category, image = whole_number(record.get("category_id")), self._image_of(record)
        size = self.sizes.get(image)
        of_people = category in self.people.members or (category not in self.names and record.get("keypoints"))
        if of_people and size is not None and (box := place_of(record, size, self.raw.conventions)):
            self._add_region(image, {"bbox": box})

    def _add_region(self, image: int, what: Mapping[str, Any]) -> None:
        size = self.sizes[image]
        if self.people is None or size is None:
            return
        region = {"id": self.next, "image_id": image, "category_id": self.people.id, "iscrowd": 1, **what}
        self.next += 1
        try:
            fixed, _ = normalise(region, size, self.joints)
        except UnusableError:  # outside of the picture
            return
        self._accept(fixed, self.people.name, True, [Repair("regions ignored in training and evaluation", "", "")])

    def _spool(self, section: str, record: dict[str, Any]) -> None:
        try:
            self.spools[section][self.split].add(record)
        except (ValueError, RecursionError):
            for key in drop_unwritable(record):
                self._repair(f"{section[:-1]} {record['id']}", "keys whose value JSON does not have", key, "dropped")
            self.spools[section][self.split].add(record)

    def _watched(self, section: str) -> Iterator[Any]:
        records = read_records(self.raw.annotations, section)
        title = f"{self.raw.title}: {section}"
        return iter(tqdm(records, title, self.counts[section], disable=not self.preparation.progress))

    def _reject(self, kind: str, record: Any, fault: UnusableError) -> None:
        number = str(record.get("id", ""))[:80] if isinstance(record, dict) else ""
        self.preparation.reject(self.split, Rejected(self.raw.title, kind, number, fault.reason, fault.detail))


def _agreeing(people: People, first: People, path: Path) -> People:
    """Adapt the category of people of a further file to the first file, whose merged categories it joins.

    Raises:
        UserError: they are not the same category.
    """
    if len(first.members) > 1:
        people = replace(people, id=first.id, name=first.name)
    if (people.id, people.name) != (first.id, first.name):
        raise UserError(
            f"{path}: categories: people are {people.name!r} with id {people.id}; in the file of another split they "
            f"are {first.name!r} with id {first.id}; a category has one id and name in all splits"
        )
    if people.keypoints and first.keypoints and people.keypoints != first.keypoints:
        raise UserError(
            f"{path}: categories: {people.name} has the joints {', '.join(people.keypoints)}; in the file of another "
            f"split it has {', '.join(first.keypoints)}"
        )
    return replace(people, keypoints=people.keypoints or first.keypoints)

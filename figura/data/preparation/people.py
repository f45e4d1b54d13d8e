"""Prepare a people dataset from raw COCO files: usable records, one canonical JSON per split, statistics."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.files import write_text
from figura.data.formats.coco import RECORDS, Spool, read_head, read_records, to_json, write_coco
from figura.data.formats.prepared import REJECTED
from figura.data.formats.records import Size, UnusableError
from figura.data.formats.skeletons import Skeleton
from figura.data.preparation.categories import People, choose_people, written_categories
from figura.data.preparation.facts import write_facts
from figura.data.preparation.keypoint_settings import KeypointSettings
from figura.data.preparation.manifest import write_manifest, write_rejected
from figura.data.preparation.people_sheet import Examples, write_people
from figura.data.preparation.repairs import REPAIRED, Repaired, Repairs
from figura.data.preparation.skeletons import Poses, Source, build_skeleton
from figura.data.preparation.splits import TRAIN
from figura.data.preparation.statistics import Statistics, write_plots
from figura.data.preparation.validation import (
    Categories,
    Rejected,
    Seen,
    check_annotation,
    check_image_record,
    identity,
    store_image,
)
from figura.data.preparation.wholebody import is_wholebody, join_wholebody

_AT_ONCE = 64
Kinds = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One annotation file and its images.

    No image path may leave the folder `root`. `splits` are the splits that the file contributes to; `split_of` maps an
    image id to one of them. With `in_place`, the images are already at their final paths and keep their names. `name`
    replaces the annotation file in `rejected.csv` and progress bars; default: its path below `root`. Errors about
    categories and joints refer to `origin` instead. With `plain`, the split train may have no annotations.
    """

    annotations: Path
    images: Path
    root: Path
    splits: tuple[str, ...]
    split_of: Callable[[object], str]
    in_place: bool = False
    name: str = ""
    origin: Path | None = None
    plain: bool = False

    @property
    def title(self) -> str:
        """The name, or the annotation file's path below `root`."""
        return self.name or self.annotations.relative_to(self.root).as_posix()

    @property
    def source(self) -> Path:
        """The file that defines categories and joints."""
        return self.origin or self.annotations


class Preparation:
    """Converts raw files to `<split>.json` and `images/<split>/` below `folder`; collects statistics and rejections.

    All splits have the same category of people and the same joints, defined by the first file, so add that of the split
    train first.

    Args:
        folder: output folder.
        progress: whether to show progress bars.
        category: the category of people in the files, or several to merge (`choose_people`).
        keypoints: the settings of the joints.
        key: the dotted key of the settings in messages; it has `category` and `keypoints`.
    """

    def __init__(
        self,
        folder: Path,
        progress: bool = False,
        category: str | Sequence[str] | None = None,
        keypoints: KeypointSettings | None = None,
        key: str = "coco",
    ) -> None:
        self.folder, self.progress, self.category, self.key = folder, progress, category, key
        self.settings = keypoints or KeypointSettings()
        self.people: People | None = None
        self.skeleton: Skeleton | None = None
        self.categories: dict[int, str] = {}
        self.written: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.statistics: dict[str, Statistics] = {}
        self.examples: dict[str, Examples] = {}
        self.rejected: list[Rejected] = []
        self.repairs, self.doubts = Repairs(), Repairs()
        self.records = 0

    @property
    def images(self) -> dict[str, int]:
        """Split -> number of usable images."""
        return {split: len(one.persons_of) for split, one in self.statistics.items()}

    def add(self, raw: Raw) -> None:
        """Validate every record of a raw file and write its splits; raises UserError if the file itself is invalid."""
        head, counts = read_head(raw.annotations)
        try:
            to_json(head)
        except ValueError as error:
            raise UserError(f"{raw.annotations}: holds a number that JSON does not have: {error}") from error
        if "annotations" not in counts and TRAIN in raw.splits and not raw.plain:
            raise UserError(
                f"{raw.annotations}: annotations is missing, as in COCO's image-info files; the split train needs "
                "them, other splits may do without"
            )
        people = self._choose(raw, head, counts)
        joints = people.keypoints if people else ()
        self.records += sum(counts.values())
        annotated = counts.get("annotations", 0) > 0
        for split in raw.splits:
            self.statistics[split] = Statistics(people.id if people else None, joints, annotated)
            self.examples[split] = Examples()
        with ExitStack() as stack:
            spools = {
                kind: {split: stack.enter_context(Spool(self.folder)) for split in raw.splits} for kind in RECORDS
            }
            seen = Seen()
            self._images(raw, seen, spools["images"], counts["images"])
            poses = Poses(len(joints))
            if "annotations" in counts:
                file = _File(raw, head["categories"], people, seen, poses, self.key)
                self._annotations(file, spools["annotations"], counts["annotations"])
            self._decide_skeleton(raw, people, poses)
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
        people = choose_people(raw.source, head["categories"], self.category, self.settings, self.key)
        if people is not None and self.people is not None:
            people = _agreeing(people, self.people, raw.source, self.key)
        if people is not None and self.written and not (self.people and self.people.keypoints):
            _check_no_new_joints(people, raw.source, next(iter(self.statistics)), self.key)
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
        source = Source(
            raw.source, people.entry, list(people.members.values()), people.keypoints, poses, f"{self.key}.keypoints"
        )
        self.skeleton, notes = build_skeleton(source, self.settings)
        self.notes += notes

    def _images(self, raw: Raw, seen: Seen, spools: dict[str, Spool], count: int) -> None:
        records = self._watched(raw, "images", count)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while batch := list(islice(records, _AT_ONCE)):
                declared = [(record, size) for record in batch if (size := self._declared(raw, record, seen))]
                names = [record["file_name"] for record, _ in declared]
                outcomes = pool.map(lambda pair: self._bring(raw, *pair), declared)
                for name, (record, size), outcome in zip(names, declared, outcomes, strict=True):
                    if isinstance(outcome, UnusableError):
                        self._reject(raw, "image", record, outcome)
                        continue
                    for kind in outcome[0]:
                        self.repairs.add_row(Repaired(raw.title, name, kind))
                    for kind in outcome[1]:
                        self.doubts.add(kind, f"{raw.title} {name}")
                    split = raw.split_of(record["id"])
                    seen.images[record["id"]] = size
                    spools[split].add(record)
                    self.statistics[split].add_image(record)
                    self.examples[split].add_image(record)

    def _declared(self, raw: Raw, record: Any, seen: Seen) -> Size | None:
        try:
            size = check_image_record(record, seen)
            name = str(record["file_name"])
            seen.files[name] = name
            file = identity(raw.images / name)
            if file is not None and (before := seen.files.setdefault(file, name)) != name:
                raise UnusableError("image file used twice", f"{name} is the file {before}")
        except UnusableError as fault:
            self._reject(raw, "image", record, fault)
            size = None
        if isinstance(record, dict) and type(record.get("id")) is int:
            seen.images.setdefault(record["id"], None)
        return size

    def _bring(self, raw: Raw, record: dict[str, Any], size: Size) -> tuple[Kinds, Kinds] | UnusableError:
        """Store an image's file at its final path and rename it in the record; return `done` and `doubts` of it."""
        name = record["file_name"]
        final = name if raw.in_place else f"{raw.split_of(record['id'])}/{name}"
        place = None if raw.in_place else self.folder / "images" / final
        try:
            reading = store_image(raw.images, name, size, raw.root, place)
        except UnusableError as fault:
            return fault
        record["file_name"] = final
        return reading.done, reading.doubts

    def _annotations(self, file: "_File", spools: dict[str, Spool], count: int) -> None:
        raw = file.raw
        for record in self._watched(raw, "annotations", count):
            try:
                name, is_person = file.check(record)
                split = raw.split_of(record["image_id"])
                spools[split].add(record)
            except UnusableError as fault:
                self._reject(raw, "annotation", record, fault)
            except ValueError:  # the checks cover COCO's keys; other keys are arbitrary
                self._reject(raw, "annotation", record, UnusableError("number not finite"))
            except RecursionError:
                self._reject(raw, "annotation", record, UnusableError("nested too deeply"))
            else:
                file.accept(record, is_person)
                self.statistics[split].add_annotation(record, name)
                self.examples[split].add_annotation(record, name, is_person)

    def _watched(self, raw: Raw, section: str, count: int) -> Iterator[Any]:
        records = read_records(raw.annotations, section)
        return iter(tqdm(records, f"{raw.title}: {section}", count, disable=not self.progress))

    def _reject(self, raw: Raw, kind: str, record: Any, fault: UnusableError) -> None:
        known = record if isinstance(record, dict) else {}
        split = raw.split_of(known.get("id" if kind == "image" else "image_id"))
        self.statistics[split].rejected[fault.reason] += 1
        self.rejected.append(Rejected(raw.title, kind, str(known.get("id", ""))[:80], fault.reason, fault.detail))

    def add_rejected(self, split: str, rejected: Rejected) -> None:
        """Count an unreadable record of an added split."""
        self.records += 1
        self.statistics[split].rejected[rejected.reason] += 1
        self.rejected.append(rejected)

    def finish(self) -> None:
        """Write `facts.json`, `statistics.json`, `plots/`, `rejected.csv` and `manifest.json` beside the splits."""
        write_facts(
            self.folder,
            skeleton=self.skeleton,
            categories=self.categories,
            people=self.people.name if self.people else None,
            annotated={split: one.facts() for split, one in self.statistics.items()},
        )
        summaries = {split: one.summary() for split, one in self.statistics.items()}
        write_text(self.folder / "statistics.json", json.dumps(summaries, indent=2) + "\n")
        write_plots(self.statistics, self.folder / "plots")
        write_people(self.examples, self.folder / "images", self.skeleton, self.folder / "plots" / "people.png")
        self.list_rejected(self.folder / REJECTED)
        self.repairs.write(self.folder / REPAIRED)
        write_manifest(self.folder)

    def lines(self) -> Iterator[str]:
        """Yield the rules applied to the joints, one line each, and a summary of each split."""
        yield from self.notes
        yield from self.repairs.lines()
        yield from self.doubts.lines("warning")
        if self.people is None and self.categories:
            names = ", ".join(self.categories.values())
            yield f"{self.key}.category: no category has keypoints, so there are boxes alone; categories: {names}"
        elif self.people is not None and len(self.people.members) > 1:
            names = ", ".join(str(one.get("name")) for one in self.people.members.values())
            yield f"{self.key}.category: {self.people.name} is {names}"
        for split, one in self.statistics.items():
            yield f"{split}: {one.line()}"

    def list_rejected(self, path: Path) -> None:
        """Write every rejected record, with its reason, as CSV."""
        write_rejected(path, Rejected._fields, self.rejected)


@dataclass
class _File:
    """The annotations of a raw file: checks them, and gives people the category and joints of the dataset."""

    raw: Raw
    categories: list[dict[str, Any]]
    people: People | None
    seen: Seen
    poses: Poses
    key: str

    def __post_init__(self) -> None:
        self.names = {one["id"]: str(one.get("name")) for one in self.categories}
        members = frozenset(self.people.members) if self.people else frozenset[int]()
        self.known = Categories(frozenset(self.names), members, self.people.keypoints if self.people else ())

    def check(self, record: Any) -> tuple[str, bool]:
        """Return the category name in the file, and whether it is one of people; modifies the record accordingly.

        Raises:
            UnusableError: the record cannot be used.
        """
        category = record.get("category_id") if isinstance(record, dict) else None
        is_person = type(category) is int and category in self.known.people
        if is_person and is_wholebody(record, self.known.joints):
            image = record.get("image_id")
            join_wholebody(record, self.seen.images.get(image) if type(image) is int else None)
        if is_person and record.get("keypoints") and not self.known.joints:
            raise UnusableError(f"keypoints without names; write these to {self.key}.keypoints")
        check_annotation(record, self.seen, self.known)
        name = self.names[record["category_id"]]
        if is_person and self.people is not None and self.people.renames(record["category_id"], name):
            record |= {"category_id": self.people.id, "source_category": name}
        return name, is_person

    def accept(self, record: dict[str, Any], is_person: bool) -> None:
        """Register a usable record, and the joints of a person."""
        self.seen.annotations.add(record["id"])
        keypoints = record.get("keypoints", ())
        if is_person and not record.get("iscrowd", 0) and any(keypoints[2::3]):
            self.poses.add(record["bbox"], keypoints)


def _agreeing(people: People, first: People, path: Path, key: str) -> People:
    """Adapt the category of people of a further file to the first file.

    If the first file has several merged categories, those of the further file become the same one. If it has one, only
    this one of several is used.

    Raises:
        UserError: they are not the same category.
    """
    if len(first.members) > 1:
        people = replace(people, id=first.id, name=first.name)
    elif len(people.members) > 1:
        people = _alone(people, first, path, key)
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


def _alone(people: People, first: People, path: Path, key: str) -> People:
    """Restrict people to the category of the first file; raises UserError if it is not among the members."""
    member = people.members.get(first.id)
    if member is None or str(member.get("name")) != first.name:
        names = ", ".join(str(one.get("name")) for one in people.members.values())
        raise UserError(
            f"{path}: categories: {names} have joints; in the file of another split it is {first.name!r} with id "
            f"{first.id} alone; name one category of both files in {key}.category"
        )
    return replace(people, id=first.id, name=first.name, members={first.id: member})


def _check_no_new_joints(people: People, path: Path, first: str, key: str) -> None:
    """Raise UserError if the file names joints but that of the split `first` does not."""
    if people.entry.get("keypoints"):
        raise UserError(
            f"{path}: categories: {people.name} has keypoints, but not in the file of {first}; write their names to "
            f"{key}.keypoints"
        )

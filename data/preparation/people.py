"""Preparing a people dataset from raw COCO files: usable records, one canonical JSON per split, statistics."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data.formats.coco import Spool, person_category, read_head, read_records, to_json, write_coco
from data.preparation.manifest import write_manifest, write_rejected
from data.preparation.statistics import Statistics, write_plots
from data.preparation.validation import (
    Categories,
    Rejected,
    Seen,
    Size,
    UnusableError,
    check_annotation,
    check_image_file,
    check_image_record,
)
from models.base.errors import UserError
from models.base.files import write_text

_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One annotation file and its images.

    No image path may leave the folder `root`. `splits` are the splits that the file feeds; `split_of` maps an image id
    to one of them. With `in_place` the images already lie in their final place and keep their names. `name` stands for
    the annotation file in `rejected.csv` and at progress bars; default: its path below `root`.
    """

    annotations: Path
    images: Path
    root: Path
    splits: tuple[str, ...]
    split_of: Callable[[object], str]
    in_place: bool = False
    name: str = ""

    @property
    def title(self) -> str:
        """The name, or the annotation file's path below `root`."""
        return self.name or self.annotations.relative_to(self.root).as_posix()


def hashed_split(seed: int, validation_share: float) -> Callable[[object], str]:
    """Return a split by image id: `validation` if the SHA-256 of seed and id, as a fraction, is below the share.

    The split of an image does not depend on the other images.
    """

    def split_of(image_id: object) -> str:
        digest = hashlib.sha256(f"{seed}:{image_id}".encode()).digest()
        return "validation" if int.from_bytes(digest[:8]) < validation_share * 2**64 else "train"

    return split_of


class Preparation:
    """Turns raw files into `<split>.json` and `images/<split>/` below `folder`; collects statistics and rejections."""

    def __init__(self, folder: Path, progress: bool = False) -> None:
        self.folder, self.progress = folder, progress
        self.statistics: dict[str, Statistics] = {}
        self.rejected: list[Rejected] = []
        self.records = 0

    @property
    def images(self) -> dict[str, int]:
        """Split -> number of usable images."""
        return {split: len(one.persons_of) for split, one in self.statistics.items()}

    def add(self, raw: Raw) -> None:
        """Validate every record of a raw file and write its splits; raises UserError if the file itself is faulty."""
        head, counts = read_head(raw.annotations)
        person = person_category(raw.annotations, head["categories"])
        categories = Categories(frozenset(one["id"] for one in head["categories"]), person)
        try:
            to_json(head)
        except ValueError as error:
            raise UserError(f"{raw.annotations}: holds a number that JSON does not have: {error}") from error
        self.records += sum(counts.values())
        self.statistics |= {split: Statistics(person) for split in raw.splits}
        with ExitStack() as stack:
            spools = {kind: {split: stack.enter_context(Spool(self.folder)) for split in raw.splits} for kind in counts}
            seen = Seen()
            self._images(raw, seen, spools["images"], counts["images"])
            self._annotations(raw, seen, categories, spools["annotations"], counts["annotations"])
            for split in raw.splits:
                lines = (spools[kind][split].lines() for kind in ("images", "annotations"))
                write_coco(self.folder / f"{split}.json", head, *lines)

    def _images(self, raw: Raw, seen: Seen, spools: dict[str, Spool], count: int) -> None:
        records = self._watched(raw, "images", count)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while batch := list(islice(records, _AT_ONCE)):
                declared = [(record, size) for record in batch if (size := self._declared(raw, record, seen))]
                faults = pool.map(lambda pair: self._bring(raw, *pair), declared)
                for (record, size), fault in zip(declared, faults, strict=True):
                    if fault:
                        self._reject(raw, "image", record, fault)
                        continue
                    split = raw.split_of(record["id"])
                    seen.images[record["id"]] = size
                    spools[split].add(record)
                    self.statistics[split].add_image(record["id"])

    def _declared(self, raw: Raw, record: Any, seen: Seen) -> Size | None:
        try:
            size = check_image_record(record, seen)
            seen.files.add(record["file_name"])
        except UnusableError as fault:
            self._reject(raw, "image", record, fault)
            size = None
        if isinstance(record, dict) and type(record.get("id")) is int:
            seen.images.setdefault(record["id"], None)
        return size

    def _bring(self, raw: Raw, record: dict[str, Any], size: Size) -> UnusableError | None:
        """Check an image's file, copy it to its place and rename it in the record."""
        try:
            path = check_image_file(raw.images, record["file_name"], size, raw.root)
        except UnusableError as fault:
            return fault
        if not raw.in_place:
            record["file_name"] = f"{raw.split_of(record['id'])}/{record['file_name']}"
            place = self.folder / "images" / record["file_name"]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        return None

    def _annotations(self, raw: Raw, seen: Seen, categories: Categories, spools: dict[str, Spool], count: int) -> None:
        for record in self._watched(raw, "annotations", count):
            try:
                check_annotation(record, seen, categories)
                split = raw.split_of(record["image_id"])
                spools[split].add(record)
            except UnusableError as fault:
                self._reject(raw, "annotation", record, fault)
            except ValueError:  # the checks cover COCO's keys; other keys may hold anything
                self._reject(raw, "annotation", record, UnusableError("number not finite"))
            else:
                seen.annotations.add(record["id"])
                self.statistics[split].add_annotation(record)

    def _watched(self, raw: Raw, section: str, count: int) -> Iterator[Any]:
        records = read_records(raw.annotations, section)
        return iter(tqdm(records, f"{raw.title}: {section}", count, disable=not self.progress))

    def _reject(self, raw: Raw, kind: str, record: Any, fault: UnusableError) -> None:
        known = record if isinstance(record, dict) else {}
        split = raw.split_of(known.get("id" if kind == "image" else "image_id"))
        self.statistics[split].rejected[fault.reason] += 1
        self.rejected.append(Rejected(raw.title, kind, str(known.get("id", ""))[:80], fault.reason, fault.detail))

    def finish(self) -> None:
        """Write `statistics.json`, `plots/`, `rejected.csv` and `manifest.json` beside the splits."""
        summaries = {split: one.summary() for split, one in self.statistics.items()}
        write_text(self.folder / "statistics.json", json.dumps(summaries, indent=2) + "\n")
        write_plots(self.statistics, self.folder / "plots")
        self.list_rejected(self.folder / "rejected.csv")
        write_manifest(self.folder)

    def lines(self) -> Iterator[str]:
        """Yield a summary of each split, one line each."""
        for split, one in self.statistics.items():
            yield (
                f"{split}: {len(one.persons_of)} images, {len(one.heights)} persons ({one.with_keypoints} with "
                f"keypoints), {one.crowds} crowd regions, {one.others} other objects, {one.rejected.total()} records "
                "rejected"
            )

    def list_rejected(self, path: Path) -> None:
        """Write every rejected record, with its reason, as CSV."""
        write_rejected(path, Rejected._fields, self.rejected)

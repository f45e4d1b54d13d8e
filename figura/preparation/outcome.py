"""What every preparation writes beside its splits: statistics, rejected and repaired records, the manifest."""

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from figura.base.archive_writer import ArchiveWriter
from figura.base.files import replacing, write_text
from figura.base.manifest import MANIFEST
from figura.base.pictures import left_out_line
from figura.formats.prepared import REJECTED, archive_of

REPAIRED = "repaired.csv"
MOST = 10_000  # rows of `repaired.csv` of one kind


class Rejected(NamedTuple):
    """A row of `rejected.csv`: the annotation file, `image` or `annotation`, the record's id, and why."""

    file: str
    kind: str
    id: str
    reason: str
    detail: str


class Repaired(NamedTuple):
    """A row of `repaired.csv`: the file, the record's id or name, the kind of repair, the value before and after."""

    file: str
    record: str
    kind: str
    before: str = ""
    after: str = ""


class Repairs:
    """The repairs of a dataset, or of a split. The first `MOST` of a kind are listed; all are counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.rows: list[Repaired] = []

    def add(self, kind: str, example: str) -> None:
        """Count a repair of this kind; `example` says where and what, for the first of its kind."""
        self.counts[kind] += 1
        self.examples.setdefault(kind, example)

    def add_row(self, row: Repaired) -> None:
        """Count a repair and list it."""
        if self.counts[row.kind] < MOST:
            self.rows.append(row)
        change = f": {row.before} -> {row.after}" if row.before or row.after else ""
        self.add(row.kind, f"{row.file} {row.record}{change}")

    def join(self, other: "Repairs") -> None:
        """Count and list those of another part of the dataset, too."""
        self.counts += other.counts
        self.examples = other.examples | self.examples
        self.rows += other.rows

    def lines(self, word: str = "repaired") -> list[str]:
        """Return one line a kind, the most frequent first."""
        return [f"{word}: {count} {kind} (e.g. {self.examples[kind]})" for kind, count in self.counts.most_common()]

    def as_statistics(self) -> dict[str, dict[str, Any]]:
        """Return kind -> its count and an example, sorted by kind."""
        return {kind: {"count": count, "example": self.examples[kind]} for kind, count in sorted(self.counts.items())}


def rejected_line(rejected: Counter[str], what: str = "") -> str:
    """Return the number of rejected records, and of each reason; `what` is a word for them."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in rejected.most_common())
    return f"{rejected.total()} {what}rejected{f' ({reasons})' if reasons else ''}"


class Outcome:
    """The counts of a preparation, and the files that tell them in the prepared `folder`.

    Attributes:
        drawn: whether figura drew the data, which no photo resembles.
        statistics: by split: `images`, a number; `rejected`, a count of reasons; `repairs`; and `summary()`.
        rejected: rows of `rejected.csv`, whose header is `columns`.
        suspicions: what looks wrong, for warnings.
        notes: further lines to print.
        left_out: files that are no records, by what they are.
        records: the number of all records.
    """

    columns: ClassVar[tuple[str, ...]]
    drawn = False

    def __init__(self, folder: Path, progress: bool = False) -> None:
        self.folder, self.progress = folder, progress
        self.statistics: dict[str, Any] = {}
        self.rejected: list[Any] = []
        self.suspicions = Repairs()
        self.notes: list[str] = []
        self.left_out = Counter[str]()
        self.records = 0

    @classmethod
    def of(cls, section: Any, key: str, folder: Path, progress: bool) -> Self:
        """Return a preparation by the section of an entry of `data/params.yaml`, whose dotted key is `key`."""
        return cls(folder, progress)

    @property
    def images(self) -> dict[str, int]:
        """Split -> number of usable images, or pairs of them."""
        return {split: one.images for split, one in self.statistics.items()}

    def reject(self, split: str, row: Any) -> None:
        """Count and list a rejected record of an added split."""
        self.statistics[split].rejected[row.reason] += 1
        self.rejected.append(row)

    def repairs(self) -> Repairs:
        """Return the repairs of all splits."""
        every = Repairs()
        for one in self.statistics.values():
            every.join(one.repairs)
        return every

    def finish(self) -> None:
        """Write `statistics.json`, lists of records and `manifest.json`; the splits are there already."""
        summaries = {split: one.summary() for split, one in self.statistics.items()}
        write_text(self.folder / "statistics.json", json.dumps(summaries, indent=2) + "\n")
        self.list_rejected(self.folder / REJECTED)
        if rows := self.repairs().rows:
            _write_rows(self.folder / REPAIRED, Repaired._fields, rows)
        self.notes += write_manifest(self.folder, self.drawn)

    def list_rejected(self, path: Path) -> None:
        """Write every rejected record, with its reason, as CSV."""
        _write_rows(path, self.columns, self.rejected)

    def lines(self) -> Iterator[str]:
        """Yield what was repaired and what looks wrong, one line a kind, and notes."""
        yield from self.repairs().lines()
        yield from self.suspicions.lines("warning")
        yield from self.notes
        if self.left_out:
            yield left_out_line(self.left_out)


def _write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table as CSV with a header, atomically."""
    with replacing(path) as temporary, temporary.open("w", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_manifest(folder: Path, drawn: bool = False) -> list[str]:
    """Move the splits' pictures to archives, and write `manifest.json` for the data in `folder`.

    It is `{"files": n, "hashes": {path: hash}, "sha256": hash}`, of drawn data with `"drawn": true`. `hashes` has the
    SHA-256 of each file and archive, `sha256` that of the paths and hashes of all files, as they were before, in order;
    `files` counts these. None covers `manifest.json` itself and `plots/`, which are for people.

    Returns a warning for every two splits that have pictures of the same bytes.
    """
    total, hashes, own = hashlib.sha256(), dict[str, str](), dict[str, str]()
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = (path.as_posix() for path in paths if path.parts[0] not in (MANIFEST, "plots"))
    for archive, group in groupby(names, lambda name: archive_of(name)[0]):
        writer = ArchiveWriter(folder, archive) if (folder / archive).is_dir() else None
        for name in group:
            path = folder / name
            if writer is not None and _is_unicode(name):
                content = path.read_bytes()
                hashes[name] = hashlib.sha256(content).hexdigest()
                writer.add(archive_of(name)[1], content)
                path.unlink()
            else:
                with path.open("rb") as file:
                    hashes[name] = own[name] = hashlib.file_digest(file, "sha256").hexdigest()
            total.update(f"{name}\0{hashes[name]}\n".encode(errors="surrogateescape"))
        if writer is not None:
            writer.end()
            own |= writer.sums
            for parent, *_ in os.walk(folder / archive, topdown=False):
                with suppress(OSError):  # not empty
                    os.rmdir(parent)
    manifest = {"files": len(hashes), "hashes": own, "sha256": total.hexdigest()} | ({"drawn": True} if drawn else {})
    write_text(folder / MANIFEST, json.dumps(manifest, indent=0) + "\n")
    return _in_two_splits(hashes)


def _is_unicode(name: str) -> bool:
    return name == name.encode(errors="ignore").decode()


def _in_two_splits(hashes: Mapping[str, str]) -> list[str]:
    """Return a warning for every two splits with equal pictures; pairs in folders a and b are equal if both are."""
    pictures: dict[str, dict[str, str]] = {}  # split -> name, of pairs without a/ or b/ and suffix -> hashes
    for name, one in hashes.items():
        parts = Path(name).parts[1:] if name.startswith("images/") else Path(name).parts
        if len(parts) > 1:
            of_pair = len(parts) > 2 and parts[1] in "ab" and not name.startswith("images/")
            rest = str(Path(*parts[2:]).with_suffix("")) if of_pair else "/".join(parts[1:])
            of_split = pictures.setdefault(parts[0], {})
            of_split[rest] = of_split.get(rest, "") + one
    lines = []
    for one, other in combinations(pictures, 2):
        before = set(pictures[one].values())
        same = [name for name, picture in pictures[other].items() if picture in before]
        if same:
            lines.append(
                f"warning: {len(same)} of {len(pictures[other])} pictures of {other} have the bytes of one in {one}, "
                f"such as {same[0]}: scores on them say little about new pictures"
            )
    return lines

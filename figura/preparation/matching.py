"""What an export says -> the dataset's terms: pictures and joints by name."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from figura.base.errors import UserError
from figura.formats.exports import OF_COUNT, Entry, Export
from figura.formats.keypoint_sets import SETS, plain_name, set_of
from figura.formats.records import Size, UnusableError


class PictureNames:
    r"""Finds pictures by the names that exports give them: with more or fewer folders, another suffix, a number.

    Names are compared without case, URL-encoding and Unicode's decomposition; `\` separates folders, too.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = set(files)
        self._by_stem: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._by_number: dict[int, list[str]] = defaultdict(list)
        self._names: dict[str, str | int] = {}  # of pictures that were found
        for file in files:
            parts = path_parts(file)
            self._by_stem[_stem(parts[-1])].append((parts, file))
            if (stem := _stem(parts[-1])).isascii() and stem.isdecimal() and len(stem) < 19:
                self._by_number[int(stem)].append(file)

    def find(self, name: str | int) -> str:
        """Return the picture whose path ends as the name does, or the other way round.

        Raises:
            UnusableError: there is none, there are several, or another name found it before.
        """
        if isinstance(name, int):
            found = self._by_number.get(name, [])
        elif name in self._files:
            found = [name]
        else:
            parts = path_parts(name)
            among = (self._by_stem.get(_stem(parts[-1])) or self._by_stem.get(parts[-1], [])) if parts else []
            among = [pair for pair in among if _fits(pair[0], parts)]
            same = [pair for pair in among if pair[0][-1] == parts[-1]] or among
            common = [equal_end(parts[:-1], have[:-1]) for have, _ in same]
            found = [file for (_, file), count in zip(same, common, strict=True) if count == max(common)]
        if len(found) > 1:
            raise UnusableError("several pictures have the name", f"{name}: {', '.join(found[:3])}")
        if not found:
            raise UnusableError("image file missing", name)
        if (before := self._names.setdefault(found[0], name)) != name:
            raise UnusableError("two names for one picture", f"{before} and {name}: {found[0]}")
        return found[0]

    def nearest(self, name: str) -> str | None:
        """Return the one file of this name, whatever its folders: the one with most of them; None if several have."""
        parts = path_parts(name)
        same = [pair for pair in self._by_stem.get(_stem(parts[-1]), ()) if pair[0][-1] == parts[-1]] if parts else []
        common = [equal_end(have, parts) for have, _ in same]
        found = [file for (_, file), count in zip(same, common, strict=True) if count == max(common)]
        return found[0] if len(found) == 1 else None


def path_parts(name: str) -> tuple[str, ...]:
    r"""Return the folders and the name of a path without case, URL-encoding, Unicode's decomposition, `\` and dots."""
    plain = unicodedata.normalize("NFC", unquote(name.strip())).lower().replace("\\", "/")
    return tuple(part for part in PurePosixPath(plain).parts if part not in ("/", ".", ".."))


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _fits(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether the folders of one end as those of the other."""
    return equal_end(one[:-1], other[:-1]) == min(len(one), len(other)) - 1


def equal_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal last parts of two paths."""
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


class Joints:
    """Brings the joints of an export into the order of the dataset's.

    The dataset's joints are those of the settings, or else the export's own. A published set and the export's joints
    are matched by name (`plain_name`), as OpenPose's to COCO's; joints that the export does not have are not labelled.
    Other names in the settings are new names of as many joints. Joints that the export does not name have the names in
    the settings, if these are as many, or else those of the published set that has as many.

    Attributes:
        names: the dataset's joints; empty if nothing has joints.
        notes: lines on what was assumed.

    Raises:
        UserError: the joints have no names, or none of those in the settings.
    """

    def __init__(self, export: Export, stated: Sequence[str], key: str) -> None:
        self.notes: list[str] = []
        count = len(export.joints) or next(_counts(export), 0)
        own = export.joints or (tuple(stated) if count == len(stated) else OF_COUNT.get(count, ()))
        if count and not own:
            raise UserError(
                f"{key}.keypoints: {export.path.name}: {export.format} have {count} joints without names; write "
                f"{count} names to {key}.keypoints.keypoints"
            )
        unnamed = export.joints and export.joints[0] == "joint_1"
        if len(stated) == count and (unnamed or not set_of(stated)):
            own = tuple(stated)
        elif unnamed or (count and not export.joints and own != tuple(stated)):
            named = next((name for name, one in SETS.items() if one.keypoints == own), "OpenPose's 18")
            assumed = "have no names" if unnamed else f"are taken for those of {named}"
            self.notes.append(
                f"{key}.keypoints: the {count} joints of {export.path.name} {assumed}; other names can stand there"
            )
        self.names = tuple(stated) or (OF_COUNT[17] if count == 18 and own == OF_COUNT[18] else own)
        self.count = count
        places = {plain_name(name): place for place, name in enumerate(own)}
        if not own or own == self.names or len(places) < len(own):
            self._places: list[int | None] | None = None
        else:
            self._places = [places.get(plain_name(name)) for name in self.names]
            missing = [name for name, place in zip(self.names, self._places, strict=True) if place is None]
            if len(missing) == len(self.names):
                raise UserError(
                    f"{key}.keypoints: {export.path.name} has none of these joints; it has {', '.join(own[:20])}"
                )
            left = sorted({plain_name(name) for name in own} - {plain_name(name) for name in self.names})
            if missing:
                self.notes.append(f"{export.path.name}: has no {_some(missing)}: not labelled")
            if left:
                self.notes.append(f"{export.path.name}: {_some(left)} left out: not among the joints of the dataset")

    @property
    def moved(self) -> bool:
        """Whether the order changes."""
        return self._places is not None

    def ordered(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a record with its joints in the dataset's order, zeros for those that it does not have.

        Joints that would move, but are not three values each, become a text, which `normalise` drops and tells.
        """
        keypoints = record.get("keypoints")
        if self._places is None or not keypoints:
            return record
        if not isinstance(keypoints, list) or len(keypoints) != 3 * self.count:
            length = f"{len(keypoints)} numbers" if isinstance(keypoints, list) else repr(keypoints)[:80]
            return {**record, "keypoints": f"{length} instead of {self.count} x 3"}
        joints = [(0, 0, 0) if one is None else keypoints[3 * one : 3 * one + 3] for one in self._places]
        return {**record, "keypoints": [number for joint in joints for number in joint]}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"


def _counts(export: Export) -> Iterator[int]:
    """Yield the numbers of joints of the records."""
    for entry in export.entries():
        keypoints = entry.record.get("keypoints") if isinstance(entry.record, dict) else None
        if isinstance(keypoints, list) and keypoints and not len(keypoints) % 3:
            yield len(keypoints) // 3


def check_size(entry: Entry, size: Size, path: Path, file: str) -> None:
    """Raise UserError if an entry was made for a picture of another size; `Size(1, 1)` stands for no picture."""
    if entry.size is not None and size not in (entry.size, Size(1, 1)):
        raise UserError(
            f"{path}: {entry.picture} is {entry.size.width} x {entry.size.height} pixels there, but {file} is "
            f"{size.width} x {size.height}; poses are in pixels of the pictures"
        )

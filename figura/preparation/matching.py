"""What an export says -> the dataset's terms: joints by name."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.formats.exports import OF_COUNT, Entry, Export
from figura.formats.keypoint_sets import SETS, plain_name, set_of
from figura.formats.records import Size


class Joints:
    """Brings the joints of an export into the order of the dataset's.

    The dataset's joints are those of the settings, or else the export's own. A published set and the export's joints
    are matched by name (`plain_name`), as OpenPose's to COCO's; joints that the export does not have are not labelled.
    Other names in the settings are new names of as many joints. Joints that the export does not name have the names in
    the settings, if these are as many, or else those of the one published set that has as many.

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
                f"{count} names to {key}.keypoints.keypoints{_further(count)}"
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


def _further(count: int) -> str:
    """Return the other ways to name joints."""
    sets = [f"`keypoints: {name}` if they are its, or " for name, one in SETS.items() if len(one.keypoints) == count]
    return f"; or {''.join(sets)}the file of figura's `to_coco()`, which names those of its networks"


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

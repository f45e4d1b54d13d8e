"""The images of a raw COCO file: which file each record means, its true size, and which way up it is read."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from figura.base.errors import UserError
from figura.base.links import real_path
from figura.base.raw_pictures import Orientation, picture_facts
from figura.formats.coco import file_name_of
from figura.formats.normalise import Conventions, from_corner, labelled_points
from figura.formats.records import Size, UnusableError, numbered_apart, real_numbers, whole_number
from figura.preparation.picture_names import PictureNames, equal_end, path_parts
from figura.preparation.pictures import inside
from figura.preparation.questions import JointCounts

_FREE = 1 << 62
Reached = tuple[float, float]
Reach = Mapping[int, Reached]  # image id -> the largest x and y of its annotations

_BOTH = (
    "images whose record has width and height exchanged, and whose annotations fit both ways, read as the file is: "
    "were they turned, and their EXIF orientation stripped?"
)
_JOINED = (
    "image files listed under two ids, both with annotations, which are joined: of two videos with the same names of "
    "frames, give each a folder"
)
_ROUNDED = 2  # pixels by which tools err in a side
_CLOSE = 1.01  # annotations may reach this far beyond a side


def record_key(value: Any) -> Any:
    """Return an id as a key: a whole number where it is one without loss, else a text; None for neither."""
    number = whole_number(value)
    return number if number is not None else (value if isinstance(value, str) and value else None)


@dataclass
class ImageRecord:
    """A usable image record with its id, the file that it means, and the file's size as stored and upright.

    `path` is the file's real path, equal for all its symbolic links.
    """

    record: dict[str, Any]
    id: int
    file: str
    path: Path
    stored: Size = field(default_factory=lambda: Size(0, 0))
    upright: Size = field(default_factory=lambda: Size(0, 0))
    turned: bool = False
    """Whether EXIF asks for a rotation or a reflection."""

    @property
    def stated(self) -> Size | None:
        """The size in the record; None if there is none."""
        sides = [whole_number(self.record.get(key)) or 0 for key in ("width", "height")]
        return Size(*sides) if min(sides) > 0 and max(sides) > 1 else None

    @property
    def exchanged(self) -> bool:
        """Whether the record has the sides of an image without EXIF the other way round."""
        return not self.turned and self.stated is not None and self.stated != self.stored == self.stated[::-1]


@dataclass
class Scan:
    """What is known of the records of a file before they are read one by one.

    `further` is called with each section and record, too. `files` maps ids to file names; `several` are ids of several
    files, `annotated` those of images with annotations, `categories` those of the annotations' categories. The largest
    ids are below `_FREE`: those that preparation makes up follow, and must have 64 bits.
    """

    further: Callable[[str, Any], None] | None
    joints: JointCounts = field(default_factory=JointCounts)
    files: dict[Any, Any] = field(default_factory=dict)
    several: set[Any] = field(default_factory=set)
    annotated: set[Any] = field(default_factory=set)
    categories: set[int | None] = field(default_factory=set)
    largest_image: int = 0
    largest_annotation: int = 0

    def look(self, section: str, record: Any) -> None:
        """Note what a record of a section tells."""
        if self.further is not None:
            self.further(section, record)
        if not isinstance(record, dict):
            return
        number = record_key(record.get("id"))
        free = number if isinstance(number, int) and number < _FREE else 0
        if section == "annotations":
            self.joints.add(record)
            self.annotated.add(record_key(record.get("image_id")))
            self.categories.add(whole_number(record.get("category_id")))
            self.largest_annotation = max(self.largest_annotation, free)
        elif number is not None:
            self.largest_image = max(self.largest_image, free)
            if self.files.setdefault(number, name := file_name_of(record)) != name:
                self.several.add(number)

    def check_categories(self, path: Path, known: set[int]) -> None:
        """Raise UserError if the annotations count the categories from another number than their list."""
        if apart := numbered_apart(self.categories, known):
            raise UserError(f"{path}: annotations name the categories {apart}")


class ImageRecords:
    """The image records of a file, whose images are in `folder`, below a `root` that no path may leave.

    `wanted` is which way up turned pictures are read, None for the one that fits. `repair` counts a repair (id or name,
    kind, before, after), `suspect` what looks wrong (kind, file).
    """

    def __init__(
        self,
        folder: Path,
        root: Path,
        scan: Scan,
        wanted: Orientation | None,
        repair: Callable[[str, str, str, str], None],
        suspect: Callable[[str, str], None],
    ) -> None:
        self.folder, self.root, self.scan, self.wanted = folder, root, scan, wanted
        self.repair, self.suspect = repair, suspect
        self._next = scan.largest_image + 1
        self.ids: dict[Any, int] = {}
        """Key in the file -> id, where they differ."""
        self._of_file: dict[str, tuple[int, Any]] = {}
        """Path -> the id of its image, and the key of its record."""
        self._keys: set[Any] = set()

    def declare(self, record: Any) -> ImageRecord | None:
        """Return a record with its id and file; None if an earlier one means the same file.

        Raises:
            UnusableError: it has no id or no name, or its id is also that of another file.
        """
        if not isinstance(record, dict):
            raise UnusableError("not an object", repr(record)[:80])
        key = record_key(record.get("id"))
        if key is None:
            raise UnusableError("id is neither a number nor a text", repr(record.get("id"))[:80])
        if key in self.scan.several:
            raise UnusableError("images of the same id", str(key)[:80])
        name = file_name_of(record)
        if not isinstance(name, str) or not name:
            raise UnusableError("file name missing", repr(name)[:80])
        number = key
        if type(record["id"]) is not int:
            number = self._numbered(key)
            self.repair(f"image {name}", "image ids that are no whole numbers", repr(record["id"])[:60], str(number))
        file, path = self._find(name)
        if record.get("file_name") is None:
            self.repair(f"image {number}", "images without file_name, named by their coco_url", name, file)
        elif file != str(PurePosixPath(name)):
            self.repair(f"image {number}", "file names in another form", name, file)
        earlier, first = self._of_file.setdefault(str(path), (number, key))
        if earlier != number or key in self._keys:
            self.ids[key] = earlier
            if key != first and {key, first} <= self.scan.annotated:
                self.suspect(_JOINED, file)
            else:
                self.repair(f"image {number}", "images listed twice", file, f"image {earlier}")
            return None
        self._keys.add(key)
        return ImageRecord(record, number, file, path)

    def _numbered(self, key: Any) -> int:
        number = key if isinstance(key, int) else self._next
        self._next += number == self._next
        self.ids[key] = number
        return number

    @cached_property
    def _files(self) -> PictureNames:
        walk = ((Path(parent).relative_to(self.folder), files) for parent, _, files in os.walk(self.folder))
        return PictureNames([(below / file).as_posix() for below, files in walk for file in files])

    def _find(self, name: str) -> tuple[str, Path]:
        """Return the file's name below the folder, for a path of another machine by its last parts, and its real path.

        Back slashes, percent signs, case and accents do not matter. It is `name` itself if no other file fits, several
        do, or a record of another folder names that file, too.

        Raises:
            UnusableError: the name leaves the root, and no file below the folder fits.
        """
        outside: UnusableError | None = None
        try:
            plain = PurePosixPath(name)
            if plain.is_absolute():
                if not plain.is_relative_to(self.folder):
                    raise UnusableError("path leaves the data root", name)
                plain = plain.relative_to(self.folder)
            path = inside(self.folder, str(plain), self.root)
            if path.is_file():
                return str(plain), path
        except UnusableError as error:
            outside = error
        if (found := self._files.nearest(name)) and not self._is_anothers(found, name):
            place = self.folder / found
            return found, real_path(place, self.root) or Path(os.path.realpath(place))
        if outside:
            raise outside
        return name, path

    @cached_property
    def _names(self) -> dict[str, set[tuple[str, ...]]]:
        """Last part -> the parts of all names in the records that end so."""
        names: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for name in self.scan.files.values():
            if isinstance(name, str) and (parts := path_parts(name)):
                names[parts[-1]].add(parts)
        return names

    def _is_anothers(self, file: str, name: str) -> bool:
        """Whether a record with other folders in its name names a file as well as this name, or better."""
        have, own = path_parts(str(self.folder / file)), path_parts(name)
        others = (one for one in self._names[own[-1]] if equal_end(one, own) < min(len(one), len(own)))
        return any(equal_end(one, have) >= equal_end(own, have) for one in others)

    def look(self, image: ImageRecord) -> UnusableError | None:
        """Read the file and set its sizes; return why it cannot be used."""
        try:
            if not image.path.is_relative_to(self.root):
                inside(self.folder, image.file, self.root)
            if not image.path.is_file():
                return UnusableError("image file missing", image.file)
            facts = picture_facts(image.path)
        except UnusableError as fault:
            return fault
        except UserError as error:
            return UnusableError("image file broken", str(error).replace(str(image.path), image.file))
        image.stored, image.upright, image.turned = Size(*facts.stored), Size(*facts.upright), facts.orientation > 1
        return None

    def settle(self, image: ImageRecord, reach: Reach | None = None) -> Orientation | UnusableError | None:
        """Return which way up an image is read, or why it cannot be used; None if nothing decides. Repairs the size.

        That is the setting, or the way whose size the record states, or that its annotations fit. `reach` is None
        before these are read.
        """
        stated, size, wanted = image.stated, image.stored, self.wanted
        if image.stored == image.upright and not image.turned:
            if stated is None or max(abs(a - b) for a, b in zip(stated, size, strict=True)) <= _ROUNDED:
                return self._sized(image, "upright")
            return None if reach is None else self._contradicted(image, stated, reach.get(image.id))
        if wanted is None and image.stored != image.upright == stated:
            wanted = "upright"
        ways: tuple[Orientation, ...] = ("upright", "stored")
        fitting = [way for way in ways if reach is not None and _fits(reach.get(image.id), _size(image, way))]
        if wanted is None and len(fitting) == 1:
            wanted = fitting[0]
        return wanted and self._sized(image, wanted)

    def settle_by_reach(
        self, images: Iterable[ImageRecord], reach: Reach
    ) -> Iterator[tuple[ImageRecord, Orientation | UnusableError]]:
        """Yield the orientation of images, by what their annotations fit; else that of most others; else upright."""
        votes: Counter[Orientation] = Counter()
        undecided: list[ImageRecord] = []
        turned = 0  # images without EXIF whose annotations fit the exchanged size of the record alone, less the others
        for image in images:
            exchanged, outcome = image.exchanged, self.settle(image, reach)
            if outcome is None:
                undecided.append(image)
                continue
            if not isinstance(outcome, UnusableError):
                votes[outcome] += image.turned
            if exchanged and image.id in reach:
                turned += 1 if isinstance(outcome, UnusableError) else -1
            yield image, outcome
        usual: Orientation = max(votes, key=votes.__getitem__, default="upright")
        kind = (
            f"images turned by EXIF whose annotations fit both ways, read {usual} (the setting `orientation` decides)"
        )
        for image in undecided:
            if image.exchanged and turned > 0:
                yield image, _turned(image)
                continue
            if image.id in reach and not (image.exchanged and turned):
                self.suspect(_BOTH if image.exchanged else kind, image.file)
            yield image, self._sized(image, "upright" if image.exchanged else usual)

    def _contradicted(
        self, image: ImageRecord, stated: Size, reach: Reached | None
    ) -> Orientation | UnusableError | None:
        """Decide about a stated size that is not the file's: wrong if the annotations fit the file alone.

        None if its sides are exchanged and the annotations fit both.
        """
        size = image.stored
        if reach is None or (_fits(reach, size) and not _fits(reach, stated)):
            return self._sized(image, "upright")
        if image.exchanged:
            return None if _fits(reach, size) else _turned(image)
        return UnusableError(
            "image size disagrees",
            f"{image.file}: {size.width} x {size.height} instead of {stated.width} x {stated.height}; its annotations "
            "may be in pixels of the other size",
        )

    def _sized(self, image: ImageRecord, way: Orientation) -> Orientation:
        size = _size(image, way)
        before = image.record.get("width"), image.record.get("height")
        if before != tuple(size) or {*map(type, before)} != {int}:
            image.record |= {"width": size.width, "height": size.height}
            kind = "sizes of images taken from the file"
            self.repair(f"image {image.id}", kind, f"{before[0]} x {before[1]}"[:60], f"{size.width} x {size.height}")
        return way


def _turned(image: ImageRecord) -> UnusableError:
    width, height = image.stored
    return UnusableError(
        "image turned by 90 degrees",
        f"{image.file}: {width} x {height} instead of {height} x {width}, which the annotations fit alone: its EXIF "
        "orientation was stripped, or x and y are exchanged",
    )


def _size(image: ImageRecord, way: Orientation) -> Size:
    return image.upright if way == "upright" else image.stored


def _fits(reach: tuple[float, float] | None, size: Size) -> bool:
    return reach is None or (reach[0] <= _CLOSE * size.width and reach[1] <= _CLOSE * size.height)


def reach_of(record: Mapping[str, Any], names: Sequence[str], conventions: Conventions) -> Reached | None:
    """Return the largest x and y of an annotation's box, labelled joints and polygons, pixels; None without any.

    `names` are those of its joints.
    """
    points: list[tuple[float, float]] = []
    box = real_numbers(record.get("bbox")) or []
    if len(box) == 4:
        x, y, width, height = from_corner(box, conventions)
        points.append((x + width, y + height))
    points += labelled_points(record.get("keypoints"), names)
    for polygon in record["segmentation"] if isinstance(record.get("segmentation"), list) else ():
        numbers = real_numbers(polygon) or []
        points += zip(numbers[::2], numbers[1::2], strict=False)
    return (max(x for x, _ in points), max(y for _, y in points)) if points else None


def ignored_polygons(record: Mapping[str, Any]) -> list[list[float]]:
    """Return the polygons of an image's `ignore_regions_x` and `ignore_regions_y` (PoseTrack 2018)."""
    polygons = []
    both = [record.get(f"ignore_regions_{axis}") for axis in "xy"]
    for across, down in zip(*(one if isinstance(one, list) else [] for one in both), strict=False):
        if isinstance(across, list) and isinstance(down, list):
            numbers = real_numbers([one for point in zip(across, down, strict=False) for one in point])
            if numbers is not None and len(numbers) >= 6:
                polygons.append(numbers)
    return polygons

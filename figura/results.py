"""What a prediction gives: people, objects, pictures and numbers of each image, as plain data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from models.base.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Pixels = NDArray[np.uint8]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Box:
    """A box in pixels of the upright image: its left upper corner, and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Joint:
    """A joint, in pixels of the upright image; its score, from 0 to 1, is 0 where the network sees none."""

    name: str
    x: float
    y: float
    score: float


@dataclass(frozen=True)
class Person:
    """A person with joints, in the order of the skeleton. Weak ones are there too: look at the score."""

    score: float
    box: Box
    joints: tuple[Joint, ...]
    category: str

    @property
    def keypoints(self) -> NDArray[np.float64]:
        """The joints as float64 (K, 3): x, y, score."""
        return np.array([(one.x, one.y, one.score) for one in self.joints], dtype=np.float64).reshape(-1, 3)


@dataclass(frozen=True)
class DetectedObject:
    """An object with a box alone. Weak ones are there too: look at the score."""

    score: float
    box: Box
    category: str


@dataclass(frozen=True)
class Categories:
    """What the training data call things: joints in their order, categories by id, connections of joints from 0."""

    joints: tuple[str, ...]
    names: Mapping[int, str]
    connections: tuple[tuple[int, int], ...] = ()

    def person(self, record: Record) -> Person:
        """Return the person of a COCO result with `keypoints`, x, y and score of each joint."""
        points = np.array(record["keypoints"], dtype=np.float64).reshape(-1, 3).tolist()
        names = self.joints if len(self.joints) == len(points) else [f"joint_{n}" for n in range(len(points))]
        joints = tuple(Joint(name, *point) for name, point in zip(names, points, strict=True))
        return Person(float(record.get("score", 1)), _box(record), joints, self.name(record))

    def thing(self, record: Record) -> DetectedObject:
        """Return the object of a COCO result with a `bbox`."""
        return DetectedObject(float(record.get("score", 1)), _box(record), self.name(record))

    def name(self, record: Record) -> str:
        """Return the name of a record's category, or its id where the training data tell none."""
        number = record.get("category_id", 1)
        return self.names.get(number, str(number))


def _box(record: Record) -> Box:
    return Box(*(float(one) for one in record.get("bbox", (0, 0, 0, 0))))


@dataclass(frozen=True)
class ImageInfo:
    """An image that was predicted from.

    Attributes:
        id: counts images from 1; `image_id` of records.
        name: what results are called: a path without suffix, or the id where the image came as pixels.
        file: the file that it is from; None for pixels.
        frame: its place in a video, from 0; None for a picture.
        size: (height, width) in pixels, upright; None if the recipe reads the file in a way of its own.
    """

    id: int
    name: str
    file: Path | None
    frame: int | None
    size: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Result:
    """What a recipe makes of an image, or of one person in it where it looks at each (VUNet).

    Attributes:
        name: what files of it are called: the image's name, with a number if an image has several results.
        image: what it is from.
        pictures: by their names in `predict.save`, uint8 (H, W, 3) RGB.
        records: lists of COCO results, likewise.
        arrays: float32, likewise.
        numbers: scores against the true picture, where the image knows it, such as `fake.psnr`.
        people: of all records, those with joints.
        objects: of all records, those with a box alone.
        compared: pictures beside their truth, uint8 (H, W, 3) RGB.
        video: the video that `predict_video` wrote its pictures to, which are not here then.
    """

    name: str
    image: ImageInfo
    pictures: Mapping[str, Pixels] = field(default_factory=dict)
    records: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    people: tuple[Person, ...] = ()
    objects: tuple[DetectedObject, ...] = ()
    compared: Mapping[str, Pixels] = field(default_factory=dict)
    video: Path | None = None

    def draw(self) -> Pixels:
        """Return the picture that the recipe makes, uint8 (H, W, 3) RGB; several lie side by side under their names.

        Raises:
            UserError: the recipe saves no picture, or it is in a video.
        """
        if self.video is not None:
            raise UserError(f"{self.name}: its picture is in {self.video} alone; `predict` returns pictures of frames")
        if not self.pictures:
            raise UserError(f"{self.name}: the recipe saves no picture; predict.save says what it saves")
        if len(self.pictures) == 1:
            return next(iter(self.pictures.values()))
        from models.report.sheets import side_by_side

        return side_by_side([list(self.pictures.values())], list(self.pictures))


@dataclass(frozen=True, eq=False)
class Results(Sequence[Result]):
    """The results of a prediction, in the order of the images.

    Attributes:
        items: the results.
        images: all images that could be read, those without a result too.
        forms: what the recipe saves: `image`, `mask`, `array` or `records` by name.
        categories: names of joints and categories.
        sheets: pictures of a grid (`predict.grid`), by name: the first results, every row with every column.
        faults: lines about what could not be used.
    """

    items: tuple[Result, ...]
    images: tuple[ImageInfo, ...]
    forms: Mapping[str, str]
    categories: Categories
    sheets: Mapping[str, Pixels] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.items)

    @overload
    def __getitem__(self, place: int) -> Result: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, place: int | slice) -> Result | tuple[Result, ...]:
        """Return a result by its place from 0, or a tuple of several."""
        return self.items[place]

    def to_pandas(self, name: str | None = None) -> "pd.DataFrame":
        """Return a table: a row a record, or a row a result if the recipe saves no records.

        Columns are `name`, `file`, `image_id`, `frame`. Records add `category`, `score`, `x`, `y`, `width` and
        `height` of the box, and `<joint>_x`, `<joint>_y`, `<joint>_score` if they have joints (a table without rows has
        these, too); results add the numbers of comparisons.

        Args:
            name: which of the saved records; default: the first.

        Raises:
            UserError: the recipe saves no records of this name.
        """
        import pandas as pd

        if name is None and "records" not in self.forms.values():
            return pd.DataFrame([_place(one) | dict(one.numbers) for one in self], columns=self._columns())
        chosen = self._records_name(name)
        rows = [_place(one) | self._row(record) for one in self for record in one.records[chosen]]
        empty = self._row({"keypoints": [0, 0, 0] * len(self.categories.joints)})
        return pd.DataFrame(rows, columns=None if rows else [*PLACE, *empty])

    def to_coco(self, name: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the content of a COCO file: `images`, `annotations` and `categories`.

        `images` map each `id` to a `file_name`. `annotations` are COCO results (`image_id`, `category_id`, `score`,
        `bbox`, `keypoints`) with an `id` from 1; pycocotools takes them in `loadRes`.

        Args:
            name: which of the saved records; default: the first.

        Raises:
            UserError: the recipe saves no records of this name.
        """
        chosen = self._records_name(name)
        records = [{**record, "image_id": one.image.id} for one in self for record in one.records[chosen]]
        return {
            "images": [_coco_image(one) for one in self.images],
            "annotations": [{"id": number, **record} for number, record in enumerate(records, 1)],
            "categories": self._coco_categories(records),
        }

    def save(self, folder: str | Path) -> None:
        """Write the files that `predict` writes: pictures, records, arrays, grids, and their table `predictions.csv`.

        A frame of a video becomes files of its own.

        Raises:
            UserError: a file cannot be written, or two of them would have the same name; then none is written.
        """
        from figura.saving import write_results

        write_results(self, Path(folder))

    def _records_name(self, name: str | None) -> str:
        names = [one for one, form in self.forms.items() if form == "records"]
        if name is None and names:
            return names[0]
        if name not in names:
            saved = ", ".join(names) or f"none, but {', '.join(self.forms)}"
            wanted = "records" if name is None else f"records {name!r}"
            raise UserError(f"{wanted}: the recipe saves {saved}")
        return name

    def _columns(self) -> list[str]:
        return [*PLACE, *dict.fromkeys(number for one in self for number in one.numbers)]

    def _row(self, record: Record) -> dict[str, Any]:
        one = self.categories.thing(record)
        row: dict[str, Any] = {"category": one.category, "score": one.score, **vars(one.box)}
        if "keypoints" in record:
            for joint in self.categories.person(record).joints:
                row |= {f"{joint.name}_{axis}": getattr(joint, axis) for axis in ("x", "y", "score")}
        return row

    def _coco_categories(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Return the categories of the records and those of the training data; with joints where records have them."""
        posed = {one.get("category_id", 1) for one in records if "keypoints" in one}
        numbers = sorted({*self.categories.names, *(one.get("category_id", 1) for one in records)})
        skeleton = {
            "keypoints": list(self.categories.joints),
            "skeleton": [[a + 1, b + 1] for a, b in self.categories.connections],
        }
        return [
            {"id": one, "name": self.categories.names.get(one, str(one)), **(skeleton if one in posed else {})}
            for one in numbers
        ]


PLACE = ["name", "file", "image_id", "frame"]


def _place(one: Result) -> dict[str, Any]:
    file = None if one.image.file is None else str(one.image.file)
    return {"name": one.name, "file": file, "image_id": one.image.id, "frame": one.image.frame}


def _coco_image(image: ImageInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": image.id, "file_name": image.name if image.file is None else str(image.file)}
    if image.size is not None:
        entry |= {"height": image.size[0], "width": image.size[1]}
    return entry | ({} if image.frame is None else {"frame": image.frame})

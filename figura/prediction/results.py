"""Results of a prediction: people, objects, pictures and numbers of each image, as plain data."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError
from figura.prediction.saving import writing

if TYPE_CHECKING:
    import pandas as pd

    from figura.prediction.outputs import Output

Pixels = NDArray[np.uint8]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Box:
    """A box in pixels of the upright image: upper left corner and size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Joint:
    """A joint, in pixels of the upright image; its score, from 0 to 1, is 0 if it was not detected."""

    name: str
    x: float
    y: float
    score: float


@dataclass(frozen=True)
class Person:
    """A person with joints, in skeleton order. Weak detections are included: check the score."""

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
    """An object with only a box. Weak detections are included: check the score."""

    score: float
    box: Box
    category: str


@dataclass(frozen=True)
class Categories:
    """Names in the training data: joints in order, categories by id; and connections of joints, from 0."""

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
        """Return the name of a record's category, or its id if the training data have no name."""
        number = record.get("category_id", 1)
        return self.names.get(number, str(number))


def _box(record: Record) -> Box:
    return Box(*(float(one) for one in record.get("bbox", (0, 0, 0, 0))))


@dataclass(frozen=True)
class ImageInfo:
    """An input image of a prediction.

    Attributes:
        id: counts images from 1; `image_id` of records.
        name: base name of its results: a path without suffix, or the id if the image was given as pixels.
        file: source file; None for pixels.
        frame: index in a video, from 0; None for a picture.
        size: (height, width) in pixels, upright; None if the recipe reads files itself.
    """

    id: int
    name: str
    file: Path | None
    frame: int | None
    size: tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Result:
    """The result for an image, or for one person in it if the recipe handles each person (VUNet).

    Attributes:
        name: base name of its files: the image's name, with a number if an image has several results.
        image: the source image.
        pictures: by their names in `predict.save`, uint8 (H, W, 3) RGB.
        records: lists of COCO results, likewise.
        arrays: float32, likewise.
        numbers: scores against the ground truth, if there is one, such as `fake.psnr`.
        people: all records with joints.
        objects: all records with only a box.
        compared: pictures beside their truth, uint8 (H, W, 3) RGB.
        video: the video in which `predict_video` saved its pictures, which are then missing here.
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
        """Return the saved picture, uint8 (H, W, 3) RGB; several are placed side by side under their names.

        Raises:
            UserError: the recipe saves no picture, or it was written to a video.
        """
        if self.video is not None:
            raise UserError(f"{self.name}: its picture is in {self.video} alone; `predict` returns pictures of frames")
        if not self.pictures:
            raise UserError(f"{self.name}: the recipe saves no picture; predict.save says what it saves")
        if len(self.pictures) == 1:
            return next(iter(self.pictures.values()))
        from figura.report.sheets import side_by_side

        return side_by_side([list(self.pictures.values())], list(self.pictures))


@dataclass(frozen=True, eq=False)
class Results(Sequence[Result]):
    """The results of a prediction, in the order of the images.

    Attributes:
        items: the results.
        images: all readable images, including those without a result.
        forms: saved outputs: `image`, `mask`, `array` or `records` by name.
        categories: names of joints and categories.
        sheets: pictures of a grid (`predict.grid`), by name: the first results, every row with every column.
        faults: lines about unusable inputs.
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
        """Return a result by index, or a tuple for a slice."""
        return self.items[place]

    def to_pandas(self, name: str | None = None) -> "pd.DataFrame":
        """Return a table with one row per record, or per result if the recipe saves no records.

        Columns are `name`, `file`, `image_id`, `frame`. Records add `category`, `score`, `x`, `y`, `width` and `height`
        of the box, and `<joint>_x`, `<joint>_y`, `<joint>_score` if they have joints (also in an empty table); results
        add the numbers of comparisons.

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
        `bbox`, `keypoints`) with an `id` from 1; pycocotools accepts them in `loadRes`.

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
        """Write the same files as `predict`: pictures, records, arrays, grids, and the table `predictions.csv`.

        Video frames become separate files.

        Raises:
            UserError: a file cannot be written, or two of them would have the same name; then none is written.
        """
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
        """Return the categories of the records and the training data, with joints if records have them."""
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


def write_results(results: Results, folder: Path) -> None:
    """Write files and `predictions.csv` into a folder, which is created if necessary.

    Raises:
        UserError: a file cannot be written, or two of them would have the same name; then none is written.
    """
    if twice := [name for name, count in Counter(_names(results)).items() if count > 1]:
        more = f", and {len(twice) - 1} more names" if len(twice) > 1 else ""
        raise UserError(f"{folder / twice[0]}: two results would be this file{more}; save them into two folders")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write(results, folder)


def _names(results: Results) -> Iterator[str]:
    """Yield the file names of all results, without suffixes."""
    for one in results:
        yield from (f"{one.name}.{name}" for name in (*one.pictures, *one.records, *one.arrays))
        yield from (f"{one.name}.{name}.compared" for name in one.compared)
    yield from results.sheets


def _write(results: Results, folder: Path) -> None:
    from figura.prediction.comparison import PredictionTable
    from figura.prediction.outputs import write_output, write_picture

    outputs = [_output(one) for one in results]
    for one in outputs:
        write_output(folder, one, {name: form for name, form in results.forms.items() if name in one.values})
    for name, sheet in results.sheets.items():
        write_picture(folder / f"{name}.png", sheet)
    table = PredictionTable(folder, list(dict.fromkeys(name for one in outputs for name in one.numbers)))
    for one in outputs:  # the table comes last: it lists complete files
        table.add(one.name, one.photo, one.numbers)
    table.close()


def _output(one: Result) -> "Output":
    from figura.prediction.inputs import Photo
    from figura.prediction.outputs import Output

    photo = Photo(one.image.file or Path(one.image.name), one.image.name, one.image.id, place=one.image.frame)
    values = {**one.pictures, **one.records, **one.arrays}
    return Output(one.name, photo, values, one.numbers, one.compared)

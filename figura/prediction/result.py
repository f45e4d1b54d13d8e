"""The result of an image: people, objects, pictures and numbers, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError

if TYPE_CHECKING:
    from figura.prediction.inputs import Photo

LONGEST = 1024  # pixels of the longer side of a picture in a notebook
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
    """A person with joints, in skeleton order. Weak detections are included: check the score.

    `track_id` is the person's number in a video, the same in all frames; None for weak detections and in pictures.
    """

    score: float
    box: Box
    joints: tuple[Joint, ...]
    category: str
    track_id: int | None = None

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
        score, track = float(record.get("score", 1)), record.get("track_id")
        return Person(score, _box(record), joints, self.name(record), track)

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
        rate: of a video, the frames per second that are used.
        at: index of a frame among these, by its time.
    """

    id: int
    name: str
    file: Path | None
    frame: int | None
    size: tuple[int, int] | None
    rate: float | None = None
    at: int | None = None

    @property
    def source(self) -> str:
        """The source file, or the name if there is none."""
        return self.name if self.file is None else str(self.file)


def image_of(photo: "Photo") -> ImageInfo:
    """Return what results say of a photo that has been read."""
    file = photo.path if photo.frame is None or photo.place is not None else None
    return ImageInfo(photo.number, photo.name, file, photo.place, photo.size, photo.rate, photo.at)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result for an image, or for one person in it if the recipe handles each person (VUNet).

    Attributes:
        name: base name of its files: the image's name, with a number if an image has several results.
        image: the source image.
        categories: names of joints and categories in the training data.
        pictures: by their names in `predict.save`, uint8 (H, W, 3) RGB.
        records: lists of COCO results, likewise.
        arrays: float32, likewise.
        numbers: scores against the ground truth, if there is one, such as `fake.psnr`.
        compared: pictures beside their truth, uint8 (H, W, 3) RGB.
        video: the video in which `predict_video` saved its pictures, which are then missing here.
    """

    name: str
    image: ImageInfo
    categories: Categories
    pictures: Mapping[str, Pixels] = field(default_factory=dict)
    records: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    compared: Mapping[str, Pixels] = field(default_factory=dict)
    video: Path | None = None

    @cached_property
    def people(self) -> tuple[Person, ...]:
        """All records with joints."""
        return tuple(self.categories.person(one) for one in self._all_records if "keypoints" in one)

    @cached_property
    def objects(self) -> tuple[DetectedObject, ...]:
        """All records with only a box."""
        boxes = [one for one in self._all_records if "bbox" in one and "keypoints" not in one]
        return tuple(map(self.categories.thing, boxes))

    @property
    def _all_records(self) -> list[Record]:
        return [one for records in self.records.values() for one in records]

    def __repr__(self) -> str:
        parts = [f"{len(records)} {name}" for name, records in self.records.items()]
        parts += [f"{name} {pixels.shape[1]} x {pixels.shape[0]}" for name, pixels in self.pictures.items()]
        parts += [f"{name} {array.shape}" for name, array in self.arrays.items()]
        parts += [f"{name} {number:.4g}" for name, number in self.numbers.items()]
        return f"<figura.Result {self.name}: {', '.join(parts) or 'nothing saved'}>"

    def _repr_png_(self) -> bytes | None:
        """Return `draw` as a PNG of at most `LONGEST` pixels a side, which notebooks show; None without a picture."""
        from figura.base.pictures import encode_png, shrunk

        return encode_png(shrunk(self.draw(), LONGEST)) if self.pictures else None

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

"""Injectors that draw fields and decoded people and objects, so that a mode of `evaluate` can save the pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from figura.base.errors import nearest, need
from figura.base.sampling import evenly_spaced
from figura.formats.skeletons import ConnectionSet, Skeleton
from figura.interfaces import Injector, Networks, State
from figura.prediction.inputs import Photo
from figura.recipe.schema import Section

from ..argument_types import Count, Deviations, Kind, categories_from, skeleton_of
from ..heads import LAYOUTS
from ..scenes import IMAGENET_MEAN, IMAGENET_STD
from .field_images import confidence_picture, picture_of, predicted_field, target_field, vectors_picture, write_title
from .overlays import OverlayStyle, named, overlay

ZOOM = 2
THRESHOLD = 0.3  # minimum confidence whose vector is drawn in pictures of fields


class HeadFields(Section):
    """The fields of a head to show, by name: joints, pairs of joints, or categories."""

    kind: Kind | None = Field(default=None, description="by default the head's name")
    connections: ConnectionSet = Field(default="standard", description="those that the fields of a caf head stand for")
    fields: list[str | tuple[str, str]] | None = Field(
        default=None, description="left out: the first and the middle joint, the first pair, the first category"
    )


class FieldPictures(Injector):
    """Adds a picture of some fields of each example, one row per field: confidences, then vectors and scales.

    A row has four columns: confidences of target and prediction, vectors of target and prediction. Only a few examples
    are drawn: `<output>_drawn` float32 (N,) is 1 for these; the others have no picture.

    Args:
        image: name of the normalised images (N, 3, H, W).
        heads: name of the decoded predictions of a head -> which of its fields, `{}` for a selection (`HeadFields`);
            its targets are named `<head>_target`.
        output: name of the pictures, a list of N: None, or float32 (3, 2 rows H, 8 W) in [-1, 1].
        stride: of the fields, pixels.
        skeleton: as for the dataset; default COCO's.
        categories: as for the dataset, a list of `{id, name}`.
        count: draw at most this many examples of each dataset, evenly spaced.
        mean: of the images' normalisation, in [0, 1].
        std: of the same.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton", "categories", "stride")

    def __init__(
        self,
        image: str,
        heads: Annotated[dict[str, HeadFields], Field(min_length=1)],
        output: str,
        stride: int | None = None,
        skeleton: dict[str, Any] | None = None,
        categories: list[dict[str, Any]] | None = None,
        count: Count = 5,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: Deviations = IMAGENET_STD,
    ) -> None:
        self.image, self.output, self.stride = image, output, need("stride", stride)
        self.count, self.mean, self.std = count, mean, std
        body = skeleton_of(skeleton)
        objects = categories_from(categories)
        self.shown = [
            (head, kind, field, title)
            for head, chosen in heads.items()
            for kind, field, title in _chosen(head, chosen, body, objects)
        ]
        targets = (f"{head}_target" for head in heads)
        self.reads = (image, *heads, *targets, "index", "images")
        self.adds = (output, f"{output}_drawn")

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        drawn = torch.zeros(len(state[self.image]))
        pictures: list[torch.Tensor | None] = [None] * len(drawn)
        numbers = zip(state["index"].tolist(), state["images"].tolist(), strict=True)
        places = [place for place, (index, length) in enumerate(numbers) if index in evenly_spaced(length, self.count)]
        drawn[places] = 1
        for place, picture in zip(places, self._drawn(state, places), strict=True):
            pictures[place] = _as_image(picture)
        state.add(self.output, pictures)
        state.add(f"{self.output}_drawn", drawn)

    def _drawn(self, state: State, places: list[int]) -> list[NDArray[np.uint8]]:
        """Draw the examples at these batch indices: (height, width, 3) RGB each."""
        images = as_array(state[self.image][places])
        heads = {name: [as_array(state[one][places]) for one in (f"{name}_target", name)] for name, *_ in self.shown}
        return [
            np.concatenate([
                self._row(image, kind, [part[index, field] for part in heads[head]], title)
                for head, kind, field, title in self.shown
            ])
            for index, image in enumerate(images)
        ]  # fmt: skip

    def _row(self, image: Any, kind: Kind, values: Sequence[Any], title: str) -> NDArray[np.uint8]:
        picture = picture_of(image, self.mean, self.std)
        both = target_field(kind, values[0]), predicted_field(kind, values[1])
        shown = [confidence_picture(picture, field, self.stride, ZOOM) for field in both]
        shown += [vectors_picture(picture, field, self.stride, ZOOM, THRESHOLD) for field in both]
        for cell, what in zip(shown, ("target", "prediction", "target", "prediction"), strict=True):
            write_title(cell, f"{title}: {what}")
        return np.concatenate(shown, axis=1)


def _chosen(
    head: str, settings: HeadFields, skeleton: Skeleton, categories: dict[int, str]
) -> list[tuple[Kind, int, str]]:
    """Return kind, index and title of the fields to show."""
    kind: Any = settings.kind or head
    if kind not in LAYOUTS:
        raise ValueError(f"heads.{head}.kind {kind!r}{nearest(kind, LAYOUTS)}: one of {', '.join(LAYOUTS)} is needed")
    pairs, joints = skeleton.connection_set(settings.connections), skeleton.keypoints
    titles = {
        "cif": list(joints),
        "caf": [f"{joints[a]} to {joints[b]}" for a, b in pairs],
        "cifdet": list(categories.values()) or ["first category"],
    }[kind]
    if settings.fields is None:
        return [(kind, field, titles[field]) for field in evenly_spaced(len(titles), 2 if kind == "cif" else 1)]
    fields = []
    for wanted in settings.fields:
        title = wanted if isinstance(wanted, str) else " to ".join(wanted)
        reversed_title = title if isinstance(wanted, str) else " to ".join(reversed(wanted))
        match = next((one for one in (title, reversed_title) if one in titles), None)
        if match is None:
            raise ValueError(f"heads.{head}.fields: no field {title!r}{nearest(title, titles)}; there are {titles}")
        fields.append((kind, titles.index(match), match))
    return fields


@dataclass(eq=False, kw_only=True)
class _Drawing(Injector):
    """Draws the people and objects of records over pictures.

    Args:
        people: name of the records of `FindPeople`; `people` or `objects` is needed.
        objects: name of the records of `FindObjects`.
        categories: as in the dataset, a list of `{id, name}`; labels of other objects have only a score.
        skeleton: as for the dataset; default COCO's.
        style: entries of `models.pose.decode.overlays.OverlayStyle`.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton", "categories")

    people: str | None = None
    objects: str | None = None
    categories: list[dict[str, Any]] | None = None
    skeleton: dict[str, Any] | None = None
    style: OverlayStyle | None = None

    def __post_init__(self) -> None:
        if self.people is None and self.objects is None:
            raise ValueError("people and objects are both left out: at least one is needed")
        self.names, self.body = categories_from(self.categories), skeleton_of(self.skeleton)
        self.look = self.style or OverlayStyle()
        self.records = tuple(name for name in (self.people, self.objects) if name is not None)

    def found(self, state: State, count: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the people and the objects, with the names of their categories, of each of `count` examples."""
        nothing: list[Any] = [[]] * count
        people, objects = (nothing if name is None else state[name] for name in (self.people, self.objects))
        return people, [named(records, self.names) for records in objects]


@dataclass(eq=False)
class Overlays(_Drawing):
    """Adds each picture with the decoded people and objects drawn over it.

    Args:
        image: name of the normalised images (N, 3, H, W).
        output: name of the pictures, float32 (N, 3, zoom H, zoom W) in [-1, 1].
        truth: name of the annotations, drawn underneath in grey.
        mean: of the images' normalisation, in [0, 1].
        std: of the same.
    """

    image: str
    output: str
    _: KW_ONLY
    truth: str | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: Deviations = IMAGENET_STD

    def __post_init__(self) -> None:
        super().__post_init__()
        truth = () if self.truth is None else (self.truth,)
        self.reads, self.adds = (self.image, *self.records, *truth, "to_original"), (self.output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        images, maps = (as_array(state[name]) for name in (self.image, "to_original"))
        people, objects = self.found(state, len(images))
        truth = [()] * len(images) if self.truth is None else state[self.truth]
        pictures = []
        for index, image in enumerate(images):
            matrix = np.linalg.inv(np.vstack([maps[index], [0, 0, 1]]))[:2]
            persons, things, annotated = (
                [_placed(one, matrix) for one in records[index]] for records in (people, objects, truth)
            )
            picture = picture_of(image, self.mean, self.std)
            pictures.append(overlay(picture, persons, things, self.body, self.look, annotated))
        state.add(self.output, torch.stack([_as_image(picture) for picture in pictures]))


@dataclass(eq=False)
class PhotoOverlays(_Drawing):
    """Adds each photo, at its original size, with the decoded people and objects drawn over it.

    Reads the file again, so that batches hold no large photos. Enlarges small photos, like `Overlays`.

    Args:
        photo: name of the photos.
        output: name of the pictures, a list of uint8 (3, rows, columns).
    """

    photo: str
    output: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reads, self.adds = (self.photo, *self.records), (self.output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        photos: list[Photo] = state[self.photo]
        pictures = [
            overlay(photo.pixels(), people, objects, self.body, self.look)
            for photo, people, objects in zip(photos, *self.found(state, len(photos)), strict=True)
        ]
        state.add(self.output, [torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures])


def _placed(record: Mapping[str, Any], matrix: NDArray[np.floating]) -> dict[str, Any]:
    """Map a record to pixels of the picture."""
    placed = dict(record)
    if "keypoints" in record:
        joints = np.array(record["keypoints"], dtype=np.float64).reshape(-1, 3)
        joints[:, :2] = joints[:, :2] @ matrix[:, :2].T + matrix[:, 2]
        placed["keypoints"] = joints.ravel().tolist()
    x, y, width, height = record["bbox"]
    corners = np.array([(x, y), (x + width, y), (x, y + height), (x + width, y + height)])
    corners = corners @ matrix[:, :2].T + matrix[:, 2]
    low, high = corners.min(axis=0), corners.max(axis=0)
    placed["bbox"] = [*low.tolist(), *(high - low).tolist()]
    return placed


def as_array(value: torch.Tensor) -> NDArray[np.float32]:
    """Convert a tensor of any device and dtype to an array."""
    return np.asarray(value.detach().float().cpu().numpy())


def _as_image(picture: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(picture).permute(2, 0, 1).float().div_(127.5).sub_(1)

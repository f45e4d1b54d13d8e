"""Injectors that draw fields and decoded people and objects, so that a mode of `evaluate` can save the pictures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.formats.skeletons import COCO, skeleton_from
from models.interfaces import Injector, Networks, State
from models.pose.decode.field_images import (
    Kind,
    confidence_picture,
    picture_of,
    predicted_field,
    target_field,
    vectors_picture,
)
from models.pose.decode.overlays import OverlayStyle, connections_of, named, overlay
from models.pose.train.scenes import IMAGENET_MEAN, IMAGENET_STD


class FieldPictures(Injector):
    """Adds a picture of one field per example: confidences of target and prediction, then vectors and scales of both.

    Args:
        image: name of the normalised images (N, 3, H, W).
        fields: name of the decoded predictions of a head.
        target: name of the head's targets.
        kind: cif, caf or cifdet.
        index: which field.
        stride: of the fields, pixels.
        output: name of the pictures, float32 (N, 3, zoom H, 4 zoom W) in [-1, 1].
        zoom: enlargement.
        threshold: least confidence whose vector is drawn.
        every: draw examples whose `index` is a multiple of this; the others stay grey, as few pictures are looked at.
        image_ids: draw these images instead.
        mean: of the images' normalisation, in [0, 1].
        std: of the same.
    """

    def __init__(
        self,
        image: str,
        fields: str,
        target: str,
        kind: Kind,
        index: int,
        stride: int,
        output: str,
        zoom: int = 2,
        threshold: float = 0.3,
        every: int = 1,
        image_ids: tuple[int, ...] = (),
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
    ) -> None:
        self.image, self.fields, self.target, self.output = image, fields, target, output
        self.kind, self.index, self.stride, self.zoom, self.threshold = kind, index, stride, zoom, threshold
        self.mean, self.std, self.every, self.image_ids = mean, std, every, image_ids
        self.reads, self.adds = (image, fields, target, "index", "image_id"), (output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        arrays = [state[name].detach().float().cpu().numpy() for name in (self.image, self.fields, self.target)]
        height, width = arrays[0].shape[2:]
        pictures = np.full((len(arrays[0]), self.zoom * height, 4 * self.zoom * width, 3), 128, np.uint8)
        for place, (index, number) in enumerate(zip(state["index"].tolist(), state["image_id"].tolist(), strict=True)):
            if number in self.image_ids or (not self.image_ids and index % self.every == 0):
                pictures[place] = self._picture(*(array[place] for array in arrays))
        state.add(self.output, _as_images(pictures))

    def _picture(self, image: Any, fields: Any, target: Any) -> Any:
        picture = picture_of(image, self.mean, self.std)
        both = target_field(self.kind, target[self.index]), predicted_field(self.kind, fields[self.index])
        shown = [confidence_picture(picture, field, self.stride, self.zoom) for field in both]
        shown += [vectors_picture(picture, field, self.stride, self.zoom, self.threshold) for field in both]
        return np.concatenate(shown, axis=1)


class Overlays(Injector):
    """Adds each picture with the decoded people and objects drawn over it.

    Args:
        image: name of the normalised images (N, 3, H, W).
        output: name of the pictures, float32 (N, 3, zoom H, zoom W) in [-1, 1].
        people: name of the records of `FindPeople`; `people` or `objects` is needed.
        objects: name of the records of `FindObjects`.
        truth: name of the annotations, drawn in grey below.
        categories: names of the objects by COCO id, from 1; labels of other objects have only a score.
        skeleton: as for the dataset; default COCO's.
        style: entries of `models.pose.decode.overlays.OverlayStyle`.
        to_original: name of the maps from the picture's pixels to the file's, float32 (N, 2, 3).
        mean: of the images' normalisation, in [0, 1].
        std: of the same.
    """

    def __init__(
        self,
        image: str,
        output: str,
        people: str | None = None,
        objects: str | None = None,
        truth: str | None = None,
        categories: tuple[str, ...] = (),
        skeleton: dict[str, Any] | None = None,
        style: OverlayStyle | None = None,
        to_original: str = "to_original",
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
    ) -> None:
        if people is None and objects is None:
            raise ValueError("people and objects are both left out: at least one is needed")
        self.image, self.people, self.objects, self.truth, self.output = image, people, objects, truth, output
        self.categories, self.to_original, self.mean, self.std = categories, to_original, mean, std
        self.skeleton = COCO if skeleton is None else skeleton_from(skeleton)
        self.style = style or OverlayStyle()
        connections_of(self.skeleton, self.style)
        records = tuple(name for name in (people, objects, truth) if name is not None)
        self.reads, self.adds = (image, *records, to_original), (output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        images, maps = (state[name].detach().float().cpu().numpy() for name in (self.image, self.to_original))
        nothing: list[Any] = [[]] * len(images)
        people, objects, truth = (
            nothing if name is None else state[name] for name in (self.people, self.objects, self.truth)
        )
        pictures = []
        for place, image in enumerate(images):
            matrix = np.linalg.inv(np.vstack([maps[place], [0, 0, 1]]))[:2]
            shown = [[self._placed(one, matrix) for one in records[place]] for records in (people, objects, truth)]
            picture = picture_of(image, self.mean, self.std)
            things = named(shown[1], self.categories)
            pictures.append(overlay(picture, shown[0], things, self.skeleton, self.style, shown[2]))
        state.add(self.output, _as_images(np.stack(pictures)))

    def _placed(self, record: Mapping[str, Any], matrix: NDArray[np.floating]) -> dict[str, Any]:
        """Return a record in pixels of the picture."""
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


def _as_images(pictures: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1

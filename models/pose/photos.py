"""Photos as inputs of the pose network."""

from typing import Any, ClassVar

import numpy as np
import torch

from figura.data.formats.skeletons import COCO, skeleton_from
from figura.interfaces import Example, Injector, Networks, State
from figura.prediction.inputs import Photo, PhotoExamples
from models.pose.affine import MEAN_COLOUR, fit_to_multiple
from models.pose.categories import categories_from
from models.pose.decode.overlays import OverlayStyle, connections_of, named, overlay
from models.pose.scenes import IMAGENET_MEAN, IMAGENET_STD


class Photos(PhotoExamples):
    """Full photos, preprocessed like a dataset's images in `pose.Scenes` with `multiple`.

    The longer side is resized to `side` pixels (0 keeps the size; default: as in the training data). The picture is
    centred on the smallest canvas whose sides are a multiple of `multiple` plus one.

    An example has `image` float32 (3, rows, columns) RGB, (v / 255 - mean) / std; `photo`, for `pose.PhotoOverlays`;
    its `name`; the integers `image_id` and `index`, which number the photos from 1 and from 0, and its `width` and
    `height`; `valid_area` and `to_original` as in `pose.Scenes`.

    Raises ValueError for arguments out of range.
    """

    from_data: ClassVar[tuple[str, ...]] = ("side",)
    names: ClassVar[tuple[str, ...]] = (
        "image",
        "photo",
        "name",
        "image_id",
        "index",
        "width",
        "height",
        "valid_area",
        "to_original",
    )

    def __init__(
        self,
        *,
        multiple: int,
        side: int | None = None,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
    ) -> None:
        if side is None:
            raise ValueError(
                "side: missing, and the training data have none; write pixels, or 0 for photos as they are"
            )
        if side < 0 or side == 1:
            raise ValueError(f"side {side}: a whole number of pixels from 2 is needed, or 0 for photos as they are")
        if multiple < 1:
            raise ValueError(f"multiple {multiple}: a whole number from 1 is needed")
        if min(std) <= 0:
            raise ValueError(f"std {std}: three positive numbers are needed")
        self.side, self.multiple = side, multiple
        self._gain = (1.0 / (255.0 * np.array(std))).astype(np.float32)[:, None, None]
        self._shift = (-np.array(mean) / np.array(std)).astype(np.float32)[:, None, None]

    def examples(self, photo: Photo) -> list[Example]:
        """Return the photo as one example."""
        pixels = photo.pixels()
        height, width = pixels.shape[:2]
        placement = fit_to_multiple(width, height, self.side or max(width, height), self.multiple)
        picture = placement.picture(pixels, MEAN_COLOUR)
        image = np.ascontiguousarray(picture.transpose(2, 0, 1)).astype(np.float32)
        image *= self._gain
        image += self._shift
        return [
            {
                "image": image,
                "photo": photo,
                "name": photo.name,
                "image_id": photo.number,
                "index": photo.number - 1,
                "width": width,
                "height": height,
                "valid_area": placement.valid_area,
                "to_original": np.linalg.inv(placement.matrix)[:2].astype(np.float32),
            }
        ]


class PhotoOverlays(Injector):
    """Adds each photo, at its original size, with the decoded people and objects drawn over it.

    Reads the file again, so that batches hold no large photos. Enlarges small photos, like `Overlays`.

    Args:
        photo: name of the photos.
        output: name of the pictures, a list of uint8 (3, rows, columns).
        people: name of the records of `FindPeople`; `people` or `objects` is needed.
        objects: name of the records of `FindObjects`.
        categories: as in the dataset, a list of `{id, name}`; labels of other objects have only a score.
        skeleton: as for the dataset; default COCO's.
        style: entries of `models.pose.decode.overlays.OverlayStyle`.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton", "categories")

    def __init__(
        self,
        photo: str,
        output: str,
        people: str | None = None,
        objects: str | None = None,
        categories: list[dict[str, Any]] | None = None,
        skeleton: dict[str, Any] | None = None,
        style: OverlayStyle | None = None,
    ) -> None:
        if people is None and objects is None:
            raise ValueError("people and objects are both left out: at least one is needed")
        self.photo, self.people, self.objects, self.output = photo, people, objects, output
        self.names = categories_from(categories).by_id
        self.skeleton = COCO if skeleton is None else skeleton_from(skeleton)
        self.style = style or OverlayStyle()
        connections_of(self.skeleton, self.style)
        self.reads, self.adds = (photo, *(name for name in (people, objects) if name is not None)), (output,)

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        photos: list[Photo] = state[self.photo]
        nothing: list[Any] = [[]] * len(photos)
        people, objects = (nothing if name is None else state[name] for name in (self.people, self.objects))
        pictures = []
        for photo, persons, things in zip(photos, people, objects, strict=True):
            things = named(things, self.names)
            picture = overlay(photo.pixels(), persons, things, self.skeleton, self.style)
            pictures.append(torch.from_numpy(picture).permute(2, 0, 1))
        state.add(self.output, pictures)

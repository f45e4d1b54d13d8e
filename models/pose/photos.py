"""Photos as inputs of the pose network."""

from typing import ClassVar, Literal

import numpy as np

from figura.base.errors import need
from figura.interfaces import Example
from figura.prediction.inputs import Photo, PhotoExamples

from .affine import MEAN_COLOUR, fit_to_multiple
from .argument_types import Count, Deviations, Side
from .scenes import IMAGENET_MEAN, IMAGENET_STD


class Photos(PhotoExamples):
    """Full photos, preprocessed like a dataset's images in `pose.Scenes` with `multiple`.

    The longer side is resized to `side` pixels (0 keeps the size; default: as in the training data). The picture is
    centred on the smallest canvas whose sides are a multiple of `multiple` plus one.

    An example has `image` float32 (3, rows, columns) RGB, (v / 255 - mean) / std; `photo`, for `pose.PhotoOverlays`;
    its `name`; the integers `image_id` and `index`, which number the photos from 1 and from 0, and its `width` and
    `height`; `valid_area` and `to_original` as in `pose.Scenes`.

    Raises ValueError without a `side`, given or of the training data.
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
        multiple: Count,
        side: Side | Literal[0] | None = None,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: Deviations = IMAGENET_STD,
    ) -> None:
        self.side, self.multiple = need("side", side), multiple
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
                "to_original": placement.to_original,
            }
        ]

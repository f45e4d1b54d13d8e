"""Small pictures from anywhere, to be enlarged."""

from typing import ClassVar

from models.images.data.pairs import normalised
from models.interfaces import Example
from models.prediction.inputs import Photo, PhotoExamples


class Photos(PhotoExamples):
    """A whole photo, pixel for pixel, as the input of a super-resolution network.

    An example has `lq`, float32 `(3, height, width)` in [-1, 1] (v / 127.5 - 1), RGB, and the photo's `name`. Memory
    grows with its pixels: a network of width 64 at scale 4 takes about 10 kB for each of them.
    """

    names: ClassVar[tuple[str, ...]] = ("lq", "name")

    def examples(self, photo: Photo) -> list[Example]:
        """The photo, one example."""
        return [{"lq": normalised(photo.pixels()), "name": photo.name}]

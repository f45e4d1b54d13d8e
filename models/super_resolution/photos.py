"""Photos of any size as inputs of super-resolution."""

from typing import ClassVar

from figura.interfaces import Example
from figura.prediction.inputs import Photo, PhotoExamples

from ..images.pairs import normalised


class Photos(PhotoExamples):
    """A full photo, not resized, as the input of a super-resolution network.

    An example has `lq`, float32 `(3, height, width)` in [-1, 1] (v / 127.5 - 1), RGB, and the photo's `name`. Memory
    grows with the number of pixels: a network of width 64 at scale 4 takes about 10 kB per pixel.
    """

    names: ClassVar[tuple[str, ...]] = ("lq", "name")

    def examples(self, photo: Photo) -> list[Example]:
        """Return the photo as a single example."""
        return [{"lq": normalised(photo.pixels()), "name": photo.name}]

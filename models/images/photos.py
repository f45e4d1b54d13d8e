"""Photos of any size as inputs of image translation."""

from typing import ClassVar, Literal

from data.formats.pair_files import with_channels
from models.images.data.pairs import normalised, resized
from models.interfaces import Example
from models.prediction.inputs import Photo, PhotoExamples


class Photos(PhotoExamples):
    """A whole photo as the network input x, prepared like the x of `ImagePairs` without augmentation.

    `size` in pixels is a side or (height, width), equal to `load_size` in validation. `channels` is 3 for RGB, 1 for
    grey. A `label_map` is resized by nearest neighbour.

    An example has `x`, float32 `(channels, height, width)` in [-1, 1] (v / 127.5 - 1), and the photo's `name`.

    Raises ValueError for a size below 1.
    """

    names: ClassVar[tuple[str, ...]] = ("x", "name")

    def __init__(self, *, size: int | tuple[int, int], channels: Literal[1, 3] = 3, label_map: bool = False) -> None:
        self.size = (size, size) if isinstance(size, int) else size
        if min(self.size) < 1:
            raise ValueError(f"size {size}: a whole number of at least 1, or two (height, width), is needed")
        self.channels, self.label_map = channels, label_map

    def examples(self, photo: Photo) -> list[Example]:
        """Return the photo as a single example."""
        x = resized(with_channels(photo.pixels(), self.channels), self.size, nearest=self.label_map)
        return [{"x": normalised(x), "name": photo.name}]

"""A photo to predict from, and the base class of what makes examples of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from figura.base.errors import UserError
from figura.base.files import read_bytes
from figura.base.pictures import SUFFIXES, Pixels
from figura.base.raw_pictures import LARGEST, decode_raw
from figura.interfaces import Example


class SettingError(UserError):
    """A setting of `predict.data` fits no photo, so the prediction ends."""


@dataclass(eq=False)
class Photo:
    """One photo to predict from: an image file, a frame of the video at `path`, or pixels in memory.

    `number` counts photos from 1; `place` is the index of a video frame, of which `rate` per second are used. `size` is
    (height, width), once `pixels` has been called. `faults` are lines about unusable parts, such as persons, added by
    `PhotoExamples.examples` and then reported. `suspicions` are likely mistakes by kind, which are counted, with a
    detail to add to the photo's name. `at` is the index of a frame among those used, at `rate`: frames of a variable
    rate have gaps.
    """

    path: Path
    name: str
    number: int
    frame: Pixels | None = None
    place: int | None = None
    rate: float | None = None
    size: tuple[int, int] | None = None
    faults: list[str] = field(default_factory=list)
    suspicions: dict[str, str] = field(default_factory=dict)
    at: int | None = None

    def pixels(self) -> Pixels:
        """Return RGB pixels, uint8 (height, width, 3), as `decode_raw` reads them.

        Raises:
            UserError: not a regular file, or no readable picture.
        """
        pixels = self.frame
        if pixels is None:
            kinds = "" if self.path.suffix.lower() in SUFFIXES else f"images end in {', '.join(SUFFIXES)}"
            reading = decode_raw(read_bytes(self.path, kinds, LARGEST), self.path, advice=kinds)
            pixels = reading.pixels
            self.suspicions |= reading.told
        self.size = pixels.shape[0], pixels.shape[1]
        return pixels


class PhotoExamples:
    """Base class for `predict.data`: converts a photo without annotations to examples like those of a dataset.

    `optional` lists names that exist only with some arguments. `expects` says which pictures it is for; None: any
    photo. `reads` names the records of a photo, saved by another recipe, that it needs, and the argument for their
    folder: `people`. `faults` are lines about parts of its files, such as annotations, that belong to no photo; they
    are reported before the first photo.
    """

    names: ClassVar[tuple[str, ...]]
    optional: ClassVar[tuple[str, ...]] = ()
    expects: ClassVar[str | None] = None
    reads: ClassVar[str | None] = None
    faults: Sequence[str] = ()

    @classmethod
    def provides(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names in an example, given the constructor's `arguments`."""
        return cls.names

    def examples(self, photo: Photo) -> list[Example]:
        """Return any number of examples of one photo; called from several threads at once.

        Results are named after an example's `name`: the photo's name, with a suffix if there are several examples.
        Raises UserError for an unusable photo, which is then skipped, and SettingError to end the prediction.
        """
        raise TypeError(f"{type(self).__name__} gives no examples")

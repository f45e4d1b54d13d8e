"""The settings of affine augmentation: the entry `geometry` of a dataset of scenes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.images.augmentation_settings import Chance, Limits, Section

Factor = Annotated[float, Field(gt=0.0, le=100.0)]
Length = Annotated[int, Field(ge=2, le=65_536)]
Degrees = Annotated[float, Field(ge=-180.0, le=180.0)]
Level = Annotated[int, Field(ge=0, le=255)]


class Rescale(Section):
    """Random resizing; one of `relative` and `absolute` is needed.

    `relative` limits a factor on the image's size ((0.4, 2.0) in OpenPifPaf, extended (0.25, 2.0)); `absolute` limits
    the longer side in pixels. Both are uniform in the logarithm. `stretch` limits another factor, only on the width.
    """

    relative: Limits[Factor] | None = None
    absolute: Limits[Length] | None = None
    stretch: Limits[Factor] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("one of `relative` (a factor) and `absolute` (the longer side in pixels) is needed")
        return self


class Rotation(Chance):
    """Random rotation by an angle, uniform between its limits, counter-clockwise."""

    degrees: Limits[Degrees]


class Crop(Section):
    """The position of the square crop in a larger image: it shows the boxes and `margin` pixels around them.

    `uniform` draws uniformly among these positions. `reference` draws from the lowest tenth of them, as in the training
    of the published OpenPifPaf models.
    """

    place: Literal["uniform", "reference"] = "uniform"
    margin: float = Field(default=50.0, ge=0.0)


class Geometry(Section):
    """Affine augmentation, in the order of the entries. A missing entry is off; without `rescale` the image is fitted.

    `orientation_invariant` is the probability of 0, 1, 2 or 3 quarter turns, `rotation` that of another angle; at most
    one of them is applied. Images smaller than the square are centred on a grey between the limits of `padding`, or on
    `MEAN_COLOUR`. `ignore_small` and `ignore_cut` convert boxes to ignored regions: those with a width or height of at
    most this many pixels, and those with at most this fraction of their area left.
    """

    horizontal_flip: Chance | None = None
    rescale: Rescale | None = None
    orientation_invariant: Chance | None = None
    rotation: Rotation | None = None
    crop: Crop = Crop()
    padding: Limits[Level] | None = None
    ignore_small: float | None = Field(default=None, ge=0.0)
    ignore_cut: float | None = Field(default=None, ge=0.0, le=1.0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(one.chance for one in (self.orientation_invariant, self.rotation) if one) > 1.0:
            raise ValueError(
                "the chances of `orientation_invariant` and `rotation` exclude each other: at most 1 in all"
            )
        return self

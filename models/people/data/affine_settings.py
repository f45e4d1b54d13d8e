"""What can be set about where an image lies in a square: the entry `geometry` of a dataset of scenes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.images.data.augmentation_settings import Chance, Limits, Section

Factor = Annotated[float, Field(gt=0.0, le=100.0)]
Length = Annotated[int, Field(ge=2, le=65_536)]
Degrees = Annotated[float, Field(ge=-180.0, le=180.0)]
Level = Annotated[int, Field(ge=0, le=255)]


class Rescale(Section):
    """How large the image becomes; one of `relative` and `absolute` is needed.

    `relative` limits a factor of its own size ((0.4, 2.0) in the reference, extended (0.25, 2.0)), `absolute` its longer
    side in pixels; both are drawn uniformly in the logarithm. `stretch` limits another factor, of the width alone.
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
    """The angle, uniform between its limits, counter-clockwise."""

    degrees: Limits[Degrees]


class Crop(Section):
    """Where the square lies in an image that is larger: so that it shows the boxes and `margin` pixels around them.

    `uniform` among such places; `reference` stays in the lowest tenth of them, where the published models were trained.
    """

    place: Literal["uniform", "reference"] = "uniform"
    margin: float = Field(default=50.0, ge=0.0)


class Geometry(Section):
    """What moves pixels, in this order. What is not written is off; without `rescale` the longer side fits the square.

    `orientation_invariant` is the chance of 0, 1, 2 or 3 quarter turns, `rotation` that of any other angle; of the two
    at most one happens. What is smaller than the square is centred in it, on a grey between the limits of `padding`, or
    on `MEAN_COLOUR`. `ignore_small` and `ignore_cut` turn objects into regions without judgement: boxes of at most so
    many pixels in width or height, and boxes of which at most this share is left.
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

"""Settings of the entry `augmentation` of a dataset of pairs.

`both` has transforms of both images, `input` those of x only. A missing transform is off; `chance` is the probability
that a transform is applied. `further` are transforms of the package albumentations, by name and in their order, after
the others: `{bend: {type: albumentations.ElasticTransform, p: 0.5}}`.
"""

from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from models.images.further_transforms import ImageTransforms, Transforms
from models.images.photometry import Codec, Grey
from models.images.warps import Distortion

Number = TypeVar("Number", bound=float)


def _ordered(limits: tuple[Number, Number]) -> tuple[Number, Number]:
    if limits[0] > limits[1]:
        raise ValueError(f"the lowest, {limits[0]:g}, is above the highest, {limits[1]:g}")
    return limits


Limits = Annotated[tuple[Number, Number], AfterValidator(_ordered)]  # lowest, highest
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Factor = Annotated[float, Field(ge=0.0, le=10.0)]
Exponent = Annotated[float, Field(gt=0.0, le=10.0)]
Turns = Annotated[float, Field(ge=-0.5, le=0.5)]
Quality = Annotated[int, Field(ge=1, le=100)]
Count = Annotated[int, Field(ge=1, le=1000)]


class Section(BaseModel):
    """A map in a recipe; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Chance(Section):
    """A transform without further settings: a flip, a quarter turn."""

    chance: Fraction


class Elastic(Chance):
    """See `warps.elastic_field`; both numbers are pixels of the cropped image."""

    alpha: float = Field(ge=0.0)
    sigma: float = Field(gt=0.0, le=1000.0)


class OpticalDistortion(Chance):
    """See `warps.lens_map`; k is uniform between `min` and `max`."""

    min: float = Field(ge=-1.0, le=1.0)
    max: float = Field(ge=-1.0, le=1.0)
    mode: Distortion

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ordered((self.min, self.max))
        return self


class CoarseDropout(Chance):
    """See `warps.random_holes`: the number of zeroed rectangles, and their sides as fractions of the crop's."""

    holes: Limits[Count]
    height: Limits[Fraction]
    width: Limits[Fraction]


class ColourJitter(Chance):
    """Factors, and turns of the colour wheel for `hue`, each uniform between its limits; missing entries are off."""

    brightness: Limits[Factor] | None = None
    contrast: Limits[Factor] | None = None
    saturation: Limits[Factor] | None = None
    hue: Limits[Turns] | None = None


class GaussianNoise(Chance):
    """The noise's standard deviation as a fraction of full scale (255), uniform between its limits."""

    std: Limits[Fraction]


class MotionBlur(Chance):
    """Kernels of odd sizes from 3 to `limit` pixels."""

    limit: int = Field(ge=3, le=99)


class Gamma(Chance):
    """The exponent, uniform between its limits; 1 has no effect."""

    range: Limits[Exponent]


class Greyscale(Chance):
    """See `photometry.greyscale`."""

    method: Grey


class Compression(Chance):
    """An integer quality, uniform between its limits, both included."""

    type: Codec
    quality: Limits[Quality]


class GeometricTransforms(Section):
    """Transforms applied equally to both images, in this order, after the crop."""

    horizontal_flip: Chance | None = None
    vertical_flip: Chance | None = None
    rotate90: Chance | None = None
    elastic: Elastic | None = None
    optical_distortion: OpticalDistortion | None = None
    coarse_dropout: CoarseDropout | None = None
    further: Transforms = {}


class InputTransforms(Section):
    """Transforms of the input only, applied in this order."""

    colour_jitter: ColourJitter | None = None
    gaussian_noise: GaussianNoise | None = None
    motion_blur: MotionBlur | None = None
    gamma: Gamma | None = None
    greyscale: Greyscale | None = None
    compression: Compression | None = None
    further: ImageTransforms = {}


class PairAugmentation(Section):
    """All transforms of a training pair."""

    both: GeometricTransforms = GeometricTransforms()
    input: InputTransforms = InputTransforms()

"""Settings of the entry `augmentation` of a dataset of pairs.

`both` has transforms of both images, `input` those of x only. A missing transform is off; `chance` is the probability
that a transform is applied. `further` are transforms of the package albumentations, by name and in their order, after
the others: `{bend: {type: albumentations.ElasticTransform, p: 0.5}}`.
"""

from functools import partial
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from figura.recipe.schema import Declaration

from .photometry import Codec

IMPORTED_FOR = {".further_transforms": ("further",)}

Number = TypeVar("Number", bound=float)


def _ordered(limits: tuple[Number, Number]) -> tuple[Number, Number]:
    if limits[0] > limits[1]:
        raise ValueError(f"the lowest, {limits[0]:g}, is above the highest, {limits[1]:g}")
    return limits


Limits = Annotated[tuple[Number, Number], AfterValidator(_ordered)]  # lowest, highest
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Factor = Annotated[float, Field(ge=0.0, le=10.0)]
Turns = Annotated[float, Field(ge=-0.5, le=0.5)]
Quality = Annotated[int, Field(ge=1, le=100)]


def _checked(entries: dict[str, Declaration], one_image: bool) -> dict[str, Declaration]:
    if entries:
        from .further_transforms import check

        check(entries, one_image)
    return entries


Transforms = Annotated[dict[str, Declaration], AfterValidator(partial(_checked, one_image=False))]
ImageTransforms = Annotated[dict[str, Declaration], AfterValidator(partial(_checked, one_image=True))]


class Section(BaseModel):
    """A map in a recipe; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Chance(Section):
    """A transform without further settings: a flip, a quarter turn, grey."""

    chance: Fraction


class ColourJitter(Chance):
    """Factors, and turns of the colour wheel for `hue`, each uniform between its limits; missing entries are off."""

    brightness: Limits[Factor] | None = None
    contrast: Limits[Factor] | None = None
    saturation: Limits[Factor] | None = None
    hue: Limits[Turns] | None = None


class GaussianNoise(Chance):
    """The noise's standard deviation as a fraction of full scale (255), uniform between its limits."""

    std: Limits[Fraction]


class Compression(Chance):
    """An integer quality, uniform between its limits, both included."""

    type: Codec
    quality: Limits[Quality]


class GeometricTransforms(Section):
    """Transforms applied equally to both images, in this order, after the crop."""

    horizontal_flip: Chance | None = None
    vertical_flip: Chance | None = None
    rotate90: Chance | None = None
    further: Transforms = {}


class InputTransforms(Section):
    """Transforms of the input only, applied in this order."""

    colour_jitter: ColourJitter | None = None
    gaussian_noise: GaussianNoise | None = None
    greyscale: Chance | None = None
    compression: Compression | None = None
    further: ImageTransforms = {}


class PairAugmentation(Section):
    """All transforms of a training pair."""

    both: GeometricTransforms = GeometricTransforms()
    input: InputTransforms = InputTransforms()

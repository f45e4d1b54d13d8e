"""What can be set about how a picture loses its detail: the entry `degradation` of a dataset of patches.

What is not written does not happen; `chance` is the probability that what is written is applied to a picture.
"""

from typing import Annotated

from pydantic import Field, field_validator

from models.images.data.augmentation_settings import Chance, Compression, Fraction, GaussianNoise, Limits, Section
from models.super_resolution.train.resampling import Kernel

Sigma = Annotated[float, Field(gt=0.0, le=50.0)]
Photons = Annotated[float, Field(ge=1.0, le=1.0e6)]
Share = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Blur(Chance):
    """A Gaussian; `sigma` in pixels of the large picture, uniform between its limits.

    A share `anisotropic` of them has a second, independent sigma across the first and a random direction.
    """

    sigma: Limits[Sigma]
    anisotropic: Fraction = 0.0


class ShotNoise(Chance):
    """Photons are counted: `photons` is how many make full scale, log-uniform between its limits; fewer, more noise."""

    photons: Limits[Photons]


class Degradation(Section):
    """From the large picture to the small one, in this order: blur, reduction, shot noise, Gaussian noise, compression.

    The order is that of Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3.1, equation 1, applied once. `kernels` says how
    the picture is reduced: the kernels of `resampling.Kernel`, drawn in proportion to their shares.
    """

    kernels: dict[Kernel, Share]
    blur: Blur | None = None
    shot_noise: ShotNoise | None = None
    gaussian_noise: GaussianNoise | None = None
    compression: Compression | None = None

    @field_validator("kernels")
    @classmethod
    def _some(cls, kernels: dict[Kernel, float]) -> dict[Kernel, float]:
        if not sum(kernels.values()):
            raise ValueError("at least one kernel with a share above 0 is needed")
        return kernels

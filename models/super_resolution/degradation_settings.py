"""Settings of the entry `degradation` of a dataset of patches.

A missing degradation is off; `chance` is the probability that a degradation is applied.
"""

from typing import Annotated

from pydantic import Field, field_validator

from models.images.augmentation_settings import Chance, Compression, Fraction, GaussianNoise, Limits, Section
from models.super_resolution.resampling import Kernel

Sigma = Annotated[float, Field(gt=0.0, le=50.0)]
Photons = Annotated[float, Field(ge=1.0, le=1.0e6)]
Share = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Blur(Chance):
    """A Gaussian blur; `sigma` is in pixels of the large image, uniform between its limits.

    A fraction `anisotropic` of the blurs has a random direction and a second, independent sigma across it.
    """

    sigma: Limits[Sigma]
    anisotropic: Fraction = 0.0


class ShotNoise(Chance):
    """Poisson noise; full scale is `photons` photons, log-uniform between its limits: fewer photons mean more noise."""

    photons: Limits[Photons]


class Degradation(Section):
    """Degradation of the large image to the small one: blur, downsampling, shot noise, Gaussian noise, compression.

    The order is that of Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3.1, equation 1, applied once. `kernels` are
    the downsampling kernels of `resampling.Kernel`, drawn with probabilities proportional to their values.
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

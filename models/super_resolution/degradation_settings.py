"""Settings of the entry `degradation` of a dataset of patches.

A missing degradation is off; `chance` is the probability that a degradation is applied.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..images.augmentation_settings import Chance, Compression, Fraction, GaussianNoise, Limits, Section
from .resampling import Kernel

Sigma = Annotated[float, Field(gt=0.0, le=50.0)]
Photons = Annotated[float, Field(ge=1.0, le=1.0e6)]
Share = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Exponent = Annotated[float, Field(gt=0.0, le=10.0)]
Scale = Annotated[float, Field(gt=0.0, le=10.0)]
Shape = Literal["gaussian", "generalised", "plateau"]


def _some(shares: dict[str, float]) -> dict[str, float]:
    if not sum(shares.values()):
        raise ValueError("at least one with a share above 0 is needed")
    return shares


Kernels = Annotated[dict[Kernel, Share], AfterValidator(_some)]  # probabilities are proportional to the values


class Blur(Chance):
    """A blur; `sigma` is in pixels of the image that is blurred, uniform between its limits.

    A fraction `anisotropic` of the blurs has a random direction and a second, independent sigma across it. The shape is
    drawn from `shapes` (see `degradations.blur_kernel`), and the exponent of one that is not Gaussian from its limits.
    """

    sigma: Limits[Sigma]
    anisotropic: Fraction = 0.0
    shapes: Annotated[dict[Shape, Share], AfterValidator(_some)] = Field(default={"gaussian": 1.0})
    generalised: Limits[Exponent] = (0.5, 4.0)
    plateau: Limits[Exponent] = (1.0, 2.0)


class Sinc(Chance):
    """A low-pass filter with ringing (`degradations.sinc_kernel`).

    `cutoff` is a share of the highest frequency, uniform between its limits.
    """

    cutoff: Limits[Annotated[float, Field(gt=0.0, le=1.0)]]


class Resize(Chance):
    """A change of size in the middle of a degradation, with one of `kernels`.

    The new size is a factor times the size `of` the large or the small image: 1 without this chance, otherwise below 1
    for a fraction `smaller`, uniform between the lower limit of `factor` and 1, and above 1 for the others.
    """

    of: Literal["large", "small"]
    smaller: Fraction
    factor: Limits[Scale]
    kernels: Kernels


class ShotNoise(Chance):
    """Poisson noise; full scale is `photons` photons, log-uniform between its limits: fewer photons mean more noise."""

    photons: Limits[Photons]


class Round(Section):
    """A degradation before the final one: blur or sinc filter, change of size, shot noise, Gaussian noise, compression.

    With the chance of `sinc`, its filter replaces the blur.
    """

    blur: Blur | None = None
    sinc: Sinc | None = None
    resize: Resize | None = None
    shot_noise: ShotNoise | None = None
    gaussian_noise: GaussianNoise | None = None
    compression: Compression | None = None


class Degradation(Section):
    """Degradation of the large image to the small one: blur, downsampling, shot noise, Gaussian noise, compression.

    The order is that of Wang et al., *Real-ESRGAN*, ICCVW 2021, section 3.1, equation 1. `kernels` are the downsampling
    kernels of `resampling.Kernel`. `rounds` come before, in their order: with two, and a final `sinc` filter before or
    after the compression, at random, it is the degradation of second order of sections 3.2 and 3.3.
    """

    rounds: tuple[Round, ...] = Field(default=(), max_length=4)
    kernels: Kernels
    blur: Blur | None = None
    shot_noise: ShotNoise | None = None
    gaussian_noise: GaussianNoise | None = None
    sinc: Sinc | None = None
    compression: Compression | None = None


class Sharpening(Section):
    """Unsharp masking (`degradations.sharpened`); `sigma` in pixels, `threshold` in levels of 255."""

    amount: float = Field(gt=0.0, le=10.0)
    sigma: Sigma
    threshold: float = Field(ge=0.0, le=255.0)

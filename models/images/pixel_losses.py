"""Losses that compare images, or feature maps, element by element, and the mean of a single tensor.

- Elementwise distances: `L1`, `L2`, `Cosine`. They also compare dictionaries of maps.
- Edges: `Gradient` of neighbours, `Sobel`, `Laplacian`.
- Spectra: `FocalFrequency`.
- The mean of a single tensor: `Direct`.

Every loss returns one value per example, shape (N,), at least float32.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.interfaces import Loss

from .argument_types import NonNegative
from .example_means import at_least_float32, example_means

Maps = Tensor | Mapping[str, Tensor]
LeafWeights = dict[str, NonNegative] | None
EPSILON = 1e-6  # inside Sobel's root, whose slope would be infinite where an image is flat


class _Pairwise(Loss):
    """Base of the elementwise distances: their mean over C·H·W, or for any (N, ...) over all dimensions but the first.

    With a `mask` (N, 1, H, W) in [0, 1], 1 on the person, an element has the weight `mask + background · (1 - mask)`.
    The sum is still divided by C·H·W, so the weight of an error is independent of the person's size.

    `image` and `target` may also be dictionaries of tensors with the same names, such as the `taps` of a `Forward`. The
    value is then the sum over the names of weight times mean: feature matching for a discriminator's feature maps, a
    perceptual loss for those of a frozen network.

    Args:
        background: weight of elements where the mask is 0.
        leaf_weights: the weight of each name; default 1. Tensors of weight 0 are not compared.
    """

    def __init__(self, *, background: NonNegative = 1.0, leaf_weights: LeafWeights = None) -> None:
        super().__init__()
        self.background, self.leaf_weights = background, leaf_weights

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        """Compare two tensors of the same shape (N, ...); the result has as many dimensions, of the same size or 1."""
        raise TypeError(f"{type(self).__name__} has no distance")

    def forward(  # type: ignore[override]
        self, *, image: Maps, target: Maps, mask: Tensor | None = None
    ) -> Tensor:
        """Tensors (N, ...), any float type, or dictionaries of them -> (N,), at least float32.

        Raises:
            ValueError: image, target, mask or leaf_weights do not match in names or shapes.
            TypeError: only one of image and target is a dictionary.
        """
        if isinstance(image, Tensor) and isinstance(target, Tensor):
            return self._mean(image, target, mask)
        if isinstance(image, Tensor) or isinstance(target, Tensor):
            raise TypeError("one of image and target is a tensor, the other a dictionary of tensors")
        weights = dict.fromkeys(image, 1.0) if self.leaf_weights is None else self.leaf_weights
        for what, names in (("target", target), ("leaf_weights", weights)):
            if names.keys() != image.keys():
                raise ValueError(f"{what} has the names {', '.join(names)}, but image {', '.join(image)}")
        means = [weights[name] * self._mean(image[name], target[name], mask) for name in image if weights[name]]
        return torch.stack(means).sum(dim=0)

    def _mean(self, image: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        if image.shape != target.shape:
            raise ValueError(f"image of shape {tuple(image.shape)} against target of shape {tuple(target.shape)}")
        distance = self.distance(at_least_float32(image), at_least_float32(target))
        if mask is None:
            return example_means(distance)
        if mask.ndim != distance.ndim or any(a not in (1, b) for a, b in zip(mask.shape, distance.shape, strict=True)):
            raise ValueError(f"mask of shape {tuple(mask.shape)} does not fit what it weighs, {tuple(distance.shape)}")
        return example_means(distance * (self.background + (1 - self.background) * mask))


class L1(_Pairwise):
    """Absolute difference (`color_L1`)."""

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return (image - target).abs()


class L2(_Pairwise):
    """Squared difference (`color_L2`)."""

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return (image - target).square()


class Cosine(_Pairwise):
    """`1 - cos` of the angle between the channel vectors at each position: 0 to 2, independent of their lengths.

    Channels are dimension 1, also of embeddings (N, C). The distance to a zero vector is 1.
    """

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return 1 - F.cosine_similarity(image, target, dim=1).unsqueeze(1)


class Gradient(Loss):
    """Absolute difference of neighbour differences, mean over x plus mean over y (`color_gradient`).

    `signed` compares the differences themselves. Otherwise their absolute values are compared, as in VUNet's PyTorch
    port; an image and its negative are then equal.
    """

    def __init__(self, *, signed: bool) -> None:
        super().__init__()
        self.signed = signed

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        image, target = at_least_float32(image), at_least_float32(target)
        loss = image.new_zeros(len(image))
        for axis in (-1, -2):
            a, b = image.diff(dim=axis), target.diff(dim=axis)
            difference = a - b if self.signed else a.abs() - b.abs()
            loss = loss + difference.abs().mean(dim=(1, 2, 3))
        return loss


def grey(images: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W), the mean over channels, at least float32."""
    return at_least_float32(images).mean(dim=1)


def sobel_magnitude(grey: Tensor) -> Tensor:
    """`sqrt(gx^2 + gy^2 + 1e-6)`, (N, H, W) -> (N, H, W), not normalised (Sobel and Feldman 1968).

    gx cross-correlates with the rows (1, 0, -1), (2, 0, -2), (1, 0, -1), gy with their transpose; borders are 0.
    """
    padded = F.pad(grey, (1, 1, 1, 1))
    down = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    across = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    gx, gy = down[:, :, :-2] - down[:, :, 2:], across[:, :-2] - across[:, 2:]
    return (gx.square() + gy.square() + EPSILON).sqrt()


def laplacian(grey: Tensor) -> Tensor:
    """The sum of the four neighbours minus four times the pixel, (N, H, W) -> (N, H, W); borders are 0."""
    padded = F.pad(grey, (1, 1, 1, 1))
    vertical = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1]
    return vertical + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:] - 4 * grey


class Sobel(Loss):
    """Mean over H·W of the absolute difference of Sobel magnitudes; images (N, C, H, W) in [-1, 1] -> (N,)."""

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        return (sobel_magnitude(grey(image)) - sobel_magnitude(grey(target))).abs().mean(dim=(1, 2))


class Laplacian(Loss):
    """Mean over H·W of the absolute difference of Laplacians; images (N, C, H, W) in [-1, 1] -> (N,)."""

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        # linear: apply it once, to the difference
        return laplacian(grey(image) - grey(target)).abs().mean(dim=(1, 2))


class FocalFrequency(Loss):
    """`mean of w |F|^2`, where F is the spectrum of the difference and w weights hard frequencies (Jiang et al. 2021).

    Equations 6 to 8. F is the two-dimensional discrete Fourier transform of each channel, divided by sqrt(H W), so that
    the value with equal weights is that of L2 (Parseval). `w = |F|^alpha`, divided by its maximum in the channel,
    carries no gradient: the worst frequency has weight 1, others less.

    Args:
        alpha: focus on frequencies with large errors; 1 in the paper, 0 is L2.
    """

    def __init__(self, *, alpha: NonNegative) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, C, H, W) in [-1, 1], of one shape -> (N,)."""
        if image.shape != target.shape:
            raise ValueError(f"image of shape {tuple(image.shape)} against target of shape {tuple(target.shape)}")
        # linear: transform the difference once
        spectrum = torch.fft.fft2(at_least_float32(image) - at_least_float32(target), norm="ortho")
        power = spectrum.real.square() + spectrum.imag.square()
        weights = power.detach() ** (self.alpha / 2)
        largest = weights.amax(dim=(-2, -1), keepdim=True)
        return example_means(power * weights / torch.where(largest == 0, 1, largest))


class Direct(Loss):
    """The mean of a tensor: a loss that a network computes itself, or an output to keep small.

    A negative `weight` maximises it instead.
    """

    def forward(self, *, value: Tensor) -> Tensor:  # type: ignore[override]
        """(N,) or (N, ...), any float type -> (N,), at least float32.

        Raises:
            ValueError: one number for the whole batch; losses need a value per example.
        """
        if value.ndim == 0:
            raise ValueError("value is one number for the batch: let the network give one an example, shape (N,)")
        return example_means(at_least_float32(value))

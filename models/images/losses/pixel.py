"""PIXEL"""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from models.base.errors import nearest
from models.interfaces import Loss

Tree = Tensor | Sequence["Tree"] | Mapping[str, "Tree"]  # the tensors in it are its leaves
LeafWeights = dict[str, float] | list[float] | None


def at_least_float32(x: Tensor) -> Tensor:
    """Means over many pixels lose digits in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def leaves(tree: Tree) -> dict[str, Tensor]:
    """Name the tensors of nested lists and dictionaries by their places, `relu1`, `0` or `block.1`; a tensor's is ``."""
    if isinstance(tree, Tensor):
        return {"": tree}
    parts = tree.items() if isinstance(tree, Mapping) else ((str(place), part) for place, part in enumerate(tree))
    return {f"{name}.{inner}" if inner else name: leaf for name, part in parts for inner, leaf in leaves(part).items()}


def instance_means(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """(N, ...) -> (N,), the mean of each instance; with weights, `sum of w v / sum of w`, and 0 where every w is 0.

    Weights (N, ...) have as many dimensions as the values, each of the same size or 1.
    """
    if weights is not None:
        spread = weights.expand_as(values)
        total = instance_means(spread)
        return instance_means(values * spread) / torch.where(total == 0, 1, total)
    return values.mean(dim=tuple(range(1, values.ndim))) if values.ndim > 1 else values


def check_fits(name: str, weights: Tensor, values: Tensor) -> None:
    """Raise ValueError unless weights have as many dimensions as values, each of the same size or 1."""
    if weights.ndim != values.ndim or any(a not in (1, b) for a, b in zip(weights.shape, values.shape, strict=True)):
        raise ValueError(f"{name} of shape {tuple(weights.shape)} does not fit what it weighs, {tuple(values.shape)}")


class _Pairwise(Loss):
    """Mean over C·H·W of a weighted elementwise distance; of other shapes (N, ...), over everything but instances.

    With a `mask` (N, 1, H, W) in [0, 1], 1 on the person, an element weighs `mask + background · (1 - mask)`; the sum
    is still divided by C·H·W, so the value does not depend on how large the person is drawn relative to its error.
    With `normalise` it is divided by the sum of the weights instead: the mean over what the mask shows, 0 where it
    shows nothing.

    `image` and `target` may also be lists or dictionaries of tensors, nested or not, with the same places: feature maps.
    The value is then the sum over these leaves of the leaf's weight times the leaf's mean: feature matching, where a
    discriminator gave them; a perceptual loss, where a frozen network did. A mask is one for all leaves, or one for each.

    Args:
        background: weight of elements where the mask is 0, 0 or more.
        normalise: divide by the sum of the weights.
        leaf_weights: a weight for each leaf, 0 or more, by its name (`relu1`; `block.1` inside) or in order; left out,
            1 each. A leaf of weight 0 is not compared.
    """

    def __init__(self, *, background: float = 1.0, normalise: bool = False, leaf_weights: LeafWeights = None) -> None:
        super().__init__()
        given = leaf_weights.values() if isinstance(leaf_weights, Mapping) else leaf_weights
        if given is not None and (not all(0 <= weight < math.inf for weight in given) or not any(given)):
            raise ValueError(f"leaf_weights {leaf_weights}: weights of 0 or more, one of them above 0, are needed")
        if not 0 <= background < math.inf:
            raise ValueError(f"background {background}: a weight of 0 or more is needed")
        self.background, self.normalise, self.leaf_weights = background, normalise, leaf_weights

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        """Compare two tensors of the same shape (N, ...); dimensions stay, their sizes may become 1."""
        raise TypeError(f"{type(self).__name__} has no distance")

    def forward(  # type: ignore[override]
        self, *, image: Tree, target: Tree, mask: Tree | None = None
    ) -> Tensor:
        """Trees of tensors (N, ...), any float type -> (N,), at least float32.

        Raises:
            ValueError: image, target, mask or leaf_weights do not match in places or shapes.
        """
        if isinstance(image, Tensor) and isinstance(target, Tensor) and not isinstance(mask, Sequence | Mapping):
            return self._leaf(image, target, mask)
        ours, theirs = leaves(image), leaves(target)
        _check_places("target", theirs, ours)
        masks: Mapping[str, Tensor | None] = dict.fromkeys(ours, mask) if isinstance(mask, Tensor) else {}
        if mask is not None and not isinstance(mask, Tensor):
            masks = leaves(mask)
            _check_places("mask", masks, ours)
        return torch.stack(
            [
                weight * self._leaf(ours[name], theirs[name], masks.get(name))
                for name, weight in self._weights(list(ours)).items()
                if weight
            ]
        ).sum(dim=0)

    def _weights(self, names: list[str]) -> dict[str, float]:
        given = [1.0] * len(names) if self.leaf_weights is None else self.leaf_weights
        if isinstance(given, Mapping):
            _check_places("leaf_weights", given, names)
            return {name: given[name] for name in names}
        if len(given) != len(names):
            raise ValueError(f"leaf_weights {given}: there are {len(names)} leaves, {', '.join(names)}")
        return dict(zip(names, given, strict=True))

    def _leaf(self, image: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        if image.shape != target.shape:
            raise ValueError(f"image of shape {tuple(image.shape)} against target of shape {tuple(target.shape)}")
        distance = self.distance(at_least_float32(image), at_least_float32(target))
        if mask is None:
            return instance_means(distance)
        check_fits("mask", mask, distance)
        weights = self.background + (1 - self.background) * mask
        return instance_means(distance, weights) if self.normalise else instance_means(distance * weights)


def _check_places(what: str, found: Mapping[str, object], wanted: Mapping[str, object] | Sequence[str]) -> None:
    for name in found:
        if name not in wanted:
            raise ValueError(f"{what} {name!r}{nearest(name, wanted)}: the leaves of image are {', '.join(wanted)}")
    for name in wanted:
        if name not in found:
            raise ValueError(f"{what} {name!r} is missing: the leaves of image are {', '.join(wanted)}")


class L1(_Pairwise):
    """Absolute difference (`color_L1`)."""

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return (image - target).abs()


class L2(_Pairwise):
    """Squared difference (`color_L2`)."""

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return (image - target).square()


class SmoothL1(_Pairwise):
    """With d the absolute difference, `d^2 / (2 beta)` below `beta` and `d - beta / 2` from it on (Girshick 2015, eq. 3).

    Args:
        beta: where the parabola becomes a line, in units of the difference, above 0.
        background: see `L1`, as `normalise` and `leaf_weights`.
    """

    def __init__(
        self, *, beta: float, background: float = 1.0, normalise: bool = False, leaf_weights: LeafWeights = None
    ) -> None:
        super().__init__(background=background, normalise=normalise, leaf_weights=leaf_weights)
        if not 0 < beta < math.inf:
            raise ValueError(f"beta {beta}: a difference above 0 is needed; without a parabola it is L1")
        self.beta = beta

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(image, target, reduction="none", beta=self.beta)


class Charbonnier(_Pairwise):
    """`sqrt(d^2 + epsilon^2)`, which is `epsilon` where nothing differs (Lai et al. 2017, section 3.3).

    Args:
        epsilon: width of the rounded tip, in units of the difference, above 0; 0.001 in the paper.
        background: see `L1`, as `normalise` and `leaf_weights`.
    """

    def __init__(
        self, *, epsilon: float, background: float = 1.0, normalise: bool = False, leaf_weights: LeafWeights = None
    ) -> None:
        super().__init__(background=background, normalise=normalise, leaf_weights=leaf_weights)
        if not 0 < epsilon < math.inf:
            raise ValueError(f"epsilon {epsilon}: a number above 0 is needed; with 0 it is L1")
        self.epsilon = epsilon

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return ((image - target).square() + self.epsilon**2).sqrt()


class Cosine(_Pairwise):
    """`1 - cos` of the angle between the two vectors of channels, at each position: 0 to 2, whatever their lengths.

    Channels are dimension 1, also of embeddings (N, C). Where a vector is 0 the distance is 1.
    """

    def distance(self, image: Tensor, target: Tensor) -> Tensor:
        return 1 - F.cosine_similarity(image, target, dim=1).unsqueeze(1)


class Gradient(Loss):
    """Absolute difference of neighbour differences, mean over x plus mean over y (`color_gradient`).

    `signed` compares the differences themselves; otherwise their absolute values, as VUNet's port does, under which
    an image and its negative are equal.
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


EPSILON = 1e-6  # inside the root, whose slope would be infinite where an image is flat


def grey(images: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, H, W), the mean over channels, at least float32."""
    return at_least_float32(images).mean(dim=1)


def sobel_magnitude(grey: Tensor) -> Tensor:
    """`sqrt(gx^2 + gy^2 + 1e-6)`, (N, H, W) -> (N, H, W), not scaled (Sobel and Feldman 1968).

    gx cross-correlates with rows (1, 0, -1), (2, 0, -2), (1, 0, -1); gy with the transpose.
    """
    padded = F.pad(grey, (1, 1, 1, 1))
    down = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    across = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    gx, gy = down[:, :, :-2] - down[:, :, 2:], across[:, :-2] - across[:, 2:]
    return (gx.square() + gy.square() + EPSILON).sqrt()


def laplacian(grey: Tensor) -> Tensor:
    """The four neighbours minus four times the pixel, (N, H, W) -> (N, H, W)."""
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
        # The operator is linear: once, on the difference.
        return laplacian(grey(image) - grey(target)).abs().mean(dim=(1, 2))


class FocalFrequency(Loss):
    """`mean of w |F|^2`, F the spectrum of the difference, w high where it is far off (Jiang et al. 2021, eq. 6 to 8).

    F is the two-dimensional discrete Fourier transform of each channel, divided by sqrt(H W), so that with equal weights
    the value is that of L2 (Parseval). `w = |F|^alpha`, divided by its largest value in the channel, carries no gradient:
    what a network draws worst counts fully, the rest less.

    Args:
        alpha: how much it looks away from frequencies that are right already, 0 or more; 1 in the paper, 0 is L2.
    """

    def __init__(self, *, alpha: float) -> None:
        super().__init__()
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha {alpha}: an exponent of 0 or more is needed")
        self.alpha = alpha

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, C, H, W) in [-1, 1], of one shape -> (N,)."""
        if image.shape != target.shape:
            raise ValueError(f"image of shape {tuple(image.shape)} against target of shape {tuple(target.shape)}")
        # the transform is linear: once, on the difference
        spectrum = torch.fft.fft2(at_least_float32(image) - at_least_float32(target), norm="ortho")
        power = spectrum.real.square() + spectrum.imag.square()
        weights = power.detach() ** (self.alpha / 2)
        largest = weights.amax(dim=(-2, -1), keepdim=True)
        return instance_means(power * weights / torch.where(largest == 0, 1, largest))


class Direct(Loss):
    """The mean of what a network gave: a loss that it computes itself, or an output to keep small.

    A negative `weight` makes the output large instead.
    """

    def forward(self, *, value: Tensor) -> Tensor:  # type: ignore[override]
        """(N,) or (N, ...), any float type -> (N,), at least float32.

        Raises:
            ValueError: one number for the whole batch; a loss is known by instances.
        """
        if value.ndim == 0:
            raise ValueError("value is one number for the batch: let the network give one an instance, shape (N,)")
        return instance_means(at_least_float32(value))


class TotalVariation(Loss):
    """Mean absolute difference of neighbours along x plus that along y (Rudin, Osher and Fatemi 1992, anisotropic)."""

    def forward(self, *, image: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, C, H, W), H and W at least 2 -> (N,)."""
        if min(image.shape[-2:]) < 2:
            raise ValueError(f"image of {image.shape[-2]} x {image.shape[-1]}: 2 x 2 at least has neighbours")
        image = at_least_float32(image)
        return instance_means(image.diff(dim=-1).abs()) + instance_means(image.diff(dim=-2).abs())

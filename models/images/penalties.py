"""Losses of one tensor, which is compared with nothing."""

from torch import Tensor

from models.engine.losses import Loss
from models.images.losses import at_least_float32, instance_means


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

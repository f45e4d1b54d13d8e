"""What a loss is to the engine."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn


class Loss(nn.Module):
    """The base of every `losses` entry.

    The constructor takes the entry's keyword arguments; `forward` takes keyword-only tensors, its *roles*, which the
    entry's `inputs` map to names of the state, and returns one value an instance, shape `(batch,)`, not weighted; or a
    dictionary of such, its components, whose sum it is, so that each can be followed (`caf.vector` beside `caf`).
    A role with a default may be left out of `inputs`. A loss holds no trainable parameters. One that differentiates with
    respect to its inputs (a gradient penalty) is `training_only`: evaluations, which keep no gradients, leave it out.

    Whatever the precision of a training, it gets float32 (or float64) and computes in that, without autocast. Roles among
    `differentiated` come as they are: a copy in float32 is not what the other inputs were computed from.
    """

    training_only: ClassVar[bool] = False
    differentiated: ClassVar[frozenset[str]] = frozenset()

    def forward(self, **roles: Tensor) -> Tensor | Mapping[str, Tensor]:
        """Return one value an instance, shape `(batch,)`, or the components that add up to it."""
        raise TypeError(f"{type(self).__name__} computes nothing")

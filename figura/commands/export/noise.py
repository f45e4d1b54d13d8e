"""Random numbers that a network draws, recorded, and given back as inputs.

Draws through `torch.randn`, `randn_like`, `rand`, `rand_like`, `randint` and dropout are seen. Dropout keeps elements
whose noise, uniform in [0, 1), is at least its probability.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

NORMAL, UNIFORM, WHOLE = "standard normal", "uniform in [0, 1)", "whole numbers"
DISTRIBUTIONS: dict[Callable[..., Any], str] = {
    torch.randn: NORMAL, torch.randn_like: NORMAL, torch.rand: UNIFORM, torch.rand_like: UNIFORM, torch.randint: WHOLE,
}  # fmt: skip


class Recorder(TorchFunctionMode):
    """Inside, `noise` gets each tensor that is drawn, in order, and `distributions` what it was drawn from."""

    def __init__(self) -> None:
        super().__init__()
        self.noise: list[Tensor] = []
        self.distributions: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch, and record what it draws."""
        if func is F.dropout and _drops(**kwargs):
            self.noise.append(torch.rand_like(args[0]))
            self.distributions.append(UNIFORM)
            return _dropped(args[0], self.noise[-1], kwargs["p"])
        result = func(*args, **(kwargs or {}))
        if func in DISTRIBUTIONS:
            self.noise.append(result)
            self.distributions.append(DISTRIBUTIONS[func])
        return result


def _drops(p: float, training: bool, inplace: bool = False) -> bool:
    return training and 0 < p < 1


def _dropped(x: Tensor, noise: Tensor, p: float) -> Tensor:
    return x * (noise >= p) / (1 - p)


class Replay(TorchFunctionMode):
    """Inside, draws give `noise` back, in the order of a `Recorder`."""

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        self.waiting = list(noise)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch, unless it draws."""
        if func is F.dropout and _drops(**kwargs):
            return _dropped(args[0], self.waiting.pop(0), kwargs["p"])
        if func in DISTRIBUTIONS and self.waiting:
            return self.waiting.pop(0)
        return func(*args, **(kwargs or {}))

"""A temporary mode is a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; every submodule's own mode comes back after it."""
    before = [(module, module.training) for network in networks for module in network.modules()]
    for network in networks:
        network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training

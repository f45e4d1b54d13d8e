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


@contextmanager
def in_mode(network: nn.Module, *, training: bool) -> Iterator[None]:
    """Training or evaluation mode inside; every submodule's own mode comes back after it.

    Where gradients are off around it (an evaluation), so do the buffers that training mode moves: running statistics.
    """
    before = [(module, module.training) for module in network.modules()]
    kept = training and not torch.is_grad_enabled()
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()] if kept else []
    network.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)

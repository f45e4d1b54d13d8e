"""Context managers that switch networks between train and eval mode and back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(*networks: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; afterwards, every submodule's mode is restored."""
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
    """Train or eval mode inside; afterwards, every submodule's mode is restored.

    If gradients are off around it (an evaluation), the running statistics that train mode updates are restored, too.
    """
    before = [(module, module.training) for module in network.modules()]
    restores = training and not torch.is_grad_enabled()
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()] if restores else []
    network.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)

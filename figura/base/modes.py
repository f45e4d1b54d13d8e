"""Context managers that switch networks between train and eval mode and back, or restore them."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from figura.base.seeding import random_kept


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


@contextmanager
def unchanged(*networks: nn.Module) -> Iterator[None]:
    """Restore parameters, buffers and random states afterwards."""
    tensors = [tensor for network in networks for tensor in (*network.parameters(), *network.buffers())]
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        with random_kept():
            yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)

"""Activation checkpointing: chosen modules keep only their inputs, and compute the rest again in the backward pass.

It saves memory for the time of about one more forward pass of these modules (Chen et al., *Training deep nets with
sublinear memory cost*, 2016). Gradients, buffers and noise are those of a training without it, bit for bit on a CPU.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from models.base.distributed import current_shard, sharded
from models.base.errors import UserError
from models.engine.module_names import modules_named, outermost
from models.engine.rank_invariant_rng import current_noise
from models.recipe.schema import Recipe


def checkpoint_networks(networks: Mapping[str, nn.Module], recipe: Recipe) -> None:
    """Checkpoint, in place, what `networks.<name>.checkpointing` says; raises what `checkpoint_modules` raises."""
    for name, entry in recipe.networks.items():
        checkpoint_modules(networks[name], entry.checkpointing, f"networks.{name}.checkpointing")


def checkpoint_modules(network: nn.Module, names: bool | Sequence[str], key: str) -> None:
    """Checkpoint modules of a network, in place: those named (`modules_named`), or for True all of its `blocks`.

    Raises:
        UserError: no module has such a name, or for True, the network has no blocks.
    """
    if isinstance(names, bool):
        chosen = blocks(network) if names else {}
        if names and not chosen:
            raise UserError(
                f"{key}: {type(network).__name__} has no list of blocks to choose from; write the names of modules"
            )
    else:
        chosen = modules_named(network, names, key)
    for module in chosen.values():
        # a bound method: a copy of the network (its average) gets one that is bound to the copied module
        module.forward = MethodType(_forward, module)


def blocks(network: nn.Module) -> dict[str, nn.Module]:
    """Return the entries of `Sequential` and `ModuleList` that have submodules and trainable parameters, outermost."""
    return outermost(
        {
            f"{name}.{entry}".removeprefix("."): block
            for name, module in network.named_modules()
            if isinstance(module, nn.Sequential | nn.ModuleList)
            for entry, block in module.named_children()
            if any(True for _ in block.children()) and any(p.requires_grad for p in block.parameters())
        }
    )


def _forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call the `forward` of the module's class under checkpointing, where gradients are recorded."""
    forward = partial(type(module).forward, module)
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, context_fn=partial(_contexts, module), **kwargs)


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts of the forward pass, which begins now, and of its repetition."""
    return nullcontext(), _Repetition(module)


class _Repetition(AbstractContextManager[None]):
    """Inside, a forward pass finds what it found when this object was made.

    Buffers are copies of the earlier ones, so that running statistics move once an iteration. Each module has the mode
    that it had: a `Forward` with a mode of its own has ended by then. Noise and the shard of a batch over ranks are set
    again: backward may run in another thread, and knows neither.
    """

    def __init__(self, module: nn.Module) -> None:
        self.buffers = [
            (owner, name, buffer.clone())
            for owner in module.modules()
            for name, buffer in owner._buffers.items()
            if buffer is not None
        ]
        self.modes = [(one, one.training) for one in module.modules()]
        self.shard, self.noise = current_shard(), current_noise()
        self.state = None if self.noise is None else self.noise.state()
        self.stack = ExitStack()

    def __enter__(self) -> None:
        if self.shard is not None:
            self.stack.enter_context(sharded(self.shard.rank, self.shard.ranks))
        if self.noise is not None and self.state is not None:
            self.stack.enter_context(self.noise.again_from(self.state))
        for owner, name, earlier in self.buffers:
            self.stack.callback(owner._buffers.__setitem__, name, owner._buffers[name])
            owner._buffers[name] = earlier.clone()
        for one, training in self.modes:
            self.stack.callback(setattr, one, "training", one.training)
            one.training = training

    def __exit__(self, *exception: object) -> None:
        self.stack.close()

"""Activation checkpointing: selected modules keep only their inputs and are recomputed in the backward pass.

It saves memory at the cost of about one more forward pass of these modules (Chen et al., *Training deep nets with
sublinear memory cost*, 2016). Gradients, buffers and noise match a training without it, bit for bit on a CPU.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from figura.base.distributed import current_shard, sharded
from figura.base.errors import UserError, nearest
from figura.engine.rank_invariant_rng import current_noise
from figura.recipe.schema import Recipe


def checkpoint_networks(networks: Mapping[str, nn.Module], recipe: Recipe) -> None:
    """Apply `networks.<name>.checkpointing` in place; raises like `checkpoint_modules`."""
    for name, entry in recipe.networks.items():
        checkpoint_modules(networks[name], entry.checkpointing, f"networks.{name}.checkpointing")


def checkpoint_modules(network: nn.Module, names: bool | Sequence[str], key: str) -> None:
    """Checkpoint modules of a network in place: those with these names or patterns, or with True all of its `blocks`.

    Raises:
        UserError: no module matches a name, or with True, the network has no blocks.
    """
    if isinstance(names, bool):
        chosen = blocks(network) if names else {}
        if names and not chosen:
            raise UserError(
                f"{key}: {type(network).__name__} has no list of blocks to choose from; write the names of modules"
            )
    else:
        chosen = _modules_named(network, names, key)
    for module in chosen.values():
        # a bound method: in a copy of the network (its average), it is bound to the copied module
        module.forward = MethodType(_forward, module)


def blocks(network: nn.Module) -> dict[str, nn.Module]:
    """Return the outermost children of `Sequential` and `ModuleList` that have submodules and trainable parameters."""
    return _outermost(
        {
            f"{name}.{entry}".removeprefix("."): block
            for name, module in network.named_modules()
            if isinstance(module, nn.Sequential | nn.ModuleList)
            for entry, block in module.named_children()
            if any(True for _ in block.children()) and any(p.requires_grad for p in block.parameters())
        }
    )


def _modules_named(network: nn.Module, patterns: Sequence[str], key: str) -> dict[str, nn.Module]:
    """Return the modules of a network whose names match a pattern, except those nested in another match.

    In a pattern, `*` stands for any characters, dots included.

    Raises:
        UserError: a pattern matches no module; `key` is the recipe key of the patterns.
    """
    modules = {name: module for name, module in network.named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in modules):
            tops = ", ".join(name for name, _ in network.named_children())
            raise UserError(
                f"{key}: {type(network).__name__} has no module {pattern!r}{nearest(pattern, modules)}; "
                f"it consists of {tops or 'none'}"
            )
    return _outermost({n: m for n, m in modules.items() if any(fnmatchcase(n, pattern) for pattern in patterns)})


def _outermost(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Drop modules nested in another one."""
    return {
        name: module for name, module in modules.items() if not any(name.startswith(f"{other}.") for other in modules)
    }


def _forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Call the class's `forward`, checkpointed if gradients are recorded."""
    forward = partial(type(module).forward, module)
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(  # in contexts: of the forward pass, which starts now, and of its recomputation
        forward, *args, use_reentrant=False, context_fn=lambda: (nullcontext(), _Repetition(module)), **kwargs
    )


class _Repetition(AbstractContextManager[None]):
    """Context that restores the state of the forward pass in which it was created.

    Buffers are copies of the earlier ones, so that running statistics move once per iteration. Each module has its
    previous train/eval mode: a `Forward` that changed it has ended by then. Noise and batch shard are restored because
    backward may run in another thread, which has neither.
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

"""Weights in safetensors, written by a run or loaded at the start of a training, and their moving averages."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from figura.base.checksums import refuse_damaged
from figura.base.errors import UserError
from figura.base.file_kinds import why_no_tensors
from figura.base.files import open_regular, replacing, sha256
from figura.recipe.schema import OWN, Ema, Recipe


@runtime_checkable
class Pretrained(Protocol):
    """A network, or part of one, that can start from published weights.

    The constructor does not load them, so only training needs the file.
    """

    def load_pretrained(self) -> None:
        """Load the weights in place if its arguments ask for it. Raises UserError if they cannot be read."""


def save_weights(network: nn.Module, path: Path) -> None:
    """Write a network's parameters and persistent buffers by name, atomically; one with several names, under each."""
    # copies: safetensors refuses tensors that share memory, such as tied weights
    tensors = {name: one.detach().to("cpu", copy=True).contiguous() for name, one in network.state_dict().items()}
    with replacing(path) as temporary:
        save_tensors(tensors, temporary)


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors, by name, to a safetensors file. Raises OSError, which safetensors wraps in its own error."""
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        if (number := re.search(r"os error (\d+)", str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def not_finite(network: nn.Module) -> list[str]:
    """Return the names of parameters and persistent buffers with a value that is not finite."""
    floating = {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}
    return [name for name, tensor in floating.items() if not tensor.isfinite().all()]


def digest(network: nn.Module) -> str:
    """Return the SHA-256 of all parameters and their names: equal digests mean equal weights, bit for bit."""
    total = hashlib.sha256()
    for name, parameter in network.named_parameters():
        total.update(name.encode() + b"\0" + parameter.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def load_weights(network: nn.Module, path: Path) -> None:
    """Load weights written by `save_weights`.

    Raises:
        UserError: no such file, a digest that differs from `SHA256SUMS` beside it, not safetensors, or names and shapes
            that do not match (all are listed).
    """
    refuse_damaged(path)
    tensors = load_tensors(path)
    own = network.state_dict()
    faults = [f"missing {name}" for name in own.keys() - tensors.keys()]
    faults += [f"unexpected {name}" for name in tensors.keys() - own.keys()]
    faults += [
        f"{name} has shape {list(tensors[name].shape)}, the network {list(own[name].shape)}"
        for name in own.keys() & tensors.keys()
        if own[name].shape != tensors[name].shape
    ]
    if faults:
        raise UserError(f"{path} does not fit {type(network).__name__}: " + "; ".join(sorted(faults)))
    network.load_state_dict(tensors)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, on the CPU. Raises UserError if it is none, with what it is."""
    open_regular(path).close()
    try:
        return load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: not a readable safetensors file: {why_no_tensors(path, error)}") from None


def load_start(networks: Mapping[str, nn.Module], recipe: Recipe) -> dict[str, str]:
    """Load initial weights: from the file named in the recipe, else a network's `Pretrained`.

    Return their source as text for the log, by network, without networks that keep random weights.

    Raises:
        UserError: see `load_weights` and `Pretrained.load_pretrained`.
    """
    files = recipe.starts_from()
    sources: dict[str, str] = {}
    for name, network in networks.items():
        try:
            if name in files:
                load_weights(network, Path(files[name]))
                sources[name] = f"{files[name]}, sha256 {sha256(Path(files[name]))[:8]}"
            elif isinstance(network, Pretrained):
                random = digest(network)
                network.load_pretrained()
                sources |= {name: "its published weights"} if digest(network) != random else {}
            elif recipe.networks[name].weights == OWN:
                sources[name] = f"the weights that its type gives it, digest {digest(network)[:8]}"
        except UserError as error:
            key = "train.init_from" if name in files and recipe.networks[name].weights is None else f"networks.{name}"
            raise UserError(f"{recipe.path}: {key}: network {name!r}: {error}") from None
    return sources


class WeightAverages(AveragedModel):
    """The averages of a network (`train.ema`), in a copy of it; buffers, such as running statistics, are the latest.

    The number of updates stays on the CPU. `AveragedModel` itself copies it to the GPU in every update, and waits.
    """

    def __init__(self, network: nn.Module, ema: Ema) -> None:
        super().__init__(network)
        self.ema = ema

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Add a network's current weights; the first update copies them."""
        averages: list[Tensor] = [*self.module.parameters()]
        weights: list[Tensor] = [*model.parameters()]
        if not weights:
            pass  # buffers alone, such as a pool of pictures; `_foreach` takes no empty list
        elif (count := int(self.n_averaged)) == 0:
            torch._foreach_copy_(averages, weights)
        else:
            torch._foreach_lerp_(averages, weights, 1 - self.ema.decay_at(count))
        for own, latest in zip(self.module.buffers(), model.buffers(), strict=True):
            own.copy_(latest)
        self.n_averaged += 1


def to_device(tree: Any, device: torch.device) -> Any:
    """Move every tensor in nested dictionaries and lists to a device; other values are unchanged."""
    if isinstance(tree, Tensor):
        return tree.to(device, non_blocking=True)
    if isinstance(tree, Mapping):
        return {key: to_device(value, device) for key, value in tree.items()}
    if isinstance(tree, list):
        return [to_device(value, device) for value in tree]
    return tree

"""Tensors of checkpoints that other programs wrote, by name: state dictionaries, what lies around them, safetensors."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from figura.base.errors import UserError
from figura.commands.import_weights.safe_unpickle import Placeholder, read_pickle, state_of
from figura.engine.weights import load_tensors

CONTENTS = ("params_ema", "params", "state_dict", "model")
"""Keys of a checkpoint that hold the weights, the first wins: BasicSR's averaged weights before the trained ones."""
KEYS = 5  # that a message names
NESTED = 3  # dictionaries around the weights, at most
WRAPPED = ("module.", "_orig_mod.")  # prefixes of every name: of DataParallel and of torch.compile, perhaps of both


def read_content(path: Path) -> Any:
    """Return what a file of safetensors or of `torch.save` holds; raise UserError if it cannot be read."""
    return load_tensors(path) if path.suffix == ".safetensors" else read_pickle(path)


def tensors_of(content: Any, path: Path, *, several: bool = False) -> dict[str, Tensor]:
    """Return the tensors, by name, in what a file holds: a state dictionary, a checkpoint or a pickled network.

    A checkpoint holds one of these under a key of `CONTENTS`, or under any key if it holds no other; of `several`
    networks, names are `<key>.<name>`. Nothing that the file names is executed (`safe_unpickle.py`).

    Raises:
        UserError: it holds no weights, several networks, or tensors without plain values.
    """
    try:
        state = _state(content)
        networks = {} if state is not None else _networks(content)
    except RecursionError:
        raise UserError(f"{path}: a module of its network contains itself, or too many lie one in another") from None
    if state is None:
        if len(networks) != 1 and not (several and networks):
            which = f"several networks, {', '.join(networks)}" if networks else "no state dictionary"
            raise UserError(
                f"{path}: holds {which}{_others(content)}; one is needed, alone or under {', '.join(CONTENTS)}"
            )
        (state, *others) = networks.values()
        if others:
            state = {f"{key}.{name}": tensor for key, one in networks.items() for name, tensor in one.items()}
    tensors = {str(name): tensor for name, tensor in state.items()}
    while tensors and (common := [one for one in WRAPPED if all(name.startswith(one) for name in tensors)]):
        tensors = {name.removeprefix(common[0]): tensor for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
            raise UserError(f"{path}: {name} has no plain values ({tensor.layout}, device {tensor.device})")
    return tensors


def _state(content: Any, depth: int = 0) -> dict[Any, Tensor] | None:
    """Return the tensors of a state dictionary, of a pickled network, or of what holds one under `CONTENTS`."""
    content = state_of(content) if isinstance(content, Placeholder) else content
    if not isinstance(content, dict) or not content or depth > NESTED:
        return None
    if all(isinstance(one, Tensor) for one in content.values()):
        return content
    inner = (_state(content.get(key), depth + 1) for key in CONTENTS)
    return next((state for state in inner if state is not None), None)


def _networks(content: Any) -> dict[str, dict[Any, Tensor]]:
    """Return the states that a dictionary holds, by key."""
    items = content.items() if isinstance(content, dict) else ()
    return {str(key): state for key, value in items if (state := _state(value)) is not None}


def _others(content: Any) -> str:
    """Say what the first keys hold that are no tensors."""
    items = content.items() if isinstance(content, dict) else ()
    named = [f"{key} ({getattr(one, 'stands_for', type(one).__name__)})" for key, one in items
             if not isinstance(one, Tensor)]  # fmt: skip
    return f"; it holds {', '.join(named[:KEYS])}" + (", ..." if len(named) > KEYS else "") if named else ""


def bad_values(tensor: Tensor) -> str:
    """Return what no weights can have: numbers of another kind, or not finite ones."""
    if not tensor.is_floating_point():
        return f"holds {tensor.dtype}; floating-point numbers are needed"
    return "" if tensor.float().isfinite().all() else "holds NaN or infinity"

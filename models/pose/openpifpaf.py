"""Weights with OpenPifPaf's parameter names, for networks of the same architecture (specification 8.6).

The names are ours but for heads, which go by their place there (`head_nets.0.conv.weight`) and by their name here
(`head_nets.cif.conv.weight`). OpenPifPaf's heads are, in this order, cif (17 fields), caf (19) and, in dense checkpoints,
caf25 (25) of `cocokp`, and cifdet (91) of `cocodet`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from models.base.errors import UserError
from models.pose.safe_unpickle import Placeholder, children_of, read_inert, state_of

COUNTER = ".num_batches_tracked"  # of BatchNorm; only an average that we do not use needs it
WRAPPED = "module."  # what DataParallel puts before every name
HEADS = "head_nets."
LEFT_OUT = "-"
CONTENTS = ("model", "state_dict")  # where a checkpoint has what counts
EARLIER_HEAD = "CompositeField3"  # before 0.13: other components in another order, for cif in the same number
REMEDY = (
    "the recipe's backbone and its options have to be those of the checkpoint, and its heads too: published ones have "
    "upsample 2 and, in this order, cif with 17 fields, caf with 19 and, if dense, one of kind caf with 25 (cocokp), or "
    "cifdet with 91 (cocodet); heads from before OpenPifPaf 0.13 fit none"
)


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, a saved state dictionary, or a published checkpoint, by the names they have.

    A checkpoint is {"model": ...} or {"state_dict": ...}, either a state dictionary or a pickled network, of which only
    the tensors are read (see `inert_pickle`).

    Raises:
        UserError: for another file, and heads from before OpenPifPaf 0.13.
    """
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: not a readable safetensors file: {error}") from None
    found = read_inert(path)
    if isinstance(found, dict):
        found = next((found[key] for key in CONTENTS if isinstance(found.get(key), dict | Placeholder)), found)
    if isinstance(found, Placeholder):
        _refuse_earlier_heads(found, path)
        found = state_of(found)
    if not isinstance(found, dict) or not found or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{path}: holds no state dictionary, and no network under {' or '.join(CONTENTS)}")
    return {str(name): tensor for name, tensor in found.items()}


def renamed(state: Mapping[str, Any], heads: Sequence[str]) -> dict[str, Any]:
    """OpenPifPaf's names -> ours; the h-th head is called `heads[h]`, or left out where that is `-`.

    Heads beyond those keep their number. `module.`, with which DataParallel begins every name, goes.
    """
    wrapped = bool(state) and all(name.startswith(WRAPPED) for name in state)
    names = {str(place): head for place, head in enumerate(heads)}
    found = {}
    for name, value in state.items():
        name = name.removeprefix(WRAPPED) if wrapped else name
        if name.startswith(HEADS):
            place, _, rest = name.removeprefix(HEADS).partition(".")
            if names.get(place) == LEFT_OUT:
                continue
            name = f"{HEADS}{names.get(place, place)}.{rest}"
        found[name] = value
    return found


def fitted(state: Mapping[str, Tensor], network: nn.Module, heads: Sequence[str]) -> dict[str, Tensor]:
    """A complete state of `network`, in its dtypes, from OpenPifPaf's `state`; `heads` as for `renamed`.

    The network keeps what it has of heads that `heads` does not name. BatchNorm's counters are 0 where they are missing.

    Raises:
        UserError: every tensor that is missing, of another shape, or has no place in the network; a line each.
    """
    own = network.state_dict()
    fresh = tuple(f"{HEADS}{head}." for head in getattr(network, "head_nets", {}) if head not in heads)
    found = renamed(state, heads)
    for name, tensor in own.items():
        if fresh and name.startswith(fresh):
            found[name] = tensor
        elif name.endswith(COUNTER):
            found.setdefault(name, torch.zeros_like(tensor))
    faults = [f"missing {name}, of shape {tuple(own[name].shape)}" for name in own if name not in found]
    faults += [f"surplus {name}, of shape {tuple(found[name].shape)}" for name in found if name not in own]
    faults += [
        f"{name} has shape {tuple(found[name].shape)}, the network {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if faults:
        heads_are = ", ".join(f"{place} is {head}" for place, head in enumerate(heads))
        raise UserError("\n  ".join([f"{len(faults)} tensors do not fit (head {heads_are}); {REMEDY}:", *faults]))
    return {name: found[name].to(tensor.dtype) for name, tensor in own.items()}


def _refuse_earlier_heads(network: Placeholder, path: Path) -> None:
    modules = children_of(network)
    for place, head in children_of(modules["head_nets"]).items() if "head_nets" in modules else ():
        if head.stands_for.endswith(f".{EARLIER_HEAD}"):
            raise UserError(
                f"{path}: head {place} is a {EARLIER_HEAD}, from before OpenPifPaf 0.13, with other components than today's; "
                "a checkpoint of 0.13 is needed"
            )

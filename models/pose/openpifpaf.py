"""Import weights with OpenPifPaf's parameter names into networks of the same architecture.

The names are the same except for heads: OpenPifPaf numbers them (`head_nets.0.conv.weight`), figura names them
(`head_nets.cif.conv.weight`). OpenPifPaf's heads are, in this order, cif (17 fields), caf (19) and, in dense
checkpoints, caf25 (25) of `cocokp`, and cifdet (91) of `cocodet`. Checkpoints are those of
openpifpaf/network/trainer.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.commands.import_weights.safe_unpickle import Placeholder, children_of
from figura.commands.import_weights.tensor_files import bad_values, read_content, tensors_of

COUNTER = ".num_batches_tracked"  # of BatchNorm; unused here
HEADS = "head_nets."
LEFT_OUT = "-"
EARLIER_HEAD = "CompositeField3"  # before 0.13; different components in a different order
REMEDY = (
    "the recipe's backbone and its options have to be those of the checkpoint, and its heads too: published ones have "
    "upsample 2 and, in this order, cif with 17 fields, caf with 19 and, if dense, one of kind caf with 25 (cocokp), "
    "or cifdet with 91 (cocodet); heads from before OpenPifPaf 0.13 fit none"
)


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint, by name, like `tensor_files.read_tensors`.

    Raises:
        UserError: other files, and for heads from before OpenPifPaf 0.13.
    """
    content = read_content(path)
    for network in content.values() if isinstance(content, dict) else (content,):
        if isinstance(network, Placeholder):
            _refuse_earlier_heads(network, path)
    return tensors_of(content, path)


def renamed(state: Mapping[str, Any], heads: Sequence[str]) -> dict[str, Any]:
    """Rename OpenPifPaf's tensors to figura's: the h-th head becomes `heads[h]`, or is dropped if that is `-`.

    Further heads keep their number.
    """
    names = {str(place): head for place, head in enumerate(heads)}
    tensors = {}
    for name, value in state.items():
        if name.startswith(HEADS):
            place, _, rest = name.removeprefix(HEADS).partition(".")
            if names.get(place) == LEFT_OUT:
                continue
            name = f"{HEADS}{names.get(place, place)}.{rest}"
        tensors[name] = value
    return tensors


def fitted(state: Mapping[str, Tensor], network: nn.Module, heads: Sequence[str]) -> dict[str, Tensor]:
    """Build a complete state of `network`, in its dtypes, from OpenPifPaf's `state`; `heads` as for `renamed`.

    Heads of the network that `heads` does not name keep their weights. Missing counters of BatchNorm become 0.

    Raises:
        UserError: lists every tensor that is missing, has a wrong shape, is not finite floating-point, or is not in the
            network; one per line.
    """
    own = network.state_dict()
    fresh = tuple(f"{HEADS}{head}." for head in getattr(network, "head_nets", {}) if head not in heads)
    tensors = renamed(state, heads)
    for name, tensor in own.items():
        if fresh and name.startswith(fresh):
            tensors[name] = tensor
        elif name.endswith(COUNTER):
            tensors.setdefault(name, torch.zeros_like(tensor))
    faults = [f"missing {name}, of shape {tuple(own[name].shape)}" for name in own if name not in tensors]
    faults += [f"surplus {name}, of shape {tuple(tensors[name].shape)}" for name in tensors if name not in own]
    faults += [
        f"{name} has shape {tuple(tensors[name].shape)}, the network {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if faults:
        heads_are = ", ".join(f"{place} is {head}" for place, head in enumerate(heads))
        raise UserError("\n  ".join([f"{len(faults)} tensors do not fit (head {heads_are}); {REMEDY}:", *faults]))
    read = [name for name, tensor in own.items() if tensors[name] is not tensor and tensor.is_floating_point()]
    if faults := [f"{name} {fault}" for name in read if (fault := bad_values(tensors[name]))]:
        raise UserError("\n  ".join(["these tensors hold no weights:", *faults]))
    return {name: tensors[name].to(tensor.dtype) for name, tensor in own.items()}


def _refuse_earlier_heads(network: Placeholder, path: Path) -> None:
    modules = children_of(network)
    for place, head in children_of(modules["head_nets"]).items() if "head_nets" in modules else ():
        if head.stands_for.endswith(f".{EARLIER_HEAD}"):
            raise UserError(
                f"{path}: head {place} is a {EARLIER_HEAD}, from before OpenPifPaf 0.13, with other components than "
                "today's; a checkpoint of 0.13 is needed"
            )

"""What a checkpoint of another program holds, as a network of figura: type, settings, and which tensor goes where.

The systems' modules `import_KIND` read that from the names and shapes in a checkpoint, one for each program.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.commands.import_weights.tensor_files import bad_values

Tensors = Mapping[str, Tensor]

COUNTER = ".num_batches_tracked"  # of BatchNorm: absent in files from before PyTorch 0.4.1; nothing here reads it
STATISTICS = (".running_mean", ".running_var", COUNTER)
NORM = ("weight", "bias", *(name.removeprefix(".") for name in STATISTICS))  # tensors of a BatchNorm


@dataclass(frozen=True)
class Plan:
    """A network of figura and where its tensors come from.

    Attributes:
        type: as a recipe names it.
        settings: its arguments, as far as the checkpoint says them.
        places: name in the checkpoint -> name of the parameter or buffer here.
        guesses: settings that a recipe may have otherwise, because the file does not say them.
        ignored: names in the checkpoint that mean nothing: statistics of norms that normalise by each image.
        changes: name here -> what makes the tensor here of the one in the checkpoint.
        published: the recipe that reads the result, and the name of the network in it.
        remark: what to know about the result.
        kept: names here that the checkpoint does not hold: they stay as the network has them.
        remedy: what else to say where tensors do not fit.
    """

    type: str
    settings: dict[str, Any]
    places: dict[str, str]
    published: tuple[str, str]
    guesses: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    changes: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    remark: str = ""
    kept: frozenset[str] = frozenset()
    remedy: str = ""


def shape(tensors: Tensors, name: str) -> tuple[int, ...]:
    """Return the shape of a convolution's weight whose size says a setting.

    Raises:
        UserError: it is missing, is empty, or has not four dimensions.
    """
    if name not in tensors:
        raise UserError(f"there is no tensor {name}: the file is damaged, or holds another network")
    found = tuple(tensors[name].shape)
    if len(found) != 4 or 0 in found:
        raise UserError(
            f"{name} has shape {found}: the file is damaged, or holds another network; 4 dimensions of at least 1 are "
            "needed"
        )
    return found


def numbers(tensors: Tensors, start: str, end: str = ".", first: int | None = 0) -> range:
    """Return the numbers n of all names that begin with start, n, end; empty if there are none.

    Raises:
        UserError: they do not begin at `first` (None: at any), or one between is missing.
    """
    pattern = re.compile(rf"{re.escape(start)}(\d{{1,9}}){re.escape(end)}")
    present = {int(match[1]) for name in tensors if (match := pattern.match(name))}
    if not present:
        return range(0)
    begin = min(present) if first is None else first
    if len(present) != max(present) - begin + 1 or min(present) < begin:
        gap = next((n for n in range(begin, max(present)) if n not in present), min(present))
        raise UserError(
            f"there is {start}{max(present)}, but {'no ' if gap not in present else 'also '}{start}{gap}: the file is "
            "damaged, or holds another network"
        )
    return range(begin, max(present) + 1)


def convolutions(modules: Mapping[str, str]) -> dict[str, str]:
    """Return places of weights and biases, given the modules' names there and here."""
    return {f"{there}.{part}": f"{here}.{part}" for there, here in modules.items() for part in ("weight", "bias")}


def norms(modules: Mapping[str, str], kind: str) -> tuple[dict[str, str], frozenset[str]]:
    """Return the places of norms' tensors, and the names to ignore, given their names there and here.

    BatchNorm has weights and statistics. An instance norm has neither, but files from before PyTorch 0.4 have
    statistics of it, which were never used.
    """
    if kind == "batch":
        return {f"{there}.{part}": f"{here}.{part}" for there, here in modules.items() for part in NORM}, frozenset()
    return {}, frozenset(there + part for there in modules for part in STATISTICS)


def fitted(plan: Plan, tensors: Tensors, network: nn.Module) -> dict[str, Tensor]:
    """Build a complete state of `network`, in its dtypes, from a checkpoint's tensors.

    Missing counters of BatchNorm become 0; a bias that the checkpoint has no place for here is a fault.

    Raises:
        UserError: names every tensor that is missing, left over, or of another shape; one per line.
    """
    own = network.state_dict()
    sources = {here: there for there, here in plan.places.items()}
    state: dict[str, Tensor] = {}
    faults = []
    for here, wanted in own.items():
        there = sources.get(here, here)
        if here in plan.kept:
            state[here] = wanted
        elif there not in tensors or here not in sources:
            if here.endswith(COUNTER):
                state[here] = torch.zeros_like(wanted)
            else:
                faults.append(f"missing {there}, of shape {tuple(wanted.shape)}, for {here}")
        elif tensors[there].shape != wanted.shape:
            faults.append(
                f"{there} has shape {tuple(tensors[there].shape)}, {here} of the network {tuple(wanted.shape)}"
            )
        elif wanted.is_floating_point() and (fault := bad_values(tensors[there])):
            faults.append(f"{there} {fault}")
        else:
            state[here] = plan.changes.get(here, lambda tensor: tensor)(tensors[there]).to(wanted.dtype)
    for there, tensor in tensors.items():
        if plan.places.get(there) not in own and there not in plan.ignored:
            faults.append(f"left over {there}, of shape {tuple(tensor.shape)}")
    _refuse(plan, faults)
    return state


def _refuse(plan: Plan, faults: list[str]) -> None:
    if len(faults) == 1:
        raise UserError(f"a tensor does not fit {plan.type}: {faults[0]}{plan.remedy}")
    if faults:
        raise UserError("\n  ".join([f"{len(faults)} tensors do not fit {plan.type}{plan.remedy}:", *faults]))

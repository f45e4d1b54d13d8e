"""Files of every architecture that the package spandrel knows: super-resolution, denoising, restoration.

The network in a recipe is spandrel's own class, `spandrel.architectures.SPAN.SPAN`. All use images in [0, 1].
"""

import inspect
from importlib import import_module
from typing import Any

from figura.base.errors import UserError, install
from figura.commands.import_weights.plan import Plan, Tensors

REMARK = "it reads and gives pictures in [0, 1], figura's are in [-1, 1]: an injector `Sum` before and after it"


def plan(tensors: Tensors) -> Plan:
    """Plan the network of a file, as spandrel tells it from names and shapes."""
    model = recognised(tensors)
    own = model.state_dict()
    if renamed := [name for name in own if name not in tensors]:
        raise UserError(f"spandrel changes the names in this file ({renamed[0]} is new); `figura import esrgan` may do")
    return Plan(
        type_of(model),
        settings_of(model),
        {name: name for name in own},
        ("a recipe", "generator"),
        ignored=frozenset(tensors.keys() - own.keys()),  # buffers that an architecture computes itself
        remark=REMARK,
    )


def recognised(tensors: Tensors) -> Any:
    """Return spandrel's network of these tensors, with their values.

    Raises:
        UserError: spandrel is not installed, or knows no such network.
    """
    try:
        spandrel = import_module("spandrel")
    except ModuleNotFoundError as error:
        raise UserError(f"the package {error.name} is not installed; {install('spandrel')}") from None
    try:
        return spandrel.MAIN_REGISTRY.load(dict(tensors)).model
    except spandrel.UnsupportedModelError:
        raise UserError("spandrel knows no architecture with such tensors") from None
    except Exception as error:  # noqa: BLE001  # its code for each architecture may fail in any way
        why = "; ".join(line.strip() for line in str(error).splitlines()[:2])  # the first of many tensors
        raise UserError(f"spandrel cannot read it: {type(error).__name__}: {why}") from None


def type_of(model: Any) -> str:
    """Return the name of a network's class in the package of its architecture."""
    package = type(model).__module__.partition(".__arch")[0]
    names = [name for name, kind in vars(import_module(package)).items() if kind is type(model)]
    return f"{package}.{names[0]}"


def settings_of(model: Any) -> dict[str, Any]:
    """Return the arguments of a network's constructor that differ from its defaults, as plain values."""
    given = model.hyperparameters  # some of them say what the class is, and are no arguments: RealCUGAN's `scale`
    own = inspect.signature(type(model)).parameters.items()
    return {name: _plain(given[name]) for name, one in own if name in given and one.default != given[name]}


def _plain(value: Any) -> Any:
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value

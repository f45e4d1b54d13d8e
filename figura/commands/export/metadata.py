"""What an exported file says about itself: recipe, versions, weights, and how pictures become inputs."""

import inspect
import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from figura.base.error_collector import ErrorCollector
from figura.base.errors import DISTRIBUTION
from figura.base.files import sha256
from figura.base.yaml12 import to_yaml
from figura.commands.export.calls import Call, Example, output_name
from figura.commands.export.programs import Axes
from figura.evaluation.model_folder import trained_content
from figura.recipe.schema import Recipe
from figura.recipe.types import DATASET, PHOTOS, find_type
from figura.systems import PACKAGE as SYSTEMS

ATTRIBUTES = ("stride", "head_strides", "factor", "unshuffle", "scale", "image_size")
"""Of a network, what says how sizes of inputs and outputs belong together."""


def metadata_of(
    model: Path, recipe: Recipe, call: Call, example: Example, axes: Axes, least: Mapping[str, int],
    packages: tuple[str, ...],
) -> dict[str, str]:  # fmt: skip
    """Return the metadata by name; values that are no plain text are JSON, `recipe` is YAML."""
    weights = model / f"{call.name}.safetensors"
    facts = {name: value for name in ATTRIBUTES if (value := _plain(call.network, name)) is not None}
    return {
        "figura": _version(DISTRIBUTION),
        "versions": json.dumps({name: _version(name) for name in ("torch", *packages)}),
        "network": call.name,
        "type": recipe.networks[call.name].type,
        "mode": call.mode,
        "arguments": json.dumps(call.arguments),
        "weights_sha256": sha256(weights),
        "inputs": json.dumps({name: _input(call, example, axes, name) for name in example.tensors}),
        "outputs": json.dumps({output_name(result, example.tensors): name for result, name in call.results.items()}),
        "sizes": json.dumps(facts | ({"least": dict(least)} if least else {})),
        "preprocessing": json.dumps(preprocessing(recipe)),
        "recipe": to_yaml(_recipe(model, recipe)),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"


def _plain(network: nn.Module, name: str) -> Any:
    value = getattr(network, name, None)
    parts = value.values() if isinstance(value, Mapping) else [value]
    return value if all(isinstance(one, int | float) for one in parts) else None


def _input(call: Call, example: Example, axes: Axes, name: str) -> dict[str, Any]:
    """Return the shape of an input, with names for the axes that may change, and what it is in the recipe."""
    tensor = example.tensors[name]
    shape = [axes[name].get(index, size) for index, size in enumerate(tensor.shape)]
    known: dict[str, Any] = {"shape": shape, "example": list(tensor.shape)}
    if name in example.distributions:
        return known | {"noise": example.distributions[name]}
    order = {1: "grey", 3: "RGB"}.get(tensor.shape[1]) if tensor.ndim == 4 else None
    return known | {
        "name": call.names.get(name),
        "channels": order,
        "seen": [round(float(tensor.min()), 4), round(float(tensor.max()), 4)],
    }


def preprocessing(recipe: Recipe) -> dict[str, Any]:
    """Return how pictures become inputs: the class that does it with its arguments, and the scale of its pixels.

    An input is `pixel * multiply + add`, channel by channel, for pixels from 0 to 255; classes of others may do
    something else, and are only named.
    """
    entry = recipe.predict.data if recipe.predict else next(iter(recipe.evaluate.data.values()))
    kind: Any = find_type(entry.type, PHOTOS if recipe.predict else DATASET, "data", ErrorCollector(recipe.path))
    known: dict[str, Any] = {"type": entry.type, "arguments": entry.arguments}
    if kind.__module__.partition(".")[0] not in (SYSTEMS, "figura"):
        return known
    defaults = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    given = defaults | entry.arguments
    if "mean" in defaults and "std" in defaults:
        mean, std = np.array(given["mean"]), np.array(given["std"])
        return known | {"multiply": (1 / (255 * std)).tolist(), "add": (-mean / std).tolist()}
    return known | {"multiply": [1 / 127.5], "add": [-1.0]}


def _recipe(model: Path, recipe: Recipe) -> dict[str, Any]:
    """Return the recipe that trained, with the sections that say how networks are run, and the facts of its data."""
    content, facts = trained_content(model)
    sections = recipe.model_dump(include={"evaluate", "predict"}, by_alias=True, mode="json")
    return content | sections | {"facts": facts}

"""Corrupts the modules of `figura.pipeline.relevance`: they do their work, and whatever they could leak is wrong.

Texts that they return are others, random generators are in another state, networks, annotations and checked recipes
that they were given are changed.
"""

import functools
import inspect
import os
import random
import sys
import types
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
import torch

from figura.pipeline.relevance import WITHOUT_EFFECT, changes_results

called: set[str] = set()  # corrupted modules that were used
RUNS = "figura.base.exit_status"  # it calls the stage


class Finder:
    """Finds the modules that change no result, and loads them corrupted."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if changes_results(name) or (spec := PathFinder.find_spec(name, path)) is None or name == RUNS:
            return None
        found = spec_from_loader(name, _Corrupting(name, spec), origin=spec.origin)
        if found is not None:
            found.submodule_search_locations = spec.submodule_search_locations
        return found


class _Corrupting(Loader):
    def __init__(self, name: str, spec: ModuleSpec) -> None:
        self.name, self.spec = name, spec

    def exec_module(self, module: types.ModuleType) -> None:
        hidden = types.ModuleType(self.name)  # calls inside of the module stay as they are
        hidden.__file__, hidden.__package__ = self.spec.origin, self.spec.parent
        assert self.spec.origin is not None
        exec(compile(Path(self.spec.origin).read_text(), self.spec.origin, "exec"), hidden.__dict__)  # noqa: S102
        for key, value in hidden.__dict__.items():
            if key.startswith("__"):
                continue
            own = getattr(value, "__module__", None) == self.name
            setattr(module, key, _wrapped(self.name, value) if own and inspect.isfunction(value) else value)
            if own and inspect.isclass(value) and not issubclass(value, (BaseException, tuple)):
                for name, method in list(vars(value).items()):
                    if inspect.isfunction(method) and name[0] != "_":
                        setattr(value, name, _wrapped(self.name, method))


def _wrapped(module: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        called.add(next(one for one in WITHOUT_EFFECT if f"{module}.".startswith(f"{one}.")))
        result = function(*arguments, **keywords)
        for value in (*arguments, *keywords.values()):
            _corrupt(module, value)
        noise = int.from_bytes(os.urandom(4))
        torch.manual_seed(noise)
        np.random.seed(noise)
        random.seed(noise)
        if isinstance(result, str):
            return "corrupted"
        texts = isinstance(result, list) and bool(result) and isinstance(result[0], str)
        return ["corrupted"] * len(result) if texts else result

    return wrapper


def _corrupt(module: str, value: Any) -> None:
    for network in value.values() if isinstance(value, dict) else ():
        if module == "figura.training.sanity_check" and isinstance(network, torch.nn.Module):
            with torch.no_grad():
                for tensor in (*network.parameters(), *network.buffers()):
                    tensor.add_(1)
    if module == "figura.formats.person_check" and isinstance(value, dict):
        value["bbox"].clear()
    recipe = getattr(value, "recipe", value)
    if module.startswith("figura.recipe.check") and type(recipe).__name__ == "Recipe":
        recipe.losses.clear()
        recipe.metrics.scores.clear()


def install() -> None:
    """Corrupt them in this process, before anything of them is used."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("figura", "models", "stages")]:
        if name != "figura.pipeline.relevance":
            del sys.modules[name]
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]

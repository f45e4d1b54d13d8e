"""Tensors out of PyTorch files that hold whole pickled objects, without running anything that the file asks for.

PyTorch's weights-only loader builds tensors and plain containers (and what this process has declared safe: by default,
PyTorch's own), and refuses a file that names any other class or function. Here each such name gets a class of our own that
does nothing, which the loader is told is safe: what the file names is not imported, called or constructed, and the tensors
in the state of its objects are there all the same.
"""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.base.errors import UserError


class Placeholder:
    """Stands for an object that is not built: takes any arguments, keeps its pickled `state`, does nothing.

    Attributes:
        stands_for: the dotted name in the file.
    """

    stands_for = ""
    state: Any = None

    def __init__(self, *arguments: object) -> None:
        del arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_inert(path: Path) -> Any:
    """What `torch.save` wrote, tensors on the CPU, with a `Placeholder` for every object but tensors and containers.

    Files from before PyTorch 1.6, which are no zip archives, may hold tensors and containers only.

    Raises:
        UserError: no such file, not of this form, or a name that the loader refuses even so (of `os`, `sys`).
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path) if zipfile.is_zipfile(path) else []
        with torch.serialization.safe_globals([(_stand_in(name), name) for name in names]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a malformed file brings about
        said = str(error).strip().splitlines()
        raise UserError(
            f"{path}: cannot be read as weights of PyTorch ({type(error).__name__}: {said[-1] if said else ''}); where "
            "the package that wrote it is installed, and if you trust the file, write its state dictionary there: "
            "torch.save(torch.load(path, weights_only=False)['model'].state_dict(), 'weights.pt')"
        ) from error


def state_of(module: Placeholder) -> dict[str, Tensor]:
    """The state dictionary of a pickled `torch.nn.Module`: parameters and persistent buffers by their dotted names."""
    found: dict[str, Tensor] = {}
    passing = module.state.get("_non_persistent_buffers_set") if isinstance(module.state, dict) else ()
    for kind in ("_parameters", "_buffers"):
        for name, tensor in _part(module, kind).items():
            if isinstance(tensor, Tensor) and name not in (passing or ()):
                found[name] = tensor.detach()
    for name, child in children_of(module).items():
        found |= {f"{name}.{rest}": tensor for rest, tensor in state_of(child).items()}
    return found


def children_of(module: Placeholder) -> dict[str, Placeholder]:
    """The modules that a pickled `torch.nn.Module` has, by name."""
    return {name: child for name, child in _part(module, "_modules").items() if isinstance(child, Placeholder)}


def _part(module: Placeholder, kind: str) -> dict[str, Any]:
    part = module.state.get(kind) if isinstance(module.state, dict) else None
    return part if isinstance(part, dict) else {}


def _stand_in(name: str) -> type[Placeholder]:
    return type("StandIn", (Placeholder,), {"stands_for": name})

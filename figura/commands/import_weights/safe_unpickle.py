"""Reading tensors from PyTorch files with whole pickled objects, without running any code that the file names.

PyTorch's weights-only loader builds tensors, plain containers and classes that the process has declared safe. It
refuses a file that names any other class or function. This module declares an empty class of its own safe for each such
name. The loader then imports, calls and constructs nothing that the file names, and still reads the tensors in the
state of its objects.
"""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from figura.base.errors import UserError
from figura.base.file_kinds import HEAD, kind_of
from figura.base.files import open_regular


class Placeholder:
    """Stands for an object of the file: takes any arguments, holds its pickled `state`, does nothing.

    Attributes:
        stands_for: the dotted name in the file.
    """

    stands_for = ""
    state: Any = None

    def __init__(self, *arguments: object) -> None:
        del arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_pickle(path: Path) -> Any:
    """Read a file of `torch.save`: tensors on the CPU, and a `Placeholder` for every object but tensors and containers.

    Files from before PyTorch 1.6 (not zip archives) may hold tensors and containers only.

    Raises:
        UserError: for a missing file, another format, compressed parts, a checksum that differs, and names that the
            loader always refuses (of `os`, `sys`).
    """
    with open_regular(path) as file:
        head = file.read(HEAD)
    try:
        archive = zipfile.is_zipfile(path)
        damaged = _damaged(path) if archive else None
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path) if archive else []
        stand_ins: list[Any] = [(type("StandIn", (Placeholder,), {"stands_for": name}), name) for name in names]
        with torch.serialization.safe_globals(stand_ins):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # a malformed file can raise anything
        if (kind := kind_of(head, Path())) and "PyTorch" not in kind:
            raise UserError(f"{path}: cannot be read as weights of PyTorch: {kind}") from None
        raise UserError(
            f"{path}: cannot be read as weights of PyTorch ({type(error).__name__}: {_reason(error)}); if it may be "
            "cut off or damaged, copy it again; else, where the package that wrote it is installed, and if you trust "
            "the file, write its state dictionary there: "
            "torch.save(torch.load(path, weights_only=False)['model'].state_dict(), 'weights.pt')"
        ) from error
    if damaged is not None:
        raise UserError(
            f"{path}: the checksum of its part {damaged} differs: the file is damaged, copy it again; if it was "
            "written without checksums (torch.serialization.set_crc32_options(False)), write it with them"
        )
    return content


def _damaged(path: Path) -> str | None:
    """Return the first part of an archive whose checksum differs, which PyTorch does not look at.

    Raises:
        UserError: it would fill more memory than its file has bytes: `torch.save` compresses nothing.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if any(one.compress_type != zipfile.ZIP_STORED for one in parts):
            raise UserError(
                f"{path}: its parts are compressed, so torch.save did not write it (torch.jit.save may have)"
            )
        if sum(one.file_size for one in parts) > path.stat().st_size:
            raise UserError(f"{path}: its parts are together larger than the file: it is damaged, copy it again")
        return archive.testzip()


def _reason(error: Exception) -> str:
    """Return the line of an error that says what happened: PyTorch puts advice before and behind it."""
    lines = [line for line in str(error).splitlines() if line and not line.startswith("Check the documentation")]
    return lines[-1].partition(". This is an internal")[0] if lines else ""


def state_of(module: Placeholder) -> dict[str, Tensor]:
    """The state dictionary of a pickled `torch.nn.Module`: parameters and persistent buffers by their dotted names."""
    tensors: dict[str, Tensor] = {}
    transient = module.state.get("_non_persistent_buffers_set") if isinstance(module.state, dict) else ()
    for kind in ("_parameters", "_buffers"):
        for name, tensor in _part(module, kind).items():
            if isinstance(tensor, Tensor) and name not in (transient or ()):
                tensors[name] = tensor.detach()
    for name, child in children_of(module).items():
        tensors |= {f"{name}.{rest}": tensor for rest, tensor in state_of(child).items()}
    return tensors


def children_of(module: Placeholder) -> dict[str, Placeholder]:
    """The child modules of a pickled `torch.nn.Module` by name."""
    return {name: child for name, child in _part(module, "_modules").items() if isinstance(child, Placeholder)}


def _part(module: Placeholder, kind: str) -> dict[str, Any]:
    part = module.state.get(kind) if isinstance(module.state, dict) else None
    return part if isinstance(part, dict) else {}

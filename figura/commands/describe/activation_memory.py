"""Measures the memory that autograd saves for the backward pass and that losses hold: storages, sizes in bytes."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor


class SavedTensor:
    """Wraps a tensor that autograd saved; it is garbage collected when the graph releases the tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@contextmanager
def record_saved(sizes: dict[int, int], alive: "WeakSet[SavedTensor] | None" = None) -> Iterator[None]:
    """Record the storages, with their bytes, that graphs built inside save; `alive` holds those not yet released."""

    def pack(tensor: Tensor) -> SavedTensor:
        sizes.update(storages([tensor]))
        saved = SavedTensor(tensor)
        if alive is not None:
            alive.add(saved)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        yield


def storage_of(tensor: Tensor) -> int:
    """Return an id of the tensor's storage: its C++ object, because tensors on the meta device have no address."""
    return tensor.untyped_storage()._cdata


def storages(values: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield (storage id, bytes) of every tensor in values, also inside lists and maps."""
    for value in values:
        if isinstance(value, Tensor):
            yield storage_of(value), value.untyped_storage().nbytes()
        elif isinstance(value, Mapping):
            yield from storages(value.values())
        elif isinstance(value, list | tuple):
            yield from storages(value)


def held(owner: Any) -> dict[int, int]:
    """Return {storage id: bytes} of every tensor that an object's attributes reach."""
    found: dict[int, int] = {}
    seen, left = {id(owner)}, [owner]
    while left:
        value = left.pop()
        if isinstance(value, Tensor):
            found.update(storages([value]))
            continue
        listed = value if isinstance(value, list | tuple) else getattr(value, "__dict__", {}).values()
        for part in value.values() if isinstance(value, Mapping) else listed:
            if id(part) not in seen and not isinstance(part, type | ModuleType):
                seen.add(id(part))
                left.append(part)
    return found

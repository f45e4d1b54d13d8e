"""What autograd keeps for a backward pass: storages and their bytes, and for how long."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor


class Held:
    """A tensor that a graph keeps; it goes when the graph lets go of it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@contextmanager
def saved(sizes: dict[int, int], held: "WeakSet[Held] | None" = None) -> Iterator[None]:
    """Note storage and bytes of what graphs made inside keep; in `held`, for as long as they keep it."""

    def pack(tensor: Tensor) -> Held:
        sizes.update(storages([tensor]))
        kept = Held(tensor)
        if held is not None:
            held.add(kept)
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        yield


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # tensors on the meta device have no address


def storages(values: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield (storage, bytes) of every tensor in values, and in the lists and maps among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield storage_of(value), value.untyped_storage().nbytes()
        elif isinstance(value, Mapping):
            yield from storages(value.values())
        elif isinstance(value, list | tuple):
            yield from storages(value)

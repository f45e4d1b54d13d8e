"""The names one iteration knows, each written once."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from models.engine.errors import nearest


class State(Mapping[str, Any]):
    """Maps names to tensors, or to lists, tuples and dictionaries of tensors. Writing a name twice is an error."""

    def __init__(self, batch: Mapping[str, Any]) -> None:
        self._values = dict(batch)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"nobody provides {name!r}{nearest(name, self._values)}; there are {sorted(self._values)}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, name: str, value: Any) -> None:
        """Add a name; raises KeyError when it is there already."""
        if name in self._values:
            raise KeyError(f"{name!r} is there already and a name is written once")
        self._values[name] = value

    def detached(self, names: list[str]) -> "State":
        """Return a view in which the tensors of `names` carry no gradient; names added to it are not added here."""
        return State({name: detach(value) if name in names else value for name, value in self._values.items()})


def detach(value: Any) -> Any:
    """Detach every tensor in a tensor, list, tuple or dictionary."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: detach(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(detach(part) for part in value)
    return value


def batch_size(batch: Mapping[str, Any]) -> int:
    """Return the length of the first dimension, the same for every tensor of a batch."""
    return next(len(value) for value in batch.values() if isinstance(value, Tensor))


def split_batch(batch: Mapping[str, Any], parts: int) -> list[tuple[dict[str, Any], float]]:
    """Cut a batch into at most `parts` pieces along the first dimension, each with its share of the examples."""
    size = batch_size(batch)
    return [({name: value[a:b] for name, value in batch.items()}, (b - a) / size) for a, b in cuts(size, parts)]


def cuts(size: int, parts: int) -> list[tuple[int, int]]:
    """Return first and last + 1 instance of each of at most `parts` pieces of `size` instances, none of them empty."""
    edges = [size * part // parts for part in range(parts + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]

"""The iterations in which something runs, and whether a name exists whenever it is read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm


@dataclass(frozen=True)
class Gate:
    """Active in iterations t with `after` <= t < `before` and (t - `after`) divisible by `every`."""

    every: int = 1
    after: int = 0
    before: int | None = None

    def open(self, iteration: int) -> bool:
        """Whether it is active at this iteration in training."""
        return self.within(iteration) and (iteration - self.after) % self.every == 0

    def within(self, iteration: int) -> bool:
        """Whether it is active at this iteration in validation. `every` thins training only; validation ignores it."""
        return iteration >= self.after and (self.before is None or iteration < self.before)

    def __str__(self) -> str:
        words = [f"every {self.every}"] if self.every > 1 else []
        words += [f"after {self.after}"] if self.after else []
        words += [f"before {self.before}"] if self.before is not None else []
        return ", ".join(words) or "always"


ALWAYS = Gate()

When = tuple[Gate, ...]
"""Nested gates, of a step and of an injector or loss in it: active when all of them are."""


def always(reader: When, makers: Sequence[When]) -> bool:
    """Whether at least one of `makers` is active in every iteration in which `reader` is."""
    moments = _moments([*reader, *(gate for maker in makers for gate in maker)])
    return all(any(_open(maker, t) for maker in makers) for t in moments if _open(reader, t))


def ever(when: When) -> bool:
    """Whether all gates are active together in some iteration."""
    return any(_open(when, t) for t in _moments(when))


def words(when: When) -> str:
    """Return gates as text: `every 2, after 5`."""
    return ", ".join(dict.fromkeys(str(gate) for gate in when if gate != ALWAYS)) or "always"


def _open(when: When, iteration: int) -> bool:
    return all(gate.open(iteration) for gate in when)


def _moments(gates: Iterable[Gate]) -> Iterator[int]:
    """Yield iterations that represent all: between two bounds, gates repeat with their common period."""
    gates = list(gates)
    period = lcm(*(gate.every for gate in gates))
    for bound in sorted({0, *(gate.after for gate in gates), *(gate.before or 0 for gate in gates)}):
        yield from range(bound, bound + period)

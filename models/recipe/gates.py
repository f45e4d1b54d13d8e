"""In which iterations something runs, and whether what reads a name always finds it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm


@dataclass(frozen=True)
class Gate:
    """Open in iterations t with `after` <= t < `before` and (t - `after`) divisible by `every`."""

    every: int = 1
    after: int = 0
    before: int | None = None

    def open(self, iteration: int) -> bool:
        """Whether what stands behind it runs in this iteration."""
        return self.within(iteration) and (iteration - self.after) % self.every == 0

    def within(self, iteration: int) -> bool:
        """Whether what stands behind it runs in a validation pass: `every` spares work of training, not looks at it."""
        return iteration >= self.after and (self.before is None or iteration < self.before)

    def __str__(self) -> str:
        words = [f"every {self.every}"] if self.every > 1 else []
        words += [f"after {self.after}"] if self.after else []
        words += [f"before {self.before}"] if self.before is not None else []
        return ", ".join(words) or "always"


ALWAYS = Gate()

When = tuple[Gate, ...]
"""Gates one within the other, of a step and of what stands in it: open where all of them are."""


def always(reader: When, makers: Sequence[When]) -> bool:
    """Whether at least one of `makers` is open in every iteration in which `reader` is."""
    moments = _moments([*reader, *(gate for maker in makers for gate in maker)])
    return all(any(_open(maker, t) for maker in makers) for t in moments if _open(reader, t))


def ever(when: When) -> bool:
    """Whether there is an iteration in which all gates are open."""
    return any(_open(when, t) for t in _moments(when))


def words(when: When) -> str:
    """Return gates as people say them, `every 2, after 5`."""
    return ", ".join(dict.fromkeys(str(gate) for gate in when if gate != ALWAYS)) or "always"


def _open(when: When, iteration: int) -> bool:
    return all(gate.open(iteration) for gate in when)


def _moments(gates: Iterable[Gate]) -> Iterator[int]:
    """Yield iterations that stand for all: between two bounds, gates repeat themselves with their common period."""
    gates = list(gates)
    period = lcm(*(gate.every for gate in gates))
    for bound in sorted({0, *(gate.after for gate in gates), *(gate.before or 0 for gate in gates)}):
        yield from range(bound, bound + period)

"""Gates: the iterations in which something runs, and whether a name exists whenever it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm


@dataclass(frozen=True)
class Gate:
    """Active in iterations t with `after` <= t < `before` and (t - `after`) divisible by `every`."""

    every: int = 1
    after: int = 0
    before: int | None = None

    def open(self, iteration: int) -> bool:
        """Whether the gate is active at this iteration in training."""
        return self.within(iteration) and (iteration - self.after) % self.every == 0

    def within(self, iteration: int) -> bool:
        """Whether the gate is active at this iteration in validation, which ignores `every`."""
        return iteration >= self.after and (self.before is None or iteration < self.before)

    def __str__(self) -> str:
        limits = [f"every {self.every}"] if self.every > 1 else []
        limits += [f"after {self.after}"] if self.after else []
        limits += [f"before {self.before}"] if self.before is not None else []
        return ", ".join(limits) or "always"


ALWAYS = Gate()

When = tuple[Gate, ...]
"""Nested gates, of a step and an injector or loss in it: active when all are active."""

HORIZON = 10_000
"""Iterations after each bound in which gates are compared."""


def covers_every_iteration(reader: When, makers: Sequence[When]) -> bool:
    """Whether at least one of `makers` is active in every iteration in which `reader` is."""
    return all(any(_open(maker, t) for maker in makers) for t in _iterations([reader, *makers]) if _open(reader, t))


def can_run(when: When) -> bool:
    """Whether all gates are active in some common iteration."""
    return any(_open(when, t) for t in _iterations([when]))


def describe(when: When) -> str:
    """Return gates as text: `every 2, after 5`."""
    return ", ".join(dict.fromkeys(str(gate) for gate in when if gate != ALWAYS)) or "always"


def _open(when: When, iteration: int) -> bool:
    return all(gate.open(iteration) for gate in when)


def _iterations(several: Sequence[When]) -> Iterator[int]:
    """Yield iterations that show every combination of gates that is ever active.

    From each `after` or `before` to the next one, gates repeat with the least common multiple of their `every`. If that
    is more than `HORIZON`, combinations that first occur later are not among them.
    """
    gates = [gate for when in several for gate in when]
    bounds = {0, *(gate.after for gate in gates), *(gate.before for gate in gates if gate.before is not None)}
    period = min(lcm(*(gate.every for gate in gates)), HORIZON)
    return (t for bound in sorted(bounds) for t in range(bound, bound + period))

"""Gates: the iterations in which something runs."""

from dataclasses import dataclass
from math import gcd, lcm


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

When = tuple[Gate, ...]  # nested gates, of a step and an injector or loss in it: active when all are active
END = 10**40  # later than every iteration, and than the first common iteration of any gates


def iterations(when: When) -> range:
    """Return the iterations in which all gates are active."""
    first, period = 0, 1  # by the Chinese remainder theorem: first + period * k, and gate.after + gate.every * l
    for gate in when:
        common = gcd(period, gate.every)
        if (gate.after - first) % common:
            return range(0)
        k = (gate.after - first) // common * pow(period // common, -1, gate.every // common)
        first, period = first + period * k, lcm(period, gate.every)
    least = max((gate.after for gate in when), default=0)
    end = min((gate.before for gate in when if gate.before is not None), default=END)
    return range(least + (first - least) % period, end, period)

"""Schedules: pure functions of the step, for loss weights, learning rates and network arguments.

The step is the number of optimizer updates before the current one: 0 for the first.
"""

import math
from bisect import bisect_right
from itertools import accumulate
from typing import Literal

from figura.interfaces import Schedule


class Constant(Schedule):
    """The same value at every step."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def __call__(self, step: int) -> float:
        return self.value


class _Between(Schedule):
    """`from` until `start`, `to` from `end` on; subclasses define the interpolation. `start == end` jumps at `end`."""

    def __init__(self, start: int, end: int, from_: float, to: float) -> None:
        if not 0 <= start <= end:
            raise ValueError(f"start {start} and end {end}: 0 <= start <= end is needed")
        self.start, self.end, self.from_, self.to = start, end, from_, to

    def __call__(self, step: int) -> float:
        if step >= self.end:
            return self.to
        if step <= self.start:
            return self.from_
        return self.between((step - self.start) / (self.end - self.start))

    def between(self, share: float) -> float:
        """Return the value at the fraction `share` of the interval, 0 < share < 1."""
        raise TypeError(f"{type(self).__name__} gives no value")

    @property
    def knots(self) -> tuple[int, ...]:
        return (self.start, self.end)


class Linear(_Between):
    """`from + (to - from) (t - start) / (end - start)`: VUNet's KL ramp (vunet `start_ramp_it`, `end_ramp_it`)."""

    def between(self, share: float) -> float:
        return self.from_ + (self.to - self.from_) * share


class Exponential(_Between):
    """Geometric interpolation `from (to / from)^share`; both ends are positive."""

    def __init__(self, start: int, end: int, from_: float, to: float) -> None:
        super().__init__(start, end, from_, to)
        if from_ <= 0 or to <= 0:
            raise ValueError(f"from {from_} and to {to}: both must be positive")

    def between(self, share: float) -> float:
        return self.from_ * (self.to / self.from_) ** share


class Cosine(_Between):
    """Half a period of the cosine, `to + (from - to) (1 + cos(pi share)) / 2` (Loshchilov and Hutter 2017, eq. 5)."""

    def between(self, share: float) -> float:
        return self.to + (self.from_ - self.to) * (1 + math.cos(math.pi * share)) / 2


class CosineRestarts(Schedule):
    """SGDR: in each period a `Cosine` from `from` times the period's weight down to `to`; `to` after the last period.

    Loshchilov and Hutter 2017, eq. 5, with explicit periods. Each period begins with `weight · from`; before `start`,
    the value equals that at `start`.

    Args:
        periods: steps of each period.
        from_: highest value, for weight 1.
        to: lowest value.
        weights: peak factor of each period; default 1.
        start: first step of the first period.
    """

    def __init__(
        self, periods: list[int], from_: float, to: float, weights: list[float] | None = None, start: int = 0
    ) -> None:
        if not periods or min(periods) < 1 or start < 0:
            raise ValueError(f"periods {periods}, start {start}: one period or more of 1 step or more is needed")
        if weights is not None and len(weights) != len(periods):
            raise ValueError(f"weights {weights}: one for each of {len(periods)} periods is needed")
        self.from_, self.to, self.weights = from_, to, weights or [1.0] * len(periods)
        self.starts = list(accumulate(periods, initial=start))

    def __call__(self, step: int) -> float:
        if step >= self.starts[-1]:
            return self.to
        place = max(bisect_right(self.starts, step) - 1, 0)
        start, end = self.starts[place], self.starts[place + 1]
        return Cosine(start, end, self.weights[place] * self.from_, self.to)(step)

    @property
    def knots(self) -> tuple[int, ...]:
        return tuple(self.starts)


class Sine(Schedule):
    """`middle + (high - low) / 2 · cos(2 pi (t - start) / period)`: `high` until `start`, then oscillating.

    Args:
        start: the step at which the value begins to fall.
        period: steps from one `high` to the next; `low` is half-way between.
        high: the highest value.
        low: the lowest value.
    """

    def __init__(self, start: int, period: int, high: float, low: float) -> None:
        if start < 0 or period < 2 or high < low:
            raise ValueError(
                f"start {start}, period {period}, high {high}, low {low}: "
                "start >= 0, period >= 2 and high >= low are needed"
            )
        self.start, self.period, self.high, self.low = start, period, high, low

    def __call__(self, step: int) -> float:
        share = max(step - self.start, 0) % self.period / self.period
        return (self.high + self.low) / 2 + (self.high - self.low) / 2 * math.cos(2 * math.pi * share)

    @property
    def knots(self) -> tuple[int, ...]:
        return (self.start,)


class Step(Schedule):
    """`values[k]` from step `at[k - 1]` on, `values[0]` before the first; `len(values) == len(at) + 1`."""

    def __init__(self, at: list[int], values: list[float]) -> None:
        if at != sorted(set(at)) or len(values) != len(at) + 1:
            raise ValueError(f"at {at} and values {values}: rising steps and one value more than steps are needed")
        self.at, self.values = at, values

    def __call__(self, step: int) -> float:
        return self.values[sum(step >= start for start in self.at)]

    @property
    def knots(self) -> tuple[int, ...]:
        return tuple(self.at)


class Decay(Schedule):
    """Starts at 1 and is multiplied by `factor` at each step of `at`, geometrically over `over` steps.

    The product over d in `at` of: 1 until d, then `factor^((t - d) / over)`, and `factor` from `d + over` on (PifPaf's
    stepwise decay with interpolation). `over: 0` jumps: PyTorch's MultiStepLR with gamma `factor`.
    """

    def __init__(self, at: list[int], factor: float, over: int) -> None:
        if at != sorted(set(at)) or not 0 < factor <= 1 or over < 0:
            raise ValueError(
                f"at {at}, factor {factor}, over {over}: rising steps, 0 < factor <= 1, over >= 0 are needed"
            )
        self.at, self.factor, self.over = at, factor, over

    def __call__(self, step: int) -> float:
        shares = (min(max((step - start) / self.over, 0), 1) if self.over else step >= start for start in self.at)
        return self.factor ** sum(shares)

    @property
    def knots(self) -> tuple[int, ...]:
        return tuple(sorted({edge for start in self.at for edge in (start, start + self.over)}))


class WarmUp(Schedule):
    """`then(t)` times a factor that rises to 1.

    `linear`: `(t + 1) / steps`, with `from` as its floor; 1 from step `steps - 1` on. No update has a factor of 0.
    `exponential`: `from^(1 - t / steps)`, so `from` at step 0 and 1 from step `steps` on (OpenPifPaf's warm-up).
    """

    def __init__(
        self,
        steps: int,
        then: Schedule | None = None,
        from_: float = 0.0,
        shape: Literal["linear", "exponential"] = "linear",
    ) -> None:
        if steps < 1 or not 0 <= from_ <= 1 or (shape == "exponential" and from_ == 0):
            raise ValueError(
                f"steps {steps}, from {from_}: steps >= 1 and 0 <= from <= 1 (exponential: > 0) are needed"
            )
        self.steps, self.then, self.from_, self.shape = steps, then or Constant(), from_, shape

    def __call__(self, step: int) -> float:
        if self.shape == "linear":
            factor = max(self.from_, min(1.0, (step + 1) / self.steps))
        else:
            factor = self.from_ ** (1 - min(1.0, step / self.steps))
        return factor * self.then(step)

    @property
    def knots(self) -> tuple[int, ...]:
        return tuple(sorted({self.steps, *self.then.knots}))


class Product(Schedule):
    """The product of the schedules in `of`, each under a name of your choice: `{warm_up: {...}, decay: {...}}`."""

    def __init__(self, of: dict[str, Schedule]) -> None:
        if not of:
            raise ValueError("of {}: at least one schedule is needed")
        self.of = of

    def __call__(self, step: int) -> float:
        return math.prod(schedule(step) for schedule in self.of.values())

    @property
    def knots(self) -> tuple[int, ...]:
        return tuple(sorted({knot for schedule in self.of.values() for knot in schedule.knots}))

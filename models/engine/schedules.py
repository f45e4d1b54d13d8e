"""Numbers that change with time: pure functions of the step, for loss weights, learning rates and network arguments.

The step is the number of optimizer updates made before the one in question: 0 for the first.
"""

import math
from typing import Literal


class Schedule:
    """A function of the step. Arguments named with a trailing underscore are written without it in a recipe."""

    def __call__(self, step: int) -> float:
        """Return the value at `step` >= 0."""
        raise TypeError(f"{type(self).__name__} gives no value")

    @property
    def last(self) -> int:
        """The step from which the value no longer changes."""
        return 0


class Constant(Schedule):
    """The same value at every step."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def __call__(self, step: int) -> float:
        return self.value


class _Between(Schedule):
    """`from` until `start`, `to` from `end` on; subclasses say what lies between. `start == end` is a jump at `end`."""

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
        """Return the value at `share` of the way, 0 < share < 1."""
        raise TypeError(f"{type(self).__name__} gives no value")

    @property
    def last(self) -> int:
        return self.end


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


class Step(Schedule):
    """`values[k]` from step `at[k - 1]` on; one more value than steps."""

    def __init__(self, at: list[int], values: list[float]) -> None:
        if at != sorted(set(at)) or len(values) != len(at) + 1:
            raise ValueError(f"at {at} and values {values}: rising steps and one value more than steps are needed")
        self.at, self.values = at, values

    def __call__(self, step: int) -> float:
        return self.values[sum(step >= start for start in self.at)]

    @property
    def last(self) -> int:
        return self.at[-1] if self.at else 0


class Decay(Schedule):
    """From 1 down by `factor` at each step of `at`, taking `over` steps each time: geometric in between.

    The product over d in `at` of 1 until d, `factor^((t - d) / over)`, and `factor` from `d + over` on (PifPaf's
    stepwise decay with interpolation). `over: 0` jumps.
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
    def last(self) -> int:
        return self.at[-1] + self.over if self.at else 0


class WarmUp(Schedule):
    """`then(t)` times a factor that rises to 1: exactly 1 from step `steps - 1` on.

    `linear`: `(t + 1) / steps`, with `from` as its floor; `exponential`: `from^(1 - (t + 1) / steps)`.
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
        share = min(1.0, (step + 1) / self.steps)
        factor = max(self.from_, share) if self.shape == "linear" else self.from_ ** (1 - share)
        return factor * self.then(step)

    @property
    def last(self) -> int:
        return max(self.steps, self.then.last)

"""Non-finite updates: count them, and roll training back with smaller learning rates or end it."""

from collections.abc import Mapping
from typing import Any

from figura.base.errors import UserError
from figura.base.seeding import derive
from figura.engine.weights import not_finite
from figura.interfaces import StepReport
from figura.recipe.schema import Train
from figura.training.resume import ResumePoint, ResumePoints, TrainState, copied


class Rollback:
    """Counts consecutive non-finite updates per step; rolls back to a snapshot if `train.rollback` is set.

    Updates skipped by fp16 overflow (`StepReport.overflowed`) do not count. The snapshot is part of each resume point,
    so a killed run rolls back to the same iteration as an uninterrupted one. `count` is the number of rollbacks so far.
    `accumulation_factor` multiplies every step's accumulation; it doubles when out of memory.
    """

    def __init__(self, train: Train, state: TrainState, points: ResumePoints) -> None:
        self.limit, self.rule, self.state, self.points = train.max_nonfinite, train.rollback, state, points
        self.on = train.rollback is not None or train.find_batch_size
        self.count, self.accumulation_factor = 0, 1
        self.snapshot: tuple[int, dict[str, Any]] | None = None
        self.resumed: str | None = None  # a resume point with other provenance, loaded on request

    @property
    def rate_scale(self) -> float:
        """The factor of all learning rates."""
        return self.rule.rate_factor**self.count if self.rule else 1.0

    @property
    def may_roll_back(self) -> bool:
        """Whether the recipe allows another rollback."""
        return self.rule is not None and self.count < self.rule.times

    def is_finite(self) -> bool:
        """Whether all weights and their averages are finite."""
        return not any(map(not_finite, (*self.state.networks.values(), *self.state.averages.values())))

    def seed(self, seed: int) -> int:
        """Return the seed of noise and example order; it changes with each rollback."""
        return derive(seed, "recovery", self.count) if self.count else seed

    def take_snapshot(self, iteration: int) -> None:
        """Copy the state after `iteration` updates if due, no update is being skipped and weights are finite."""
        due = self.snapshot is None or (self.rule is not None and iteration % self.rule.every == 0)
        if self.on and due and not any(self.state.nonfinite.values()) and self.is_finite():
            self.snapshot = iteration, copied(self.state.state_dict())

    def reason(self, iteration: int, reports: Mapping[str, StepReport]) -> str | None:
        """Count the non-finite updates of an iteration; return the reason to roll back, or None.

        Raises:
            UserError: too many consecutive updates were skipped and no rollback is left.
        """
        counts = self.state.nonfinite
        for name, report in reports.items():
            before = counts.get(name, 0)
            counts[name] = before if report.overflowed else before + 1 if report.skipped else 0
        for name, report in reports.items():
            message = f"step {name!r}: {counts[name]} updates in a row were not finite"
            if self.rule is not None and self.may_roll_back and counts[name] >= self.rule.after:
                return f"{message}, the last in iteration {iteration}"
            if counts[name] >= self.limit:
                values = {loss: value.item() for loss, value in report.raw.items()}
                tried = f", after {self.count} rollbacks (train.rollback)" if self.count else ""
                raise UserError(
                    f"{message} (train.max_nonfinite), the last in iteration {iteration} with losses {values} and "
                    f"learning rate {report.learning_rate:g}{tried}; lower the rate or clip (steps.{name}.clip)"
                )
        return None

    def roll_back(self, why: str) -> tuple[int, str]:
        """Restore the snapshot with smaller learning rates; return its iteration and a message."""
        assert self.rule is not None
        self.count += 1
        iteration = self._load_snapshot()
        message = (
            f"{why}; going on after iteration {iteration} with learning rates x {self.rate_scale:g} and other noise"
        )
        return iteration, f"{message} (train.rollback: {self.count} of {self.rule.times})"

    def shrink_micro_batch(self, error: RuntimeError, failed: int, size: int, parts: int) -> tuple[int, str]:
        """Go back to the last resume point or the start, and double the number of `parts` of a batch of `size`.

        Return the iteration and a message.

        Raises:
            UserError: micro-batches already have one example.
        """
        if self.accumulation_factor * parts >= size:
            raise UserError(f"memory does not suffice for one example at a time: {error}")
        self.accumulation_factor *= 2
        point = self.points.latest()
        iteration = self._load_snapshot() if point is None else self.restore(point)
        message = f"memory ran out in iteration {failed + 1}; going on after iteration {iteration} with accumulation"
        examples = max(1, size // (self.accumulation_factor * parts))
        return iteration, f"{message} x {self.accumulation_factor}, {examples} examples at a time"

    def _load_snapshot(self) -> int:
        assert self.snapshot is not None
        iteration, state = self.snapshot
        self.state.load_state_dict(copied(state))
        return iteration

    def save(self, iteration: int) -> None:
        """Write a resume point."""
        snapshot = list(self.snapshot) if self.snapshot and self.rule else None
        own = {"count": self.count, "accumulation_factor": self.accumulation_factor, "snapshot": snapshot,
            "resumed": self.resumed}  # fmt: skip
        self.points.save(iteration, self.state.state_dict() | {"rollback": own})

    def restore(self, point: ResumePoint) -> int:
        """Load the state of a resume point; return its iteration.

        Raises:
            UserError: the state was written by a different recipe and does not match.
        """
        state = point.state()
        try:
            self.state.load_state_dict(state)
            own = state["rollback"]
            self.count = own["count"]
            self.accumulation_factor = max(self.accumulation_factor, own["accumulation_factor"])
            self.snapshot = tuple(own["snapshot"]) if own["snapshot"] else None
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"{point.folder}: does not fit this recipe: {error}") from None
        foreign = f"iteration {point.iteration}, made by another {', '.join(point.differs)}" if point.differs else None
        self.resumed = foreign or own["resumed"]
        return point.iteration

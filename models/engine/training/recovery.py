"""What happens when updates are not finite: they are counted, training goes back and goes on more slowly, or it ends."""

from collections.abc import Mapping
from typing import Any

from models.engine.errors import UserError
from models.engine.recipes.schema import Train
from models.engine.seeding import derive
from models.engine.training.resume import Restorable, ResumePoints, copied
from models.engine.training.steps import StepReport


class Recovery:
    """What a training goes on from: resume points on disk, and in memory the state that it goes back to by itself.

    Counts skipped updates in a row of each step; one that was skipped in search of a scale (`StepReport.overflowed`) neither
    counts nor ends a row. The state in memory goes with every resume point, so that where a training goes back to depends
    neither on when it was killed nor on how often resume points are written. `times` is how often it went back because of
    updates that were not finite, `finer` what accumulation is multiplied by.
    """

    def __init__(self, train: Train, restorable: Restorable, points: ResumePoints) -> None:
        self.limit, self.rule, self.restorable, self.points = train.max_nonfinite, train.recover, restorable, points
        self.on = train.recover is not None or train.find_batch_size
        self.times, self.finer = 0, 1
        self.kept: tuple[int, dict[str, Any]] | None = None

    @property
    def rate_scale(self) -> float:
        """The factor of all learning rates."""
        return self.rule.rate_factor**self.times if self.rule else 1.0

    def seed(self, seed: int) -> int:
        """Return the seed of noise and of the order of examples: another one each time that training went back."""
        return derive(seed, "recovery", self.times) if self.times else seed

    def keep(self, iteration: int) -> None:
        """Copy the state after `iteration` updates where one is due and no update is being skipped; the first always."""
        due = self.kept is None or (self.rule is not None and iteration % self.rule.every == 0)
        if self.on and due and not any(self.restorable.nonfinite.values()):
            self.kept = iteration, copied(self.restorable.state_dict())

    def watch(self, iteration: int, reports: Mapping[str, StepReport]) -> str | None:
        """Count; return why training has to go back, if it has to.

        Raises:
            UserError: too many updates in a row were skipped, and it may not go back (any more).
        """
        counts = self.restorable.nonfinite
        for name, report in reports.items():
            before = counts.get(name, 0)
            counts[name] = before if report.overflowed else before + 1 if report.skipped else 0
        for name, report in reports.items():
            said = f"step {name!r}: {counts[name]} updates in a row were not finite"
            if self.rule is not None and self.times < self.rule.times and counts[name] >= self.rule.after:
                return f"{said}, the last in iteration {iteration}"
            if counts[name] >= self.limit:
                values = {loss: value.item() for loss, value in report.raw.items()}
                raise UserError(
                    f"{said} (train.max_nonfinite), the last in iteration {iteration} with losses {values} and learning "
                    f"rate {report.learning_rate:g}{self._tried()}; lower the learning rate or clip (steps.{name}.clip)"
                )
        return None

    def go_on_slower(self, why: str) -> tuple[int, str]:
        """Go back, with smaller learning rates; return the iteration and what people should know."""
        assert self.rule is not None
        self.times += 1
        iteration = self._go_back()
        said = f"{why}; going on after iteration {iteration} with learning rates x {self.rate_scale:g} and other noise"
        return iteration, f"{said} (train.recover: {self.times} of {self.rule.times})"

    def go_on_finer(self, error: RuntimeError, failed: int, size: int, parts: int) -> tuple[int, str]:
        """Go back to the last resume point, or the start, and cut batches of `size`, so far `parts`, twice as fine.

        Raises:
            UserError: there is one example in each already.
        """
        if self.finer * parts >= size:
            raise UserError(f"memory does not suffice for one example at a time: {error}")
        self.finer *= 2
        found = self.restore()
        iteration = found if isinstance(found, int) else self._go_back()
        said = f"memory ran out in iteration {failed + 1}; going on after iteration {iteration} with accumulation"
        return iteration, f"{said} x {self.finer}, {max(1, size // (self.finer * parts))} examples at a time"

    def _go_back(self) -> int:
        assert self.kept is not None
        iteration, state = self.kept
        self.restorable.load_state_dict(copied(state))
        return iteration

    def _tried(self) -> str:
        return f", after going back {self.times} times (train.recover)" if self.times else ""

    def save(self, iteration: int) -> None:
        """Write a resume point."""
        kept = list(self.kept) if self.kept and self.rule else None
        own = {"times": self.times, "finer": self.finer, "kept": kept}
        self.points.save(iteration, self.restorable.state_dict() | {"recovery": own})

    def restore(self) -> int | str | None:
        """Put everything into the state of the resume point and return its iteration; else as `ResumePoints.load`."""
        found = self.points.load()
        if found is None or isinstance(found, str):
            return found
        iteration, state = found
        self.restorable.load_state_dict(state)
        own = state["recovery"]
        self.times, self.finer = own["times"], max(self.finer, own["finer"])
        self.kept = tuple(own["kept"]) if own["kept"] else None
        return iteration

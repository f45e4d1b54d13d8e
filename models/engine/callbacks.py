"""Code of your own at fixed points of a training: what a callback is to the engine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.engine.training.history import Row
    from models.engine.training.steps import StepReport
    from models.engine.training.trainer import Trainer


class Callback:
    """The base of every `callbacks` entry, whose keyword arguments the constructor takes; override what you need.

    All processes call it, in the order of the recipe. What it does is part of the result: it draws random numbers only
    from generators of its own (or those that follow in the iteration change) and reads no clock. `trainer.iteration`
    counts the updates made before the one in question.
    """

    def before_step(self, trainer: "Trainer", step: str) -> None:
        """Before the injectors of a step that runs in this iteration."""

    def before_update(self, trainer: "Trainer", step: str) -> None:
        """After backward, before clipping and the optimizer: gradients stand in the parameters and may be changed."""

    def after_update(self, trainer: "Trainer", step: str, report: "StepReport") -> None:
        """After the optimizer; `report.skipped` says that it was left out because something was not finite."""

    def on_evaluation(self, trainer: "Trainer", row: "Row") -> Mapping[str, float] | None:
        """After a validation pass; `row` is what the history gets of it.

        Scalars that it returns are added to the row, under `<name of the callback>.<name>`.
        """
        return None

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a resumed training needs: tensors, numbers, texts, and lists and dictionaries of these."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""

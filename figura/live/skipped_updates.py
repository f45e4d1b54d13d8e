"""A line at the end of a training about updates that were skipped because something was not finite."""

from collections import Counter
from typing import Any

from figura.interfaces import Listener

HALVINGS, GROWTH = 16, 2000
"""Of the loss scale of fp16: updates that it skips at most to come from 65536 to 1; it then tries twice as much."""


class SkippedUpdates(Listener):
    """Says how many updates of each step were skipped.

    In fp16, the loss scale skips some by design: as many say nothing while all losses were finite.
    """

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """Count them after the last iteration."""
        if training.iteration != training.last or not training.accelerator.is_main_process:
            return
        log, counts = training.loss_log.state_dict(), Counter[str]()
        for row in (*log["train"], *log["window"]):
            counts.update({key: int(number) for key, number in row.items() if key.endswith(".skipped") and number})
        first = training.loss_log.first_nonfinite(1) if counts else None
        scaled = training.recipe.train.precision == "fp16"
        expected = HALVINGS + training.iteration // GROWTH if scaled else 0
        look = f"; `figura replay {training.run} --step {first[0]}` shows the first" if first else ""
        design = f" (fp16 skips up to {expected} by design)" if scaled else ""
        for key, count in counts.items():
            step = key.removesuffix(".skipped")
            skipped = f"{count} updates were skipped{design}, because a loss or a gradient was not finite"
            if first or count > expected:
                training.reporter.say(f"warning: step {step!r}: {skipped}{look}")

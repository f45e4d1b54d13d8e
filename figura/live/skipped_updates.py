"""A line at the end of a training about updates that were skipped because something was not finite."""

from collections import Counter
from typing import Any

from figura.interfaces import Listener


class SkippedUpdates(Listener):
    """Says how many updates of each step were skipped; not in fp16, where some overflow by design."""

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """Count them after the last iteration."""
        last = training.iteration == training.last and training.recipe.train.precision != "fp16"
        if not last or not training.accelerator.is_main_process:
            return
        log, counts = training.loss_log.state_dict(), Counter[str]()
        for row in (*log["train"], *log["window"]):
            counts.update({key: int(number) for key, number in row.items() if key.endswith(".skipped") and number})
        first = training.loss_log.first_nonfinite(1) if counts else None
        look = f"; `figura replay {training.run} --step {first[0]}` shows the first" if first else ""
        for key, count in counts.items():
            step = key.removesuffix(".skipped")
            skipped = f"{count} updates were skipped, because a loss or a gradient was not finite"
            training.reporter.say(f"warning: step {step!r}: {skipped}{look}")

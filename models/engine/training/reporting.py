"""What people watch while a training runs: a progress line, a live log, trackers, sample pictures.

Nothing here is an output that DVC hashes: it all lies in `<run>/live` and may differ from run to run.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

from models.engine.pictures import as_pixels, save_picture, side_by_side
from models.engine.recipes.schema import Runtime
from models.engine.training.history import Row
from models.engine.training.steps import StepReport, loss_of


class Reporter:
    """Progress, `<run>/live/log.jsonl`, `<run>/live/samples/`, and the trackers that `runtime` names."""

    def __init__(
        self, accelerator: Accelerator, runtime: Runtime, folder: Path, *, first: int, last: int, batch: int
    ) -> None:
        self.accelerator, self.runtime, self.folder, self.batch = accelerator, runtime, folder, batch
        self.main = accelerator.is_main_process
        self.bar = tqdm(
            initial=first, total=last, unit="step", disable=not (runtime.progress and self.main), dynamic_ncols=True,
            mininterval=0.5, desc="train",
        )  # fmt: skip
        self._since, self._from = time.perf_counter(), first
        if self.main:
            (folder / "samples").mkdir(parents=True, exist_ok=True)
        kwargs = {"dvclive": {"dir": str(folder / "dvclive"), "dvcyaml": None, "save_dvc_exp": False, "report": None}}
        accelerator.init_trackers(folder.parent.name, init_kwargs=kwargs)

    def record(self, values: Mapping[str, Any]) -> None:
        """Append one line to the live log."""
        if self.main:
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(values) + "\n")

    def advance(self) -> None:
        """Count one iteration."""
        self.bar.update()

    def go_back(self, iteration: int) -> None:
        """Count from an earlier iteration on."""
        self.bar.n = iteration
        self.bar.refresh()
        self._since, self._from = time.perf_counter(), iteration

    def log(self, iteration: int, scalars: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """Write one line of the live log and pass it to the trackers; adds throughput and, if measured, the phases."""
        now = time.perf_counter()
        rate = (iteration - self._from) * self.batch / max(now - self._since, 1e-9)
        phases = {f"seconds.{phase}": value / max(iteration - self._from, 1) for phase, value in seconds.items()}
        self._since, self._from = now, iteration
        values = {**scalars, "images_per_second": rate, **phases}
        self.record({"step": iteration, **values})
        self.bar.set_postfix_str(f"loss {scalars.get('train.total', float('nan')):.4f}, {rate:.1f} images/s")
        self.accelerator.log(values, step=iteration)

    def track(self, iteration: int, row: Row, prefix: str) -> None:
        """Pass a row of the history to the trackers."""
        self.accelerator.log(
            {f"{prefix}.{name}": value for name, value in row.items() if name != "step"}, step=iteration
        )

    def samples(self, iteration: int, columns: Mapping[str, Tensor]) -> None:
        """Save named image batches, (N, C, H, W) in [-1, 1], side by side, one row an instance."""
        if not self.main:
            return
        rows: Sequence[Sequence[Any]] = list(zip(*(as_pixels(batch) for batch in columns.values()), strict=True))
        sheet = side_by_side(rows, list(columns))
        save_picture(self.folder / "samples" / f"{iteration:08d}.png", sheet)
        for tracker in self.accelerator.trackers:
            if tracker.name == "dvclive":
                tracker.tracker.log_image("samples.png", sheet)  # Accelerate has no name for it
            elif tracker.name == "tensorboard":
                tracker.log_images({"samples": sheet[None]}, step=iteration, dataformats="NHWC")
            elif tracker.name == "wandb":
                tracker.log_images({"samples": sheet[None]}, step=iteration)

    def say(self, message: str) -> None:
        """Print a line above the progress bar, once over all processes."""
        if self.main:
            tqdm.write(message)

    def close(self, agreed: bool) -> None:
        """End the progress line and the trackers; where all processes have agreed to end, also what joins them."""
        self.bar.close()
        if agreed:
            self.accelerator.end_training()
            return
        for tracker in self.accelerator.trackers:
            tracker.finish()


def mean_losses(values: Mapping[str, Tensor], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the batch mean of each loss and component, `total` the weighted sum of the losses."""
    means = {name: value.detach().float().mean() for name, value in values.items()}
    total = sum((weights[name] * mean for name, mean in means.items() if name in weights), torch.zeros(()))
    return {name: mean.item() for name, mean in means.items()} | {"total": total.item()}


def last_values(reports: Mapping[str, StepReport]) -> dict[str, float]:
    """Return what the live log has of an iteration: losses, weights, learning rates, gradient norms; `train.total`."""
    scalars: dict[str, float] = {}
    for name, report in reports.items():
        scalars |= {f"train.{loss}": value.item() for loss, value in report.raw.items()}
        scalars |= {f"weight.{loss}": weight for loss, weight in report.weights.items()}
        if report.raw:
            scalars[f"lr.{name}"] = report.learning_rate
        if report.grad_norm is not None:
            scalars[f"grad_norm.{name}"] = report.grad_norm.item()
            scalars |= {f"grad_norm.{name}.{network}": norm.item() for network, norm in report.grad_norms.items()}
    scalars["train.total"] = sum(
        report.weights[name] * value.item()
        for report in reports.values()
        for name, value in report.raw.items()
        if loss_of(name) == name
    )
    return scalars

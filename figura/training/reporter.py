"""Monitoring of a running training: a progress line, a live log, trackers, sample pictures.

All files are in `<run>/live`, or `<run>/try/live` for a try. DVC does not track them, so they may differ between runs.
Trackers and these files never end a training: failures become warnings.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, get_available_trackers
from tqdm import tqdm

from figura.base.error_collector import ErrorCollector
from figura.base.files import tidy, write_text
from figura.interfaces import Row, loss_of
from figura.recipe.resolved import resolved, settings
from figura.recipe.schema import Recipe
from figura.recipe.trial import KEY, scratch


def check_trackers(recipe: Recipe) -> None:
    """Raise UserError for each tracker that a recipe names and that is not installed; the default one is only told."""
    errors, installed = ErrorCollector(recipe.path), {str(tracker) for tracker in get_available_trackers()}
    for index, tracker in enumerate(recipe.runtime.trackers):
        if tracker not in installed and "trackers" in recipe.runtime.model_fields_set:
            remedy = f"`pip install {tracker}`, or `trackers: []`"
            errors.add(f"runtime.trackers.{index}", f"{tracker!r} is not installed; {remedy}")
    errors.raise_any()


def live_scalars(row: Mapping[str, float]) -> dict[str, float]:
    """Rename the columns of a row for the live log and the trackers: `train.<loss>`, `weight.<loss>`, `lr.<step>`, ...

    `train.total` is the weighted sum of the losses; components are not counted twice.
    """
    scalars = {"train.total": 0.0}
    for column, value in row.items():
        head, _, kind = column.rpartition(".")
        if kind == "raw":
            scalars[f"train.{head}"] = value
        elif kind in ("weight", "lr"):
            scalars[f"{kind}.{head}"] = value
        elif kind == "grad_norm":
            scalars[f"grad_norm.{head}"] = value
        elif kind == "weighted" and loss_of(head) == head:
            scalars["train.total"] += value
    return scalars


def weights_line(epoch: int, weights: Mapping[str, float]) -> str:
    """Return one line of text: `epoch 3: loss weights G_GAN 1, G_L1 100`."""
    return f"epoch {epoch}: loss weights " + ", ".join(f"{name} {weight:g}" for name, weight in weights.items())


def losses_text(scalars: Mapping[str, float], losses: Sequence[str]) -> str:
    """Return the progress bar's text: the total, then what each computed loss adds to it, weight x loss."""
    each = [f"{name} {value:.4g}" for name, value in _weighted(scalars, losses)]
    return f"total {scalars.get('train.total', float('nan')):.4g}" + (f" ({', '.join(each)})" if each else "")


def _weighted(scalars: Mapping[str, float], losses: Sequence[str]) -> list[tuple[str, float]]:
    return [(n, scalars[key] * scalars[f"weight.{n}"]) for n in losses if (key := f"train.{n}") in scalars]


def _keep_from_studio(trackers: Sequence[GeneralTracker]) -> None:
    """Stop DVCLive from sending to DVC Studio if no token is set.

    To send its rows, it rereads and keeps all of them at each step: time and memory would grow with the number of
    steps.
    """
    for tracker in trackers:
        if tracker.name == "dvclive":
            from dvclive.studio import get_dvc_studio_config

            if not get_dvc_studio_config(tracker.tracker):
                tracker.tracker.post_data_to_studio = lambda: None


class Reporter:
    """The progress bar, `<run>/live/log.jsonl`, `<run>/live/samples/`, and the trackers of `runtime`.

    `<run>/live/recipe.yaml` is the recipe with all defaults; it is passed to trackers as their config.
    """

    def __init__(self, accelerator: Accelerator, recipe: Recipe, run: Path, *, first: int, last: int) -> None:
        folder = scratch(run, recipe) / "live"
        self.accelerator, self.folder, self.batch = accelerator, folder, recipe.data.batch_size
        self.main, runtime, self.losses = accelerator.is_main_process, recipe.runtime, list(recipe.losses)
        self.bar = tqdm(
            initial=first, total=last, unit="step", disable=not (runtime.progress and self.main), dynamic_ncols=True,
            mininterval=0.5, desc="TRY train" if recipe.train.try_ else "train",
        )  # fmt: skip
        self._since, self._from = time.perf_counter(), first
        self._warned: set[str] = set()
        self._explained = False  # that losses can be negative
        if self.main:
            self.say(f"{recipe.path}: {last} steps of {self.batch} examples; with all defaults: {folder}/recipe.yaml")
            if recipe.runtime.trackers and not self.accelerator.log_with:
                self.say("DVCLive is not installed: this training has no tracker; `pip install dvclive` brings it")
            with self.writing(str(folder)):
                (folder / "samples").mkdir(parents=True, exist_ok=True)
                tidy(folder)
                write_text(folder / "recipe.yaml", resolved(recipe))
        self._start_trackers(f"{run.name}-{KEY}" if recipe.train.try_ else run.name, settings(recipe))

    def _start_trackers(self, project: str, configuration: dict[str, Any]) -> None:
        options = {"dir": str(self.folder / "dvclive"), "dvcyaml": None, "save_dvc_exp": False, "report": None}
        asked, working = list(self.accelerator.log_with), list[GeneralTracker]()
        for tracker in asked:
            self.accelerator.log_with, self.accelerator.trackers = [tracker], []
            try:
                self.accelerator.init_trackers(project, config=configuration, init_kwargs={"dvclive": options})
            except Exception as error:  # noqa: BLE001  # code of others, which training does without
                self._left_out(tracker.name if isinstance(tracker, GeneralTracker) else str(tracker), error)
            else:
                working += self.accelerator.trackers
                _keep_from_studio(self.accelerator.trackers)
        self.accelerator.log_with, self.accelerator.trackers = asked, working

    def tell(self, call: Callable[[GeneralTracker], object]) -> None:
        """Call a function with each tracker, on the main rank only; a tracker that fails is skipped from then on."""
        for tracker in list(self.accelerator.trackers) if self.main else ():
            try:
                call(tracker)
            except Exception as error:  # noqa: BLE001  # code of others, which training does without
                self.accelerator.trackers.remove(tracker)
                self._left_out(tracker.name, error)

    def _send(self, iteration: int, values: Mapping[str, Any]) -> None:
        self.tell(lambda tracker: tracker.log(values, step=iteration))

    def _left_out(self, tracker: str, error: Exception) -> None:
        self.say(f"warning: the tracker {tracker} failed, and gets nothing more: {error!r:.300}")

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Turn disk errors in the block into warnings, once per `what`; the rest of the block is skipped."""
        try:
            yield
        except OSError as error:
            if what not in self._warned:
                self._warned.add(what)
                self.say(f"warning: {what} cannot be written, and is left out: {error.strerror or error}")

    def record(self, values: Mapping[str, Any]) -> None:
        """Append a line to the live log."""
        if self.main:
            log = self.folder / "log.jsonl"
            with self.writing(str(log)), log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")

    def advance(self) -> None:
        """Count one iteration."""
        self.bar.update()

    def log(self, iteration: int, scalars: Mapping[str, float], seconds: Mapping[str, float]) -> None:
        """Write a line of the live log and pass it to the trackers, with throughput and, if measured, phase timings."""
        now = time.perf_counter()
        rate = (iteration - self._from) * self.batch / max(now - self._since, 1e-9)
        phases = {f"seconds.{phase}": value / max(iteration - self._from, 1) for phase, value in seconds.items()}
        self._since, self._from = now, iteration
        values = {**scalars, "images_per_second": rate, **phases}
        self.record({"step": iteration, **values})
        negative = [name for name, value in _weighted(scalars, self.losses) if value < 0]
        if negative and not self._explained:
            self._explained = True
            self.say(f"below 0, as losses of likelihoods and critics may be: {', '.join(negative)}; lower is better")
        self.bar.set_postfix_str(f"{losses_text(scalars, self.losses)}, {rate:.1f} images/s")
        self._send(iteration, values)

    def track(self, iteration: int, row: Row, prefix: str) -> None:
        """Pass a row of the history to the trackers."""
        self._send(iteration, {f"{prefix}.{name}": value for name, value in row.items() if name != "step"})

    def replay(self, train: Sequence[Row], validation: Sequence[Row]) -> None:
        """Write the rows of a history whose iterations another training did."""
        for row in train:
            self.record({"step": row["step"], **live_scalars(row)})
            self._send(int(row["step"]), live_scalars(row))
        for row in validation:
            self.track(int(row["step"]), row, "validation")

    def say(self, message: str) -> None:
        """Print a line above the progress bar, on the main rank only."""
        if self.main:
            tqdm.write(message)

    def close(self, agreed: bool) -> None:
        """Close the progress bar and the trackers; if all ranks end together, also the process group."""
        self.bar.close()
        self.tell(lambda tracker: tracker.finish())
        self.accelerator.trackers = []
        if agreed:
            self.accelerator.end_training()

"""Online scores: metrics of the networks during training, computed by the code of the stages eval-dump and metrics.

The modes of `evaluate` that the chosen `metrics.scores` read run, with averaged weights if there are any, into a
temporary dump; the scores are then computed from it. They run over a part of `evaluate.data`, but with the `split` of
the dataset of the same name in `data.validation`; if no name is there, over `data.validation`. For settings are chosen
by what a training shows, and not by test data.

The stage `train` does not depend on the sections `evaluate`, `metrics` and `runtime.scores`, so its outputs must not
depend on online scores: they change neither the weights, nor the history, nor the state of any random number generator.
For the same reason, metrics go to `live/`, and a failing score is a warning and does not end the training.
"""

import inspect
import re
import shutil
from collections.abc import Iterable
from typing import Any

from figura.base.distributed import raise_on_all_ranks
from figura.base.dotted_keys import texts
from figura.base.errors import UserError
from figura.base.tables import read_rows, write_rows
from figura.dump import Dump
from figura.engine.build import on_split_of
from figura.evaluation.evaluate import Evaluation
from figura.interfaces import Listener
from figura.recipe.schema import Declaration, Evaluate, Recipe
from figura.report.interfaces import Score
from figura.report.metrics import build_scores, compute_metrics, flattened


class OnlineScores(Listener):
    """Computes the scores in `runtime.scores` on the networks in training.

    Metrics go to the live log and the trackers as `score.<score>.<metric>`, and to `<live>/scores.csv`, one row per
    evaluation: `step`, `<score>.<metric>`. All ranks write the dump into `<live>/scored`; then only rank 0 scores it.
    The other ranks wait, at most for the timeout of a collective.

    Args:
        recipe: has `runtime.scores`.
    """

    def __init__(self, recipe: Recipe) -> None:
        settings = recipe.runtime.scores
        assert settings is not None
        self.every, self.limit = settings.every, settings.limit
        scores = build_scores(recipe)
        self.scores = {name: scores[name] for name in settings.names}
        quiet = recipe.runtime.model_copy(update={"progress": False, "workers": 0})
        declared = [recipe.metrics.scores[name] for name in settings.names]
        read = part_read(recipe.evaluate, self.scores.values(), declared)
        chosen_by = recipe.data.validation
        watched = {
            name: on_split_of(entry, chosen_by[name]) or chosen_by[name]
            for name, entry in recipe.evaluate.data.items()
            if name in chosen_by
        } or chosen_by
        self.recipe = recipe.model_copy(
            update={"evaluate": read.model_copy(update={"data": watched}), "runtime": quiet}
        )
        self.evaluation: Evaluation | None = None  # built on first use
        self.said: set[str] = set()

    def on_start(self, training: Any) -> None:
        """Remove the rows of iterations that this training will repeat."""
        live = training.scratch / "live"
        self.table, self.folder = live / "scores.csv", live / "scored"
        self.networks = training.networks.ema
        open_already = self.recipe.evaluate.data == self.recipe.data.validation
        self.data = training.loaders.validation_data if open_already else None
        self.accelerator, self.reporter = training.accelerator, training.reporter
        if self.accelerator.is_main_process:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.table.exists():
                with self.reporter.writing(str(self.table)):
                    rows = [row for row in self._rows() if int(row["step"]) <= training.iteration]
                    write_rows(self.table, ["step"], rows)

    def on_iteration(self, training: Any, evaluated: bool) -> None:
        """Score the networks every `every` iterations and at the end, or by default after each evaluation."""
        due = training.iteration % self.every == 0 or training.iteration == training.last if self.every else evaluated
        if due:
            self.score(training.iteration)

    def score(self, iteration: int) -> None:
        """Score the networks after `iteration` iterations. Collective."""
        metrics = self._metrics(iteration)
        if metrics:
            self.reporter.record({"step": iteration, **{f"score.{n}": value for n, value in metrics.items()}})
            self.reporter.track(iteration, metrics, "score")
            rows = [row for row in self._rows() if int(row["step"]) < iteration]  # training may have gone back
            with self.reporter.writing(str(self.table)):
                write_rows(self.table, ["step"], [*rows, {"step": iteration, **metrics}])
        self.accelerator.wait_for_everyone()

    def _metrics(self, iteration: int) -> dict[str, float]:
        """Return the metrics on rank 0; an empty map on the other ranks."""
        metrics: dict[str, float] = {}
        try:
            self._dump()
            if self.accelerator.is_main_process:
                dump = Dump(self.folder)
                for name, score in self.scores.items():
                    try:
                        metrics |= flattened(compute_metrics(self.recipe, dump, {name: score}, self._say_once))
                    except UserError as error:
                        self._warn(iteration, error)
                    except Exception as error:  # noqa: BLE001  # users' scores may raise anything
                        self._warn(iteration, f"metrics.scores.{name}: {error!r}")
                self._clear()
        except (UserError, OSError) as error:
            self._warn(iteration, error)
        return metrics

    def _say_once(self, line: str) -> None:
        """Print, once, why a score is skipped: it is the same in every evaluation."""
        if line not in self.said:
            self.said.add(line)
            self.reporter.say(line)

    def _warn(self, iteration: int, error: Exception | str) -> None:
        self.reporter.say(f"warning: runtime.scores at step {iteration}: {error}")

    def _dump(self) -> None:
        with raise_on_all_ranks():
            if self.accelerator.is_main_process:
                self._clear()
            self.evaluation = self.evaluation or Evaluation(
                self.recipe, self.networks, self.folder, self.accelerator, data=self.data, limit=self.limit
            )
        self.evaluation.write()

    def _clear(self) -> None:
        """Remove the dump, but keep the averages over training examples, which do not depend on the weights."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.is_file():
                path.unlink()
            elif path.name != "averages":
                shutil.rmtree(path)

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows so far; a damaged table is kept under another name, and a new one started."""
        if not self.table.exists():
            return []
        try:
            rows: list[dict[str, Any]] = list(read_rows(self.table, "step"))
            if wrong := [row["step"] for row in rows if not re.fullmatch("[0-9]{1,18}", row["step"])]:
                raise UserError(f"{self.table}: the step {wrong[0]!r:.40} is no whole number")
        except UserError as error:
            damaged = self.table.with_suffix(".damaged")
            with self.reporter.writing(str(damaged)):
                self.table.replace(damaged)
            self.reporter.say(f"warning: {error}; it is now {damaged.name}, and the table begins anew")
            return []
        return rows


def part_read(evaluate: Evaluate, scores: Iterable[Score], declared: Iterable[Declaration]) -> Evaluate:
    """Return the part of `evaluate` that scores read: the modes, grids and averages in their arguments.

    Default arguments are included. If any score has neither a mode nor a grid, all modes are included.
    """
    words: list[set[str]] = []
    for score, entry in zip(scores, declared, strict=True):
        parameters = {name.rstrip("_"): p.default for name, p in inspect.signature(type(score)).parameters.items()}
        words.append({text for _, text in texts(parameters | entry.arguments)})
    named = set[str]().union(*words)
    everything = any(not names & (evaluate.modes.keys() | evaluate.grids.keys()) for names in words)
    modes = {name: mode for name, mode in evaluate.modes.items() if everything or name in named}
    grids = {name: grid for name, grid in evaluate.grids.items() if name in named}
    averages = {name: average for name, average in evaluate.averages.items() if name in named}
    return evaluate.model_copy(update={"modes": modes or evaluate.modes, "grids": grids, "averages": averages})

"""Scores during a training: figures of the networks as they are now, by the code that eval-dump and metrics run.

The modes of `evaluate` that the asked `metrics.scores` read run over a part of the validation split, with the averaged
weights where there are such, into a temporary dump, and the scores judge it. `evaluate`, `metrics` and `runtime.scores` are
sections that the train stage does not track, so nothing that it tracks may depend on what happens here: neither the
weights nor the history know of it, and the generators of random numbers go on as if it had not been. That is why the
figures lie in `live/`, and why a score that cannot be computed is a warning and no end of the training.
"""

import csv
import inspect
import io
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import nn

from models.engine.errors import UserError
from models.engine.evaluating.agreement import failing_together
from models.engine.evaluating.dump import Dump
from models.engine.evaluating.evaluation import Evaluation
from models.engine.evaluating.figures import compute_figures, flattened
from models.engine.examples import Examples
from models.engine.files import write_text
from models.engine.recipes.assemble import build_scores
from models.engine.recipes.schema import Declaration, Evaluate, Recipe
from models.engine.scores import Score
from models.engine.seeding import random_kept
from models.engine.training.reporting import Reporter


class OnlineScores:
    """The scores that `runtime.scores` names, of networks that are being trained.

    Figures go to the live log and the trackers as `score.<score>.<figure>`, and one row an evaluation into
    `<live>/scores.csv`: `step`, `<score>.<figure>`. All processes write the dump; then the main one alone judges it, and
    the others wait, no longer than a collective may take.

    Args:
        networks: the weights to judge, not wrapped for several processes.
        data: the validation datasets.
        live: folder of scratch, `<run>/live`; the temporary dump is `scored/` in it.
        done: iterations before this process; rows of later ones, which it takes again, are cut off.
    """

    def __init__(
        self, recipe: Recipe, networks: Mapping[str, nn.Module], data: Mapping[str, Examples], live: Path,
        accelerator: Accelerator, reporter: Reporter, *, done: int,
    ) -> None:  # fmt: skip
        asked = recipe.runtime.scores
        assert asked is not None
        self.every, self.limit = asked.every, asked.limit
        self.networks, self.data, self.accelerator, self.reporter = networks, data, accelerator, reporter
        self.table, self.folder = live / "scores.csv", live / "scored"
        scores = build_scores(recipe)
        self.scores = {name: scores[name] for name in asked.names}
        quiet = recipe.runtime.model_copy(update={"progress": False, "workers": 0})
        read = part_read(recipe.evaluate, self.scores.values(), [recipe.metrics.scores[name] for name in asked.names])
        self.recipe = recipe.model_copy(update={"evaluate": read, "runtime": quiet})
        self.evaluation: Evaluation | None = None  # built when first needed
        if accelerator.is_main_process:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.table.is_file():
                self._write([row for row in self._rows() if int(row["step"]) <= done])

    def __call__(self, iteration: int) -> None:
        """Score the networks as they are after `iteration` iterations; every process calls it."""
        with random_kept():
            figures = self._figures(iteration)
        if figures:
            self.reporter.record({"step": iteration, **{f"score.{n}": value for n, value in figures.items()}})
            self.reporter.track(iteration, figures, "score")
            rows = [row for row in self._rows() if int(row["step"]) < iteration]  # training may have gone back
            self._write([*rows, {"step": iteration, **figures}])
        self.accelerator.wait_for_everyone()

    def _figures(self, iteration: int) -> dict[str, float]:
        """Return what the scores say, to the main process; to others, nothing."""
        figures: dict[str, float] = {}
        try:
            self._dump()
        except UserError as error:
            self._warn(iteration, error)
            return figures
        if not self.accelerator.is_main_process:
            return figures
        dump = Dump(self.folder)
        for name, score in self.scores.items():
            try:
                figures |= flattened(compute_figures(self.recipe, dump, {name: score}))
            except UserError as error:
                self._warn(iteration, error)
        self._clear()
        return figures

    def _warn(self, iteration: int, error: UserError) -> None:
        self.reporter.say(f"warning: runtime.scores at step {iteration}: {error}")

    def _dump(self) -> None:
        if self.accelerator.is_main_process:
            self._clear()
        with failing_together():
            self.evaluation = self.evaluation or Evaluation(
                self.recipe, self.networks, self.folder, self.accelerator, data=self.data, limit=self.limit
            )
        self.evaluation.write()

    def _clear(self) -> None:
        """Remove the dump; averages over training examples, which no weights change, stay for the next one."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.is_file():
                path.unlink()
            elif path.name != "averages":
                shutil.rmtree(path)

    def _rows(self) -> list[dict[str, Any]]:
        if not self.table.is_file():
            return []
        with self.table.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def _write(self, rows: list[dict[str, Any]]) -> None:
        buffer = io.StringIO()
        columns = dict.fromkeys(["step", *(column for row in rows for column in row)])
        writer = csv.DictWriter(buffer, list(columns), lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.table, buffer.getvalue())


def part_read(evaluate: Evaluate, scores: Iterable[Score], declared: Iterable[Declaration]) -> Evaluate:
    """Return the part of `evaluate` that scores read: the modes, crosses and averages that their arguments name.

    Defaults count as arguments. Where a score names neither a mode nor a cross, all modes are read.
    """
    words: list[set[str]] = []
    for score, entry in zip(scores, declared, strict=True):
        parameters = {name.rstrip("_"): p.default for name, p in inspect.signature(type(score)).parameters.items()}
        words.append(set(_texts(parameters | entry.arguments)))
    named = set[str]().union(*words)
    everything = any(not found & (evaluate.modes.keys() | evaluate.crosses.keys()) for found in words)
    modes = {name: mode for name, mode in evaluate.modes.items() if everything or name in named}
    crosses = {name: cross for name, cross in evaluate.crosses.items() if name in named}
    averages = {name: average for name, average in evaluate.averages.items() if name in named}
    return evaluate.model_copy(update={"modes": modes or evaluate.modes, "crosses": crosses, "averages": averages})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)

"""The best weights of a training (`train.keep`), and an early end (`train.stop`), by a number of the evaluations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from figura.base.errors import UserError, nearest
from figura.engine.weights import not_finite
from figura.interfaces import Row
from figura.recipe.schema import Keep, Train
from figura.training.loss_log import LossLog


class BestWeights:
    """Copies of the weights at the best evaluations, on the CPU: `weights[iteration][network][name]`.

    What is best follows from the history alone. Of the evaluations before the last one, exactly the `train.keep.best`
    best have a copy, so that a training that takes this state, and has no evaluation there, finds what it needs.

    Args:
        train: `keep` and `stop` of a recipe.
        networks: the networks that evaluations run, by name.
        loss_log: its rows of the validation rank the evaluations.
    """

    def __init__(self, train: Train, networks: Mapping[str, nn.Module], loss_log: LossLog) -> None:
        self.train, self.networks, self.loss_log = train, networks, loss_log
        self.weights: dict[int, dict[str, dict[str, Tensor]]] = {}

    def add(self, row: Row) -> None:
        """Copy the weights if a row, the last of the history, is among the best; forget those that are no longer.

        Raises:
            UserError: the loss or callback that the metric names is in the row, and has no such number.
        """
        keep, iteration = self.train.keep, int(row["step"])
        if keep is None:
            return
        _refuse_unknown(keep, row)
        before = [one for one in self.ranked() if one != iteration][: keep.best]
        self.weights = {one: self.weights[one] for one in before} | {iteration: self._copy()}
        broken = any(not_finite(network) for network in self.networks.values())
        if broken or iteration not in self.ranked()[: keep.best]:
            del self.weights[iteration]

    def ranked(self) -> list[int]:
        """Return the iterations that have a copy, the best first; of equal ones, the earlier first."""
        keep = self.train.keep
        values = dict(figures(keep, self.loss_log.validation)) if keep else {}
        known = [one for one in sorted(self.weights) if math.isfinite(values.get(one, math.nan))]
        return sorted(known, key=values.__getitem__)

    def best(self) -> list[int]:
        """Return the iterations whose weights are to be kept, the best first; none without `train.keep`."""
        return [] if self.train.keep is None else self.ranked()[: self.train.keep.best]

    def said(self, iteration: int) -> str:
        """Return which weights are the best, and by what, after all `iteration` iterations; empty without a choice."""
        keep, best = self.train.keep, self.best()
        if keep is None:
            return ""
        if not best:
            return f"iteration {iteration} of {iteration}: no evaluation had a finite {keep.metric}"
        values = dict(figures(keep, self.loss_log.validation))
        word, sign = ("lowest", 1) if keep.better == "lower" else ("highest", -1)
        return (
            f"iteration {best[0]} of {iteration}: the {word} {keep.metric} of {len(values)} evaluations, "
            f"{sign * values[best[0]]:.6g}"
        )

    @contextmanager
    def loaded(self, iteration: int) -> Iterator[None]:
        """Context in which the networks have the weights that were copied at an iteration."""
        own = self._copy()
        try:
            self._load(self.weights[iteration])
            yield
        finally:
            self._load(own)

    def state_dict(self) -> dict[int, Any]:
        """Return the copies."""
        return self.weights

    def load_state_dict(self, state: Mapping[int, Any], prefix: Mapping[str, Any] | None = None) -> None:
        """Restore what `state_dict` returned; networks that are not in a `prefix` have not changed so far."""
        ran = self.networks.keys() if prefix is None else prefix["networks"].keys()
        now = self._copy() if state else {}
        self.weights = {
            iteration: {name: weights[name] if name in ran else now[name] for name in self.networks}
            for iteration, weights in state.items()
        }

    def _copy(self) -> dict[str, dict[str, Tensor]]:
        return {
            name: {key: tensor.detach().cpu().clone() for key, tensor in network.state_dict().items()}
            for name, network in self.networks.items()
        }

    def _load(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        for name, network in self.networks.items():
            network.load_state_dict(weights[name])


def figures(keep: Keep, rows: Sequence[Row]) -> Iterator[tuple[int, float]]:
    """Yield the iteration and the number that `keep` names, negated if higher is better, of each row that has it."""
    for row in rows:
        value = row.get(f"{keep.metric}.raw", row.get(keep.metric))
        if value is not None:
            yield int(row["step"]), -value if keep.better == "higher" else value


def early_end(train: Train, rows: Sequence[Row]) -> int | None:
    """Return the iteration of the evaluation at which `train.stop` ends a training of this history, or None.

    It is the first with `patience` evaluations in a row after the best one so far; before the first finite number, none
    counts.
    """
    if train.keep is None or train.stop is None:
        return None
    best, waited = math.inf, 0
    for iteration, value in figures(train.keep, rows):
        better = math.isfinite(value) and value < best
        best, waited = (value, 0) if better else (best, waited + math.isfinite(best))
        if waited >= train.stop.patience:
            return iteration
    return None


def _refuse_unknown(keep: Keep, row: Row) -> None:
    head = keep.metric.partition(".")[0]
    names = [name.removesuffix(".raw") for name in row if name.partition(".")[0] == head]
    if names and keep.metric not in names:
        raise UserError(
            f"train.keep.metric: an evaluation has no {keep.metric!r}{nearest(keep.metric, names)}; of {head} it has "
            f"{', '.join(names)}"
        )

"""How much the draws of a mode differ from each other."""

from itertools import combinations

import numpy as np

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, Estimate, NotApplicableError, Score, groups_of


class Diversity(Score):
    """Mean absolute difference between the draws of an example, and between its draws and its target.

    A mode draws each example `repeat` times. `draws` is the mean over examples of the mean over pairs of their draws,
    `to_target` of the mean over their draws. If the target is as likely as any draw, as it should be, both are equal;
    draws that are too much alike are nearer to each other than to the target. Images are in [-1, 1]. With a `mask`,
    only its pixels count. `groups` as in `Fidelity`.
    """

    def __init__(self, mode: str, image: str, target: str, mask: str | None = None, groups: str | None = None) -> None:
        self.mode, self.image, self.target, self.mask, self.groups = mode, image, target, mask, groups

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        rows = dump.mode(self.mode)
        owners = groups_of(rows, self.mode, self.groups)
        examples = [places for places in rows.table.groupby(rows.column("index")).indices.values() if len(places) > 1]
        if not examples:
            raise NotApplicableError(f"mode {self.mode!r} draws every example once; `repeat` says how often")
        between, away = [], []
        for places in examples:
            draws = np.stack([rows.value(int(place), self.image) for place in places])
            target = rows.value(int(places[0]), self.target)
            weight = np.ones_like(target) if self.mask is None else rows.value(int(places[0]), self.mask)
            weight = np.broadcast_to(weight, target.shape)
            pairs = [np.abs(a - b) for a, b in combinations(draws, 2)]
            between.append(np.average(np.mean(pairs, axis=0), weights=weight))
            away.append(np.average(np.abs(draws - target).mean(axis=0), weights=weight))
        groups = [owners[places[0]] for places in examples]
        return {
            "draws": bootstrap.estimate(np.array(between), groups=groups),
            "to_target": bootstrap.estimate(np.array(away), groups=groups),
            "examples": len(examples),
        }

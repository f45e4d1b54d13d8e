"""Metrics of `torchmetrics` as scores, by their own names: `torchmetrics.image.PeakSignalNoiseRatio`.

`figura.recipe.types` loads this module by name if a type is no class of figura's own kind.
"""

import inspect
import sys
from functools import cache
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, create_model

from figura.base.errors import UserError, one_line
from figura.dump import Dump
from figura.recipe.stand_ins import annotations, parameters, stand_in
from figura.report.interfaces import Bootstrap, Estimate, Score, groups_of

ALIKE = 1e-5
"""Relative difference below which a metric is the mean over its examples: float32 sums of a picture."""


class Inputs(BaseModel):
    """The parameters of a metric's `update`, with the names in the dump that they get."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PackageScore(Score):
    """A metric of torchmetrics over the examples of a mode: `value`, or a value for each name that it gives.

    A value that is the mean over the examples gets a bootstrap interval.
    """

    def __init__(self, metric: Any, mode: str, inputs: Inputs) -> None:
        self.metric, self.mode = metric, mode
        self.inputs = {role: name for role, name in inputs if name is not None}

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Estimate | float | int]:
        import torch  # the stage `metrics` starts without it

        rows, each = dump.mode(self.mode), []
        self.metric.reset()
        try:
            for index in range(len(rows)):
                # C order: a picture's channels are a view, and metrics call `view`
                arrays = {role: np.array(rows.value(index, name), order="C") for role, name in self.inputs.items()}
                example = {role: torch.from_numpy(array)[None] for role, array in arrays.items()}
                each.append(_numbers(self.metric(**example)))  # adds it to the whole, and gives its own value
            values = _numbers(self.metric.compute())
        except (ValueError, RuntimeError, TypeError, ModuleNotFoundError) as error:
            raise UserError(one_line(f"{dump.folder}: mode {self.mode!r}: {error}")) from None
        found: dict[str, Estimate | float | int] = {}
        owners = groups_of(rows, self.mode, None)
        for name, value in values.items():
            own = np.array([one[name] for one in each])
            mean = bool(np.isclose(own.mean(), value, rtol=ALIKE, atol=1e-7))
            found[name] = bootstrap.estimate(own, groups=owners) if mean else value
        return found | {"examples": len(rows)}


@cache
def score_of(kind: Any) -> type[PackageScore] | None:
    """Return a class of scores by a metric of torchmetrics; None for anything else."""
    package: Any = sys.modules.get("torchmetrics")
    if package is None or package.Metric not in getattr(kind, "__mro__", ()):
        return None
    arguments = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters(kind) if one.kind is not one.VAR_KEYWORD]
    if {"mode", "inputs"} & {one.name for one in arguments}:  # keys of every score of a package
        return None
    roles = {
        one.name: (str, ...) if one.default is one.empty else (str | None, None)
        for one in parameters(kind.update, without=1)
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    inputs = create_model("inputs", __base__=Inputs, **roles)  # type: ignore[call-overload]

    def init(self: PackageScore, mode: str, inputs: Inputs, **given: Any) -> None:
        PackageScore.__init__(self, kind(**given), mode, inputs)

    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ("mode", "inputs")]
    hints = annotations(kind.__init__) | {"mode": str, "inputs": inputs}
    return stand_in(kind, PackageScore, {"__init__": init}, inspect.Signature([*own, *arguments]), hints)


def _numbers(value: Any) -> dict[str, float]:
    """Return a metric's numbers by name. Raises ValueError for a tensor of several."""
    if isinstance(value, dict):
        return {name: number for key, part in value.items() for name, number in _named(key, part)}
    return dict(_named("value", value))


def _named(name: str, value: Any) -> list[tuple[str, float]]:
    if value.numel() != 1:
        raise ValueError(f"{name} has the shape {tuple(value.shape)}; a score is one number")
    return [(name, float(value))]

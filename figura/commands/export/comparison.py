"""Runs an exported file beside PyTorch on the same inputs: how far results differ, and how long both take."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from figura.base.errors import UserError, one_line
from figura.base.modes import evaluating
from figura.commands.export.calls import Exportable

Arrays = dict[str, NDArray[Any]]
Run = Callable[[], Arrays]

FLOOR = 0.01  # of an output's largest value: differences in components with smaller values are shares of this
ROUNDS, MOST, SECONDS = 5, 100, 0.5
"""Least and most calls that are timed, after one that is not, and the seconds after which the least are enough."""


@dataclass(frozen=True)
class Comparison:
    """An exported file beside PyTorch, on one batch.

    Attributes:
        shapes: `pose 4 x 3 x 64 x 64, noise`.
        absolute: the largest difference of any output.
        relative: the largest difference as a share of the largest value of the same component (`differences`).
        pytorch: median milliseconds.
        exported: the same, of the file.
    """

    shapes: str
    absolute: float
    relative: float
    pytorch: float
    exported: float


def compare(module: Exportable, tensors: Mapping[str, Tensor], path: Path, form: str) -> Comparison:
    """Run a file beside its module.

    Raises:
        UserError: PyTorch gives NaN; the file cannot be run on these inputs, or gives outputs of other names or shapes.
    """
    ours = _of_module(module, tensors)
    with evaluating(module):
        expected = ours()
        if bad := [name for name, value in expected.items() if np.isnan(value).any()]:
            raise UserError(f"PyTorch gives NaN in {', '.join(bad)} for these examples")
        try:
            if form == "onnx":
                theirs = _of_onnx(path, tensors)
            else:
                theirs = _of_module(torch.export.load(path).module(), tensors)
            results = theirs()
        except Exception as error:  # onnxruntime raises classes of its own
            raise UserError(f"it cannot be run: {one_line(str(error))}") from error
        absolute, relative = differences(expected, results)
        times = [1000 * seconds(one) for one in (ours, theirs)]
    inputs = [f"{n} {' x '.join(map(str, one.shape))}" for n, one in tensors.items() if n in module.parameter_names]
    shapes = ", ".join([*inputs, *(["noise"] if len(inputs) < len(tensors) else [])])
    return Comparison(shapes, absolute, relative, *times)


def differences(expected: Mapping[str, NDArray[Any]], found: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
    """Return the largest difference of any output, and the largest one relative to the largest value of its component.

    That value is the largest finite one expected in the component, and no less than `FLOOR` of the output's; an output
    of zeros counts as one of ones. Components are channels (N, C, ...), of fields those of (N, fields, C, H, W); an
    output with one number in each, such as (N, C), is one component. A NaN, or infinity in one of the two alone, is an
    infinite difference.

    Raises:
        UserError: names or shapes differ.
    """
    shapes = [{name: value.shape for name, value in one.items()} for one in (expected, found)]
    if shapes[0] != shapes[1]:
        raise UserError(f"outputs differ: PyTorch gives {shapes[0]}, the file {shapes[1]}")
    absolute = relative = 0.0
    for name, value in expected.items():
        wanted, got = value.astype(np.float64), found[name].astype(np.float64)
        with np.errstate(invalid="ignore"):
            distance = np.where(wanted == got, 0.0, np.abs(wanted - got))
        distance = np.where(np.isnan(distance), np.inf, distance)
        absolute = max(absolute, float(distance.max(initial=0.0)))
        relative = max(relative, float((distance / _scale(wanted)).max(initial=0.0)))
    return absolute, relative


def _scale(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what differences are a share of, in a shape that `wanted` can be divided by."""
    finite = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    whole = finite.max(initial=0.0, keepdims=True)
    channel = 2 if wanted.ndim == 5 else 1
    if wanted.ndim > channel and math.prod(wanted.shape[channel + 1 :]) > 1:
        others = tuple(axis for axis in range(wanted.ndim) if axis != channel)
        return np.maximum(finite.max(axis=others, initial=0.0, keepdims=True), FLOOR * whole) + (whole == 0)
    return whole + (whole == 0)


def seconds(function: Callable[[], object]) -> float:
    """Return the median time of a call."""
    function()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < ROUNDS or (time.perf_counter() < end and len(times) < MOST):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _of_module(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> Run:
    return lambda: {name: value.numpy() for name, value in module(**tensors).items()}


def _of_onnx(path: Path, tensors: Mapping[str, Tensor]) -> Run:
    """Return a call of a file in onnxruntime, on as many threads as PyTorch uses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # what is wrong is raised
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    feed = {name: value.numpy() for name, value in tensors.items()}
    return lambda: dict(zip(names, session.run(None, feed), strict=True))

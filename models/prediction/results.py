"""Results of a prediction: what the networks make of one example, and the files that hold it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.base.pictures import Pixels, write_png
from models.dump import RecordsFile
from models.interfaces import Records
from models.prediction.inputs import Photo
from models.report.sheets import as_pixels

Value = Any
"""Of `image` and `mask`: pixels, uint8 (H, W, 3). Of `array`: float32. Of `records`: a list of dictionaries."""


@dataclass(frozen=True, eq=False)
class Output:
    """The results of one example, or of one of its draws.

    Attributes:
        name: what files of it are called; unique among all outputs.
        photo: where the example is from, without its pixels.
        values: by the names of `predict.save`.
        numbers: of the comparisons with the truth, by column of `predictions.csv`.
        compared: pictures beside their truth, by the names of `predict.compare`.
    """

    name: str
    photo: Photo
    values: Mapping[str, Value]
    numbers: Mapping[str, float]
    compared: Mapping[str, Pixels]


def converted(value: Any, form: str) -> Value:
    """Return a value of the state, of one example, in a form of `predict.save`.

    `image` is (3 or 1, H, W) in [-1, 1], or uint8; `mask` (1, H, W) in [0, 1].
    """
    if form == "records":
        return Records(value)
    if form == "array":
        return value.detach().float().cpu().numpy()
    if value.dtype == torch.uint8:
        return value.permute(1, 2, 0).cpu().numpy()
    return pixels_of((2 * value - 1 if form == "mask" else value)[None])[0]


def pixels_of(images: Tensor) -> Pixels:
    """Return (N, H, W, 3) pixels of (N, 3 or 1, H, W) in [-1, 1], on any device."""
    return as_pixels(images.detach().float().cpu().numpy())


def write_value(base: Path, value: Value, form: str) -> None:
    """Write a converted value to `base` with a suffix added: `.png`, `.npy` or `.json`."""
    if form == "records":
        records = RecordsFile(base.with_name(f"{base.name}.json"))
        records.add(value)
        records.close()
    elif form == "array":
        base.parent.mkdir(parents=True, exist_ok=True)
        np.save(base.with_name(f"{base.name}.npy"), value)
    else:
        write_png(base.with_name(f"{base.name}.png"), value)


def write_output(folder: Path, output: Output, forms: Mapping[str, str], leave_out: Sequence[str] = ()) -> None:
    """Write the values of an output and its comparisons as files of a folder, but for the values to leave out."""
    for name, form in forms.items():
        if name not in leave_out:
            write_value(folder / f"{output.name}.{name}", output.values[name], form)
    for name, picture in output.compared.items():
        write_png(folder / f"{output.name}.{name}.compared.png", picture)

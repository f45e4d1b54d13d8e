"""Outputs of a prediction for one example, and the files they are saved to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from figura.base.errors import UserError
from figura.base.files import write_bytes
from figura.base.pictures import Pixels, encode_png
from figura.dump import RecordsFile, encode_array, writing
from figura.interfaces import Records
from figura.prediction.inputs import Photo, SettingError
from figura.report.sheets import as_pixels

Value = Any
"""For `image` and `mask`: pixels, uint8 (H, W, 3). For `array`: float32. For `records`: a list of dictionaries."""


@dataclass(frozen=True, eq=False)
class Output:
    """The results of one example, or of one of its draws.

    Attributes:
        name: base name of its files; unique among all outputs.
        photo: source of the example, without pixels.
        values: by the names of `predict.save`.
        numbers: comparisons with the truth, by column of `predictions.csv`.
        compared: pictures beside their truth, by the names of `predict.compare`.
    """

    name: str
    photo: Photo
    values: Mapping[str, Value]
    numbers: Mapping[str, float]
    compared: Mapping[str, Pixels]


def converted(name: str, value: Any, form: str) -> Value:
    """Convert a state value of one example to a form of `predict.save`.

    `image` is (3 or 1, H, W) in [-1, 1], or uint8; `mask` (1, H, W) in [0, 1].

    Raises:
        SettingError: an image or a mask has another shape.
        UserError: the value contains NaN or infinity.
    """
    if form == "records":
        return Records(value)
    if form == "array":
        return value.detach().float().cpu().numpy()
    if value.ndim != 3 or value.shape[0] not in (1, 3) or value.numel() == 0:
        found = f"found the shape {tuple(value.shape)}; a picture is (3 or 1, height, width)"
        raise SettingError(f"predict.save.{name}: {found}; save it as array")
    if value.dtype == torch.uint8:
        return np.repeat(value.permute(1, 2, 0).cpu().numpy(), 3 // len(value), axis=2)
    return pixels_of(name, (2 * value - 1 if form == "mask" else value)[None])[0]


def pixels_of(name: str, images: Tensor) -> Pixels:
    """Return (N, H, W, 3) pixels of (N, 3 or 1, H, W) in [-1, 1], on any device.

    Raises:
        UserError: the images contain NaN or infinity.
    """
    values = images.detach().float().cpu().numpy()
    if wrong := values.size - int(np.isfinite(values).sum()):
        raise UserError(f"{name}: {wrong} of {values.size} values are NaN or infinite; a picture has none")
    return as_pixels(values)


def write_value(base: Path, value: Value, form: str) -> None:
    """Write a converted value to `base` with a suffix added: `.png`, `.npy` or `.json`.

    An earlier file is replaced atomically. Raises UserError if it cannot be written.
    """
    if form == "records":
        records = RecordsFile(base.with_name(f"{base.name}.json"))
        records.add(value)
        records.close()
    elif form == "array":
        _write(base.with_name(f"{base.name}.npy"), encode_array(value))
    else:
        write_picture(base.with_name(f"{base.name}.png"), value)


def write_picture(path: Path, pixels: Pixels) -> None:
    """Write (H, W, 3) RGB pixels as PNG, atomically. Raises UserError on failure."""
    _write(path, encode_png(pixels))


def _write(path: Path, content: bytes) -> None:
    with writing(path):
        write_bytes(path, content)


def write_output(folder: Path, output: Output, forms: Mapping[str, str], leave_out: Sequence[str] = ()) -> None:
    """Write the values of an output, except `leave_out`, and its comparisons as files in a folder."""
    for name, form in forms.items():
        if name not in leave_out:
            write_value(folder / f"{output.name}.{name}", output.values[name], form)
    for name, picture in output.compared.items():
        write_picture(folder / f"{output.name}.{name}.compared.png", picture)

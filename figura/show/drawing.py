"""Draw the examples of a dataset: one or more pictures per name that has any."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from figura.base.error_collector import ErrorCollector
from figura.interfaces import Example, ExampleDataset
from figura.recipe.schema import Recipe
from figura.recipe.types import Slot, find_type

Pixels = NDArray[np.uint8]

DRAWING = Slot("drawing", f"{__name__}.ExampleDrawing")


class ExampleDrawing:
    """Draws the examples of a dataset.

    A dataset with names of another kind has a subclass in `ExampleDataset.drawing`.

    Args:
        dataset: the dataset.
        forms: `image` or `mask` for names with a form in the recipe (`forms_of`).

    `reads` are names needed by the pictures of other names; `legend` explains the pictures.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    legend: ClassVar[str] = ""

    def __init__(self, dataset: ExampleDataset, forms: Mapping[str, str]) -> None:
        self.dataset, self.forms = dataset, forms

    def pictures(self, example: Example) -> dict[str, Pixels]:
        """Return uint8 pictures (height, width, 3) by title: the name shown, optionally followed by a space and more.

        The default draws what `picture_of` accepts. `example` may lack names and have others, such as network outputs;
        arrays may be tensors.
        """
        drawn = ((name, picture_of(value, self.forms.get(name))) for name, value in example.items())
        return {name: picture for name, picture in drawn if picture is not None}

    def annotated(self, index: int, random: np.random.Generator) -> dict[str, Pixels]:
        """Return pictures of an example's source, by title; `random` is that of `ExampleDataset.example`."""
        return {}


def drawing_of(dataset: ExampleDataset, forms: Mapping[str, str]) -> ExampleDrawing:
    """Return a dataset's drawing, or the default one.

    Raises:
        UserError: `drawing` of its class is not a subclass of `ExampleDrawing`.
    """
    if dataset.drawing is None:
        return ExampleDrawing(dataset, forms)
    errors = ErrorCollector(Path(type(dataset).__name__))
    kind: Any = find_type(dataset.drawing, DRAWING, "drawing", errors)
    errors.raise_any()
    drawing: ExampleDrawing = kind(dataset, forms)
    return drawing


def forms_of(recipe: Recipe) -> dict[str, str]:
    """Return `image` or `mask` for each name saved as such in the recipe's evaluation."""
    saved = [recipe.evaluate.inputs, *(mode.save for mode in recipe.evaluate.modes.values())]
    return {name: form for names in saved for name, form in names.items() if form in ("image", "mask")}


def picture_of(value: Any, form: str | None = None) -> Pixels | None:
    """Return an array (3 or 1, height, width) as a picture (height, width, 3); None for another shape.

    uint8 is unchanged. Floating-point numbers are in [-1, 1] (`image`) or [0, 1] (`mask`); without a form, in [0, 1] if
    none is negative. Values outside are clipped, non-finite ones are magenta.
    """
    array = value.detach().cpu().float().numpy() if isinstance(value, Tensor) and value.is_floating_point() else value
    array = np.asarray(array)
    if array.ndim != 3 or array.shape[0] not in (1, 3) or min(array.shape) < 1:
        return None
    levels = np.repeat(array, 3 // len(array), axis=0).transpose(1, 2, 0)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(levels)
    if not np.issubdtype(array.dtype, np.floating):
        return None
    finite = np.isfinite(levels).all(axis=2)
    levels = np.where(finite[..., None], levels, 0.0)
    if form != "mask" and (form == "image" or levels.min() < 0):
        levels = (levels + 1) / 2
    pixels = np.rint(np.clip(levels, 0.0, 1.0) * 255).astype(np.uint8)
    pixels[~finite] = (255, 0, 255)
    return pixels

"""How the examples of a dataset are drawn: one or more pictures for each name that has any."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.base.error_collector import ErrorCollector
from models.interfaces import Example, Examples
from models.recipe.schema import Recipe
from models.recipe.types import Slot, find_type

Pixels = NDArray[np.uint8]

DRAWING = Slot("drawing", f"{__name__}.ExampleDrawing")


class ExampleDrawing:
    """Draws the examples of a dataset; a dataset with names of its own kind names a subclass in `Examples.drawing`.

    Args:
        dataset: whose examples are drawn.
        forms: `image` or `mask` for names of which the recipe says it (`forms_of`).

    `reads` are names that the pictures of other names need; `legend` says how to read the pictures.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    legend: ClassVar[str] = ""

    def __init__(self, dataset: Examples, forms: Mapping[str, str]) -> None:
        self.dataset, self.forms = dataset, forms

    def pictures(self, example: Example) -> dict[str, Pixels]:
        """Return uint8 pictures (height, width, 3) by title: the name that it shows, or the name, a space and more.

        The default draws what `picture_of` takes. `example` may lack names and have others, such as outputs of a
        network; arrays may be tensors.
        """
        drawn = ((name, picture_of(value, self.forms.get(name))) for name, value in example.items())
        return {name: picture for name, picture in drawn if picture is not None}

    def annotated(self, index: int, random: np.random.Generator) -> dict[str, Pixels]:
        """Return pictures of what an example is made of, by title; `random` is that of `Examples.example`."""
        return {}


def drawing_of(dataset: Examples, forms: Mapping[str, str]) -> ExampleDrawing:
    """Return the drawing that a dataset names, or the default one.

    Raises:
        UserError: `drawing` of its class names no subclass of `ExampleDrawing`.
    """
    if dataset.drawing is None:
        return ExampleDrawing(dataset, forms)
    errors = ErrorCollector(Path(type(dataset).__name__))
    kind: Any = find_type(dataset.drawing, DRAWING, "drawing", errors)
    errors.raise_any()
    drawing: ExampleDrawing = kind(dataset, forms)
    return drawing


def forms_of(recipe: Recipe) -> dict[str, str]:
    """Return `image` or `mask` for each name that the recipe's evaluation saves as such."""
    saved = [recipe.evaluate.inputs, *(mode.save for mode in recipe.evaluate.modes.values())]
    return {name: form for names in saved for name, form in names.items() if form in ("image", "mask")}


def picture_of(value: Any, form: str | None = None) -> Pixels | None:
    """Return an array (3 or 1, height, width) as a picture (height, width, 3); None for another shape.

    uint8 stays as it is. Floating-point numbers are in [-1, 1] (`image`) or [0, 1] (`mask`); without a form, in [0, 1]
    if none is negative. Values outside are clipped, those that are not finite are magenta.
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

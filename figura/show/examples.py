"""Select examples of a recipe's data, and load them exactly as in training or validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from figura.base.errors import UserError, nearest
from figura.base.seeding import generator
from figura.engine.build import Split, split_entries
from figura.engine.data import Mixture, epoch_order
from figura.interfaces import Example, ExampleDataset
from figura.recipe.schema import DatasetEntry, Recipe
from figura.recipe.types import DATASET, build
from figura.show.drawing import Pixels, drawing_of, forms_of


@dataclass(frozen=True, eq=False)
class DrawnExample:
    """Example `index` of a dataset in an `epoch`; `pictures` by title, with those of the annotations first."""

    index: int
    epoch: int
    example: Example
    pictures: dict[str, Pixels]


class DrawnDataset(NamedTuple):
    """Examples of a dataset; `legend` explains their pictures, and may be empty."""

    legend: str
    examples: list[DrawnExample]


def drawn_examples(
    recipe: Recipe, split: Split, count: int, *, dataset: str | None = None, start: int = 0,
    indices: Sequence[int] | None = None, epoch: int = 0,
) -> dict[str, DrawnDataset]:  # fmt: skip
    """Return `count` examples of each dataset of a split (or of one `dataset`), by its name, with their pictures.

    Training examples are in the order of `epoch`, those of other splits in dataset order, both from position `start`
    on; or those of `indices` are used. Seeds are the engine's, so augmentation is as in training.

    Raises:
        UserError: no such dataset or index, or the data cannot be read.
    """
    datasets = {}
    for name in _entries(recipe, split, dataset):
        source = DrawableDataset(recipe, split, name)
        chosen = _chosen(recipe, split, name, len(source), count, start, indices, epoch)
        datasets[name] = DrawnDataset(source.legend, [source.draw(index, epoch) for index in chosen])
    return datasets


class DrawableDataset:
    """A dataset of a split, opened once, whose examples are drawn one by one.

    Attributes:
        data: the dataset.
        legend: explanation of its pictures; may be empty.

    Raises:
        UserError: no such dataset, or the data cannot be read.
    """

    def __init__(self, recipe: Recipe, split: Split, name: str) -> None:
        self.name, self.seed, entry = name, recipe.seed, _entries(recipe, split, name)[name]
        self.data: ExampleDataset = build(entry, DATASET, f"{split_entries(recipe, split)[0]}.{name}", recipe.path)
        self._mixture, self._drawing = Mixture({name: self.data}, recipe.seed), drawing_of(self.data, forms_of(recipe))
        self.legend = self._drawing.legend

    def __len__(self) -> int:
        return len(self.data)

    def draw(self, index: int, epoch: int = 0) -> DrawnExample:
        """Return example `index` with the engine's seed for `epoch`, which is 0 except in training."""
        example = self._mixture[(self.name, epoch, index)]
        annotated = self._drawing.annotated(index, generator(self.seed, "example", self.name, epoch, index))
        return DrawnExample(index, epoch, example, annotated | self._drawing.pictures(example))


def _entries(recipe: Recipe, split: Split, dataset: str | None) -> Mapping[str, DatasetEntry]:
    key, entries = split_entries(recipe, split)
    if dataset is None:
        return entries
    if dataset not in entries:
        near = nearest(dataset, entries)
        raise UserError(f"{key}: no dataset {dataset!r}{near}; there are {', '.join(entries) or 'none'}")
    return {dataset: entries[dataset]}


def _chosen(
    recipe: Recipe, split: Split, name: str, length: int, count: int, start: int, indices: Sequence[int] | None,
    epoch: int,
) -> list[int]:  # fmt: skip
    key = f"{split_entries(recipe, split)[0]}.{name}"
    if indices is not None:
        if wrong := [index for index in indices if not 0 <= index < length]:
            raise UserError(f"{key}: no example {wrong[0]}; it has {length}, from 0 to {length - 1}")
        return list(indices)
    if start >= length:
        raise UserError(f"{key}: nothing from position {start} on; it has {length} examples")
    order = epoch_order(recipe.seed, name, epoch, length) if split == "train" else range(length)
    return [int(index) for index in order[start : start + count]]


def described(values: Sequence[Any]) -> dict[str, str]:
    """Return `dtype`, `shape`, `min`, `max`, `mean` and `not finite` of one name over several examples, as strings."""
    first = values[0]
    if isinstance(first, str):
        return {"dtype": "text", "min": first}
    if isinstance(first, (list, dict)):
        lengths = sorted({len(value) for value in values})
        return {"dtype": "records", "shape": f"{lengths[0]} to {lengths[-1]}"}
    arrays = [np.asarray(value) for value in values]
    shapes = list(dict.fromkeys(str(array.shape) for array in arrays))
    texts = {"dtype": str(arrays[0].dtype), "shape": shapes[0] if len(shapes) == 1 else f"{shapes[0]} and others"}
    if not all(np.issubdtype(array.dtype, np.number) or array.dtype == bool for array in arrays):
        return texts
    flat = np.concatenate([array.ravel().astype(np.float64) for array in arrays])
    finite = flat[np.isfinite(flat)]
    if len(finite):
        ends = ".0f" if all(np.issubdtype(array.dtype, np.integer) for array in arrays) else ".4g"
        texts |= {"min": f"{finite.min():{ends}}", "max": f"{finite.max():{ends}}", "mean": f"{finite.mean():.4g}"}
    if len(finite) < len(flat):
        texts["not finite"] = f"{1 - len(finite) / len(flat):.1%}"
    return texts


def name_of(title: str, example: Example) -> str | None:
    """Return the name shown by a picture of this title, or None if it shows several."""
    name = title.partition(" ")[0]
    return name if name in example else None


def plain_values(example: Example) -> dict[str, str]:
    """Return the numbers and strings of an example by name, as strings."""
    plain = {n: v for n, v in example.items() if isinstance(v, (str, int, float, bool)) or np.ndim(v) == 0}
    return {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in plain.items()}

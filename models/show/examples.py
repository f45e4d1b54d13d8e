"""Chooses examples of a recipe's data and makes them exactly as training or validation gets them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from models.base.errors import UserError, nearest
from models.base.seeding import generator
from models.engine.build import Split, split_entries
from models.engine.data import Mixture, epoch_order
from models.interfaces import Example, Examples
from models.recipe.schema import DatasetEntry, Recipe
from models.recipe.types import DATASET, build
from models.show.drawing import Pixels, drawing_of, forms_of


@dataclass(frozen=True, eq=False)
class DrawnExample:
    """Example `index` of a dataset in an `epoch`; `pictures` by title, those of the annotations first."""

    index: int
    epoch: int
    example: Example
    pictures: dict[str, Pixels]


class DrawnDataset(NamedTuple):
    """Examples of a dataset; `legend` says how to read their pictures, and may be empty."""

    legend: str
    examples: list[DrawnExample]


def drawn_examples(
    recipe: Recipe, split: Split, count: int, *, dataset: str | None = None, start: int = 0,
    indices: Sequence[int] | None = None, epoch: int = 0,
) -> dict[str, DrawnDataset]:  # fmt: skip
    """Return `count` examples of each dataset of a split (or of one `dataset`), by its name, with their pictures.

    Training examples come in the order in which `epoch` takes them, those of other splits in that of the dataset, both
    from position `start` on; or those of `indices` are taken. Seeds are the engine's, so augmentation is that of
    the training.

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
        legend: how to read its pictures; may be empty.

    Raises:
        UserError: no such dataset, or the data cannot be read.
    """

    def __init__(self, recipe: Recipe, split: Split, name: str) -> None:
        self.name, self.seed, entry = name, recipe.seed, _entries(recipe, split, name)[name]
        self.data: Examples = build(entry, DATASET, f"{split_entries(recipe, split)[0]}.{name}", recipe.path)
        self._mixture, self._drawing = Mixture({name: self.data}, recipe.seed), drawing_of(self.data, forms_of(recipe))
        self.legend = self._drawing.legend

    def __len__(self) -> int:
        return len(self.data)

    def draw(self, index: int, epoch: int = 0) -> DrawnExample:
        """Return example `index` as the engine seeds it in `epoch`; in other splits than training, there is only 0."""
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
    """Return `dtype`, `shape`, `min`, `max`, `mean` and `not finite` of one name of several examples, as texts."""
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
    """Return the name that a picture of this title shows, None if it shows more than one."""
    name = title.partition(" ")[0]
    return name if name in example else None


def plain_values(example: Example) -> dict[str, str]:
    """Return the numbers and texts of an example by name, as texts."""
    plain = {n: v for n, v in example.items() if isinstance(v, (str, int, float, bool)) or np.ndim(v) == 0}
    return {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in plain.items()}

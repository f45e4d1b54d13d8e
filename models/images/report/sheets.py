"""Sheets of images from a dump, for visual inspection."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from models.base.sampling import evenly_spaced
from models.dump import Array, Dump
from models.report.interfaces import Picture, rows_where
from models.report.sheets import Pixels, as_pixels, save_picture, side_by_side


def _pixels(array: Array) -> Pixels:
    return as_pixels(torch.from_numpy(array)[None])[0]


def _sheet(rows: Dump, places: Sequence[int], columns: Sequence[str], path: Path, by: str | None = None) -> None:
    cells = [[_pixels(rows.value(p, c)) for c in columns] for p in places]
    save_picture(path, side_by_side(cells, columns, labels=[row_label(rows, p, by) for p in places]))


def row_label(rows: Dump, place: int, by: str | None = None) -> str:
    """Return the value in the column `by`, then what identifies a row: index, dataset, name and numbers called `*id`.

    A dataset is named where there are several.
    """
    row = rows.table.iloc[place]
    several = "dataset" in row and rows.table["dataset"].nunique() > 1
    names = ["index", *(["dataset"] if several else []), "name", *(c for c in row.index if str(c).endswith("_id"))]
    shown = [] if by is None else [f"{by.removeprefix('loss.')} {float(row[by]):.4g}"]
    return "  ".join([*shown, *(f"{name} {row[name]}" for name in names if name in row)])


class Sheet(Picture):
    """Examples evenly spaced over the split, one in each row, the named images side by side, with index and name.

    With `where`, only the examples whose number of this name is not 0.
    """

    def __init__(self, mode: str, columns: list[str], count: int, where: str | None = None) -> None:
        self.mode, self.columns, self.count, self.where = mode, columns, count, where

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = rows_where(dump.mode(self.mode), self.mode, self.where)
        _sheet(rows, evenly_spaced(len(rows), self.count), self.columns, path)


class Extremes(Picture):
    """The examples with the largest or smallest value in a column of the dump, the most extreme first.

    Each row carries the value, index and name of its example.
    """

    def __init__(self, mode: str, by: str, columns: list[str], count: int, largest: bool) -> None:
        self.mode, self.by, self.columns, self.count, self.largest = mode, by, columns, count, largest

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        order = rows.table[self.by].sort_values(ascending=not self.largest, kind="stable").index[: self.count]
        _sheet(rows, [int(place) for place in order], self.columns, path, self.by)


class Draws(Picture):
    """For examples evenly spaced over the split: an input first, then every draw of a repeated mode."""

    def __init__(self, mode: str, first: str, image: str, count: int) -> None:
        self.mode, self.first, self.image, self.count = mode, first, image, count

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        places = rows.table.groupby("index").indices
        chosen = [list(places.values())[place] for place in evenly_spaced(len(places), self.count)]
        sheet = [
            [_pixels(rows.value(p[0], self.first)), *(_pixels(rows.value(i, self.image)) for i in p)] for p in chosen
        ]
        titles = [self.first, *(f"draw {draw}" for draw in range(len(chosen[0])))]
        save_picture(path, side_by_side(sheet, titles, labels=[row_label(rows, int(p[0])) for p in chosen]))


class Grid(Picture):
    """A grid of `evaluate`: the rows' own image at the left, the columns' own at the top, the results between."""

    renamed: ClassVar[dict[str, str]] = {"cross": "grid"}

    def __init__(self, grid: str, row: str, column: str, image: str) -> None:
        self.grid, self.row, self.column, self.image = grid, row, column, image

    def __call__(self, dump: Dump, path: Path) -> None:
        pairs = dump.grid(self.grid)
        place = {
            (row, column): p
            for p, (row, column) in enumerate(zip(pairs.table["row"], pairs.table["column"], strict=True))
        }
        names = list(dict.fromkeys(pairs.table["row"]))
        blank = np.full_like(_pixels(pairs.value(0, self.image)), 255)
        head = [blank, *(_pixels(pairs.value(place[names[0], name], self.column)) for name in names)]
        body = [
            [
                _pixels(pairs.value(place[row, names[0]], self.row)),
                *(_pixels(pairs.value(place[row, c], self.image)) for c in names),
            ]
            for row in names
        ]
        save_picture(path, side_by_side([head, *body], [f"{self.row} / {self.column}", *("" for _ in names)]))

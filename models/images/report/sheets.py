"""Sheets of images from a dump, for visual inspection."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from models.base.sampling import evenly_spaced
from models.dump import Array, Dump
from models.report.interfaces import Picture
from models.report.sheets import Pixels, as_pixels, save_picture, side_by_side


def _pixels(array: Array) -> Pixels:
    return as_pixels(torch.from_numpy(array)[None])[0]


def _sheet(rows: Dump, places: Sequence[int], columns: Sequence[str], path: Path) -> None:
    save_picture(path, side_by_side([[_pixels(rows.value(p, c)) for c in columns] for p in places], columns))


class Sheet(Picture):
    """Examples evenly spaced over the split, one in each row, the named images side by side."""

    def __init__(self, mode: str, columns: list[str], count: int) -> None:
        self.mode, self.columns, self.count = mode, columns, count

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        _sheet(rows, evenly_spaced(len(rows), self.count), self.columns, path)


class Extremes(Picture):
    """The examples with the largest or smallest value in a column of the dump, the most extreme first."""

    def __init__(self, mode: str, by: str, columns: list[str], count: int, largest: bool) -> None:
        self.mode, self.by, self.columns, self.count, self.largest = mode, by, columns, count, largest

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        order = rows.table[self.by].sort_values(ascending=not self.largest, kind="stable").index[: self.count]
        _sheet(rows, [int(place) for place in order], self.columns, path)


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
        save_picture(path, side_by_side(sheet, [self.first, *(f"draw {draw}" for draw in range(len(chosen[0])))]))


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

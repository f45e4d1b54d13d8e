"""Sheets of images from a dump, for visual inspection."""

from pathlib import Path
from typing import ClassVar

import cv2
import numpy as np

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.base.sampling import evenly_spaced
from figura.dump import Array, Dump
from figura.report.interfaces import NotApplicableError, Picture, rows_where
from figura.report.sheets import Pixels, pixels_of, side_by_side

LARGE_ERROR = 0.5  # the error, of pixels in [-1, 1], at which the colour scale saturates


def error_map(image: Array, target: Array) -> Pixels:
    """Draw |image - target|, the mean over channels of (C, H, W), from black over red to yellow, (H, W, 3).

    Raises:
        UserError: the shapes differ.
    """
    if image.shape != target.shape:
        raise UserError(f"the error of pictures of the shapes {image.shape} and {target.shape} cannot be drawn")
    error = np.abs(image - target).mean(axis=0) / LARGE_ERROR
    levels = np.rint(error.clip(0, 1) * 255).astype(np.uint8)
    return np.asarray(cv2.applyColorMap(levels, cv2.COLORMAP_INFERNO)[..., ::-1], dtype=np.uint8)


def row_label(rows: Dump, place: int, by: str | None = None) -> str:
    """Return the losses of a row, or only its column `by`, then its index, dataset, name and columns named `*id`.

    The dataset is shown if there are several. Components of losses (`caf.vector`) are omitted.
    """
    row = rows.table.iloc[place]
    losses = [str(c) for c in row.index if str(c).startswith("loss.") and str(c).count(".") == 1 and row[c] == row[c]]
    several = "dataset" in row and rows.table["dataset"].nunique() > 1
    names = ["index", *(["dataset"] if several else []), "name", *(c for c in row.index if str(c).endswith("_id"))]
    shown = [f"{one.removeprefix('loss.')} {float(row[one]):.3g}" for one in (losses if by is None else [by])]
    return "  ".join([*shown, *(f"{name} {row[name]}" for name in names if name in row)])


class Sheet(Picture):
    """Examples evenly spaced over the split, one per row, the named images side by side, with losses and names.

    With `where`, only examples whose column of this name is not 0.
    """

    suffix = ".jpg"

    def __init__(self, mode: str, columns: list[str], count: int, where: str | None = None) -> None:
        self.mode, self.columns, self.count, self.where = mode, columns, count, where

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = rows_where(dump.mode(self.mode), self.mode, self.where)
        places = evenly_spaced(len(rows), self.count)
        cells = [[pixels_of(rows, place, column) for column in self.columns] for place in places]
        write_png(path, side_by_side(cells, self.columns, labels=[row_label(rows, place) for place in places]))


class Extremes(Picture):
    """The examples with the largest or smallest value in a column of the dump, the most extreme first.

    Examples without a value are left out. Each row shows the value, index and name of its example. `difference` names
    two images; their absolute difference is an additional column.
    """

    suffix = ".jpg"

    def __init__(
        self,
        mode: str,
        by: str,
        columns: list[str],
        count: int,
        largest: bool,
        difference: tuple[str, str] | None = None,
    ) -> None:
        self.mode, self.by, self.columns, self.count, self.largest = mode, by, columns, count, largest
        self.difference = difference

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        if self.by not in rows.table:
            known = ", ".join(str(c) for c in rows.table if str(c).startswith("loss.")) or "no loss"
            raise NotApplicableError(f"the dump has no {self.by!r} but {known}: losses of weight 0 are not computed")
        values = rows.column(self.by).dropna()
        if values.empty:
            raise NotApplicableError(f"no example of mode {self.mode!r} has a {self.by!r}")
        if values.dtype.kind not in "biuf":
            raise UserError(f"{rows.folder}: mode {self.mode!r}: by: {self.by!r} has texts; numbers are needed")
        order = values.sort_values(ascending=not self.largest, kind="stable").index[: self.count]
        places, titles = [int(place) for place in order], [*self.columns]
        cells = [[pixels_of(rows, place, column) for column in self.columns] for place in places]
        if self.difference is not None:
            image, target = self.difference
            titles.append(f"|{image} - {target}|, yellow: {LARGE_ERROR} or more")
            for row, place in zip(cells, places, strict=True):
                row.append(error_map(rows.value(place, image), rows.value(place, target)))
        write_png(path, side_by_side(cells, titles, labels=[row_label(rows, p, self.by) for p in places]))


class Draws(Picture):
    """For examples evenly spaced over the split: an input first, then every draw of a repeated mode."""

    suffix = ".jpg"

    def __init__(self, mode: str, first: str, image: str, count: int) -> None:
        self.mode, self.first, self.image, self.count = mode, first, image, count

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        places = rows.table.groupby(rows.column("index")).indices
        chosen = [list(places.values())[place] for place in evenly_spaced(len(places), self.count)]
        sheet = [[pixels_of(rows, p[0], self.first), *(pixels_of(rows, i, self.image) for i in p)] for p in chosen]
        titles = [self.first, *(f"draw {draw}" for draw in range(len(chosen[0])))]
        write_png(path, side_by_side(sheet, titles, labels=[row_label(rows, int(p[0])) for p in chosen]))


class Grid(Picture):
    """A grid of `evaluate`: the rows' images at the left, the columns' images at the top, the results in between."""

    suffix = ".jpg"
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
        if missing := [(row, column) for row in names for column in names if (row, column) not in place]:
            raise UserError(f"{pairs.folder}: grid {self.grid!r} lacks row {missing[0][0]}, column {missing[0][1]}")
        blank = np.full_like(pixels_of(pairs, 0, self.image), 255)
        head = [blank, *(pixels_of(pairs, place[names[0], name], self.column) for name in names)]
        body = [
            [
                pixels_of(pairs, place[row, names[0]], self.row),
                *(pixels_of(pairs, place[row, c], self.image) for c in names),
            ]
            for row in names
        ]
        indices = [f"index {name}" for name in names]
        titles = [f"{self.row} / {self.column}", *indices]
        write_png(path, side_by_side([head, *body], titles, labels=["", *indices]))

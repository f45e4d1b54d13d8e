"""Draw examples as a sheet, one per row, and describe their names in a table."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from figura.base.tables import aligned
from figura.interfaces import Example
from figura.show.examples import DrawnDataset, DrawnExample, described, name_of, plain_values

DPI = 100
GAP, TEXT, HEAD, FOOT, TITLE = 0.12, 1.9, 0.42, 0.2, 0.3  # inches: between cells, ids, above and below cells, datasets
SMALL, LARGE, DRAWING = 1.6, 3.0, 256  # inches of a cell's longer side; large if any picture has so many pixels
LETTERS = 24  # per line of ids
COLUMNS = ("name", "dtype", "shape", "min", "max", "mean", "not finite")


def draw_sheet(datasets: Mapping[str, DrawnDataset], split: str) -> Figure:
    """Draw the examples of the datasets below each other, one example per row.

    A row has the plain values of its example (ids, names, numbers) at the left, then its pictures, with titles, dtype
    and shape above, and the range of values below.
    """
    blocks = [_Block(name, dataset) for name, dataset in datasets.items()]
    width = max(block.width for block in blocks)
    height = sum(block.height for block in blocks) + GAP
    with matplotlib.rc_context(matplotlib.rcParamsDefault):  # ignore the user's matplotlibrc
        figure = Figure(figsize=(width, height), dpi=DPI)
        FigureCanvasAgg(figure)
        top = height
        for block in blocks:
            block.draw(figure, split, top)
            top -= block.height
    return figure


def table(datasets: Mapping[str, DrawnDataset], split: str) -> list[str]:
    """Return lines with dtype, shape and range of each name, over the examples of each dataset."""
    lines = []
    for dataset, (_, examples) in datasets.items():
        rows = [COLUMNS, *(_row(name, examples) for name in examples[0].example)]
        chosen = ", ".join(str(one.index) for one in examples)
        lines.append(f"{split} {dataset}: {len(examples)} examples: {chosen}")
        lines += [f"  {line}" for line in aligned(rows)]
    return lines


def _row(name: str, examples: Sequence[DrawnExample]) -> tuple[str, ...]:
    values = described([one.example[name] for one in examples])
    return (name, *(values.get(column, "") for column in COLUMNS[1:]))


class _Block:
    """The rows of one dataset; lengths in inches."""

    def __init__(self, name: str, dataset: DrawnDataset) -> None:
        self.name, (self.legend, self.examples) = name, dataset
        examples = self.examples
        self.titles = list(dict.fromkeys(title for one in examples for title in one.pictures))
        sizes = {t: [one.pictures[t].shape[:2] for one in examples if t in one.pictures] for t in self.titles}
        pixels = max((max(size) for some in sizes.values() for size in some), default=0)
        self.longest = LARGE if pixels >= DRAWING else SMALL
        self.widths = {t: max(self._cell(size)[1] for size in sizes[t]) for t in self.titles}
        self.row = max((self._cell(size)[0] for some in sizes.values() for size in some), default=SMALL)
        texts = [_texts(one.example) for one in examples]
        self.row = max(self.row, *(0.15 * (len(lines) + 1) for lines in texts))
        self.width = TEXT + sum(self.widths.values()) + GAP * (len(self.titles) + 1)
        self.height = TITLE + HEAD + len(examples) * (self.row + FOOT + GAP)

    def draw(self, figure: Figure, split: str, top: float) -> None:
        """Draw below `top`, inches from the lower edge of the figure."""
        width, height = figure.get_size_inches()

        def write(x: float, y: float, text: str, **style: Any) -> None:
            figure.text(x / width, y / height, text, va="top", parse_math=False, **style)

        write(GAP, top - 0.08, f"{split}: {self.name}", fontsize=10, weight="bold")
        write(TEXT + GAP, top - 0.1, self.legend, fontsize=8)
        top -= TITLE
        left = TEXT + GAP
        for title in self.titles:
            first = next(one for one in self.examples if title in one.pictures)
            write(left, top, "\n".join([title, _form(title, first.example)]), fontsize=7)
            left += self.widths[title] + GAP
        top -= HEAD
        for one in self.examples:
            write(GAP, top, "\n".join(_texts(one.example)), fontsize=7, family="monospace")
            left = TEXT + GAP
            for title in self.titles:
                if title in one.pictures:
                    picture = one.pictures[title]
                    high, wide = self._cell(picture.shape[:2])
                    place = (left / width, (top - high) / height, wide / width, high / height)
                    axes = figure.add_axes(place)
                    axes.set_axis_off()
                    enlarged = max(picture.shape[:2]) <= self.longest * DPI
                    axes.imshow(picture, interpolation="nearest" if enlarged else "antialiased")
                    write(left, top - high - 0.02, _range(title, one.example), fontsize=6, color="0.35")
                left += self.widths[title] + GAP
            top -= self.row + FOOT + GAP

    def _cell(self, size: tuple[int, ...]) -> tuple[float, float]:
        """Return height and width in inches of a picture of `size` (height, width)."""
        return self.longest * size[0] / max(size), self.longest * size[1] / max(size)


def _form(title: str, example: Example) -> str:
    name = name_of(title, example)
    if name is None:
        return ""
    array = np.asarray(example[name])
    return f"{array.dtype} {array.shape}"


def _range(title: str, example: Example) -> str:
    name = name_of(title, example)
    values = {} if name is None else described([example[name]])
    return f"{values['min']} to {values['max']}" if "min" in values else ""


def _texts(example: Example) -> list[str]:
    """Return one line, or several if it is long, per number and string of an example."""
    lines = (f"{name} {value}" for name, value in plain_values(example).items())
    return [part for line in lines for part in textwrap.wrap(line, LETTERS, subsequent_indent="  ")]

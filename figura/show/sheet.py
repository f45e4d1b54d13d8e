"""Draw examples as a sheet, one per row, and describe their names in a table."""

from collections.abc import Mapping, Sequence

import numpy as np

from figura.base.tables import aligned
from figura.report.sheets import Pixels, side_by_side, with_header
from figura.show.examples import DrawnDataset, DrawnExample, described, name_of, plain_values

COLUMNS = ("name", "dtype", "shape", "min", "max", "mean", "not finite")
GAP = 12  # pixels below a dataset
LEAST_WIDTH = 480  # pixels, for the texts
NOTHING = np.full((1, 1, 3), 255, np.uint8)  # stands where an example has no picture of a title


def draw_sheet(datasets: Mapping[str, DrawnDataset], split: str) -> Pixels:
    """Draw the examples of the datasets below each other, one example per row; return pixels (height, width, 3).

    A row has the plain values of its example (ids, names, numbers) and the ranges of its pictures, then the pictures;
    their titles, dtypes and shapes are above all rows.
    """
    blocks = [_block(f"{split}: {name}", dataset) for name, dataset in datasets.items()]
    width = max(block.shape[1] for block in blocks)
    return np.concatenate([_widened(block, width, GAP) for block in blocks])


def table(datasets: Mapping[str, DrawnDataset], split: str) -> list[str]:
    """Return lines with dtype, shape and range of each name, over the examples of each dataset."""
    lines = []
    for dataset, (_, examples) in datasets.items():
        chosen = ", ".join(str(one.index) for one in examples)
        lines.append(f"{split} {dataset}: {len(examples)} examples: {chosen}")
        lines += [f"  {line}" for line in aligned([COLUMNS, *(_row(name, examples) for name in examples[0].example)])]
    return lines


def _row(name: str, examples: Sequence[DrawnExample]) -> tuple[str, ...]:
    values = described([one.example[name] for one in examples])
    return (name, *(values.get(column, "") for column in COLUMNS[1:]))


def _block(name: str, dataset: DrawnDataset) -> Pixels:
    titles = list(dict.fromkeys(title for one in dataset.examples for title in one.pictures))
    headings = [_heading(title, next(one for one in dataset.examples if title in one.pictures)) for title in titles]
    labels = ["  ".join(_texts(one)) for one in dataset.examples]
    sheet = NOTHING
    if titles:
        rows = [[one.pictures.get(title, NOTHING) for title in titles] for one in dataset.examples]
        sheet = side_by_side(rows, headings, labels=labels)
    sheet = _widened(sheet, LEAST_WIDTH)
    return with_header(sheet, "  ".join(filter(None, [name, dataset.legend, *([] if titles else labels)])))


def _widened(sheet: Pixels, width: int, below: int = 0) -> Pixels:
    return np.pad(sheet, ((0, below), (0, max(0, width - sheet.shape[1])), (0, 0)), constant_values=255)


def _heading(title: str, one: DrawnExample) -> str:
    name = name_of(title, one.example)
    array = None if name is None else np.asarray(one.example[name])
    return title if array is None else f"{title}  {array.dtype} {array.shape}"


def _texts(one: DrawnExample) -> list[str]:
    """Return the plain values of an example, and the ranges of its pictures."""
    values = {title: described([one.example[title]]) for title in one.pictures if title in one.example}
    ranges = {title: f"{known['min']} to {known['max']}" for title, known in values.items() if "min" in known}
    return [f"{name} {value}" for name, value in (plain_values(one.example) | ranges).items()]

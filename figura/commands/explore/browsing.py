"""Browsing the data of recipes: datasets, a row for each example, statistics, and what preparation left out.

Nothing here knows the page.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import cv2
import numpy as np

from figura.base.errors import UserError, one_line
from figura.base.files import read_json, read_rows
from figura.base.manifest import MANIFEST
from figura.base.pictures import Pixels, read_picture
from figura.base.yaml12 import read_yaml
from figura.commands.report.contents import number, words
from figura.data.formats.prepared import REJECTED
from figura.engine.build import Split, split_entries
from figura.interfaces import Example, ExampleDataset
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.report.metrics import flattened
from figura.show.examples import DrawableDataset, described, name_of

SPLITS: tuple[Split, ...] = get_args(Split)
LARGEST = 20_000
"""Rows in a table: a browser holds them in memory."""
CAPACITY = 3
"""Datasets that stay open."""
WIDEST = 640
"""Pixels of a plot's width, as many as the page shows."""
COLUMNS = ("name", "dtype", "shape", "min", "max", "mean", "not finite")

TableRow = dict[str, int | float | str]


def dataset_names(params: Path) -> dict[Split, list[str]]:
    """Return the names of a recipe's datasets by split; raises UserError if the file is no recipe."""
    recipe = check_schema(read_yaml(params), params)
    return {split: list(split_entries(recipe, split)[1]) for split in SPLITS}


def root_of(params: Path, split: Split, name: str) -> Path | None:
    """Return the folder of a dataset's data, None if it names none; raises UserError without such a dataset."""
    return _root(read_yaml(params), params, split, name)


def _root(content: dict[str, Any], params: Path, split: Split, name: str) -> Path | None:
    entries = split_entries(check_schema(content, params), split)[1]
    if name not in entries:
        raise UserError(f"{params}: {split} has no dataset {name!r}; there are {', '.join(entries) or 'none'}")
    root = entries[name].arguments.get("root")
    return Path(root) if isinstance(root, str) else None


class BrowsedDataset:
    """A dataset of a split, opened once.

    Attributes:
        source: draws its examples.
        rows: of each example `index` and what `ExampleDataset.row` says, texts as they may be shown.
    """

    def __init__(self, source: DrawableDataset) -> None:
        self.source, self.rows = source, rows_of(source.data)

    @property
    def columns(self) -> list[str]:
        """The names of all rows, in the order in which they come."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def matching(self, text: str) -> Sequence[int]:
        """Return the indices of the examples whose rows hold all words of `text`, in upper or lower case."""
        sought = text.lower().split()
        if not sought:
            return range(len(self.rows))
        texts = (" ".join(map(str, row.values())).lower() for row in self.rows)
        return [index for index, one in enumerate(texts) if all(word in one for word in sought)]


def rows_of(data: ExampleDataset) -> list[TableRow]:
    """Return a row for each example, without opening its files."""
    rows: list[TableRow] = []
    for index in range(len(data)):
        row = {name: one_line(value) if isinstance(value, str) else value for name, value in data.row(index).items()}
        rows.append({"index": index} | row | {"index": index})
    return rows


def numeric(rows: Iterable[Mapping[str, int | float | str]], column: str) -> bool:
    """Tell whether a column holds no texts."""
    return not any(isinstance(row.get(column), str) for row in rows)


class OpenDatasets:
    """The datasets that were opened last. Several threads may ask; a dataset is opened by one of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[tuple[Path, Split, str], tuple[Any, BrowsedDataset]] = {}

    def open(self, params: Path, split: Split, name: str) -> BrowsedDataset:
        """Return a dataset; it is opened anew after the recipe or the prepared data changed.

        Raises:
            UserError: the recipe is faulty, there is no such dataset, or its data are not prepared or damaged.
        """
        with self._lock:
            key, content = (params.absolute(), split, name), read_yaml(params)
            root = _root(content, params, split, name)
            state = content, None if root is None else _version(root)
            earlier, dataset = self._opened.pop(key, (None, None))
            if dataset is None or earlier != state:
                recipe = check_recipe(content, params, ["evaluate"])
                dataset = BrowsedDataset(DrawableDataset(recipe, split, name))
            self._opened[key] = state, dataset  # at the end: the first one is the one that was not asked for longest
            while len(self._opened) > CAPACITY:
                del self._opened[next(iter(self._opened))]
            return dataset


def _version(root: Path) -> tuple[int, int] | None:
    """Return what changes when a dataset is prepared again."""
    try:
        status = (root / MANIFEST).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def caption(title: str, example: Example) -> str:
    """Return dtype, shape and range of the name that a picture shows; nothing if it shows no single name."""
    name = name_of(title, example)
    if name is None:
        return ""
    told = described([example[name]])
    ends = f", {told['min']} to {told['max']}" if "max" in told else ""
    return f"{told['dtype']} {told.get('shape', '')}{ends}"


def all_names(example: Example) -> list[dict[str, str]]:
    """Return a row of `COLUMNS` for each name of an example; of texts, `min` is the text."""
    return [
        {"name": name} | {key: one_line(text) for key, text in described([value]).items()}
        for name, value in example.items()
    ]


class Table(NamedTuple):
    """A table of texts; `header` has a cell for each column, and its first one says what the rows are."""

    header: list[str]
    rows: list[list[str]]


def statistics(root: Path) -> list[Table]:
    """Return the counts of a prepared dataset, then its distributions, each with a column for each split.

    Raises:
        UserError: the dataset is not prepared, or its file cannot be read.
    """
    advice = f"run `dvc repro prepare@{root.name}`"
    content = read_json(root / "statistics.json", advice)
    if not isinstance(content, dict) or not all(isinstance(one, dict) for one in content.values()):
        raise UserError(f"{root / 'statistics.json'}: expected the statistics of splits by name; {advice}")
    names = list(dict.fromkeys(name for one in content.values() for name in one))
    plain = [name for name in names if not any(isinstance(one.get(name), Mapping) for one in content.values())]
    tables = [_table("counts", content, plain)]
    for name in names:
        if name not in plain:
            parts = {split: flattened(one.get(name) or {}) for split, one in content.items()}
            tables.append(_table(words(name), parts, list(dict.fromkeys(key for one in parts.values() for key in one))))
    return [table for table in tables if table.rows]


def _table(title: str, splits: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Table:
    rows = [
        [one_line(words(name)), *(_cell(one[name]) if name in one else "" for one in splits.values())]
        for name in names
    ]  # fmt: skip
    return Table([one_line(title), *(one_line(split) for split in splits)], rows)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else one_line(number(value))


def plots(root: Path) -> dict[str, Pixels]:
    """Return the plots that preparation drew, by title, uint8 RGB at most `WIDEST` pixels wide."""
    return {words(path.stem): _shrunk(read_picture(path)) for path in sorted((root / "plots").glob("*.png"))}


def _shrunk(pixels: Pixels) -> Pixels:
    scale = WIDEST / pixels.shape[1]
    if scale >= 1:
        return pixels
    return np.asarray(cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), dtype=np.uint8)


@dataclass(frozen=True)
class LeftOut:
    """The records that preparation left out.

    Attributes:
        reasons: the number of records by reason, most frequent first.
        rows: the first `LARGEST` records.
        stopped: preparation stopped because there were too many.
    """

    reasons: dict[str, int]
    rows: list[dict[str, str]]
    stopped: bool


def left_out(root: Path) -> LeftOut:
    """Return the records that preparation left out of a dataset, or because of which it stopped.

    Raises:
        UserError: neither is there, so the dataset is not prepared, or the list cannot be read.
    """
    path, refused = root / REJECTED, root.with_name(f"{root.name}.{REJECTED}")
    stopped = refused.is_file()
    rows = read_rows(refused if stopped else path, "reason", f"run `dvc repro prepare@{root.name}`")
    reasons = Counter(one_line(row["reason"]) for row in rows)
    shown = [{column: one_line(cell) for column, cell in row.items()} for row in rows[:LARGEST]]
    return LeftOut(dict(reasons.most_common()), shown, stopped)

"""The data of recipes: datasets, a row for each example, and what one example holds. Nothing here knows the page."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import get_args

from figura.base.errors import UserError, one_line
from figura.base.manifest import MANIFEST
from figura.base.yaml12 import read_yaml
from figura.commands.explore.cache import CACHE
from figura.engine.build import Split, split_entries
from figura.interfaces import Example, ExampleDataset
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.show.examples import DrawableDataset, described, name_of

SPLITS: tuple[Split, ...] = get_args(Split)

TableRow = dict[str, int | float | str]


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


def open_dataset(params: Path, split: Split, name: str) -> BrowsedDataset:
    """Return a dataset; it is opened anew after the recipe or the prepared data changed.

    Raises:
        UserError: the recipe is faulty, there is no such dataset, or its data are not prepared or damaged.
    """
    content = read_yaml(params)
    entries = split_entries(check_schema(content, params), split)[1]
    if name not in entries:
        raise UserError(f"{params}: {split} has no dataset {name!r}; there are {', '.join(entries) or 'none'}")

    def open_it() -> BrowsedDataset:
        recipe = check_recipe(content, params, ["evaluate"])
        return BrowsedDataset(DrawableDataset(recipe, split, name))

    files = [params, Path(str(entries[name].arguments.get("root")), MANIFEST)]
    return CACHE.get(("dataset", str(params.absolute()), split, name), files, open_it)


def caption(title: str, example: Example) -> str:
    """Return dtype, shape and range of the name that a picture shows; nothing if it shows no single name."""
    name = name_of(title, example)
    if name is None:
        return ""
    told = described([example[name]])
    ends = f", {told['min']} to {told['max']}" if "max" in told else ""
    return f"{told['dtype']} {told.get('shape', '')}{ends}"

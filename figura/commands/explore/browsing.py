"""The data of recipes: datasets, a row for each example, and what one example holds. Nothing here knows the page."""

from pathlib import Path
from typing import get_args

from figura.base.errors import one_line
from figura.base.yaml12 import read_yaml
from figura.commands.explore.cache import CACHE, manifests, recipe_files
from figura.engine.build import Split, split_entries
from figura.interfaces import Example
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.show.examples import DrawableDataset, described, name_of

SPLITS: tuple[Split, ...] = get_args(Split)


class BrowsedDataset:
    """A dataset of a split, opened once.

    Attributes:
        source: draws its examples.
        rows: of each example `index` and what `ExampleDataset.row` says, texts as they may be shown.
        columns: the names of all rows, in the order in which they come; True if a column holds no texts.
    """

    def __init__(self, source: DrawableDataset) -> None:
        self.source = source
        self.rows: list[dict[str, int | float | str]] = []
        self.columns: dict[str, bool] = {}
        for index in range(len(source)):
            row = source.data.row(index) | {"index": index}
            shown = {name: one_line(value) if isinstance(value, str) else value for name, value in row.items()}
            self.rows.append({"index": index} | shown)
            for name, value in self.rows[-1].items():
                self.columns[name] = self.columns.get(name, True) and not isinstance(value, str)


def open_dataset(params: Path, split: Split, name: str) -> BrowsedDataset:
    """Return a dataset; it is opened anew after the recipe or the prepared data changed.

    Raises:
        UserError: the recipe is faulty, there is no such dataset, or its data are not prepared or damaged.
    """
    content = read_yaml(params)
    entries = split_entries(check_schema(content, params), split)[1]

    def open_it() -> BrowsedDataset:
        recipe = check_recipe(content, params, ["evaluate"])
        return BrowsedDataset(DrawableDataset(recipe, split, name))

    files = [*recipe_files(params), *manifests(entries.values())]
    return CACHE.get(("dataset", str(params.absolute()), split, name), files, open_it)


def caption(title: str, example: Example) -> str:
    """Return dtype, shape and range of the name that a picture shows; nothing if it shows no single name."""
    name = name_of(title, example)
    if name is None:
        return ""
    told = described([example[name]])
    ends = f", {told['min']} to {told['max']}" if "max" in told else ""
    return f"{told['dtype']} {told.get('shape', '')}{ends}"

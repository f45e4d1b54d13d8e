"""The tab Data: a table of a dataset's examples, and each example as training gets it."""

from collections.abc import Mapping
from pathlib import Path

from nicegui import events, ui

from figura.base.errors import one_line
from figura.commands.explore.browsing import SPLITS, BrowsedDataset, caption, open_dataset
from figura.commands.explore.trying import read_recipes
from figura.commands.explore.widgets import Latest, Picture, button, computed, paragraph
from figura.commands.report.contents import words
from figura.engine.build import Split, split_entries
from figura.show.examples import DrawnExample, plain_values

HINT = "Click a row, or go through them with the arrow keys. Below the names of the columns you filter; a click sorts."
WIDTH = 256  # pixels of a picture on the page; a click shows it as large as it is
LARGEST = 100_000  # rows in a table: a browser holds them in memory
FIRST = 200
"""Rows that the table has until the first example is shown: browsers take a second for ten thousand."""
INDEX = "getElement(%d).api.getDisplayedRowAtIndex(%d)?.data.index"
"""In the browser: which example is in a row, as the table filters and sorts them."""


class DataTab:
    """What one client looks at: a dataset, and one of its examples; `params` are the recipes' files by name."""

    def __init__(self, params: Mapping[str, Path]) -> None:
        self.params = params
        self.dataset: BrowsedDataset | None = None
        self.index = 0
        self.show = Latest(self._draw)
        self.faults = ui.column()
        with ui.row().classes("w-full items-end flex-wrap"):
            self.choice = ui.select({}, label="Dataset", with_input=True).classes("w-96 max-w-full")
            button("Open again", self.open, icon="refresh")
        self.told = paragraph().props('role="status"')
        self.body = ui.column().classes("w-full")
        self.choice.on_value_change(self.open)
        ui.timer(0, self.start, once=True)

    async def start(self) -> None:
        """Offer the datasets of all recipes, and open the first one."""
        recipes, faults = await computed(read_recipes, self.params) or ({}, [])
        with self.faults:
            for fault in faults:
                paragraph(fault)
        options = {
            (name, split, dataset): one_line(f"{name}: {split}, {dataset}")
            for name, recipe in recipes.items()
            for split in SPLITS
            for dataset in split_entries(recipe, split)[1]
        }
        self.choice.set_options(options, value=next(iter(options), None))

    async def open(self) -> None:
        """Open the chosen dataset, and show its first example."""
        choice = self.choice.value
        if choice is None:
            return
        recipe, split, name = choice
        self.told.set_text("Opening ...")
        dataset = await computed(open_dataset, self.params[recipe], split, name)
        if choice != self.choice.value:  # somebody chose another one meanwhile
            return
        self.body.clear()
        self.dataset, self.index = dataset, 0
        if dataset is None:
            self.told.set_text(f"{recipe}: {split}, {name} cannot be opened")
            return
        more = f"; the table has the first {LARGEST:,}" if len(dataset.rows) > LARGEST else ""
        self.told.set_text(f"{len(dataset.rows):,} examples ({type(dataset.source.data).__name__}){more}")
        with self.body:
            self.show_controls(dataset, split)
        await self.show()
        if dataset is self.dataset and len(dataset.rows) > FIRST:
            self.grid.run_grid_method("setGridOption", "rowData", dataset.rows[:LARGEST])

    def show_controls(self, dataset: BrowsedDataset, split: Split) -> None:
        """Build the table, and the places of the example."""
        ui.label(HINT).classes("text-sm")
        with ui.element("div").classes("w-full").props('role="region" aria-label="Examples"'):
            self.grid = _grid(dataset)
        self.grid.on("cellFocused", self.focus, ["rowIndex"])
        with ui.row().classes("w-full items-center flex-wrap"):
            self.epoch = ui.number("Epoch", value=0, min=0, precision=0, on_change=self.show)
            self.epoch.props("dense").classes("w-24")
            self.epoch.set_visibility(split == "train")
            self.position = ui.label().props('role="status"')
        if dataset.source.legend:
            ui.label(dataset.source.legend).classes("text-sm")
        self.pictures = ui.column().classes("w-full")

    async def focus(self, event: events.GenericEventArguments) -> None:
        """Show the example of the row that somebody reached by mouse or arrow keys."""
        dataset, row = self.dataset, event.args.get("rowIndex")
        if not isinstance(row, int):
            return
        index = await ui.run_javascript(INDEX % (self.grid.id, row), timeout=10)
        if dataset is not None and dataset is self.dataset and index in range(len(dataset.rows)):
            self.index = int(index)
            await self.show()

    async def _draw(self) -> None:
        dataset = self.dataset
        if dataset is None:
            return
        drawn = await computed(dataset.source.draw, self.index, int(self.epoch.value or 0))
        if dataset is self.dataset:
            self.position.set_text(f"example {self.index:,}")
            self.pictures.clear()
            if drawn is not None:
                with self.pictures:
                    _show_pictures(drawn)


def _show_pictures(drawn: DrawnExample) -> None:
    with ui.row().classes("w-full flex-wrap items-start"):
        for title, pixels in drawn.pictures.items():
            Picture(title, WIDTH).show(pixels, caption(title, drawn.example))
    with ui.row().classes("w-full flex-wrap gap-x-6 gap-y-1"):
        for name, value in plain_values(drawn.example).items():
            ui.label(f"{name}: {one_line(value)}").classes("text-sm break-all")


def _grid(dataset: BrowsedDataset) -> ui.aggrid:
    """Add a table of the first rows, whose columns sort and filter; texts stay texts."""
    options = {
        "columnDefs": [
            {
                "field": column,
                "headerName": words(column),
                "filter": "agNumberColumnFilter" if is_number else "agTextColumnFilter",
                "minWidth": 90 if is_number else 140,
            }
            for column, is_number in dataset.columns.items()
        ],
        "defaultColDef": {"sortable": True, "floatingFilter": True},
        "rowData": dataset.rows[:FIRST],
        "suppressFieldDotNotation": True,
    }
    return ui.aggrid(options).classes("w-full").style("height: 18rem")

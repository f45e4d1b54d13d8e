"""The tab Data: a table of a dataset's examples, each example as training gets it, statistics, and what is left out."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from nicegui import events, ui

from figura.base.errors import UserError, one_line, printable
from figura.base.pictures import Pixels
from figura.commands.explore.browsing import (
    COLUMNS,
    LARGEST,
    SPLITS,
    WIDEST,
    BrowsedDataset,
    LeftOut,
    OpenDatasets,
    Table,
    all_names,
    caption,
    dataset_names,
    left_out,
    numeric,
    plots,
    root_of,
    statistics,
)
from figura.commands.explore.project import Project
from figura.commands.explore.widgets import computed, picture
from figura.commands.report.contents import words
from figura.engine.build import Split
from figura.interfaces import Example, Records
from figura.show.examples import DrawnExample, plain_values

P = ParamSpec("P")
T = TypeVar("T")

DATASETS = OpenDatasets()  # of all clients
WIDTHS = [128, 192, 256, 384, 512]  # pixels of a picture on the page
WIDTH = 256
FIRST = 200
"""Rows that the table has until the first example is shown: browsers take a second for ten thousand."""
MARK = """
const api = getElement(%d)?.api;
const node = api?.getRowNode("%d");
if (node) {
  node.setSelected(true, true);
  api.ensureNodeVisible(node);
}
"""
ORDER = """
const api = getElement(%d).api;
if (!api.isAnyFilterPresent() && !api.getColumnState().some((column) => column.sort)) return null;
const order = [];
api.forEachNodeAfterFilterAndSort((node) => order.push(node.data.index));
return order;
"""


def data_tab(project: Project) -> None:
    """Build the tab."""
    DataTab(project)


class DataTab:
    """What one client looks at: a dataset, the examples that its search leaves, and one of them."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.dataset: BrowsedDataset | None = None
        self.matches: Sequence[int] = []  # indices of the examples that the search leaves
        self.order: Sequence[int] = []  # of those that the filters of columns leave too, in the order of the table
        self.index = 0
        self.drawing = self.again = False
        self.names: dict[Split, list[str]] = {}
        with ui.row().classes("w-full items-end flex-wrap"):
            self.recipe = ui.select(list(project.recipes), label="Recipe", value=next(iter(project.recipes)))
            self.split = ui.select(list(SPLITS), label="Split", value="train")
            self.name = ui.select([], label="Dataset")
            ui.button("Open again", icon="refresh", on_click=self.open).props("no-caps")
            for select in (self.recipe, self.split, self.name):
                select.classes("min-w-36")
        self.told = ui.label().classes("whitespace-pre-wrap break-words").props('role="status"')
        self.body = ui.column().classes("w-full")
        self.about = ui.column().classes("w-full")
        self.recipe.on_value_change(self.choose_recipe)
        self.split.on_value_change(self.choose_split)
        self.name.on_value_change(self.open)
        ui.timer(0, self.choose_recipe, once=True)

    @property
    def place(self) -> tuple[str, Split, str | None]:
        """The dataset that the selects name: recipe, split and name."""
        return self.recipe.value, self.split.value, self.name.value

    async def choose_recipe(self) -> None:
        """List the datasets of the recipe and open the first one."""
        names = await _attempted(dataset_names, self.project.params(self.recipe.value))
        if not isinstance(names, dict):
            self.refuse(names)
            names = {}
        self.names = names
        await self.choose_split()

    async def choose_split(self) -> None:
        """List the datasets of the split and open the first one."""
        names = self.names.get(self.split.value, [])
        value = names[0] if names else None
        same = value == self.name.value
        self.name.set_options(names, value=value)
        if same:  # otherwise the change opens it
            await self.open()

    def refuse(self, error: UserError | None) -> None:
        """Tell why there is no dataset to look at."""
        self.dataset = None
        self.body.clear()
        self.told.set_text("" if error is None else printable(str(error)))

    async def open(self) -> None:
        """Open the dataset that the selects name, and show its first example."""
        place = recipe, split, name = self.place
        if name is None:
            self.about.clear()
            if self.names:
                self.refuse(UserError(f"this recipe has no dataset of {split}"))
            return
        params = self.project.params(recipe)
        self.told.set_text("Opening ...")
        dataset = await _attempted(DATASETS.open, params, split, name)
        if place != self.place:  # somebody chose another one meanwhile
            return
        root = await _attempted(root_of, params, split, name)
        if isinstance(root, Path):
            self.show_about(root)
        if not isinstance(dataset, BrowsedDataset):
            self.refuse(dataset)
            return
        self.dataset, self.index = dataset, 0
        self.order = self.matches = range(len(dataset.rows))
        kind = type(dataset.source.data).__name__
        self.told.set_text(f"{len(dataset.rows):,} examples ({kind})")
        self.show_controls()
        await self.show()
        if dataset is self.dataset and len(self.matches) == len(dataset.rows) > FIRST:
            self.grid.run_grid_method("setGridOption", "rowData", dataset.rows[:LARGEST])

    def show_controls(self) -> None:
        """Build the table, what steps through it, and the places of the example."""
        assert self.dataset is not None
        self.body.clear()
        with self.body:
            with ui.row().classes("w-full items-center flex-wrap"):
                search = ui.input("Search", on_change=self.search).props("clearable dense debounce=300")
                search.classes("grow max-w-md").tooltip("Words that ids, files or numbers of a row contain")
                self.count = ui.label().props('role="status"')
            with ui.element("div").classes("w-full").props('role="region" aria-label="Examples"'):
                self.grid = _grid(self.dataset.columns, self.dataset.rows, FIRST, "18rem")
            self.grid.on("gridReady", self.mark, [])
            self.grid.on("selectionChanged", self.select, ["source"])
            for event in ("filterChanged", "sortChanged"):
                self.grid.on(event, self.reorder, [])
            with ui.row().classes("w-full items-center flex-wrap"):
                ui.button("Previous", on_click=lambda: self.step(-1)).props("dense no-caps padding='xs sm'")
                ui.button("Next", on_click=lambda: self.step(1)).props("dense no-caps padding='xs sm'")
                ui.button("Random", icon="shuffle", on_click=self.jump).props("dense no-caps padding='xs sm'")
                self.slider = ui.slider(min=0, max=1, value=0).props('aria-label="Position"')
                self.slider.style("flex: 1 1 12rem; width: auto; min-width: 8rem").classes("mx-2")
                self.slider.on("change", self.slide, [])
                self.position = ui.label().props('role="status"')
            with ui.row().classes("w-full items-end flex-wrap"):
                self.epoch = ui.number("Epoch", value=0, min=0, precision=0, on_change=self.show).props("dense")
                self.epoch.tooltip("Another epoch, other augmentation").classes("w-24")
                self.epoch.set_visibility(self.split.value == "train")
                self.width = ui.select(WIDTHS, label="Picture width", value=WIDTH, on_change=self.show)
                self.width.props("dense").classes("w-32")
            if self.dataset.source.legend:
                ui.label(self.dataset.source.legend).classes("text-sm")
            self.pictures = ui.column().classes("w-full")
            with ui.expansion("All names").classes("w-full"):
                self.values = ui.column().classes("w-full")
        self.show_count()

    def show_count(self) -> None:
        """Tell how many examples are left, and fit the slider to them."""
        assert self.dataset is not None
        left, all_of_them = len(self.order), len(self.dataset.rows)
        more = f"; the table has the first {LARGEST:,}" if left > LARGEST else ""
        self.count.set_text(f"{left:,} of {all_of_them:,} examples{more}")
        self.slider.props(f"max={max(left - 1, 0)}")
        self.slider.set_enabled(left > 1)

    async def search(self, event: events.ValueChangeEventArguments[str | None]) -> None:
        """Leave the examples in whose rows all words occur."""
        dataset, text = self.dataset, event.value or ""
        if dataset is None:
            return
        order = await computed(dataset.matching, text)
        if order is None or dataset is not self.dataset:
            return
        self.order = self.matches = order
        self.grid.run_grid_method("setGridOption", "rowData", [dataset.rows[index] for index in order[:LARGEST]])
        await self.reorder()

    async def reorder(self) -> None:
        """Take the examples in the order of the table, if its columns sort or filter it."""
        dataset = self.dataset
        order = await ui.run_javascript(ORDER % self.grid.id, timeout=10)
        if dataset is None or dataset is not self.dataset:
            return
        if order is None:
            self.order = self.matches
        else:
            self.order = [index for index in order if isinstance(index, int) and 0 <= index < len(dataset.rows)]
        self.show_count()
        if self.order and self.index not in self.order:
            self.index = self.order[0]
        await self.show()

    async def select(self, event: events.GenericEventArguments) -> None:
        """Show the example of the row that somebody selected, by mouse or space key."""
        dataset = self.dataset
        if event.args.get("source") not in ("rowClicked", "spaceKey"):
            return
        index = (await self.grid.get_selected_row() or {}).get("index")
        if dataset is None or dataset is not self.dataset:
            return
        if isinstance(index, int) and 0 <= index < len(dataset.rows):
            self.index = index
            await self.show()

    async def step(self, by: int) -> None:
        """Show the example `by` places further on."""
        if self.order:
            at = self.order.index(self.index) if self.index in self.order else min(-by, 0)
            self.index = self.order[(at + by) % len(self.order)]
            await self.show()

    async def jump(self) -> None:
        """Show any of the examples."""
        if self.order:
            self.index = random.choice(self.order)
            await self.show()

    async def slide(self) -> None:
        """Show the example at the place of the slider."""
        if self.order:
            self.index = self.order[min(int(self.slider.value or 0), len(self.order) - 1)]
            await self.show()

    async def show(self) -> None:
        """Draw the example, and once more if another one is wanted by then."""
        self.again = True
        if self.drawing or self.dataset is None:
            return
        self.drawing = True
        try:
            while self.again and self.dataset is not None:
                self.again = False
                dataset, index, epoch = self.dataset, self.index, int(self.epoch.value or 0)
                drawn = await _attempted(dataset.source.draw, index, epoch)
                if dataset is self.dataset and not self.again:
                    self.show_example(dataset, drawn)
        finally:
            self.drawing = False

    def show_example(self, dataset: BrowsedDataset, drawn: DrawnExample | UserError | None) -> None:
        """Show the pictures and the names of an example, and mark its row."""
        place = self.order.index(self.index) if self.index in self.order else 0
        self.slider.set_value(place)
        self.position.set_text(f"{place + 1:,} of {len(self.order):,}, index {self.index:,}")
        self.mark()
        self.pictures.clear()
        self.values.clear()
        if isinstance(drawn, DrawnExample):
            with self.pictures:
                _show_pictures(drawn, int(self.width.value))
            with self.values:
                _show_values(drawn.example)
        elif drawn is not None:
            with self.pictures:
                _show_text(str(drawn))

    def mark(self) -> None:
        """Select the row of the example and bring it into view, if the table has it."""
        ui.run_javascript(MARK % (self.grid.id, self.index))

    def show_about(self, root: Path | None) -> None:
        """Build what is told about prepared data; it is read when somebody opens it."""
        self.about.clear()
        if root is not None:
            with self.about:
                _folded(f"Statistics of {root}", _show_statistics, _statistics, root)
                _folded(f"Left out of {root}", _show_left_out, left_out, root)


async def _attempted(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | UserError | None:
    """Return what `act` returns or the UserError that it raises; None if it failed otherwise, and that is told."""

    def attempt() -> T | UserError:
        try:
            return act(*args, **kwargs)
        except UserError as error:
            return error

    return await computed(attempt)


def _folded(title: str, show: Callable[[T], None], act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
    """Add something that is computed and shown when it is unfolded for the first time."""
    expansion = ui.expansion(one_line(title)).classes("w-full")

    async def fill() -> None:
        if expansion.default_slot.children:
            return
        with expansion:
            label = ui.label("Reading ...")
        content = await _attempted(act, *args, **kwargs)
        label.set_text("")
        with expansion:
            if isinstance(content, UserError):
                _show_text(str(content))
            elif content is not None:
                show(content)

    expansion.on_value_change(fill)


def _show_text(text: str) -> None:
    ui.label(printable(text)).classes("whitespace-pre-wrap break-words")


def _show_pictures(drawn: DrawnExample, width: int) -> None:
    """Show the pictures of an example, and its numbers and texts."""
    with ui.row().classes("w-full flex-wrap items-start"):
        for title, pixels in drawn.pictures.items():
            picture(pixels, title, caption(title, drawn.example), width)
    with ui.row().classes("w-full flex-wrap gap-x-6 gap-y-1"):
        for name, value in plain_values(drawn.example).items():
            ui.label(f"{name}: {one_line(value)}").classes("text-sm break-all")


def _show_values(example: Example) -> None:
    """Show dtype, shape and range of all names, and the records themselves."""
    _show_table("All names", [{"name": column, "label": column} for column in COLUMNS], all_names(example))
    for name, records in example.items():
        if isinstance(records, Records):
            ui.label(name).classes("font-bold")
            _show_text("\n".join(json.dumps(record) for record in records) or "none")


def _statistics(root: Path) -> tuple[list[Table], dict[str, Pixels]]:
    return statistics(root), plots(root)


def _show_statistics(content: tuple[list[Table], dict[str, Pixels]]) -> None:
    tables, drawn = content
    with ui.row().classes("w-full flex-wrap items-start"):
        for title, pixels in drawn.items():
            picture(pixels, title, width=WIDEST)
    with ui.row().classes("w-full flex-wrap items-start gap-6"):
        for table in tables:
            columns = [{"name": str(place), "label": text} for place, text in enumerate(table.header)]
            rows = [{str(place): cell for place, cell in enumerate(row)} for row in table.rows]
            _show_table(table.header[0], columns, rows)


def _show_left_out(content: LeftOut) -> None:
    if not content.reasons:
        ui.label("Nothing: all records can be used.")
        return
    total = sum(content.reasons.values())
    if content.stopped:
        ui.label("The last preparation stopped, because too many records cannot be used; max_rejected allows fewer.")
    ui.label(f"{total:,} records: {', '.join(f'{count:,} {reason}' for reason, count in content.reasons.items())}")
    if total > len(content.rows):
        ui.label(f"The first {len(content.rows):,}:")
    with ui.element("div").classes("w-full").props('role="region" aria-label="Left out"'):
        _grid(list(content.rows[0]), content.rows, LARGEST, "18rem")


def _show_table(title: str, columns: list[dict[str, str]], rows: list[dict[str, str]]) -> None:
    scrolled = ui.element("div").classes("max-w-full max-h-96 overflow-auto")
    scrolled.props["tabindex"], scrolled.props["role"], scrolled.props["aria-label"] = "0", "region", title
    with scrolled:
        columns = [{"field": column["name"], "align": "left"} | column for column in columns]
        ui.table(columns=columns, rows=rows).props("flat dense hide-pagination").style("width: max-content")


def _grid(
    columns: Sequence[str], rows: Sequence[Mapping[str, int | float | str]], count: int, height: str
) -> ui.aggrid:
    """Add a table of the first `count` rows, whose columns sort and filter; texts stay texts."""
    options = {
        "columnDefs": [
            {
                "field": column,
                "headerName": words(column),
                "filter": "agNumberColumnFilter" if numeric(rows, column) else "agTextColumnFilter",
                "minWidth": 90 if numeric(rows, column) else 140,
            }
            for column in columns
        ],
        "defaultColDef": {"sortable": True, "floatingFilter": True},
        "rowData": rows[:count],
        "suppressFieldDotNotation": True,
        "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
    }
    if "index" in columns:
        options[":getRowId"] = "(params) => String(params.data.index)"
    return ui.aggrid(options).classes("w-full").style(f"height: {height}")

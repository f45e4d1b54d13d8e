"""The tab Try: trained networks on poses, label maps and photos of whoever looks at the page."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from nicegui import ui

from figura.base.errors import printable
from figura.commands.explore.project import Project
from figura.commands.explore.try_labels import labels_panel
from figura.commands.explore.try_people import people_panel
from figura.commands.explore.try_photos import photos_panel
from figura.commands.explore.trying import read_recipes
from figura.commands.explore.widgets import computed, tabs
from figura.recipe.schema import Recipe

PANELS: dict[str, Callable[[Project, Mapping[str, Recipe]], Awaitable[None]]] = {
    "People": people_panel,
    "Label maps": labels_panel,
    "Photos": photos_panel,
}


def try_tab(project: Project) -> None:
    """Build the tab, for the recipes of the moment when it is opened."""

    async def start() -> None:
        recipes, faults = await computed(read_recipes, project) or ({}, [])
        with space:
            for fault in faults:
                ui.label(printable(fault)).classes("whitespace-pre-wrap break-words")
            bar = ui.tabs().props("dense align=left no-caps")
            await tabs(bar, {name: partial(panel, project, recipes) for name, panel in PANELS.items()})

    space = ui.column().classes("w-full")
    ui.timer(0, start, once=True)

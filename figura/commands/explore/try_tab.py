"""The tab Try: trained networks on poses, label maps and photos of whoever looks at the page."""

from collections.abc import Awaitable, Callable

from nicegui import ui

from figura.base.errors import printable
from figura.commands.explore.project import Project
from figura.commands.explore.try_labels import labels_panel
from figura.commands.explore.try_people import people_panel
from figura.commands.explore.try_photos import photos_panel
from figura.commands.explore.trying import faults_of
from figura.commands.explore.widgets import computed

PANELS: dict[str, Callable[[Project], Awaitable[None]]] = {
    "People": people_panel,
    "Label maps": labels_panel,
    "Photos": photos_panel,
}


def try_tab(project: Project) -> None:
    """Build the tab; each trial is built when it is opened for the first time."""
    faults = ui.column()
    with ui.tabs().props("dense align=left no-caps") as tabs:
        for name in PANELS:
            ui.tab(name)
    with ui.tab_panels(tabs, value=next(iter(PANELS)), animated=False, keep_alive=True).classes("w-full") as panels:
        spaces = {}
        for name in PANELS:
            with ui.tab_panel(name).classes("p-0"):
                spaces[name] = ui.column().classes("w-full")
    built = set[str]()

    async def open_panel() -> None:
        name = str(panels.value)
        if name not in built:
            built.add(name)
            with spaces[name]:
                await PANELS[name](project)

    async def start() -> None:
        for fault in await computed(faults_of, project) or []:
            with faults:
                ui.label(printable(fault)).classes("whitespace-pre-wrap break-words")
        await open_panel()

    panels.on_value_change(open_panel)
    ui.timer(0, start, once=True)

"""What all tabs share: pictures, work in threads, one drawing at a time, and errors as messages."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import ParamSpec, TypeVar

from nicegui import run, ui

from figura.base.errors import UserError, printable
from figura.base.exit_status import refusal
from figura.base.pictures import Pixels, encode_png
from figura.commands.report.pictures import picture_of

P = ParamSpec("P")
T = TypeVar("T")


def data_url(content: bytes) -> str:
    """Return a PNG file as an address that holds all of it: no request names a file."""
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


class Picture:
    """A picture below its title. A click shows it as large as it is, and a button downloads it as `file`, if given.

    `title` is also read to those who cannot see the picture.
    """

    def __init__(self, title: str, width: int, file: str = "") -> None:
        self._file, self._content = file, b""
        with ui.element("figure").classes("m-0").style(f"width: min(100%, {width}px)"):
            self.title = ui.label().classes("text-sm")
            self._button = ui.element("button").classes("w-full cursor-zoom-in").on("click", self._enlarge)
            with self._button.props('type="button"'):
                self._image = ui.element("img").classes("w-full").style("image-rendering: pixelated")
            self.note = ui.label().classes("text-xs")
            self._download = ui.button("Download", icon="download", color=None).props("flat dense no-caps")
            self._download.on_click(lambda: ui.download.content(self._content, self._file))
        self.name(title)
        self.clear()

    def name(self, title: str) -> None:
        """Change the title."""
        self.title.set_text(title)
        self._image.props["alt"] = title
        self._button.props["aria-label"] = f"enlarge {title}"
        self._download.props["aria-label"] = f"Download: {title}"

    def show(self, pixels: Pixels, note: str = "") -> None:
        """Show pixels (H, W, 3), and a line about them."""
        self._content = encode_png(pixels)
        self._show(data_url(self._content), note)

    async def show_file(self, path: Path, title: str) -> None:
        """Show a picture file under another title, scaled down if it is very large."""
        picture = await computed(picture_of, path, title, title)
        if picture is not None:
            self.name(title)
            self._show(picture.address, "")

    def clear(self) -> None:
        """Show no picture."""
        self._button.set_visibility(False)
        self._download.set_visibility(False)

    def _show(self, address: str, note: str) -> None:
        self._image.props["src"] = address
        self._image.update()
        self.note.set_text(note)
        self._button.set_visibility(True)
        self._download.set_visibility(bool(self._file))

    def _enlarge(self) -> None:
        with ui.dialog(value=True).props("maximized") as dialog, ui.card().classes("overflow-auto"):
            button("Close", dialog.close)
            large = ui.element("img").classes("max-w-none")
            large.props["src"], large.props["alt"] = self._image.props["src"], self.title.text
        dialog.on("hide", dialog.delete)


def paragraph(text: str = "") -> ui.label:
    """Return a text that may be long, with its line breaks."""
    return ui.label(printable(text)).classes("whitespace-pre-wrap break-words")


def button(text: str, act: Callable[[], object] | None = None, icon: str | None = None) -> ui.button:
    """Return a button in the colour of the text around it, which can be read on light and on dark."""
    return ui.button(text, on_click=act, icon=icon, color=None).props("outline dense no-caps").classes("px-2")


async def tabs(bar: ui.tabs, builders: Mapping[str, Callable[[T], object]], recipes: T) -> None:
    """Add tabs to a bar, and their panels here; what is in a panel is built when it is opened for the first time."""
    with bar:
        for name in builders:
            ui.tab(name)
    with ui.tab_panels(bar, value=next(iter(builders)), animated=False, keep_alive=True).classes("w-full") as panels:
        spaces = {}
        for name in builders:
            with ui.tab_panel(name):
                spaces[name] = ui.column().classes("w-full")

    async def open_panel() -> None:
        name = str(panels.value)
        if name in spaces:
            with spaces.pop(name):
                result = builders[name](recipes)
                if isinstance(result, Awaitable):
                    await result

    panels.on_value_change(open_panel)
    await open_panel()


class Latest:
    """A slow act that runs once at a time. Calls meanwhile make it run once more afterwards, for the last state."""

    def __init__(self, act: Callable[[], Awaitable[None]]) -> None:
        self._act, self._asked, self._running = act, False, False

    async def __call__(self) -> None:
        """Run the act, or let the run that goes on repeat it."""
        self._asked = True
        if self._running:
            return
        self._running = True
        try:
            while self._asked:
                self._asked = False
                await self._act()
        finally:
            self._running = False


def tell(text: str) -> None:
    """Show why something cannot be done, until somebody has read it."""
    actions = [{"label": "OK", "color": "white"}]
    ui.notify(printable(text), type="negative", multi_line=True, timeout=0, actions=actions)


async def computed(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return what `act` returns, run in a thread while the page answers; tell bad input, and return None."""
    try:
        return await run.io_bound(act, *args, **kwargs)
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else refusal(error)
        tell(message or f"unexpected: {error!r}")
        if message is None:
            raise
        return None

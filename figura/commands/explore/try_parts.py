"""What the three trials lay out in one way: pictures that change, uploads, examples to pick, the mouse on a picture."""

import json
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nicegui import events, ui

from figura.base.errors import UserError, one_line
from figura.base.pictures import Pixels, encode_png
from figura.commands.explore.project import Project
from figura.commands.explore.trying import is_trained, recipes_on, untrained
from figura.commands.explore.uploads import KINDS, LARGEST_FILE, refuse_large, uploaded_picture
from figura.commands.explore.widgets import computed, data_url, tell
from figura.interfaces import ExampleDataset

T = TypeVar("T")

POINTER_EVENTS = ["pointerdown", "pointermove", "pointerup", "pointerleave", "pointercancel"]
# Moves count only while a button is down, and 20 of them a second. Elements are drawn again with each change, so that
# the time of the last move is one of the window.
POINTER = """(event) => {
    if (event.mouse_event_type === "pointermove") {
        const now = Date.now();
        if (!event.buttons || now - (window.lastPointerMove || 0) < 50) return;
        window.lastPointerMove = now;
    }
    emit(event);
}"""
HOVER = """(event) => {
    const now = Date.now();
    if (now - (window.lastPointerMove || 0) < 50) return;
    window.lastPointerMove = now;
    emit(event);
}"""


async def trials(
    project: Project, dataset: type[ExampleDataset], missing: str, load: Callable[[Project, str], T],
    show: Callable[[str, T], Awaitable[None]],
) -> None:  # fmt: skip
    """Lay out a choice of the recipes that are judged on a kind of dataset, and the trial of the one that is chosen.

    `load` makes the trial in a thread; `missing` is said where there is no recipe, and of one that is not trained its
    command.
    """
    recipes = await computed(recipes_on, project, dataset)
    if recipes is None:
        return
    if not recipes:
        ui.label(missing)
        return
    select = ui.select(recipes, value=recipes[0], label="Recipe").props("dense").classes("w-52")
    space = ui.column().classes("w-full")

    async def build() -> None:
        recipe = str(select.value)
        if not is_trained(project, recipe):
            ui.label(untrained(recipe))
            return
        waiting = ui.label("loading ...")
        trial = await computed(load, project, recipe)
        waiting.delete()
        if trial is None:
            ui.label("This recipe cannot be tried; mend what the message says, then reload this page.")
        else:
            await show(recipe, trial)

    async def change() -> None:
        await filled(space, build)

    select.on_value_change(change)
    await change()


class LivePicture:
    """A picture that changes, below its title, with a button that downloads it; `title` is also read aloud."""

    def __init__(self, title: str, file: str, width: int = 288) -> None:
        self.file, self.width, self.title = file, width, title
        self.pixels: Pixels | None = None
        with ui.element("figure").classes("m-0").style(f"width: min(100%, {width}px)"):
            ui.label(title).classes("text-sm")
            self._image = ui.element("img")
            self._image.props["alt"] = title
            self._image.style("width: 100%; image-rendering: pixelated; aspect-ratio: 1; display: block")
            self.note = ui.label().classes("text-xs")
            self._button = ui.button("Download", icon="download", on_click=self._download, color=None).props(
                "flat dense no-caps"
            )
            self._button.props["aria-label"] = f"Download: {title}"
            self._button.disable()

    def show(self, pixels: Pixels, note: str = "") -> None:
        """Show pixels (H, W, 3), and a line about them."""
        self.pixels = pixels
        height, width = pixels.shape[:2]
        self._image.props["src"] = data_url(pixels)
        self._image.style(f"aspect-ratio: {width} / {height}")
        self._image.update()
        self.note.set_text(note)
        self._button.enable()

    def _download(self) -> None:
        if self.pixels is not None:
            ui.download.content(encode_png(self.pixels), self.file, "image/png")


def upload_button(label: str, act: Callable[[Pixels], Awaitable[None]]) -> None:
    """Show a button that asks for a picture, and passes its pixels on; what is none is told."""

    async def receive(event: events.UploadEventArguments) -> None:
        files.reset()
        try:
            refuse_large(one_line(event.file.name), event.file.size())
        except UserError as error:
            tell(error)
            return
        pixels = await computed(uploaded_picture, event.file.name, await event.file.read())
        if pixels is not None:
            await act(pixels)

    def reject() -> None:
        tell(UserError(f"this file is too large: at most {LARGEST_FILE >> 20} MB are allowed; {KINDS}"))

    files = ui.upload(max_file_size=LARGEST_FILE, auto_upload=True, on_upload=receive, on_rejected=reject)
    files.classes("hidden")
    button = ui.button(label, icon="upload", color=None).props("outline dense no-caps")
    button.on("click", js_handler=f"() => getElement({files.id}).$refs.qRef.pickFiles()")


class ExamplePicker:
    """The number of an example, and a button that draws a random one; each change calls `act` with the number."""

    def __init__(self, label: str, count: int, act: Callable[[int], Awaitable[None]], value: int = 0) -> None:
        self.count, self.act = count, act
        with ui.row().classes("items-center no-wrap gap-1"):
            self.number = ui.number(
                f"{label}, 0 to {count - 1}", value=value, min=0, max=count - 1, step=1, precision=0,
                on_change=self._changed,
            ).props("dense debounce=300").classes("w-40")  # fmt: skip
            button = ui.button(icon="casino", on_click=self._random, color=None).props("flat dense round")
            button.props["aria-label"] = f"{label}: a random one"

    async def _changed(self) -> None:
        value = self.number.value
        if value is not None and 0 <= int(value) < self.count:
            await self.act(int(value))

    def _random(self) -> None:
        self.number.set_value(random.randrange(self.count))


def pointer_picture(
    title: str, act: Callable[[events.GenericEventArguments], Awaitable[None] | None], hover: bool = False
) -> ui.interactive_image:
    """Show a picture that reports the mouse or a finger; `hover`: also where no button is down.

    The event has `mouse_event_type`, and `image_x` and `image_y` in pixels of the picture; 0 is the edge of the first.
    """
    kinds = ["pointermove", "pointerdown"] if hover else POINTER_EVENTS
    image = ui.interactive_image(events=kinds, sanitize=False)
    image.on("mouse", act, js_handler=HOVER if hover else POINTER)
    image.style("image-rendering: pixelated; touch-action: none; user-select: none; width: min(100%, 384px)")
    inner = (
        f"const image = getHtmlElement({image.id})?.querySelector('img'); if (image) image.alt = {json.dumps(title)}"
    )
    ui.timer(0.2, lambda: ui.run_javascript(inner), once=True)
    return image


async def filled(space: ui.element, build: Callable[[], Awaitable[None]]) -> None:
    """Replace what a space has by what `build` lays out."""
    space.clear()
    with space:
        await build()


def trial_note(name: str) -> None:
    """Say that the weights are of a try."""
    ui.label(f"{name}: these are the weights of a try, which has learnt next to nothing.").classes("text-sm")

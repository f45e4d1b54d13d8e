"""What all trials lay out in one way: a choice of recipes, uploads, examples to pick, the mouse on a picture."""

import json
import random
from collections.abc import Awaitable, Callable, Sequence

from nicegui import events, ui

from figura.base.pictures import Pixels, encode_png
from figura.commands.explore.trying import KINDS, is_trained, model_of, untrained, uploaded_picture
from figura.commands.explore.widgets import Latest, button, computed, data_url, tell
from figura.recipe.trial import is_try

LARGEST_FILE = 32 << 20  # bytes of an upload

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


async def trials(recipes: Sequence[str], missing: str, build: Callable[[str], Awaitable[None]]) -> None:
    """Lay out a choice of recipes, and what `build` lays out for the one that is chosen.

    `missing` is said where there is no recipe, and of one that is not trained its command.
    """
    if not recipes:
        ui.label(missing)
        return

    async def change() -> None:
        recipe = str(select.value)
        space.clear()
        with space:
            if not is_trained(recipe):
                ui.label(untrained(recipe))
                return
            if await computed(is_try, model_of(recipe)):
                ui.label("These are the weights of a try, which has learnt next to nothing.").classes("text-sm")
            panel, waiting = ui.column().classes("w-full"), ui.label("loading ...")  # below: nothing moves as it goes
            with panel:
                await build(recipe)
            waiting.delete()

    build_now = Latest(change)
    select = ui.select(list(recipes), value=recipes[0], label="Recipe", on_change=build_now)
    select.props("dense").classes("w-52")
    space = ui.column().classes("w-full")
    await build_now()


def upload_button(label: str, act: Callable[[Pixels], Awaitable[None]]) -> None:
    """Show a button that asks for a picture, and passes its pixels (H, W, 3) on; rejects anything else."""

    async def receive(event: events.UploadEventArguments) -> None:
        files.reset()
        if event.file.size() > LARGEST_FILE:  # the browser did not look
            reject()
            return
        pixels = await computed(uploaded_picture, event.file.name, await event.file.read())
        if pixels is not None:
            await act(pixels)

    def reject() -> None:
        tell(f"this file is too large: at most {LARGEST_FILE >> 20} MB are allowed; {KINDS}")

    files = ui.upload(max_file_size=LARGEST_FILE, auto_upload=True, on_upload=receive, on_rejected=reject)
    files.classes("hidden")
    button(label, icon="upload").on("click", js_handler=f"() => getElement({files.id}).$refs.qRef.pickFiles()")


def example_picker(label: str, count: int, act: Callable[[int], Awaitable[None]]) -> None:
    """Show the number of an example, and a button that draws a random one; each change calls `act` with the number."""

    async def changed() -> None:
        if number.value is not None and 0 <= int(number.value) < count:
            await act(int(number.value))

    with ui.row().classes("items-center no-wrap gap-1"):
        number = ui.number(
            f"{label}, 0 to {count - 1}", value=0, min=0, max=count - 1, step=1, precision=0, on_change=changed
        )
        number.props("dense debounce=300").classes("w-40")
        dice = ui.button(icon="casino", color=None, on_click=lambda: number.set_value(random.randrange(count)))
        dice.props("flat dense round").props["aria-label"] = f"{label}: a random one"


class PointerPicture:
    """A picture that reports the mouse or a finger, with a button down.

    The event has `mouse_event_type`, and `image_x` and `image_y` in pixels of the picture; 0 is the edge of the first.
    """

    def __init__(self, title: str, act: Callable[[events.GenericEventArguments], Awaitable[None]]) -> None:
        self._image = ui.interactive_image(events=POINTER_EVENTS, sanitize=False)
        self._image.on("mouse", act, js_handler=POINTER)
        self._image.style("image-rendering: pixelated; touch-action: none; user-select: none; width: min(100%, 384px)")
        inner = f"getHtmlElement({self._image.id})?.querySelector('img')?.setAttribute('alt', {json.dumps(title)})"
        ui.timer(0.2, lambda: ui.run_javascript(inner), once=True)

    def show(self, pixels: Pixels, svg: str = "") -> None:
        """Show pixels (H, W, 3), and over them the content of an SVG in their units."""
        self._image.set_source(data_url(encode_png(pixels)))
        self._image.set_content(svg)

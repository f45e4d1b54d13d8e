"""The trial Label maps: paint one with the colours of the examples, and see the picture that a network makes of it."""

import time

from nicegui import events, ui

from figura.base.pictures import Pixels
from figura.commands.explore.project import Project
from figura.commands.explore.try_parts import (
    ExamplePicker,
    LivePicture,
    pointer_picture,
    trial_note,
    trials,
    upload_button,
)
from figura.commands.explore.trying_labels import Colour, LabelTranslator, hexadecimal, label_translator, painted
from figura.commands.explore.widgets import computed, data_url
from models.images.pairs import ImagePairs

STEPS_BACK = 30


async def labels_panel(project: Project) -> None:
    """Lay the trial out for the first trained recipe that translates pictures."""
    missing = "No recipe here translates pictures: none has a validation dataset images.ImagePairs."

    def load(project: Project, recipe: str) -> tuple[LabelTranslator, Pixels]:
        translator = label_translator(project, recipe)
        return translator, translator.example(0)

    async def show(recipe: str, trial: tuple[LabelTranslator, Pixels]) -> None:
        await LabelPanel(recipe, *trial).build()

    await trials(project, ImagePairs, missing, load, show)


class LabelPanel:
    """One client's label map, and the picture that it gives."""

    def __init__(self, recipe: str, translator: LabelTranslator, first: Pixels) -> None:
        self.translator, self.recipe, self.label_map = translator, recipe, first
        self.before: list[Pixels] = []
        self.colour: Colour = translator.palette[0]
        self.at: tuple[float, float] | None = None
        self.translating, self.version = False, 0

    async def build(self) -> None:
        """Lay it out, and translate the first label map."""
        if self.translator.trial:
            trial_note(self.recipe)
        with ui.row().classes("w-full flex-wrap gap-6 items-start"):
            with ui.column().classes("gap-2").style("width: min(100%, 384px)"):
                ExamplePicker("Label map", len(self.translator), self.label_map_of)
                with ui.row().classes("gap-2"):
                    upload_button("Upload a label map", self.uploaded)
                    ui.button("Undo", icon="undo", on_click=self.undo, color=None).props("outline dense no-caps")
                ui.label("Label map: paint on it").classes("text-sm")
                self.canvas = pointer_picture("Label map to paint on", self.pointer)
                self._brush()
            with ui.column().classes("gap-1").style("width: min(100%, 384px)"):
                self.picture = LivePicture("Picture made of it", "translation.png", 384)
                self.copy = LivePicture("Label map", "label_map.png", 128)
        self.show_map()
        await self.translate()

    def _brush(self) -> None:
        ui.label("Colour of the brush").classes("text-sm")
        with ui.row().classes("gap-1 flex-wrap").props('role="radiogroup" aria-label="Colour of the brush"'):
            self.colours = {}
            for colour in self.translator.palette:
                button = ui.element("button").on("click", lambda colour=colour: self.choose(colour))
                button.props('type="button" role="radio"')
                button.props["aria-label"] = f"colour {hexadecimal(colour)}"
                button.style(f"width: 32px; height: 32px; border-radius: 4px; background: {hexadecimal(colour)}")
                self.colours[colour] = button
        self.choose(self.colour)
        ui.label("Width of the brush, pixels").classes("text-sm")
        widest = max(2, min(self.translator.size) // 4)
        self.width = ui.slider(min=1, max=widest, step=1, value=max(1, widest // 4))
        self.width.props("label-always").classes("mt-6")
        self.width.props["aria-label"] = "Width of the brush, pixels"

    def choose(self, colour: Colour) -> None:
        """Take a colour."""
        self.colour = colour
        for one, button in self.colours.items():
            button.props["aria-checked"] = "true" if one == colour else "false"
            button.style("outline: 3px solid currentColor; outline-offset: -1px" if one == colour else "outline: none")
            button.update()

    def show_map(self) -> None:
        """Show the label map."""
        self.canvas.set_source(data_url(self.label_map))

    async def translate(self) -> None:
        """Show the picture of the label map; what changes meanwhile is translated afterwards, once."""
        self.version += 1
        if self.translating:
            return
        self.translating, done = True, 0
        try:
            while done != self.version:
                done, start, label_map = self.version, time.perf_counter(), self.label_map
                result = await computed(self.translator.picture, label_map)
                if result is None:
                    return
                self.picture.show(result, f"{time.perf_counter() - start:.2f} s")
                self.copy.show(label_map)
        finally:
            self.translating = False

    async def pointer(self, event: events.GenericEventArguments) -> None:
        """Paint from the last place of the mouse to this one; when the button is up, the picture is made."""
        kind = event.args["mouse_event_type"]
        at = float(event.args["image_x"]), float(event.args["image_y"])
        if kind == "pointerdown":
            self.remember()
            self.at = at
        if self.at is None:
            return
        if kind in ("pointerdown", "pointermove", "pointerup"):
            self.label_map = painted(self.label_map, self.at, at, int(self.width.value), self.colour)
            self.at = at
            self.show_map()
        if kind not in ("pointerdown", "pointermove"):
            self.at = None
            await self.translate()

    def remember(self) -> None:
        """Let `undo` return to this label map."""
        self.before = [*self.before, self.label_map][-STEPS_BACK:]

    async def undo(self) -> None:
        """Return to the label map before the last change."""
        if self.before:
            await self.replace(self.before.pop())

    async def replace(self, label_map: Pixels) -> None:
        """Take another label map."""
        self.label_map = label_map
        self.show_map()
        await self.translate()

    async def label_map_of(self, index: int) -> None:
        """Take the label map of an example."""
        label_map = await computed(self.translator.example, index)
        if label_map is not None:
            self.remember()
            await self.replace(label_map)

    async def uploaded(self, pixels: Pixels) -> None:
        """Take a picture that was sent as the label map."""
        self.remember()
        await self.replace(self.translator.fitted(pixels))

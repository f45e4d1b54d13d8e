"""The trial Label maps: paint one with the colours of the examples, and see the picture that a network makes of it."""

import time
from collections.abc import Awaitable, Mapping
from functools import partial

import numpy as np
from nicegui import events, ui

import figura
from figura.base.pictures import Pixels
from figura.base.seeding import generator
from figura.commands.explore.try_parts import PointerPicture, example_picker, trials, upload_button
from figura.commands.explore.trying import cached, predictor, recipes_on, result_of, validation_dataset
from figura.commands.explore.widgets import Latest, Picture, button, computed
from figura.recipe.schema import Recipe
from figura.report.sheets import as_pixels

from .pairs import ImagePairs, resized

Colour = tuple[int, int, int]

STEPS_BACK = 30  # that can be undone
EXAMPLES = 24  # examples whose colours make the palette
MOST_COLOURS = 24
LEAST_SHARE = 2e-4  # of the pixels of these examples, that a colour of the palette has
APART = 24  # how far colours of a palette lie apart in one channel at least; between them are blurred borders


class LabelTranslator:
    """Makes pictures of label maps, and takes label maps from the validation examples.

    Attributes:
        size: height and width of the label maps, pixels.
        palette: the colours of the examples' label maps, the most frequent first.
    """

    def __init__(self, recipe: Recipe, network: figura.Predictor) -> None:
        self._network, self._seed = network, recipe.seed
        self._examples = validation_dataset(recipe, ImagePairs)
        self.size = self._examples.crop_size
        self.palette = palette_of([self.example(index) for index in range(min(EXAMPLES, len(self)))])

    def __len__(self) -> int:
        return len(self._examples)

    def example(self, index: int) -> Pixels:
        """Return the label map (H, W, 3) of a validation example."""
        example = self._examples.example(index, generator(self._seed, "explore", index))
        return as_pixels(np.asarray(example["x"])[None])[0]

    def fitted(self, pixels: Pixels) -> Pixels:
        """Return a picture (h, w, 3) as a label map of the network's size, resized as those of the examples are."""
        return resized(pixels, self.size, nearest="x" in self._examples.label_maps)

    def picture(self, label_map: Pixels) -> Pixels:
        """Return the picture (H, W, 3) that the network makes of a label map (H, W, 3) of its size."""
        return result_of(self._network, label_map).draw()


def label_translator(recipes: Mapping[str, Recipe], name: str) -> LabelTranslator:
    """Return the translator of a recipe, made once. Raises UserError if it is not trained, or has no data."""
    recipe = recipes[name]
    of_photos = recipe.predict is not None and recipe.predict.data.type == "images.Photos"
    network = predictor(recipes, name, {"predict.data.layout": "whole"} if of_photos else None)
    return cached("translator", name, recipe, partial(LabelTranslator, recipe, network))


def palette_of(label_maps: list[Pixels]) -> list[Colour]:
    """Return the colours of label maps (H, W, 3), the most frequent first, but rare ones and those close to another.

    Of pictures without frequent colours, such as photos, it returns black and white.
    """
    colours, counts = np.unique(np.concatenate([one.reshape(-1, 3) for one in label_maps]), axis=0, return_counts=True)
    palette: list[Colour] = []
    for place in np.argsort(-counts, kind="stable"):
        colour = colours[place].astype(int)
        if counts[place] < LEAST_SHARE * counts.sum() or len(palette) == MOST_COLOURS:
            break
        if all(np.abs(colour - other).max() >= APART for other in palette):
            palette.append((int(colour[0]), int(colour[1]), int(colour[2])))
    return palette or [(0, 0, 0), (255, 255, 255)]


def painted(
    label_map: Pixels, start: tuple[float, float], end: tuple[float, float], width: int, colour: Colour
) -> Pixels:
    """Return a label map with a stroke between two places (x, y; 0 is the edge of the first pixel), `width` pixels.

    OpenCV's lines are wider than asked for. The ends of the stroke are round.
    """
    first, last = (np.floor(place) + 0.5 if width % 2 else np.rint(place) for place in (start, end))
    rows, columns = np.indices(label_map.shape[:2]) + 0.5
    (x, y), (along, down) = first, last - first
    share = ((columns - x) * along + (rows - y) * down) / max(along**2 + down**2, 1e-9)  # 0 at the start, 1 at the end
    share = np.clip(share, 0, 1)
    away = np.hypot(columns - x - share * along, rows - y - share * down)
    canvas = label_map.copy()
    canvas[away < width / 2] = colour
    return canvas


def panel(recipes: Mapping[str, Recipe]) -> Awaitable[None]:
    """Lay the trial out for the recipes that translate pictures."""

    async def build(recipe: str) -> None:
        translator = await computed(label_translator, recipes, recipe)
        if translator is not None:
            await LabelPanel(translator).build()

    missing = "No recipe here translates pictures: none has a validation dataset images.ImagePairs, and `predict`."
    return trials(recipes_on(recipes, ImagePairs), missing, build)


class LabelPanel:
    """One client's label map, and the picture that it gives."""

    def __init__(self, translator: LabelTranslator) -> None:
        self.translator = translator
        self.before: list[Pixels] = []
        self.colour: Colour = translator.palette[0]
        self.at: tuple[float, float] | None = None
        self.translate = Latest(self._translate)

    async def build(self) -> None:
        """Lay it out, and translate the first label map."""
        self.label_map = self.translator.example(0)
        with ui.row().classes("w-full flex-wrap gap-6 items-start"):
            with ui.column().classes("gap-2").style("width: min(100%, 384px)"):
                example_picker("Label map", len(self.translator), self.label_map_of)
                with ui.row().classes("gap-2"):
                    upload_button("Upload a label map", self.uploaded)
                    button("Undo", self.undo, icon="undo")
                ui.label("Label map: paint on it").classes("text-sm")
                self.canvas = PointerPicture("Label map to paint on", self.pointer)
                self._brush()
            with ui.column().classes("gap-1").style("width: min(100%, 384px)"):
                self.picture = Picture("Picture made of it", 384, "translation.png")
                self.copy = Picture("Label map", 128, "label_map.png")
        self.canvas.show(self.label_map)
        await self.translate()

    def _brush(self) -> None:
        ui.label("Colour of the brush").classes("text-sm")
        with ui.row().classes("gap-1 flex-wrap").props('role="radiogroup" aria-label="Colour of the brush"'):
            self.colours = {}
            for colour in self.translator.palette:
                choice = ui.element("button").on("click", lambda colour=colour: self.choose(colour))
                choice.props('type="button" role="radio"')
                written = "#{:02x}{:02x}{:02x}".format(*colour)
                choice.props["aria-label"] = f"colour {written}"
                choice.style(f"width: 32px; height: 32px; border-radius: 4px; background: {written}")
                self.colours[colour] = choice
        self.choose(self.colour)
        ui.label("Width of the brush, pixels").classes("text-sm")
        widest = max(2, min(self.translator.size) // 4)
        self.width = ui.slider(min=1, max=widest, step=1, value=max(1, widest // 4))
        self.width.props("label-always").classes("mt-6")
        self.width.props["aria-label"] = "Width of the brush, pixels"

    def choose(self, colour: Colour) -> None:
        """Take a colour."""
        self.colour = colour
        for one, choice in self.colours.items():
            choice.props["aria-checked"] = "true" if one == colour else "false"
            choice.style("outline: 3px solid currentColor; outline-offset: -1px" if one == colour else "outline: none")
            choice.update()

    async def _translate(self) -> None:
        start, label_map = time.perf_counter(), self.label_map
        result = await computed(self.translator.picture, label_map)
        if result is not None:
            self.picture.show(result, f"{time.perf_counter() - start:.2f} s")
            self.copy.show(label_map)

    async def pointer(self, event: events.GenericEventArguments) -> None:
        """Paint from the last place of the mouse to this one; when the button is up, the picture is made."""
        kind = event.args["mouse_event_type"]
        at = float(event.args["image_x"]), float(event.args["image_y"])
        if kind == "pointerdown":
            self._remember()
            self.at = at
        if self.at is None:
            return
        if kind in ("pointerdown", "pointermove", "pointerup"):
            self.label_map = painted(self.label_map, self.at, at, int(self.width.value), self.colour)
            self.at = at
            self.canvas.show(self.label_map)
        if kind not in ("pointerdown", "pointermove"):
            self.at = None
            await self.translate()

    def _remember(self) -> None:
        self.before = [*self.before, self.label_map][-STEPS_BACK:]

    async def undo(self) -> None:
        """Return to the label map before the last change."""
        if self.before:
            await self._replace(self.before.pop())

    async def _replace(self, label_map: Pixels) -> None:
        self.label_map = label_map
        self.canvas.show(label_map)
        await self.translate()

    async def label_map_of(self, index: int) -> None:
        """Take the label map of an example."""
        label_map = await computed(self.translator.example, index)
        if label_map is not None:
            self._remember()
            await self._replace(label_map)

    async def uploaded(self, pixels: Pixels) -> None:
        """Take a picture that was sent as the label map."""
        self._remember()
        await self._replace(self.translator.fitted(pixels))

"""The trial Photos: a photo through any trained recipe, its pictures and records, and a magnifier."""

import time

from nicegui import events, ui

from figura.base.errors import printable
from figura.base.pictures import Pixels, read_picture
from figura.commands.explore.project import Project
from figura.commands.explore.try_parts import LivePicture, pointer_picture, trial_note, upload_button
from figura.commands.explore.trying import is_trained, recipes_of_photos, untrained
from figura.commands.explore.trying_photos import (
    PhotoResults,
    magnified,
    photo_results,
    sample_photos,
    table_of,
)
from figura.commands.explore.widgets import computed, data_url

LONGEST, SHORTEST, MOST = 512, 16, 4096
"""Of the longer side of a photo, pixels: by default, and what may be typed."""
MOST_ROWS = 50


async def photos_panel(project: Project) -> None:
    """Lay the trial out for the recipes that say how to predict from photos."""
    recipes = await computed(recipes_of_photos, project)
    if recipes is None:
        return
    if not recipes:
        ui.label("No recipe here says how to predict from photos: none has a section `predict`.")
        return
    await PhotoPanel(project, recipes).build()


class PhotoPanel:
    """One client's photo and recipe, and the results."""

    def __init__(self, project: Project, recipes: list[str]) -> None:
        self.project, self.recipes = project, recipes
        self.pixels: Pixels | None = None
        self.running = False

    async def build(self) -> None:
        """Lay it out; nothing runs before a photo is there."""
        with ui.row().classes("w-full flex-wrap items-center gap-4"):
            self.recipe = ui.select(self.recipes, value=self.recipes[0], label="Recipe", on_change=self.choose)
            self.recipe.props("dense").classes("w-44")
            self.sample = ui.select([], label="Photo of the data", on_change=self.sampled, clearable=True)
            self.sample.props("dense").classes("w-44")
            upload_button("Upload a photo", self.uploaded)
            self.longest = ui.number("Longer side at most", value=LONGEST, min=SHORTEST, max=MOST, step=64, precision=0)
            self.longest.props('dense suffix="pixels"').classes("w-40")
            self.button = ui.button("Run", icon="play_arrow", on_click=self.run, color=None).props(
                "outline dense no-caps"
            )
        self.told = ui.label().props('role="status"').classes("whitespace-pre-wrap break-words")
        self.space = ui.column().classes("w-full")
        await self.choose()

    async def choose(self) -> None:
        """Offer the photos of the recipe's data, or say that it is not trained."""
        recipe, ready = str(self.recipe.value), is_trained(self.project, str(self.recipe.value))
        self.space.clear()
        self.button.set_enabled(ready)
        self.told.set_text("Choose or upload a photo." if ready else untrained(recipe))
        photos = await computed(sample_photos, self.project, recipe)
        self.samples = photos or {}
        self.sample.set_options(list(self.samples), value=None)
        self.sample.set_enabled(ready and bool(self.samples))
        if ready and self.pixels is not None:
            await self.run()

    async def sampled(self) -> None:
        """Take a photo of the data."""
        if self.sample.value in self.samples:
            pixels = await computed(read_picture, self.samples[self.sample.value])
            if pixels is not None:
                await self.uploaded(pixels)

    async def uploaded(self, pixels: Pixels) -> None:
        """Take a photo, and run the recipe if it is trained."""
        self.pixels = pixels
        if is_trained(self.project, str(self.recipe.value)):
            await self.run()

    async def run(self) -> None:
        """Run the recipe on the photo, and show the results."""
        if self.pixels is None or self.running:
            return
        pixels = self.pixels
        recipe, longest = str(self.recipe.value), min(max(int(self.longest.value or LONGEST), SHORTEST), MOST)
        self.running = True
        self.button.disable()
        self.space.clear()
        self.told.set_text(f"{recipe} runs ...")
        start = time.perf_counter()
        try:
            results = await computed(photo_results, self.project, recipe, pixels, longest)
        finally:
            self.running = False
            self.button.enable()
        if recipe != self.recipe.value:  # another one was chosen meanwhile
            await self.choose()
        elif pixels is not self.pixels:  # another photo came meanwhile
            await self.run()
        elif results is None:
            self.told.set_text(f"{recipe}: no result")
        else:
            self.told.set_text(_summary(recipe, results, time.perf_counter() - start))
            with self.space:
                self.show(results)

    def show(self, results: PhotoResults) -> None:
        """Show pictures, a magnifier for those that are larger than the photo, and tables of records."""
        if results.trial:
            trial_note(str(self.recipe.value))
        with ui.row().classes("w-full flex-wrap gap-6 items-start"):
            LivePicture("photo", "photo.png", 384).show(results.photo, _size(results.photo))
            for name, picture in results.pictures.items():
                LivePicture(printable(name), f"{name}.png", 384).show(picture, _size(picture))
        for name in results.enlarged:
            Magnifier(printable(name), results.photo, results.pictures[name])
        for name, records in results.records.items():
            titles, rows = table_of(records, results.categories)
            _table(printable(name), titles, rows)
        with ui.row().classes("flex-wrap gap-2"):
            for name, content in results.files.items():
                if not name.endswith(".png"):
                    ui.button(
                        f"Download {name}", icon="download", color=None,
                        on_click=lambda content=content, name=name: ui.download.content(content, name),
                    ).props("flat dense no-caps")  # fmt: skip


def _summary(recipe: str, results: PhotoResults, seconds: float) -> str:
    if results.files:
        return f"{recipe}: {seconds:.1f} s"
    return f"{recipe} makes nothing of this photo: it finds nobody of whom it could"


def _size(pixels: Pixels) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]} pixels"


def _table(name: str, titles: list[str], rows: list[list[str]]) -> None:
    more = f", the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    ui.label(f"{name}: {len(rows)} records{more}").classes("text-sm")
    if rows:
        columns = [{"name": one, "label": one, "field": one, "align": "left"} for one in titles]
        content = [dict(zip(titles, row, strict=True)) | {"#": place} for place, row in enumerate(rows[:MOST_ROWS])]
        ui.table(columns=columns, rows=content, row_key="#").props("dense flat").classes("w-full max-w-3xl")


class Magnifier:
    """The place under the mouse in a picture, beside the same place of the photo enlarged; sliders move it, too."""

    def __init__(self, name: str, photo: Pixels, picture: Pixels) -> None:
        self.photo, self.picture = photo, picture
        ui.label(f"Magnifier: move over {name}").classes("text-base")
        with ui.row().classes("w-full flex-wrap gap-6 items-start"):
            with ui.column().classes("gap-0").style("width: min(100%, 384px)"):
                overview = pointer_picture(f"{name}, to be magnified", self.pointer, hover=True)
                overview.set_source(data_url(picture))
                self.sliders = []
                for axis in ("across", "down"):
                    slider = ui.slider(min=0, max=1, step=0.01, value=0.5, on_change=self.show)
                    slider.props["aria-label"] = f"Place of the magnifier, {axis}"
                    self.sliders.append(slider)
            self.parts = [LivePicture("there in the photo", "photo_part.png", 288)]
            self.parts.append(LivePicture(f"there in {name}", "part.png", 288))
        self.show()

    def pointer(self, event: events.GenericEventArguments) -> None:
        """Move to the place of the mouse."""
        height, width = self.picture.shape[:2]
        for slider, share in zip(
            self.sliders, (event.args["image_x"] / width, event.args["image_y"] / height), strict=True
        ):
            slider.set_value(min(max(float(share), 0.0), 1.0))

    def show(self) -> None:
        """Show the place of the sliders."""
        x, y = (float(slider.value) for slider in self.sliders)
        for part, pixels in zip(self.parts, magnified(self.photo, self.picture, x, y), strict=True):
            part.show(pixels)

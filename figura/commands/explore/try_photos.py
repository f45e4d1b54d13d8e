"""The trial Photos: a photo through any trained recipe that says how to predict, as `figura predict` does."""

import json
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from nicegui import ui

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError, printable
from figura.base.pictures import Pixels, shrunk, write_png
from figura.commands.explore.try_parts import trials, upload_button
from figura.commands.explore.trying import computing, is_trained, model_of, pose_recipe, predictor
from figura.commands.explore.widgets import Latest, Picture, button, computed, paragraph
from figura.evaluation.model_folder import drawn
from figura.prediction.results import Results
from figura.recipe.schema import Recipe
from figura.recipe.types import PHOTOS, find_type

NAME = "photo"
LONGEST, SHORTEST, MOST = 512, 16, 4096
"""Of the longer side of a photo, pixels: by default, and what may be typed."""
MOST_ROWS = 50
COLUMNS = ["category", "score", "x", "y", "width", "height"]


async def photos_panel(recipes: Mapping[str, Recipe]) -> None:
    """Lay the trial out for the recipes that say how to predict from photos."""
    missing = "No recipe here says how to predict from photos: none has a section `predict`."
    await trials(offered(recipes), missing, PhotoPanel(recipes).build)


def offered(recipes: Mapping[str, Recipe]) -> list[str]:
    """Return the recipes that say how to predict: trained ones first, and of those, what reads any photo."""
    names = [name for name, recipe in recipes.items() if recipe.predict is not None]
    return sorted(names, key=lambda name: (not is_trained(name), _expects(recipes[name]) is not None))


class PhotoPanel:
    """One client's photo, which stays when another recipe is chosen, and the results."""

    def __init__(self, recipes: Mapping[str, Recipe]) -> None:
        self.recipes, self.recipe = recipes, ""
        self.pixels: Pixels | None = None
        self.run = Latest(self._run)

    async def build(self, recipe: str) -> None:
        """Lay it out for a recipe; nothing runs before a photo is there."""
        self.recipe = recipe
        with ui.row().classes("w-full flex-wrap items-center gap-4"):
            upload_button("Upload a photo", self.uploaded)
            self.longest = ui.number("Longer side at most", value=LONGEST, min=SHORTEST, max=MOST, step=64, precision=0)
            self.longest.props('dense suffix="pixels"').classes("w-40")
            button("Run", self.run, icon="play_arrow")
        paragraph(f"{recipe} expects {_expects(self.recipes[recipe]) or 'any photo'}. {drawn(model_of(recipe))}")
        self.told = paragraph("Upload a photo.").props('role="status"')
        self.space = ui.column().classes("w-full")
        await self.run()

    async def uploaded(self, pixels: Pixels) -> None:
        """Take a photo, and run the recipe."""
        self.pixels = pixels
        await self.run()

    async def _run(self) -> None:
        if self.pixels is None:
            return
        recipe, start = self.recipe, time.perf_counter()
        longest = min(max(int(self.longest.value or LONGEST), SHORTEST), MOST)
        self.space.clear()
        self.told.set_text(f"{recipe} runs ...")
        done = await computed(photo_results, self.recipes, recipe, self.pixels, longest)
        if recipe != self.recipe:  # another one was chosen meanwhile, and runs next
            return
        if done is None:
            self.told.set_text(f"{recipe}: no result")
            return
        photo, results = done
        found = f"{time.perf_counter() - start:.1f} s" if results else "it finds nothing in this photo to work with"
        self.told.set_text(f"{recipe}: {found}")
        with self.space:
            _show(photo, results)


def _show(photo: Pixels, results: Results) -> None:
    pictures = {f"{one.name}.{name}": pixels for one in results for name, pixels in one.pictures.items()}
    with ui.row().classes("w-full flex-wrap gap-6 items-start"):
        for name, pixels in ({NAME: photo} | pictures | dict(results.sheets)).items():
            title = printable(name.removeprefix(NAME).lstrip(".-") or name)
            Picture(title, 384, f"{name}.png").show(pixels, f"{pixels.shape[1]} x {pixels.shape[0]} pixels")
    for name in [name for name, form in results.forms.items() if form == "records"]:
        table = results.to_pandas(name)
        more = f", the first {MOST_ROWS} of {len(table)}" if len(table) > MOST_ROWS else ""
        ui.label(f"{printable(name)}: {len(table)} records{more}").classes("text-sm")
        shown = table[[one for one in COLUMNS if one in table]].head(MOST_ROWS).round(2)
        ui.table.from_pandas(shown).props("dense flat").classes("w-full max-w-3xl")
        records = json.dumps([dict(record) for one in results for record in one.records[name]])
        file = f"{NAME}.{name}.json"
        button(f"Download {file}", partial(ui.download.content, records, file), icon="download")


def photo_results(recipes: Mapping[str, Recipe], name: str, pixels: Pixels, longest: int) -> tuple[Pixels, Results]:
    """Run a recipe's prediction on a photo, uint8 (H, W, 3); return the photo as it was used, and the results.

    Its longer side is made `longest` pixels if it is more. For a recipe that reads where people are, a
    trained pose recipe reads the photo first, and its file lies beside the photo.

    Raises:
        UserError: the recipe is not trained or does not say how to predict, or the photo cannot be used.
    """
    photo = shrunk(pixels, longest)
    with tempfile.TemporaryDirectory(prefix="figura-") as folder, computing():
        file = Path(folder, f"{NAME}.png")
        write_png(file, photo)
        try:
            if _needs_people(recipes[name]):
                predictor(recipes, pose_recipe(recipes)).predict(file, workers=0).save(folder)
            return photo, predictor(recipes, name).predict(file, workers=0)
        except UserError as error:  # nobody knows this folder
            raise UserError(str(error).replace(f"{folder}/", "")) from None


def _needs_people(recipe: Recipe) -> bool:
    known = recipe.predict is not None and recipe.predict.data.arguments.get("people") is not None
    return getattr(_kind(recipe), "reads", None) == "people" and not known


def _expects(recipe: Recipe) -> str | None:
    """Return which pictures a recipe is for; None: any photo."""
    return getattr(_kind(recipe), "expects", None)


def _kind(recipe: Recipe) -> type | None:
    if recipe.predict is None:
        return None
    return find_type(recipe.predict.data.type, PHOTOS, "predict.data.type", ErrorCollector(recipe.path))

"""Trained networks that the page runs, loaded once and one at a time, and pictures that people send to them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

import figura
from figura.base.error_collector import ErrorCollector
from figura.base.errors import REPRO, UserError
from figura.base.pictures import SUFFIXES, Pixels
from figura.base.raw_pictures import decode_raw
from figura.base.yaml12 import read_yaml
from figura.commands.explore.cache import CACHE, manifests, recipe_files
from figura.interfaces import ExampleDataset
from figura.pipeline.dag import PIPELINE
from figura.recipe.schema import Recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.types import DATASET, build, find_type

T = TypeVar("T")

COMPUTING = threading.RLock()
"""Held while networks run: seeds belong to the whole process, and two cores are few."""
LARGEST_PIXELS = 64_000_000
"""Pixels; `figura predict` takes four times as many, but here somebody waits, and others use the same memory."""
KINDS = f"images end in {', '.join(SUFFIXES)}"


def read_recipes(params: Mapping[str, Path]) -> tuple[dict[str, Recipe], list[str]]:
    """Return the recipes of files by name, those that are trained first, checked by the schema alone; and the faults.

    Recipes with faults are left out.
    """
    recipes, faults = {}, []
    for name in sorted(params, key=lambda name: not is_trained(name)):
        path = params[name]
        try:
            recipes[name] = check_schema(read_yaml(path), path).read_from(path)
        except UserError as error:
            faults.append(str(error))
    return recipes, faults


def recipes_on(recipes: Mapping[str, Recipe], kind: type[ExampleDataset]) -> list[str]:
    """Return the recipes with `predict` and a validation dataset of this class."""
    return [name for name, recipe in recipes.items() if recipe.predict and _dataset_name(recipe, kind) is not None]


def _dataset_name(recipe: Recipe, kind: type[ExampleDataset]) -> str | None:
    for name, entry in recipe.data.validation.items():
        found = find_type(entry.type, DATASET, f"data.validation.{name}.type", ErrorCollector(recipe.path))
        if isinstance(found, type) and issubclass(found, kind):
            return name
    return None


def validation_dataset(recipe: Recipe, kind: type[T]) -> T:
    """Open the first validation dataset of this class. Raises UserError if there is none, or no data."""
    name = _dataset_name(recipe, cast(type[ExampleDataset], kind))
    if name is None:
        raise UserError(f"{recipe.path}: data.validation: no dataset is a {kind.__name__}")
    return cast(T, build(recipe.data.validation[name], DATASET, f"data.validation.{name}", recipe.path))


def model_of(recipe: str) -> Path:
    """Return the model folder of a recipe, which may not exist."""
    return Path("runs", recipe, "model")


def is_trained(recipe: str) -> bool:
    """Return whether a recipe has a model."""
    return (model_of(recipe) / "recipe.yaml").is_file()


def untrained(recipe: str) -> str:
    """Return what is said of a recipe that has no model yet."""
    return f"{recipe} is not trained yet: run {REPRO} train@{recipe}, then reload this page"


def cached(kind: str, name: str, recipe: Recipe, make: Callable[[], T]) -> T:
    """Return what was made of a trained recipe, or make it if it is new or its files or its data have changed."""
    files = [*recipe_files(recipe.path), *sorted(model_of(name).glob("*")), *manifests(recipe.data.validation.values())]
    return CACHE.get((kind, str(model_of(name).resolve())), files, make)


def predictor(recipes: Mapping[str, Recipe], name: str, settings: Mapping[str, Any] | None = None) -> figura.Predictor:
    """Return what predicts with a trained recipe, as by `figura.load` with these settings; loaded once.

    Raises:
        UserError: it is not trained, or its recipe or its files have faults.
    """
    if not is_trained(name):
        raise UserError(untrained(name))
    recipe = recipes[name].path
    make = partial(figura.load, model_of(name), recipe=recipe, settings=settings)
    return cached(f"predictor {settings}", name, recipes[name], make)


def pose_recipe(recipes: Mapping[str, Recipe]) -> str:
    """Return the first recipe that saves the people of photos, those that are trained first."""
    poses = [name for name, one in recipes.items() if one.predict and one.predict.save.get("people") == "records"]
    if not any(is_trained(name) for name in poses):
        first = f": run {REPRO} train@{poses[0]}, then reload this page" if poses else f"; {PIPELINE} has none"
        raise UserError(f"this recipe needs to know where people are, which a trained pose recipe tells{first}")
    return poses[0]


def result_of(network: figura.Predictor, pixels: Pixels) -> figura.Result:
    """Return what a network makes of a picture (H, W, 3)."""
    with computing():
        return network.predict(pixels, workers=0)[0]


def uploaded_picture(name: str, content: bytes) -> Pixels:
    """Return the RGB pixels (H, W, 3) of a picture that somebody sent under this name.

    Raises:
        UserError: the name has another suffix, the picture is too large, or it is no readable picture.
    """
    name = Path(name).name or "the file"
    if Path(name).suffix.lower() not in SUFFIXES:
        raise UserError(f"{name}: no picture by its name; {KINDS}")
    return decode_raw(content, Path(name), advice=KINDS, most=LARGEST_PIXELS).pixels


@contextmanager
def computing() -> Iterator[None]:
    """Let networks run, one at a time.

    They run on one thread: beside a training, two would wait for each other and take several times as long.
    """
    with COMPUTING:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

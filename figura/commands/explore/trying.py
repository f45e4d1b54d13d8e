"""Trained networks that the page runs: which recipes there are for what, loaded once and run one at a time."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.modes import evaluating
from figura.base.pictures import Pixels
from figura.base.seeding import seed_here
from figura.base.yaml12 import read_yaml
from figura.commands.explore.project import Project
from figura.engine.build import make_accelerator
from figura.engine.data import collated
from figura.engine.inference import named_injectors, run_injectors
from figura.engine.weights import to_device
from figura.evaluation.model_folder import refuse_other_networks, trained_facts
from figura.evaluation.trained import load_trained
from figura.interfaces import Example, ExampleDataset, Injector, Networks, State
from figura.prediction.runner import needed
from figura.recipe.load import check_recipe
from figura.recipe.schema import Mode, Predict, Recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.types import DATASET, build, find_type
from figura.report.sheets import as_pixels

T = TypeVar("T")

COMPUTING = threading.RLock()
"""Held while networks run: seeds and Accelerate's state belong to the whole process, and two cores are few."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model.

    Attributes:
        recipe: that of the model, with `evaluate` and `data.validation` of the params file.
        networks: by name, on the device.
        predict: how the params file says that photos are predicted from, if it does.
        trial: the model is that of a try, which has learnt next to nothing.
    """

    recipe: Recipe
    networks: Mapping[str, nn.Module]
    predict: Predict | None
    trial: bool


class Cache:
    """What was made from files, by key, until a file changes. Two threads that ask for the same make it once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[tuple[str, ...], tuple[object, Any]] = {}

    def get(self, key: tuple[str, ...], files: Collection[Path], make: Callable[[], T]) -> T:
        """Return what `make` returned for this key, or returns now if one of the files is another one."""
        with self._lock:
            version = [_version(path) for path in files]
            if key not in self._entries or self._entries[key][0] != version:
                self._entries.pop(key, None)  # two versions at once may be more than memory has
                self._entries[key] = version, make()
            return cast(T, self._entries[key][1])


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


CACHE = Cache()


def schema_of(project: Project, recipe: str) -> Recipe:
    """Return a recipe of which the schema alone is checked. Raises UserError if it is not readable, or wrong."""
    path = project.params(recipe)
    return CACHE.get(("schema", str(path.resolve())), [path], lambda: check_schema(read_yaml(path), path))


def faults_of(project: Project) -> list[str]:
    """Return what is wrong with params files; their recipes are left out everywhere else."""
    return [str(fault) for name in project.recipes if isinstance(fault := _schema_or_fault(project, name), UserError)]


def _schema_or_fault(project: Project, recipe: str) -> Recipe | UserError:
    try:
        return schema_of(project, recipe)
    except UserError as error:
        return error


def recipes_on(project: Project, kind: type[ExampleDataset]) -> list[str]:
    """Return the recipes with a validation dataset of this class, those that are trained first."""
    names = []
    for name in project.recipes:
        recipe = _schema_or_fault(project, name)
        if isinstance(recipe, Recipe) and dataset_name(recipe, kind) is not None:
            names.append(name)
    return sorted(names, key=lambda name: not is_trained(project, name))


def recipes_of_photos(project: Project) -> list[str]:
    """Return the recipes that say how to predict from photos, those that are trained first."""
    recipes = {name: _schema_or_fault(project, name) for name in project.recipes}
    names = [name for name, recipe in recipes.items() if isinstance(recipe, Recipe) and recipe.predict is not None]
    return sorted(names, key=lambda name: not is_trained(project, name))


def dataset_name(recipe: Recipe, kind: type[ExampleDataset]) -> str | None:
    """Return the first of the validation datasets that is of this class, or None."""
    for name, entry in recipe.data.validation.items():
        found = find_type(entry.type, DATASET, f"data.validation.{name}.type", ErrorCollector(recipe.path))
        if isinstance(found, type) and issubclass(found, kind):
            return name
    return None


def validation_dataset(recipe: Recipe, kind: type[T]) -> T:
    """Open the first validation dataset of this class. Raises UserError if there is none, or no data."""
    name = dataset_name(recipe, cast(type[ExampleDataset], kind))
    if name is None:
        raise UserError(f"{recipe.path}: data.validation: no dataset is a {kind.__name__}")
    return cast(T, build(recipe.data.validation[name], DATASET, f"data.validation.{name}", recipe.path))


def model_of(project: Project, recipe: str) -> Path:
    """Return the model folder of a recipe, which may not exist."""
    return project.run(recipe) / "model"


def is_trained(project: Project, recipe: str) -> bool:
    """Return whether a recipe has a model."""
    return (model_of(project, recipe) / "recipe.yaml").is_file()


def untrained(recipe: str) -> str:
    """Return what is said of a recipe that has no model yet."""
    return f"{recipe} is not trained yet: run dvc repro train@{recipe}, then reload this page"


def trained(project: Project, recipe: str) -> Trained:
    """Return the trained model of a recipe; it is loaded again when its files have changed.

    Raises:
        UserError: it is not trained, or its recipe or its files have faults.
    """
    if not is_trained(project, recipe):
        raise UserError(untrained(recipe))
    path, model = project.params(recipe), model_of(project, recipe)
    return CACHE.get(("trained", str(model.resolve())), files_of(project, recipe), lambda: _load(path, model))


def files_of(project: Project, recipe: str, model: Trained | None = None) -> list[Path]:
    """Return the files that a trained model is loaded from; with the model, those that tell its data have changed."""
    files = [project.params(recipe), *sorted(model_of(project, recipe).iterdir())]
    entries = () if model is None else model.recipe.data.validation.values()
    return files + [Path(str(one.arguments["root"]), "manifest.json") for one in entries if "root" in one.arguments]


def _load(path: Path, model: Path) -> Trained:
    content = read_yaml(path)
    refuse_other_networks(path, content, model)
    check_schema(content, path)
    asked = check_recipe(content, path, ["evaluate", "predict"], trained_facts(model))
    return as_trained(model, asked)


def as_trained(model: Path, asked: Recipe) -> Trained:
    """Load a model folder, with the sections of evaluation of a recipe. Raises UserError as `load_trained` does."""
    recipe, networks = load_trained(model, asked)
    quiet = recipe.model_copy(update={"runtime": recipe.runtime.model_copy(update={"progress": False})})
    with COMPUTING:
        device = accelerator_of(recipe).device
    return Trained(quiet, {name: one.to(device) for name, one in networks.items()}, asked.predict, recipe.train.try_)


def accelerator_of(recipe: Recipe) -> Accelerator:
    """Return an accelerator of the recipe's precision; the caller holds `COMPUTING` as long as it is used.

    Accelerate keeps one precision for the whole process, and refuses a second one until its state is reset.
    """
    AcceleratorState._reset_state()
    return make_accelerator(recipe)


@dataclass(frozen=True, eq=False)
class Drawing:
    """The part of a trained model that draws one picture from an example with certain names."""

    trained: Trained
    injectors: Mapping[str, Injector]
    output: str

    def picture(self, example: Example) -> Pixels:
        """Return the picture, uint8 (H, W, 3) RGB; the same example always gives the same."""
        return as_pixels(run_once(self.trained, self.injectors, example)[self.output].float().cpu().numpy())[0]


def drawing_from(model: Trained, names: Collection[str]) -> Drawing:
    """Return the drawing of the first mode of `evaluate` that makes its first picture from these names alone.

    Raises:
        UserError: there is no such mode.
    """
    for name, mode in model.recipe.evaluate.modes.items():
        output = next((saved for saved, form in mode.save.items() if form == "image"), None)
        if output is not None:
            injectors, reads = injectors_for(mode, name, output)
            if reads - {"name"} == set(names):
                return Drawing(model, injectors, output)
    wanted = " and ".join(names)
    raise UserError(f"{model.recipe.path}: evaluate.modes: none draws a picture from {wanted} alone, so none is tried")


def injectors_for(mode: Mode, name: str, output: str) -> tuple[dict[str, Injector], set[str]]:
    """Return the injectors of a mode that `output` depends on, and the names that an example must have."""
    return needed(named_injectors(mode.injectors, f"evaluate.modes.{name}"), [output])


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_once(model: Trained, injectors: Mapping[str, Injector], example: Example) -> State:
    """Run injectors on a batch of one example, without gradients and with a fixed seed.

    It runs on one thread: beside a training, two would wait for each other and take several times as long.
    """
    networks = Networks(dict(model.networks), dict(model.networks))
    with COMPUTING, _one_thread(), evaluating(*model.networks.values()):
        accelerator = accelerator_of(model.recipe)
        seed_here(model.recipe.seed, "explore")
        batch = to_device(collated([example]), accelerator.device)
        last = model.recipe.train.steps or 2**62  # schedules have arrived where they end
        return run_injectors(injectors, batch, networks, last, accelerator)[0]

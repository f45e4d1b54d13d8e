"""Trained networks in memory, and their results as Python objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.seeding import random_kept
from figura.data.formats.skeletons import COCO, skeleton_from
from figura.engine.precision import evaluation_precision
from figura.evaluation.trained import load_trained
from figura.prediction.device import Device
from figura.prediction.images import photos_from
from figura.prediction.inputs import Photo
from figura.prediction.outputs import Output
from figura.prediction.results import Categories, ImageInfo, Result
from figura.prediction.runner import Runner
from figura.prediction.settings import recipe_and_predict
from figura.recipe.schema import Predict, Recipe


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model on a device: its recipe with `evaluate` of the params file, and `predict` of that file."""

    recipe: Recipe
    predict: Predict
    networks: Mapping[str, nn.Module]
    device: Device
    categories: Categories

    @property
    def is_try(self) -> bool:
        """Whether the weights come from a try, which has learnt next to nothing."""
        return self.recipe.train.try_


def load_networks(path: Path, content: dict[str, Any], model: Path, device: str) -> Trained:
    """Load a model folder with the sections `evaluate` and `predict` of a recipe's content.

    Raises:
        UserError: the recipe or a file is invalid, or there is no such device.
    """
    recipe, predict = recipe_and_predict(path, content, model)
    with random_kept():  # networks are initialised randomly before their weights are loaded
        trained, networks = load_trained(model, recipe)
    place = Device(device, evaluation_precision(trained.train.precision))
    moved = {name: network.to(place.device).eval() for name, network in networks.items()}
    return Trained(trained, predict, moved, place, _categories(trained.facts))


def _categories(facts: Mapping[str, Any]) -> Categories:
    skeleton = skeleton_from(facts["skeleton"]) if facts.get("skeleton") else COCO
    names = {one["id"]: one["name"] for one in facts.get("categories") or ()}
    return Categories(tuple(skeleton.keypoints), names, tuple((a, b) for a, b in skeleton.connections))


class Inference(Runner):
    """One prediction: results as they become ready, the images read, and the unusable inputs.

    With `strict`, the first unusable input raises UserError.
    """

    def __init__(self, trained: Trained, *, batch_size: int | None, workers: int, strict: bool) -> None:
        size = batch_size or trained.recipe.evaluate.batch_size
        super().__init__(
            trained.recipe, trained.predict, trained.networks, trained.device, batch_size=size, workers=workers
        )
        self.categories, self.strict = trained.categories, strict
        self.images: dict[int, ImageInfo] = {}
        self.rates: dict[int, float] = {}
        self.faults: list[str] = []
        self._ready: list[Result] = []

    def results(self, images: Any, every: int, progress: bool, total: int | None = None) -> Iterator[Result]:
        """Yield the results of images, batch by batch; finished ones are yielded before an error is raised."""
        with tqdm(total=total, unit="image", desc="predict", disable=not progress) as bar:
            try:
                for _ in self.batches(photos_from(images, every, self._report), bar):
                    yield from self._taken()
            except UserError:
                yield from self._taken()
                raise

    def _taken(self) -> list[Result]:
        ready, self._ready = self._ready, []
        return ready

    def note(self, photo: Photo) -> None:
        """Store the metadata of an image."""
        file = photo.path if photo.frame is None or photo.place is not None else None
        self.images[photo.number] = ImageInfo(photo.number, photo.name, file, photo.place, photo.size)
        if photo.rate is not None:
            self.rates[photo.number] = photo.rate

    def take(self, output: Output) -> None:
        """Convert an output to a result."""
        values: dict[str, dict[str, Any]] = {"image": {}, "mask": {}, "array": {}, "records": {}}
        for name, form in self.predict.save.items():
            values[form][name] = output.values[name]
        records = [one for some in values["records"].values() for one in some]
        result = Result(
            output.name,
            self.images[output.photo.number],
            {name: output.values[name] for name, form in self.predict.save.items() if form in ("image", "mask")},
            values["records"],
            values["array"],
            output.numbers,
            tuple(self.categories.person(one) for one in records if "keypoints" in one),
            tuple(self.categories.thing(one) for one in records if "bbox" in one and "keypoints" not in one),
            output.compared,
        )
        self._ready.append(result)

    def _report(self, message: str) -> None:
        if self.strict:
            raise UserError(message)
        self.faults.append(message)

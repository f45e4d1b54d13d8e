"""A trained model in memory, on a device."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from figura.base.errors import UserError
from figura.base.seeding import random_kept
from figura.evaluation.model_folder import trained_facts
from figura.evaluation.trained import load_trained
from figura.formats.coco import PERSON
from figura.formats.skeletons import COCO, skeleton_from
from figura.prediction.result import Categories
from figura.recipe.load import check_recipe
from figura.recipe.schema import Predict, Recipe

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Device:
    """A device with the precision of evaluations, with `device` and `autocast` like an Accelerator.

    Several may coexist in a process, also with an Accelerator of the caller.

    Args:
        name: `auto` (the accelerator of this machine, else `cpu`), or an argument of `torch.device`: `cpu`, `cuda:1`.
        precision: `no`, `bf16` or `fp16`; a CPU computes `fp16` in float32, as with Accelerate.

    Raises:
        UserError: there is no such device.
    """

    def __init__(self, name: str, precision: str) -> None:
        self.device = _device(name)
        self.precision = "no" if precision == "fp16" and self.device.type == "cpu" else precision

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which networks run."""
        if self.precision == "no":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=TYPES[self.precision])


def _device(name: str) -> torch.device:
    here = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return here or torch.device("cpu")
    name = "cpu" if name == "cpu:0" else name  # the same to PyTorch
    count = torch.accelerator.device_count() if here is not None else 0
    allowed = ["auto", "cpu", *([] if here is None else [here.type, *(f"{here.type}:{n}" for n in range(count))])]
    if name not in allowed:
        raise UserError(f"device: found {name!r}{_no_cuda(name)}; allowed here: {', '.join(allowed)}")
    return torch.device(name)


def _no_cuda(name: str) -> str:
    """Return why there is no CUDA device, if one was named and there is none."""
    if not name.startswith("cuda") or torch.cuda.is_available():
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return f", but PyTorch {torch.__version__} is a build without CUDA (pytorch.org/get-started has the others)"
    return ", but PyTorch finds no GPU: run `nvidia-smi`, and see CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model on a device.

    Attributes:
        recipe: that of the model, with `evaluate` and `runtime` of the params file.
        predict: the section of the params file.
        networks: by name.
        device: a `Device`, or an Accelerator.
    """

    recipe: Recipe
    predict: Predict
    networks: Mapping[str, nn.Module]
    device: Device

    @property
    def is_try(self) -> bool:
        """Whether the weights come from a try, which has learnt next to nothing."""
        return self.recipe.train.try_

    @cached_property
    def categories(self) -> Categories:
        """Names of joints and categories in the training data; COCO's joints if they have none.

        A network without boxes knows of its category the id alone, and its name is `person`.
        """
        facts = self.recipe.facts
        skeleton = skeleton_from(facts["skeleton"]) if facts.get("skeleton") else COCO
        people = [{"id": facts["category"], "name": PERSON}] if "category" in facts else []
        names = {one["id"]: one["name"] for one in facts.get("categories") or people}
        return Categories(tuple(skeleton.keypoints), names, tuple((a, b) for a, b in skeleton.connections))


def load_networks(path: Path, content: dict[str, Any], model: Path, device: str) -> Trained:
    """Load a model folder with the sections `evaluate` and `predict` of a recipe's content.

    Raises:
        UserError: the recipe or a file is invalid, the recipe has no `predict`, or there is no such device.
    """
    recipe = check_recipe(content, path, ["evaluate", "predict"], trained_facts(model))
    if recipe.predict is None:
        raise UserError(
            f"{path}: predict: missing; it says how photos become examples, which mode runs and what is saved, "
            "such as {data: {type: images.Photos}, mode: translation, save: {fake: image}}"
        )
    with random_kept():  # networks are initialised randomly before their weights are loaded
        trained, networks = load_trained(model, recipe)
    place = Device(device, trained.train.precision)
    moved = {name: network.to(place.device).eval() for name, network in networks.items()}
    return Trained(trained, recipe.predict, moved, place)

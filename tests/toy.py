"""The smallest things a recipe can name, for tests of the engine: `toy.Ramps`, `toy.Painter`, and recipes of them."""

import copy
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml
from figura.dump import Dump
from figura.interfaces import Example, ExampleDataset, Loss
from figura.recipe.expansion import read_recipe
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from figura.report.interfaces import Bootstrap, Score


class Ramps(ExampleDataset):
    """`x` (1, 4, 4) noise and `y` = 0.5 x - 0.1, for a network to find."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index")

    def __init__(self, length: int, jitter: float = 0.0, broken_from: int | None = None) -> None:
        self.length, self.jitter, self.broken_from = length, jitter, broken_from

    def __len__(self) -> int:
        return self.length

    def example(self, index: int, random: np.random.Generator) -> Example:
        base = np.random.default_rng(index).uniform(-1, 1, (1, 4, 4)).astype(np.float32)
        x = base + self.jitter * random.standard_normal((1, 4, 4)).astype(np.float32)
        if self.broken_from is not None and index >= self.broken_from:
            x = x * np.nan
        return {"x": x, "y": 0.5 * base - 0.1, "index": index}


class Split(Ramps):
    """Ramps that are others in each split."""

    def __init__(self, length: int, split: str, jitter: float = 0.0) -> None:
        super().__init__(length, jitter)
        self.first = 1000 * ("train", "validation", "test").index(split)

    def example(self, index: int, random: np.random.Generator) -> Example:
        return super().example(self.first + index, random) | {"index": index}


class Painter(nn.Module):
    """One convolution, dropout, and noise of a given scale."""

    outputs: ClassVar[tuple[str, ...]] = ("image", "mean")

    def __init__(self, width: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, width, 3, padding=1)
        self.last = nn.Conv2d(width, 1, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, noise: float = 0.0) -> Mapping[str, Tensor]:
        hidden = self.dropout(self.layer(x))
        image = self.last(hidden) + noise * torch.randn_like(x)
        return {"image": image, "mean": image.mean(dim=(1, 2, 3), keepdim=True)}


class Stored(Ramps):
    """Ramps that claim to come from a prepared folder."""

    def __init__(self, length: int, root: str) -> None:
        super().__init__(length)
        self.root = root


class Named(Ramps):
    """Examples with a text, a flag that other datasets lack, and an index of their own."""

    names: ClassVar[tuple[str, ...]] = ("x", "y", "index", "word")

    def __init__(self, length: int, offset: float = 0.0) -> None:
        super().__init__(length)
        self.offset = offset

    def example(self, index: int, random: np.random.Generator) -> Example:
        x = np.full((1, 4, 4), self.offset + index / 10, np.float32)
        return {"x": x, "y": 0.5 * x, "index": 100 + index, "word": f"w{index}"}


class Critic(nn.Module):
    """One number for a picture, with batch normalisation on the way."""

    outputs: ClassVar[tuple[str, ...]] = ("score",)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.last = nn.Linear(2, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.norm(self.layer(image)))
        return {"score": self.last(hidden.mean(dim=(2, 3)))}


class Aim(Loss):
    """Squared distance of a score from a number (least-squares adversarial loss)."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def forward(self, *, score: Tensor) -> Tensor:
        return ((score - self.at) ** 2).mean(dim=1)


class Distance(Loss):
    """Mean of |image - target|^power."""

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power

    def forward(self, *, image: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        difference = (image - target).abs() ** self.power
        return (difference if mask is None else difference * mask).mean(dim=(1, 2, 3))


class Mean(Score):
    """Mean of a column of the dump."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Any]:
        return {"mean": bootstrap.estimate(dump.table[self.column].to_numpy())}


class Failing(Score):
    """Finds nothing to judge."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, dump: Dump, bootstrap: Bootstrap) -> dict[str, Any]:
        raise UserError("there is nothing to judge")


RECIPE = """
seed: 3
data:
  train: {ramps: {type: toy.Ramps, length: 22, jitter: 0.1}}
  validation: {ramps: {type: toy.Ramps, length: 6}}
  batch_size: 4
networks: {painter: {type: toy.Painter, width: 2, dropout: 0.1}}
losses:
  distance: {type: toy.Distance, inputs: {image: image, target: y}, weight: 2.0}
  square:
    type: toy.Distance
    power: 2.0
    inputs: {image: image, target: y}
    weight: 0.5
    schedule: {type: Linear, start: 2, end: 6, from: 0.0, to: 1.0}
steps:
  painter:
    trains: [painter]
    optimizer: {type: torch.optim.Adam, lr: 0.01, betas: [0.5, 0.9]}
    injectors:
      paint: {type: Forward, network: painter, inputs: {x: x}, outputs: {image: image}, args: {noise: 0.05}}
    clip: 1.0
train: {steps: 12, precision: "no", ema: {decay: 0.9}, evaluate_every: 5, record_every: 3, max_nonfinite: 3}
evaluate:
  batch_size: 4
  inputs: {x: image, y: array}
  modes:
    plain:
      injectors: {paint: {type: Forward, network: painter, inputs: {x: x}, outputs: {image: image}}}
      save: {image: array}
metrics: {bootstrap: 20, confidence: 0.9, scores: {distance: {type: toy.Mean, column: loss.distance}}}
runtime:
  workers: 0
  log_every: 4
  resume_every: 4
  progress: false
  timing: true
  trackers: []
  samples: {names: [x, image], count: 2}
"""
GAN = """
networks: {painter: {type: toy.Painter, width: 2}, critic: {type: toy.Critic}}
steps:
  critic:
    trains: [critic]
    optimizer: {type: torch.optim.Adam, lr: 0.01, betas: [0.5, 0.9]}
    injectors:
      paint: {type: Forward, network: painter, inputs: {x: x}, outputs: {image: image}}
      real: {type: Forward, network: critic, inputs: {image: y}, outputs: {score: real}}
      fake: {type: Forward, network: critic, inputs: {image: image}, outputs: {score: fake}}
  painter:
    trains: [painter]
    optimizer: {type: torch.optim.Adam, lr: 0.02}
    injectors:
      judge: {type: Forward, network: critic, inputs: {image: image}, outputs: {score: judged}}
losses:
  real: {type: toy.Aim, at: 1.0, inputs: {score: real}, weight: 0.5, step: critic}
  fake: {type: toy.Aim, at: 0.0, inputs: {score: fake}, weight: 0.5, step: critic}
  fool: {type: toy.Aim, at: 1.0, inputs: {score: judged}, weight: 1.0, step: painter}
  distance: {type: toy.Distance, inputs: {image: image, target: y}, weight: 3.0, step: painter}
"""


@cache
def _read(text: str) -> Any:
    return parse_yaml(text, "toy")


def recipe() -> dict[str, Any]:
    """Return the content of a recipe that trains `Painter` in a fraction of a second."""
    content: dict[str, Any] = copy.deepcopy(_read(RECIPE))
    return content


def gan() -> dict[str, Any]:
    """Return the content of a recipe in which a critic and a painter share one forward of the painter."""
    return changed(_read(GAN) | {"train.ema": None})


PAINT: dict[str, Any] = recipe()["evaluate"]["modes"]["plain"]["injectors"]["paint"]


def shipped(file: str) -> dict[str, Any]:
    """Return the content of a recipe of this project, with each entry complete."""
    with chdir(Path(__file__).parents[1]):
        return read_recipe(Path(file))


def changed(changes: Mapping[str, Any], content: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a recipe's content with values at dotted keys replaced; `...` removes a key."""
    content = json.loads(json.dumps(content or recipe()))  # nothing shared between two places
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = content
        for name in sections:
            section = section[name]
        if value is ...:
            del section[last]
        else:
            section[last] = copy.deepcopy(value)
    return content


def checked(changes: Mapping[str, Any] | None = None, content: dict[str, Any] | None = None) -> Recipe:
    """Return a checked recipe with values at dotted keys replaced."""
    return check_recipe(changed(changes or {}, content), Path("toy.yaml"))


def killed_at(point: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper of functions: at call number `point` of all it wraps together, this process gets SIGKILL."""
    calls = 0

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **keywords)

        return wrapper

    return watched

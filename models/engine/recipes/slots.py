"""The places of a recipe where a type is named, and the class that each wants."""

import torch
from torch import nn

from models.engine.callbacks import Callback
from models.engine.examples import Examples
from models.engine.inputs import PhotoExamples
from models.engine.losses import Loss
from models.engine.problems import Problems
from models.engine.recipes.schema import Declaration
from models.engine.recipes.types import INJECTOR, SCHEDULE, Slot, construct
from models.engine.schedules import Schedule
from models.engine.scores import Picture, Score

__all__ = [
    "CALLBACK",
    "DATASET",
    "INJECTOR",
    "LOSS",
    "NETWORK",
    "OPTIMIZER",
    "PHOTOS",
    "PICTURE",
    "SCORE",
    "build_schedule",
]

DATASET = Slot("dataset", Examples)
PHOTOS = Slot("photos", PhotoExamples)
NETWORK = Slot("network", nn.Module)
LOSS = Slot("loss", Loss)
OPTIMIZER = Slot("optimizer", torch.optim.Optimizer, home="models.engine.training.optimizers")
CALLBACK = Slot("callback", Callback)
SCORE = Slot("score", Score)
PICTURE = Slot("picture", Picture)


def build_schedule(entry: Declaration | None, key: str, problems: Problems) -> Schedule:
    """Construct a schedule; none means a constant 1."""
    if entry is None:
        return construct("Constant", {}, SCHEDULE, key, problems)
    return construct(entry.type, entry.arguments, SCHEDULE, key, problems)

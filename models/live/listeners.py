"""Chooses the listeners of a training."""

from models.interfaces import Listener
from models.recipe.schema import Recipe


def listeners(recipe: Recipe) -> list[Listener]:
    """Return the listeners that `runtime` asks for."""
    chosen: list[Listener] = []
    if recipe.runtime.samples:
        from models.live.samples import SampleSheets  # loads OpenCV

        chosen.append(SampleSheets(recipe))
    if recipe.runtime.scores:
        from models.live.scores import OnlineScores  # loads all of evaluation

        chosen.append(OnlineScores(recipe))
    return chosen

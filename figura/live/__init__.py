"""Monitoring of a training: causes of its run, sample sheets, online scores, skipped updates.

It writes to `runs/<recipe>/live`, which is not tracked, and changes no result.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from figura.interfaces import Listener
    from figura.recipe.schema import Recipe


def listeners(recipe: "Recipe") -> list["Listener"]:
    """Return the listeners configured in `runtime`, then that of skipped updates."""
    from figura.live.skipped_updates import SkippedUpdates  # loads PyTorch

    chosen: list[Listener] = []
    if recipe.runtime.samples:
        from figura.live.samples import SampleSheets  # loads OpenCV

        chosen.append(SampleSheets(recipe))
    if recipe.runtime.scores:
        from figura.live.scores import OnlineScores  # loads all of evaluation

        chosen.append(OnlineScores(recipe))
    return [*chosen, SkippedUpdates()]

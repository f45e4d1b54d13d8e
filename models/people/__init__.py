"""People: skeletons, stickman, COCO reading and preparing, drawn people, person pairs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.people.pairs import PersonPairs as PersonPairs

__all__ = ["PersonPairs"]  # given by __getattr__


def __getattr__(name: str) -> Any:
    # On demand: `prepare` reads and draws people without PyTorch, and must not run again when pairs change.
    if name in __all__:
        return getattr(import_module("models.people.pairs"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""A package that stands for albumentations where only what figura asks of it matters."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from models.images import further_transforms


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch, *kinds: type, **others: Any) -> Iterator[None]:
    """Let `albumentations` have these classes, by their names, and other values."""
    package = ModuleType("albumentations")
    vars(package).update({kind.__name__: kind for kind in kinds} | others)
    monkeypatch.setitem(sys.modules, "albumentations", package)
    _forget()
    yield
    _forget()


def _forget() -> None:
    """Drop what is remembered of the package, which may be the real one."""
    further_transforms._composed.cache_clear()
    for slot in (further_transforms.ANY, further_transforms.OF_AN_IMAGE):
        vars(slot).pop("base", None)

"""A package that stands for albumentations where only what figura asks of it matters."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from models.images import further_transforms


class BasicTransform:
    """The package itself is tried in `test_package_table.py`."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError("p\n  Input should be at most 1")
        self.p = p


class ImageOnlyTransform(BasicTransform):
    pass


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch, *kinds: type, **others: Any) -> Iterator[None]:
    """Let `albumentations` have these classes, by their names, the classes above, and other values."""
    package = ModuleType("albumentations")
    vars(package).update({kind.__name__: kind for kind in (BasicTransform, ImageOnlyTransform, *kinds)} | others)
    monkeypatch.setitem(sys.modules, "albumentations", package)
    _forget()
    yield
    _forget()


def _forget() -> None:
    """Drop what is remembered of the package, which may be the real one."""
    further_transforms._composed.cache_clear()
    for slot in (further_transforms.ANY, further_transforms.OF_AN_IMAGE):
        vars(slot).pop("base", None)

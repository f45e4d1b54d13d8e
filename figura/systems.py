"""Locate `models`, the package of the systems: the project's first, then the shipped one.

In figura's repository, the systems are beside this package. The wheel has a copy of the full project in
`figura/project`, of which `figura init` copies parts.
"""

import importlib
import pkgutil
import re
import sys
from functools import cache
from pathlib import Path

PACKAGE = "models"
IN_WHEEL = Path(__file__).with_name("project")
PROJECT = IN_WHEEL if IN_WHEEL.is_dir() else Path(__file__).parents[1]
"""The project that ships with figura: `dvc.yaml`, `params.yaml`, `recipes`, `stages`, `models`, ..."""
CLASS = re.compile(r"^class (\w+)\b", re.MULTILINE)


def find_systems(shipped_only: bool = False) -> None:
    """Make `models.NAME` the project's module, or the shipped one if the project has none of that name.

    Raises:
        ImportError: with `shipped_only`, if another `models` is already imported.
    """
    shipped = str(PROJECT / PACKAGE)
    if PACKAGE not in sys.modules:
        if shipped_only:
            sys.path.insert(0, str(PROJECT))
        try:
            importlib.import_module(PACKAGE)
        except ModuleNotFoundError as error:
            if error.name != PACKAGE:
                raise
            sys.path.append(str(PROJECT))  # at the end, where it shadows nothing
            importlib.invalidate_caches()
        finally:
            if shipped_only:
                sys.path.remove(str(PROJECT))
    path = getattr(importlib.import_module(PACKAGE), "__path__", None)
    if shipped_only and list(path or ()) != [shipped]:
        raise ImportError(f"another package {PACKAGE!r} is imported already; start a new process")
    if path is not None and shipped not in path:
        path.append(shipped)


@cache
def modules_below(folder: Path) -> list[tuple[tuple[str, ...], Path]]:
    """Return the files of the modules below a folder, each with the parts of its name.

    Files whose path is not a module name (`.ipynb_checkpoints/losses-checkpoint.py`) are skipped.
    """
    files = [(path.relative_to(folder).with_suffix("").parts, path) for path in sorted(folder.rglob("*.py"))]
    return [
        (parts[:-1] if parts[-1] == "__init__" else parts, path)
        for parts, path in files
        if all(part.isidentifier() for part in parts) and path.is_file()
    ]


@cache
def classes_in(path: Path) -> list[str]:
    """Return the names of the classes that a file defines, by its text: importing it would run it."""
    return CLASS.findall(path.read_text(encoding="utf-8", errors="replace"))  # names are readable in any encoding


def modules_with(prefix: str, function: str) -> dict[str, str]:
    """Return the modules of all systems whose file is called `<prefix><name>.py` and defines a function, by name."""
    find_systems()
    found = {}
    for system in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__):
        folder = Path(system.module_finder.path) / system.name  # type: ignore[union-attr]
        for file in folder.glob(f"{prefix}*.py"):
            if f"\ndef {function}(" in file.read_text("utf-8"):
                found[file.stem.removeprefix(prefix)] = f"{PACKAGE}.{system.name}.{file.stem}"
    return dict(sorted(found.items()))

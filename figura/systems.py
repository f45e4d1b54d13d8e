"""Locate the systems: those of the project's package `models` first, then the shipped ones, `figura.models`.

In figura's repository, the systems are beside this package, and are `models` there. The wheel has a copy of the full
project in `figura/project`, of which `figura init` copies parts.
"""

import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path

PACKAGE = "models"
SHIPPED = "figura.models"  # the package of the shipped systems, unless `models` is: `in_repository`
IN_WHEEL = Path(__file__).with_name("project")
PROJECT = IN_WHEEL if IN_WHEEL.is_dir() else Path(__file__).parents[1]
"""The project that ships with figura: its pipeline, `params.yaml`, `recipes`, `stages`, `models`, ..."""
CLASS = re.compile(r"^class (\w+)\b", re.MULTILINE)


def folders() -> list[str]:
    """Return the folders of the package `models` that this process imports; [] without one."""
    loaded = sys.modules.get(PACKAGE)
    if loaded is None and (spec := importlib.util.find_spec(PACKAGE)) is not None:
        return list(spec.submodule_search_locations or ())
    return list(getattr(loaded, "__path__", ()))


def in_repository(places: Iterable[str | Path] | None = None) -> bool:
    """Whether `models`, whose folders are `places` or those of this process, is the package of the shipped systems."""
    first = next(iter(folders() if places is None else places), None)
    return first is not None and Path(first).resolve() == (PROJECT / PACKAGE).resolve()


def full_name(name: str, places: Sequence[str | Path] | None = None, shipped_only: bool = False) -> str:
    """Return the name by which a system's module is imported: `models.vunet.losses` for `vunet.losses`.

    It is in `models`, whose folders are `places` or those of this process, if that has the system, and otherwise in
    `figura.models`. A name that begins with `models` or `figura` stays, but for `models.vunet` of a shipped system.
    """
    short = name.removeprefix(f"{PACKAGE}.")
    system = short.partition(".")[0]
    if system in (PACKAGE, "figura"):
        return name
    places = folders() if places is None else places
    if in_repository(places):
        own = SHIPPED not in sys.modules  # as before another project's `models` left the path
    else:
        own = not shipped_only and any(_has(Path(one), system) for one in places)
    return f"{PACKAGE if own else SHIPPED}.{short}"


def _has(folder: Path, system: str) -> bool:
    """Whether a folder has a module or a package; a folder without code, such as one of weights, is none."""
    return any((folder / f"{system}{suffix}").is_file() for suffix in all_suffixes()) or bool(
        modules_below(folder / system)
    )


def systems() -> dict[str, str]:
    """Return the full names of all systems by their short ones."""
    found = pkgutil.iter_modules([*folders(), str(PROJECT / PACKAGE)])
    return {name: full_name(name) for name in sorted({one.name for one in found})}


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
    found = {}
    for system in systems().values():
        spec = importlib.util.find_spec(system)
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in Path(folder).glob(f"{prefix}*.py"):
                if f"\ndef {function}(" in file.read_text("utf-8"):
                    found[file.stem.removeprefix(prefix)] = f"{system}.{file.stem}"
    return dict(sorted(found.items()))

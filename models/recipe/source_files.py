"""The source files that a recipe loads: those of its types, and of all that they import."""

import ast
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from models.recipe.resolved import RESULT_SECTIONS
from models.recipe.schema import Recipe
from models.recipe.types import find_class

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
INSTALLED = {"site-packages", "dist-packages"}  # names of folders
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # fields of a statement that hold statements


def declared_types(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the type of each declaration (`type: images.L1`) inside nested maps."""
    if isinstance(value, Mapping):
        if isinstance(value.get("type"), str):
            yield f"{key}type", value["type"]
        for name, part in value.items():
            yield from declared_types(part, f"{key}{name}.")


def named_modules(recipe: Recipe, sections: Collection[str] = RESULT_SECTIONS) -> set[str]:
    """Return the modules of all types named in sections of a recipe, by default in those that training reads."""
    content = recipe.model_dump(include=set(sections), by_alias=True)
    kinds = (find_class(name) for _, name in declared_types(content))
    return {kind.__module__ for kind in kinds if kind is not None}


def source_files(modules: Iterable[str]) -> dict[str, Path]:
    """Return the source files, by module, of `modules` and of all they import, directly and indirectly.

    Files are parsed, not run: imports inside functions count, imports under `if TYPE_CHECKING` do not. Installed
    packages are left out, except figura itself.
    """
    files: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in files or not _is_own(name.partition(".")[0]) or (path := _source(name)) is None:
            continue
        files[name] = path
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        waiting += [name.rpartition(".")[0], *imported_names(path.read_bytes(), package)]
    return files


@cache
def _is_own(package: str) -> bool:
    """Whether a top-level package is figura or the user's own code, not an installed package."""
    if package == __name__.partition(".")[0]:
        return True
    paths = [path] if (path := _source(package)) else _namespace(package)
    return bool(paths) and all(
        INSTALLED.isdisjoint(path.parts) and not path.is_relative_to(STANDARD_LIBRARY) for path in paths
    )


def _namespace(package: str) -> list[Path]:
    """Return the folders of a package that has no `__init__.py`, none for anything else."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in spec.submodule_search_locations or []] if spec and spec.origin is None else []


def _source(name: str) -> Path | None:
    if name in sys.modules and getattr(sys.modules[name], "__file__", None):  # `__main__` as well
        origin = sys.modules[name].__file__
    else:
        try:
            spec = find_spec(name) if name else None
        except (ImportError, ValueError):  # not the name of a module
            return None
        origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") and Path(origin).is_file() else None


@cache
def imported_names(code: bytes, package: str) -> tuple[str, ...]:
    """Return all imported names that may be modules, from the code of a module in `package`."""
    return tuple(_imports(ast.parse(code), package))


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in (one for block in BLOCKS for one in getattr(tree, block, ())):  # expressions import nothing
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node, package)

"""The files that modules and types import, directly and indirectly: by static analysis, without running any of them."""

import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.code.syntax import DIGITS, Source, read_source
from figura.systems import PACKAGE as SYSTEMS
from figura.systems import PROJECT, classes_in, modules_below

LIBRARY = "figura"
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
INSTALLED = {"site-packages", "dist-packages"}  # names of folders
ONLY_WATCHES = "figura.live"
"""Code that only observes a training and cannot change its result; excluded from the closure."""
HOMES = ("figura.schedules", "figura.injectors", "figura.optimizers")
"""The packages that define types without a dot."""


@dataclass
class Code:
    """The code loaded by modules.

    Attributes:
        files: digests by path; paths are relative to the folder from which the module is imported.
        sources: the file of each of these paths.
        packages: versions of the installed packages of types, by their name on PyPI.
    """

    files: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Path] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)

    def sources_below(self, folder: Path) -> list[str]:
        """Return the files below a folder, relative to it."""
        return [path.relative_to(folder).as_posix() for path in self.sources.values() if path.is_relative_to(folder)]


def declared_types(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the type of each declaration (`type: images.L1`) inside nested maps."""
    if isinstance(value, Mapping):
        if isinstance(value.get("type"), str):
            yield f"{key}type", value["type"]
        for name, part in value.items():
            yield from declared_types(part, f"{key}{name}.")


def code_of(modules: Iterable[str], types: Collection[str] = ()) -> Code:
    """Return the code loaded by modules and the types of a recipe.

    Raises:
        UserError: a file outside of figura and of installed packages loads a module whose name is not a constant.
    """
    for cached in (find, is_own, _roots, _module, modules_below, classes_in):  # files may change between calls
        cached.cache_clear()
    code = Code()
    walk = _Walk(code)
    walk.follow([*modules, *filter(None, map(module_of_type, types))])
    for name in types:
        code.packages |= _package_of(name)
    if not is_own(LIBRARY):  # its version identifies its code, including the shipped systems
        code.packages |= _version(LIBRARY)
    return code


class _Walk:
    """Follows imports and adds each project file to `code`."""

    def __init__(self, code: Code) -> None:
        self.code, self.seen = code, set[str]()

    def follow(self, modules: Iterable[str]) -> None:
        """Add the files of modules, and of everything that these import."""
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            if name in self.seen or name == ONLY_WATCHES or name.startswith(f"{ONLY_WATCHES}."):
                continue
            self.seen.add(name)
            if is_own(name.partition(".")[0]):
                found = find(name)
                waiting += self._add(name, found) if found else self._attribute(name)

    def _add(self, name: str, found: "Found") -> list[str]:
        """Add a file, and those beside it that its code may read; return the modules loaded with it."""
        if not _is_own(found.path):
            return []
        source = _read(found.path, found.package)
        if source.unknown and name.partition(".")[0] != LIBRARY:
            raise UserError(
                f"{found.path}:{source.unknown[0]}: loads a module whose name is no constant, so a change of it could "
                "not be noticed; write the name, or an import, there"
            )
        files, sources = self.code.files, self.code.sources
        files[found.key], sources[found.key] = source.digest, found.path
        for path, key in _beside(found) if source.reads_beside else ():
            files[key], sources[key] = sha256(path.read_bytes()).hexdigest()[:DIGITS], path
        return [*_parent(name), *source.imports]

    def _attribute(self, name: str) -> list[str]:
        """Return the modules loaded for a name that is not a module: its module, and what that imports for it."""
        above = _parent(name)
        found = find(above[0]) if above else None
        source = _read(found.path, found.package) if found else None
        lazily = source is not None and name.rpartition(".")[2] not in source.names
        return [*above, *(source.on_request if source is not None and lazily else ())]


def _parent(name: str) -> list[str]:
    return [parent] if (parent := name.rpartition(".")[0]) else []


@dataclass(frozen=True)
class Found:
    """A module's file, its package, and its path relative to the folder from which it is imported."""

    path: Path
    package: str
    key: str


@cache
def find(name: str) -> Found | None:
    """Return the file of a module, or None if it is not a module or has no Python source. Imports nothing."""
    if name == "__main__":
        file = getattr(sys.modules[name], "__file__", None)
        return (
            Found(Path(file), "", Path(file).name) if file and file.endswith(".py") and os.path.isfile(file) else None
        )
    top, *rest = name.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        return None
    if not rest and (module := _module(top)) is not None:
        return Found(module, "", module.name)
    for root in _roots(top):
        folder = root.joinpath(*rest)
        key = Path(top, *rest)
        if (file := folder / "__init__.py").is_file():
            return Found(file, name, (key / "__init__.py").as_posix())
        if rest and (file := folder.with_suffix(".py")).is_file():
            return Found(file, name.rpartition(".")[0], key.with_suffix(".py").as_posix())
    return None


@cache
def _roots(top: str) -> tuple[Path, ...]:
    """Return the folders of a top-level package, in lookup order; empty for a single-file module."""
    spec = PathFinder.find_spec(top)
    folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if top == SYSTEMS and PROJECT / SYSTEMS not in folders:
        folders.append(PROJECT / SYSTEMS)
    return tuple(folders)


@cache
def _module(top: str) -> Path | None:
    """Return the file of a top-level module that is not a package."""
    spec = PathFinder.find_spec(top)
    if spec is None or not spec.origin or not spec.origin.endswith(".py") or spec.submodule_search_locations:
        return None
    return Path(spec.origin)


@cache
def is_own(top: str) -> bool:
    """Whether a top-level package is code of this project (or a clone of figura), not an installed package."""
    if top == "__main__":
        return True
    paths = [path] if (path := _module(top)) else _roots(top)
    return bool(paths) and _is_own(paths[0])


def _is_own(path: Path) -> bool:
    """Whether a file is not part of an installed package; shipped systems are treated as the project's."""
    return path.is_relative_to(PROJECT / SYSTEMS) or (
        INSTALLED.isdisjoint(path.parts) and not path.is_relative_to(STANDARD_LIBRARY)
    )


def _read(path: Path, package: str) -> Source:
    status = path.stat()
    return _read_version(path, package, status.st_size, status.st_mtime_ns)


@cache
def _read_version(path: Path, package: str, size: int, time: int) -> Source:
    """Parse a version of a file; size and time identify versions."""
    return read_source(path.read_bytes(), package)


def _beside(found: Found) -> Iterator[tuple[Path, str]]:
    """Yield the non-Python files beside a module, and their keys."""
    for path in sorted(found.path.parent.iterdir()):
        if path.is_file() and path.suffix not in (".py", ".pyc", ".md", ".typed") and path.name[0] != ".":
            yield path, (Path(found.key).parent / path.name).as_posix()


def module_of_type(name: str) -> str | None:
    """Return the module that defines the class of a `type`, or None if it is not a class (`type: jpeg`)."""
    package, _, attribute = name.rpartition(".")
    if not package:
        return next((module for home in HOMES for module in _modules_with(home, attribute)), None)
    inside = package if package.partition(".")[0] in (SYSTEMS, LIBRARY) else f"{SYSTEMS}.{package}"
    if (module := next(_modules_with(inside, attribute), None)) is not None:
        return module
    return inside if find(inside) else package


def _modules_with(package: str, name: str) -> Iterator[str]:
    """Yield the modules in a package of figura or of the systems whose source defines a class."""
    top, *rest = package.split(".")
    for root in _roots(top):
        folder = root.joinpath(*rest)
        if rest and folder.with_suffix(".py").is_file() and name in classes_in(folder.with_suffix(".py")):
            yield package
        for parts, path in modules_below(folder):
            if name in classes_in(path):
                yield ".".join([package, *parts])


def _package_of(name: str) -> dict[str, str]:
    """Return the version of a type's installed package; {} for others."""
    module = module_of_type(name)
    top = (module or "").partition(".")[0]
    return _version(top) if top and top not in (SYSTEMS, LIBRARY) and not is_own(top) else {}


@cache
def _version(top: str) -> dict[str, str]:
    """Return name and version of a package's distribution; builds of a version (`+cpu`) are equal."""
    try:
        return {top: version(top).partition("+")[0]}
    except PackageNotFoundError:
        names = packages_distributions().get(top, [])
        return {name: version(name).partition("+")[0] for name in names[:1]}

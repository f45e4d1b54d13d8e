"""The files that modules and types import, directly and indirectly: by static analysis, without running any of them."""

import os
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import invalidate_caches
from importlib.machinery import EXTENSION_SUFFIXES, BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from importlib.metadata import Distribution, PackageNotFoundError, distributions, packages_distributions, version
from itertools import islice
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.pipeline.relevance import changes_results
from figura.pipeline.syntax import DIGITS, EMPTY, Source, read_source
from figura.systems import PACKAGE as SYSTEMS
from figura.systems import PROJECT, SHIPPED, classes_in, full_name, modules_below

LIBRARY = "figura"
STANDARD_LIBRARY = [Path(sysconfig.get_path(one)) for one in ("stdlib", "platstdlib")]
SUFFIXES = (*EXTENSION_SUFFIXES, ".py", ".pyc")  # of modules, in the order in which Python looks for them
MOST = 10_000  # files of data in a package
LOCK = "dvc.lock"  # changes with every stage
INSTALLED = {"site-packages", "dist-packages"}  # names of folders
HOMES = ("figura.schedules", "figura.injectors", "figura.optimizers")
"""The packages that define types without a dot."""
BUILDER = "figura.engine.build"
ADAPTERS = "figura.engine.package_parts"
"""What makes networks, losses and injectors of other packages' parts; loaded by name (`figura.recipe.types`)."""
AS_THEY_ARE = "torch.optim."  # types of packages that need no adapter


@dataclass
class Code:
    """The code loaded by modules.

    Attributes:
        files: digests by path, relative to the folder from which the module is imported; not of files without code.
        sources: the file of each of these paths, and files without code.
        packages: versions of the installed packages of types, by their name on PyPI.
    """

    files: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Path] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


def declared_types(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the type of each declaration (`type: images.L1`) inside nested maps."""
    if isinstance(value, Mapping):
        if isinstance(value.get("type"), str):
            yield f"{key}type", value["type"]
        for name, part in value.items():
            yield from declared_types(part, f"{key}{name}.")


def words_of(value: Any) -> Iterator[str]:
    """Yield the keys and strings inside nested maps and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from (str(key), *words_of(part))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from words_of(part)


def code_of(modules: Iterable[str], types: Collection[str] = (), words: Collection[str] | None = None) -> Code:
    """Return the code loaded by modules and the types of a recipe.

    `words` are those of the recipe (`words_of`): modules that are imported for other words alone do not count
    (`syntax.IMPORTED_FOR`). Without words, all count.

    Raises:
        UserError: a file outside of figura and of installed packages loads what cannot be followed: a module or file
            whose name is not a constant, a package without files.
    """
    invalidate_caches()
    for cached in (find, is_own, _files, _spec, _roots, _module, _listed, _hidden, modules_below, classes_in):
        cached.cache_clear()  # files may change between calls
    code = Code()
    walk = _Walk(code, words)
    walk.follow([*modules, *filter(None, map(module_of_type, types))])
    if BUILDER in walk.seen and any(map(_may_need_adapter, types)):
        walk.follow([ADAPTERS])
    for name in types:
        code.packages |= _package_of(name)
    if not is_own(LIBRARY):  # its version identifies its code, including the shipped systems
        code.packages |= _version(LIBRARY)
    return code


def code_for(modules: Iterable[str], content: Mapping[str, Any]) -> Code:
    """Return the code that modules load for the content of a recipe, or of some of its sections. Raises UserError."""
    return code_of(modules, [name for _, name in declared_types(content)], set(words_of(content)))


class _Walk:
    """Follows imports and adds each project file to `code`."""

    def __init__(self, code: Code, words: Collection[str] | None) -> None:
        self.code, self.words, self.seen = code, words, set[str]()

    def follow(self, modules: Iterable[str]) -> None:
        """Add the files of modules, and of everything that these import."""
        waiting = list(modules)
        while waiting:
            name = waiting.pop()
            if name in self.seen or not changes_results(name):
                continue
            self.seen.add(name)
            if (top := name.partition(".")[0]) in _hidden():
                raise UserError(
                    f"{top}: installed in editable mode, but its files cannot be found, so a change of them could not "
                    "be noticed; install it by `pip install -e . --config-settings editable_mode=compat`"
                )
            if is_own(top) or _is_shipped(name):
                found = find(name)
                waiting += self._add(name, found) if found else self._attribute(name)

    def _add(self, name: str, found: "Found") -> list[str]:
        """Add a file, and those beside it that its code may read; return the modules loaded with it."""
        if not _is_own(found.path, found.key):
            return []
        files, sources = self.code.files, self.code.sources
        if found.path.suffix != ".py":
            files[found.key], sources[found.key] = _digest(found.path), found.path
            return _parent(name)
        source = _read(found.path, found.package)
        library = name.partition(".")[0] == LIBRARY and not _is_shipped(name)
        if source.unknown and not library:
            raise UserError(
                f"{found.path}:{source.unknown[0]}: loads a module or file whose name is no constant, so a change of "
                "it could not be noticed; write the name, or an import, there"
            )
        sources[found.key] = found.path
        if source.digest not in EMPTY:
            files[found.key] = source.digest
        imports = [*_parent(name), *self._imports(source)]
        for path, key in [*_beside(found, source, library), *(() if library else _named(found, source))]:
            if path.suffix == ".py":
                data = _read(path, found.package)
                files[key], imports = data.digest, [*imports, *data.imports]
            else:
                files[key] = _digest(path)
            sources[key] = path
        return imports

    def _imports(self, source: Source) -> Iterator[str]:
        """Yield what a module imports for the words."""
        others = [
            module
            for module, words in source.imported_for
            if self.words is not None and words.isdisjoint(self.words)
        ]  # fmt: skip
        for name in source.imports:
            if not any(f"{name}.".startswith(f"{module}.") for module in others):
                yield name

    def _attribute(self, name: str) -> list[str]:
        """Return the modules loaded for a name that is not a module: its module, and what that imports for it."""
        above = _parent(name)
        if not above:
            places = [*_roots(name), *filter(None, [_module(name)])]
            if places and not any(map(Path.is_dir, places)):
                raise UserError(
                    f"{name}: lies in {places[0]}, which cannot be read, so a change of it could not be noticed; "
                    "unpack it"
                )
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
    """Return the file of a module, or None if it is not a module. Imports nothing."""
    if name == "__main__":
        file = getattr(sys.modules[name], "__file__", None)
        return (
            Found(Path(file), "", Path(file).name) if file and file.endswith(".py") and os.path.isfile(file) else None
        )
    top, *rest = name.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        return None
    if not rest and (module := _module(top)) is not None and module.is_file():
        return Found(module, "", module.name)
    above, key = name.rpartition(".")[0], name.replace(".", "/")
    for folder in _folders(name):  # strings, because paths take three times as long
        for suffix in SUFFIXES:
            if (file := f"__init__{suffix}") in _files(folder):
                return Found(Path(folder, file), name, f"{key}/{file}")
        beside, last = os.path.split(folder)
        for suffix in SUFFIXES if rest else ():
            if f"{last}{suffix}" in _files(beside):
                return Found(Path(f"{folder}{suffix}"), above, f"{key}{suffix}")
    folders = tuple(os.path.join(root, *rest[:-1]) for root in _roots(top)) if rest else ()
    if folders and (spec := _spec(name, folders)) is not None and spec.origin and os.path.isfile(spec.origin):
        origin, package = Path(spec.origin), spec.submodule_search_locations is not None
        place = f"{key}/{origin.name}" if package else Path(key).with_name(origin.name).as_posix()
        return Found(origin, name if package else above, place)
    return None


@cache
def _files(folder: str) -> frozenset[str]:
    """Return the names of a folder's files; none of a folder that cannot be read or is not there."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file())
    except OSError:
        return frozenset()


def _is_shipped(name: str) -> bool:
    """Whether a module is one of a shipped system; the package of the systems itself is one of the library."""
    return name.startswith(f"{SHIPPED}.")


def _folders(name: str) -> list[str]:
    """Return where the files of a module or package may be, each without the suffix."""
    top, *rest = name.split(".")
    return [os.path.join(root, *rest) for root in ((PROJECT,) if _is_shipped(name) else _roots(top))]


@cache
def _spec(name: str, folders: tuple[str, ...] | None = None) -> ModuleSpec | None:
    """Return what the finders of this process know of a module: `pip install -e` adds some beside Python's own.

    For a module in a package, whose `folders` are given, only theirs count, as Python's own need the package imported.
    """
    own = (BuiltinImporter, FrozenImporter, PathFinder)
    for finder in sys.meta_path:
        if folders is None or finder not in own:
            with suppress(AttributeError, ImportError):  # of one that needs a package above a name, where a module is
                if (spec := finder.find_spec(name, folders)) is not None:
                    return spec
    return None


@cache
def _roots(top: str) -> tuple[Path, ...]:
    """Return the folders of a top-level package, in lookup order; empty for a single-file module."""
    spec = _spec(top)
    return tuple(Path(folder) for folder in (spec and spec.submodule_search_locations) or ())


@cache
def _module(top: str) -> Path | None:
    """Return the file of a top-level module that is not a package."""
    spec = _spec(top)
    if spec is None or not spec.origin or not spec.origin.endswith(SUFFIXES) or spec.submodule_search_locations:
        return None
    return Path(spec.origin)


@cache
def is_own(top: str) -> bool:
    """Whether a top-level package is code of this project (or a clone of figura), not an installed package."""
    if top == "__main__":
        return True
    if (path := _module(top)) is not None:
        return _is_own(path, path.name)
    return bool(roots := _roots(top)) and _is_own(roots[0], top)


def _is_own(path: Path, key: str) -> bool:
    """Whether a file is not part of an installed package; shipped systems are treated as the project's.

    Installed is what lies in `site-packages`, or is listed by the RECORD of a `*.dist-info` in the folder from which it
    is imported, as in a folder of `pip install --target`. `key` is the path below that folder.
    """
    if path.is_relative_to(PROJECT / SYSTEMS):
        return True
    if not INSTALLED.isdisjoint(path.parts) or any(map(path.is_relative_to, STANDARD_LIBRARY)):
        return False
    return key.partition("/")[0] not in _listed(top_of(path, key).parent)


def top_of(path: Path, key: str) -> Path:
    """Return the top-level folder or file of a module: `/p/models` for /p/models/vunet/losses.py."""
    within = key.removeprefix(f"{LIBRARY}/") if path.is_relative_to(PROJECT / SYSTEMS) else key
    return path.parents[within.count("/") - 1] if "/" in within else path


@cache
def _listed(folder: Path) -> frozenset[str]:
    """Return the files and folders that installed packages own in a folder."""
    records = [path.read_text("utf-8", "replace") for path in folder.glob("*.dist-info/RECORD")]
    return frozenset(re.split("[/,]", line, maxsplit=1)[0] for text in records for line in text.splitlines())


@cache
def _hidden() -> frozenset[str]:
    """Return the packages installed in editable mode whose files are not where Python's finders say."""
    folders = tuple((path, os.stat(path).st_mtime_ns) for path in sys.path if os.path.exists(path))
    return frozenset(top for top in _editable(folders) if _spec(top) is not None and not is_own(top))


@cache
def _editable(folders: tuple[tuple[str, int], ...]) -> frozenset[str]:
    """Return the packages installed in editable mode; `folders` are those of `sys.path`, and when each was changed.

    Of several installations of a package on `sys.path`, Python imports the first.
    """
    tops, first = set[str](), dict[str, Distribution]()
    for one in distributions():
        first.setdefault(one.metadata["Name"], one)
    for one in first.values():
        if re.search(r'"editable":\s*true', one.read_text("direct_url.json") or ""):
            tops |= {*(one.read_text("top_level.txt") or one.metadata["Name"].replace("-", "_")).split()}
    return frozenset(tops)


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:DIGITS]


def _read(path: Path, package: str) -> Source:
    status = path.stat()
    return _read_version(path, package, status.st_size, status.st_mtime_ns)


@cache
def _read_version(path: Path, package: str, size: int, time: int) -> Source:
    """Parse a version of a file; size and time identify versions."""
    return read_source(path.read_bytes(), package)


def _beside(found: Found, source: Source, library: bool) -> Iterator[tuple[Path, str]]:
    """Yield the files of data that a module may find by its own place, and their keys.

    They are in its folder and, except for figura's modules, in subfolders; for a module outside of packages, whose
    folder may be a whole project, in those that it names.
    """
    if not source.reads_beside:
        return
    folder, key = found.path.parent, Path(found.key).parent
    if source.reads_above and found.package and not library:
        folder = top_of(found.path, found.key)
        key = Path(found.key.removesuffix(found.path.relative_to(folder).as_posix()))
    files = [path for path in folder.iterdir() if path.is_file() and path.name != LOCK]
    names = {part for text in source.texts for part in text.split("/")}
    for inside in () if library else [path for path in folder.iterdir() if path.is_dir()]:
        if found.package or inside.name in names:
            files += islice((path for path in inside.rglob("*") if path.is_file()), MOST)
    if len(files) > MOST:
        raise UserError(
            f"{found.path}: reads files beside itself, and {folder} has more than {MOST:,}; keep data outside of "
            "packages"
        )
    for path in sorted(files):
        place = path.relative_to(folder)
        hidden = any(part[0] == "." or part == "__pycache__" for part in place.parts)
        if path.suffix not in (".py", ".pyc", ".md", ".typed") and not hidden:
            yield path, (key / place).as_posix()


def _named(found: Found, source: Source) -> Iterator[tuple[Path, str]]:
    """Yield the files that the constants of a module name, from the current folder or its own, and their keys."""
    here = os.getcwd()
    others = (str(found.path), os.path.join(here, LOCK))
    for text in source.texts:
        for folder, above in ((here, ""), (str(found.path.parent), os.path.dirname(found.key))):
            path, key = (os.path.normpath(os.path.join(one, text)) for one in (folder, above))
            if os.path.isfile(path) and path not in others and not path.startswith("/proc/"):
                yield Path(path), key


def module_of_type(name: str) -> str | None:
    """Return the module that defines the class of a `type`, or None if it is not a class (`type: jpeg`)."""
    package = name.rpartition(".")[0]
    if (module := _module_of_class(name)) is not None or not package:
        return module
    inside = full_name(package, _roots(SYSTEMS))
    return inside if find(inside) else package


def _module_of_class(name: str) -> str | None:
    """Return the module that defines the class of a `type` in figura or a system, or None."""
    package, _, attribute = name.rpartition(".")
    homes = [full_name(package, _roots(SYSTEMS))] if package else HOMES
    return next((module for home in homes for module in _modules_with(home, attribute)), None)


def _may_need_adapter(name: str) -> bool:
    """Whether a type may be a part of another package, or a function."""
    return "." in name and not name.startswith(AS_THEY_ARE) and _module_of_class(name) is None


def _modules_with(package: str, name: str) -> Iterator[str]:
    """Yield the modules in a package of figura or of the systems whose source defines a class."""
    for folder in _folders(package):
        if "." in package and (file := Path(f"{folder}.py")).is_file() and name in classes_in(file):
            yield package
        for parts, path in modules_below(Path(folder)):
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

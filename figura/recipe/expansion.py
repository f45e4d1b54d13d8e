"""Entries that extend others, so that recipes say once what they share.

`extends: reconstruction` names an entry of the same map, a dotted key such as `steps.generator` one elsewhere, and
`params.yaml#metrics.scores` one of another file. The entry then has the keys of that one, except those that it has
itself. The `injectors` of steps, modes and grids are combined by name, each in the same way, in the order of that one
with further ones last, or, if all of them are named, in their own order. Other values are replaced whole. In a map of
entries (`MAPS`), `name: null` takes the entry of that name away. Of a step,
modes and grids take the injectors alone, without their gates. An injector of a `network` without a `type` is `Forward`.

The pipeline does not follow `extends`: the manifest of a stage has what its recipe takes from other files
(`figura/pipeline/manifests.py`), and within a file an entry extends only what makes the stage run again (`SOURCES`).
"""

from collections.abc import Collection
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any

from figura.base.error_collector import ErrorCollector, shown
from figura.base.errors import UserError, nearest
from figura.base.yaml12 import read_yaml
from figura.recipe.schema import RESULT_SECTIONS

KEY = "extends"
SOURCES = {
    **dict.fromkeys(RESULT_SECTIONS, RESULT_SECTIONS),
    "evaluate": (*RESULT_SECTIONS, "evaluate"),
    "predict": (*RESULT_SECTIONS, "evaluate", "predict"),
    "metrics": ("metrics",),
    "runtime": ("runtime",),
}
"""The sections whose entries those of a section may extend."""
OF_STEPS = ("every", "after", "before", "only")  # keys of an injector that only a step has
MAPS = (
    "networks", "losses", "steps", "callbacks", "injectors", "modes", "grids", "averages", "scores", "pictures",
    "summary", "compare",
)  # fmt: skip
"""Keys whose values are maps of entries."""

Content = dict[str, Any]
Key = tuple[str, ...]


def expanded(content: Content, errors: ErrorCollector) -> Content:
    """Return a recipe's content with each entry complete; `errors` gets what is wrong, and the origins of keys."""
    expansion = _Expansion(content, errors, (errors.file,))
    for name, section in expansion.content.items():
        expansion.complete((name,), section)
    return expansion.content


def read_recipe(path: Path) -> Content:
    """Read a recipe with each entry complete; what is wrong with it is left to the check. Raises like `read_yaml`."""
    return expanded(read_yaml(path), ErrorCollector(path))


def extended_files(section: Any, known: Collection[Path] = ()) -> set[Path]:
    """Return the files with entries that those of a section extend, and the files that these extend."""
    found = set[Path]()
    for key, value in _map(section).items():
        path = Path(value.rpartition("#")[0]) if key == KEY and isinstance(value, str) else Path()
        found |= extended_files(value, known) if path == Path() else {path}
    for path in found - {*known}:
        if path.is_file():
            found |= extended_files(read_yaml(path), {*known, *found})
    return found


class _Expansion:
    """The entries of a file, completed in place; `files` are those that led to it, and itself."""

    def __init__(self, content: Content, errors: ErrorCollector, files: tuple[Path, ...]) -> None:
        self.content, self.errors, self.files = deepcopy(content), errors, files
        self.under_way: list[Key] = []

    def complete(self, path: Key, value: Any) -> None:
        """Complete the value at a path, and the entries in it."""
        self._extend(path, value)
        if path[-2:-1] == ("injectors",) and "network" in _map(value):
            value.setdefault("type", "Forward")
        for name, part in _map(value).items():
            self.complete((*path, name), part)

    def _extend(self, path: Key, value: Any) -> None:
        """Give a value the keys of the entry that it extends, if any."""
        if KEY not in _map(value):
            return
        self.under_way.append(path)
        base, source = self._base(path, value.pop(KEY))
        self.under_way.pop()
        theirs, ours = (_map(one.get("injectors")) for one in (base, value))
        for name in theirs.keys() & ours.keys():
            if KEY not in _map(ours[name]):
                self._inherit((*path, "injectors", name), ours[name], theirs[name], f"{source}.injectors.{name}")
        if ours:
            self._inherit((*path, "injectors"), ours, theirs, f"{source}.injectors")
        self._inherit(path, value, base, source)

    def _inherit(self, path: Key, own: Any, base: Any, source: str) -> None:
        if isinstance(own, dict) and isinstance(base, dict):
            self.errors.origins |= {".".join((*path, key)): f"{source}.{key}" for key in base if key not in own}
            if path[-1] in MAPS and (absent := {name for name in base if own.get(name, name) is None}):
                base = {name: one for name, one in base.items() if name not in absent}
                for name in absent:
                    del own[name]
            if path[-1] == "injectors" and base.keys() <= own.keys():
                return  # in the order in which all are named
            both = deepcopy(base) | own
            own.clear()
            own.update(both)

    def _base(self, path: Key, name: Any) -> tuple[Content, str]:
        """Return the complete entry that the entry at a path extends, and where it is; {} after an error."""
        key = ".".join((*path, KEY))
        if not isinstance(name, str):
            self.errors.add(key, f"found {shown(name)}; expected the name of an entry")
            return {}, ""
        file, mark, inside = name.rpartition("#")
        target = tuple(inside.split(".")) if mark or "." in name else (*path[:-1], name)
        if target[0] not in (allowed := SOURCES.get(path[0], ())):
            expected = " or ".join(allowed) or "another section"
            self.errors.add(key, f"found {name!r}{nearest(target[0], allowed)}; expected an entry of {expected}")
            return {}, ""
        within = any(target[: len(one)] == one[: len(target)] for one in self.under_way)
        source = _located(Path(file), self.errors.file)
        if source in self.files if mark else within:
            self.errors.add(key, f"found {name!r}, which extends or has this entry itself")
            return {}, ""
        there = self._of_file(source, key) if mark else self
        base = there.found(target)
        if there is not self:
            there.errors.raise_any()
        if not isinstance(base, dict):
            beside = {*_map(reduce(_part, target[:-1], there.content))} - {path[-1]}
            self.errors.add_unknown(key, name, [f"{name.removesuffix(target[-1])}{one}" for one in beside], "entry")
            return {}, ""
        base = _of_step(base) if target[0] == "steps" != path[0] else base
        return base, f"{file}{mark}{'.'.join(target)}"

    def _of_file(self, path: Path, key: str) -> "_Expansion":
        try:
            return _Expansion(read_yaml(path), ErrorCollector(path), (*self.files, path))
        except UserError as error:
            raise UserError(f"{self.errors.file}: {key}: {error}") from error

    def found(self, target: Key) -> Any:
        """Return the value at a path, complete; None if there is none."""
        value: Any = self.content
        for end, part in enumerate(target, 1):
            value = _part(value, part)
            self._extend(target[:end], value)
        self.complete(target, value)
        return value


def _located(name: Path, beside: Path) -> Path:
    """Return the path of a file that is named from the project's root, in which the file `beside` is."""
    folders = (Path(), *beside.parents)
    return next((folder / name for folder in folders if (folder / name).is_file()), name)


def _of_step(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what a mode takes of a step or of an injector of one."""
    if "injectors" in entry:
        return {"injectors": {name: _of_step(one) for name, one in entry["injectors"].items()}}
    return {key: value for key, value in entry.items() if key not in OF_STEPS}


def _part(value: Any, name: str) -> Any:
    return _map(value).get(name)


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

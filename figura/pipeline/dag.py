"""Read `dvc.yaml`: the recipes of the DAG, and the instances of its stages."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.error_collector import shown
from figura.base.errors import UserError, nearest
from figura.base.yaml12 import read_yaml

PIPELINE = Path("dvc.yaml")
LAUNCH = "figura.launch"


@dataclass(frozen=True)
class Instance:
    """A stage of `dvc.yaml`, or one instance of a `foreach`: its name, command, dependencies and outputs.

    `params` are params files, each with a dotted key.
    """

    name: str
    command: tuple[str, ...]
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    params: tuple[tuple[str, str], ...] = ()

    @property
    def manifest(self) -> Path | None:
        """The manifest that it depends on."""
        return next((Path(dep) for dep in self.deps if re.fullmatch(r"code/[\w.-]+\.json", dep)), None)

    @property
    def script(self) -> str | None:
        """The module run by its command, such as `stages.train`."""
        words = self.command
        if "-m" not in words[:-1]:
            return None
        module, *rest = words[words.index("-m") + 1 :]
        return f"stages.{rest[0]}" if module == LAUNCH and rest else module

    @property
    def recipes(self) -> list[Path]:
        """The params files in its command."""
        return [Path(word) for word in self.command if word.endswith((".yaml", ".yml"))]


def no_pipeline() -> UserError:
    """Return the error that there is no pipeline here; it names the root of the project around."""
    there = next((folder for folder in Path.cwd().parents if (folder / PIPELINE).is_file()), None)
    return UserError(f"{PIPELINE.absolute()}: no such file; go to {there or 'the root of a project'}")


def entries(name: str) -> dict[str, dict[str, Any]]:
    """Return a map in `vars` of `dvc.yaml`, such as `recipes`; {} if there is none.

    Each entry is a map whose `params` is the path of a params file.

    Raises:
        UserError: there is no readable `dvc.yaml`, or this part of it is malformed.
    """
    if not PIPELINE.exists():
        raise no_pipeline()
    variables = read_yaml(PIPELINE).get("vars")
    if not isinstance(variables, list | None):
        raise UserError(f"{PIPELINE}: vars: found {shown(variables)}; expected a list")
    merged: dict[str, dict[str, Any]] = {}
    for one in variables or ():
        part = one.get(name) if isinstance(one, Mapping) else None
        if not isinstance(part, Mapping | None):
            raise UserError(f"{PIPELINE}: {name}: found {shown(part)}; expected a map")
        for key, entry in (part or {}).items():
            if not isinstance(entry, Mapping):
                raise UserError(f"{PIPELINE}: {name}.{key}: found {shown(entry)}; expected a map with `params`")
            if not isinstance(entry.get("params"), str):
                wrong = shown(entry["params"]) if "params" in entry else "none"
                raise UserError(f"{PIPELINE}: {name}.{key}.params: found {wrong}; expected the path of a params file")
            merged[key] = dict(entry)
    return merged


def recipe_file(recipe: str) -> Path:
    """Return the params file of a recipe in `dvc.yaml`. Raises UserError if there is no such recipe."""
    recipes = entries("recipes")
    if recipe not in recipes:
        raise UserError(
            f"--recipe {recipe}: dvc.yaml has no such recipe{nearest(recipe, recipes)}; there are {', '.join(recipes)}"
        )
    return Path(recipes[recipe]["params"])


def instances(content: Mapping[str, Any]) -> Iterator[Instance]:
    """Yield the stages in the content of a `dvc.yaml`, with each instance of a `foreach`.

    Stages in another folder (`wdir`), and templates that need more than `vars` in `dvc.yaml` and its files, are
    skipped; importing DVC, which handles all of them, would take longer than the rest of a no-op run.
    """
    variables = _variables(content.get("vars") or [])
    for name, stage in (content.get("stages") or {}).items():
        if "foreach" not in stage:
            yield from _filled(name, stage, {})
            continue
        items = stage["foreach"]
        if isinstance(items, str):
            items = variables.get(items[2:-1])
        pairs = items.items() if isinstance(items, Mapping) else [(str(one), one) for one in items or ()]
        for key, item in pairs:
            values = {"key": str(key), **({"item": str(item)} if not isinstance(item, Mapping) else {})}
            values |= {f"item.{one}": str(value) for one, value in item.items()} if isinstance(item, Mapping) else {}
            yield from _filled(f"{name}@{key}", stage.get("do") or {}, values)


def variable_files(content: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the YAML files in the `vars` of the content of a `dvc.yaml`."""
    yield from (_file(entry) for entry in content.get("vars") or () if not isinstance(entry, Mapping))


def _file(entry: Any) -> Path:
    return Path(str(entry).partition(":")[0])


def _variables(entries: list[Any]) -> dict[str, Any]:
    """Return the variables in `vars`, from maps and YAML files."""
    merged: dict[str, Any] = {}
    for entry in entries:
        merged |= entry if isinstance(entry, Mapping) else read_yaml(_file(entry))
    return merged


def _filled(name: str, stage: Mapping[str, Any], values: Mapping[str, str]) -> Iterator[Instance]:
    def fill(text: Any) -> str:
        return re.sub(r"\$\{([\w.]+)\}", lambda match: values[match[1]], str(text))

    def paths(entries: Any) -> tuple[str, ...]:
        return tuple(fill(next(iter(one)) if isinstance(one, Mapping) else one) for one in entries or ())

    if "wdir" in stage:
        return
    try:
        command = stage.get("cmd", "")
        text = " && ".join(map(fill, command)) if isinstance(command, list) else fill(command)
        params = [one if isinstance(one, Mapping) else {"params.yaml": [one]} for one in stage.get("params") or ()]
        keys = ((fill(path), fill(key)) for one in params for path, several in one.items() for key in several or ())
        yield Instance(name, tuple(text.split()), paths(stage.get("deps")), paths(stage.get("outs")), tuple(keys))
    except KeyError:
        return

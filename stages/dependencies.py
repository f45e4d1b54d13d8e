"""Refuses, under DVC, what a stage would load and no dependency of it in `dvc.yaml` covers.

DVC would not see such a file change, so that an old result would count as new; and a queued or temporary experiment, or
another machine, would not have it. By hand, anything may be loaded.

DVC tells a stage its name in the environment variable `DVC_STAGE`, such as `train@vunet`.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.recipe.named_files import named_files
from models.recipe.resolved import RESULT_SECTIONS
from models.recipe.schema import Recipe
from models.recipe.source_files import INSTALLED, STANDARD_LIBRARY, declared_types, named_modules, source_files
from models.recipe.types import find_class

PIPELINE = Path("dvc.yaml")
OF_ONE_RECIPE = {"train": RESULT_SECTIONS, "eval-dump": ("losses", "evaluate"), "metrics": ("metrics",)}
FILES_OF = OF_ONE_RECIPE | {"pose-consistency": ("evaluate", "metrics")}
"""The sections of a recipe whose files a stage reads. Losses are computed in evaluations too."""
CODE_OF = FILES_OF | {"eval-dump": ("data", "networks", "losses", "evaluate")}
"""The sections whose types a stage loads."""
START = "${item.start}"
SHARED = "weights/none"  # of the recipes that read no files, so that it stays empty
FOLDERS = {
    "networks": START,
    "train": START,
    "losses": "${item.weights}/losses",
    "metrics": "${item.weights}/metrics",
}
"""Where files belong that a section names, in terms of the recipe's entry in `dvc.yaml`."""
DATASET_KEYS = {"data": "data", "evaluate": "judged_on"}
"""The key of this entry that names the dataset of a section."""
CODE_KEYS = {"train": "train", "eval-dump": "evaluate", "metrics": "metrics"}
"""The key of this entry that names the code of a stage."""
WRITTEN = ("runs", "data/prepared")
"""Where stages write; other files come from people."""


@dataclass(frozen=True)
class Instance:
    """A stage of `dvc.yaml` for one recipe: its name, the `entry` of the recipe and where that stands, and its deps."""

    name: str
    entry: Mapping[str, Any]
    place: str
    deps: Collection[str]

    def covers(self, path: str) -> bool:
        """Whether a dep is this file or folder, or a folder above it. Links, to DVC's cache, are not followed."""
        full = os.path.abspath(path)
        return any(full == dep or full.startswith(dep + os.sep) for dep in map(os.path.abspath, self.deps))


@dataclass(frozen=True)
class Fault:
    """What a stage may not load: the key that leads to it, the file, what is wrong, and what to do."""

    key: str
    path: str
    why: str
    remedy: str = field(compare=False)


def refuse_untracked(recipe: Recipe) -> None:
    """Raise UserError, a line for each file, if a stage of DVC would load what it does not depend on.

    That is files and folders that the recipe names, and code of its types with all that it imports. A training refuses
    files of the stages after it, too: better now than when it has ended. Where `dvc.yaml` has another form than a map
    of recipes (`foreach`), nothing is refused.
    """
    stage, _, key = os.environ.get("DVC_STAGE", "").partition("@")
    if stage not in FILES_OF or not PIPELINE.is_file():
        return
    content, stages = read_yaml(PIPELINE), dict[Fault, list[str]]()
    for name in OF_ONE_RECIPE if stage == "train" else (stage,):
        if (instance := instance_of(content, name, key)) is not None:
            for fault in (*file_faults(recipe, instance), *(code_faults(recipe, instance) if name == stage else ())):
                stages.setdefault(fault, []).append(f"{name}@{key}")
    lines = [
        f"{recipe.path}: {fault.key}: {fault.path} {fault.why} {', '.join(names)}; {fault.remedy}"
        for fault, names in stages.items()
    ]
    if lines:
        raise UserError("\n".join(lines))


def instance_of(content: Mapping[str, Any], name: str, key: str) -> Instance | None:
    """Return the stage `name@key` of the content of a `dvc.yaml`; None unless it is `foreach: ${map}` of a map of maps.

    The map is one of those in `vars`. Importing DVC, which knows all forms, would take longer than most stages' checks.
    """
    stage = content.get("stages", {}).get(name, {})
    variable, body = str(stage.get("foreach"))[2:-1], stage.get("do", {})
    maps = [one[variable] for one in content.get("vars", []) if isinstance(one, Mapping) and variable in one]
    entry = maps[0].get(key) if maps and isinstance(maps[0], Mapping) else None
    if not isinstance(entry, Mapping) or not {"vars", "wdir"}.isdisjoint(body):
        return None
    deps = [filled(next(iter(dep)) if isinstance(dep, Mapping) else dep, entry, key) for dep in body.get("deps", [])]
    return None if None in deps else Instance(name, entry, f"{variable}.{key}", [dep for dep in deps if dep])


def filled(text: str, entry: Mapping[str, Any], key: str = "") -> str | None:
    """Return a text with `${key}` and `${item.name}` filled in; None if it has another `${...}`."""
    values = {"key": key} | {f"item.{name}": str(value) for name, value in entry.items()}
    names = set(re.findall(r"\$\{(.*?)\}", text))
    return re.sub(r"\$\{(.*?)\}", lambda match: values[match[1]], text) if names <= values.keys() else None


def file_faults(recipe: Recipe, instance: Instance) -> Iterator[Fault]:
    """Yield what is wrong with the files and folders that the recipe names in the sections that a stage reads."""
    told = set()
    for key, path in named_files(recipe, FILES_OF[instance.name]):
        if path in told:
            continue
        told.add(path)
        if not instance.covers(path):
            yield Fault(key, path, _why(path), _file_remedy(key, path, instance))
        elif os.path.isfile(path) and not is_shared(path):
            yield Fault(key, path, "is in neither DVC nor git, so no other clone has it for",
                f"`dvc add {path}`")  # fmt: skip


def is_shared(path: str) -> bool:
    """Whether a stage writes a file, `dvc add` was told of it or of a folder above it, or git has it."""
    inside = Path(os.path.relpath(path))
    if any(inside.is_relative_to(folder) for folder in WRITTEN):
        return True
    if any(Path(f"{one}.dvc").is_file() for one in (inside, *inside.parents)):
        return True
    command = ["git", "ls-files", "--error-unmatch", "--", str(inside)]
    # 1: git does not have it; 128: this is no git repository
    return shutil.which("git") is None or subprocess.run(command, capture_output=True, check=False).returncode != 1


def code_faults(recipe: Recipe, instance: Instance) -> Iterator[Fault]:
    """Yield the modules that a stage has loaded for the types of its sections, and does not depend on."""
    loose = {name: path for name, path in loaded_code().items() if not instance.covers(path)}
    if not loose:
        return
    sections, told = CODE_OF[instance.name], set[str]()
    if loose.keys().isdisjoint(source_files(named_modules(recipe, sections))):
        return  # loaded for other sections, which a training checks too
    for key, kind in declared_types(recipe.model_dump(include=set(sections), by_alias=True)):
        found = find_class(kind)
        for name in source_files([found.__module__] if found else []):
            if name in loose and name not in told:
                told.add(name)
                yield Fault(key, loose[name], _why(loose[name]), _code_remedy(instance))


def loaded_code() -> dict[str, str]:
    """Return the files, by module, that this process has imported: relative paths, without installed packages.

    `__init__.py` files that do nothing are left out.
    """
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    library = f"{STANDARD_LIBRARY}{os.sep}"
    own = {
        name: os.path.relpath(file)
        for name, file in files.items()
        if file.endswith(".py")
        and os.path.isabs(file)
        and not file.startswith(library)
        and INSTALLED.isdisjoint(file.split(os.sep))
    }
    return {name: path for name, path in own.items() if not path.endswith("__init__.py") or _does_something(path)}


def _does_something(path: str) -> bool:
    return any(not isinstance(node, ast.Expr) for node in ast.parse(Path(path).read_bytes()).body)


def _why(path: str) -> str:
    if os.path.relpath(path).startswith(os.pardir + os.sep):
        return "lies outside of the project, so no other machine has it for"
    return f"is no dependency in {PIPELINE} of"


def _file_remedy(key: str, path: str, instance: Instance) -> str:
    section = key.partition(".")[0]
    if section in DATASET_KEYS and DATASET_KEYS[section] in instance.entry and os.path.isdir(path):
        return f"name the dataset at {instance.place}.{DATASET_KEYS[section]} in {PIPELINE}"
    folder = filled(FOLDERS[section], instance.entry) if section in FOLDERS else None
    if folder is None or not os.path.isdir(folder):
        return f"name it among the deps of {instance.name} in {PIPELINE}"
    if FOLDERS[section] == START and Path(os.path.relpath(path)).is_relative_to("runs"):
        return f"name {os.path.dirname(path)} at {instance.place}.start in {PIPELINE}"
    if folder.startswith(f"{SHARED}/"):
        return f"give {instance.place} folders of weights of its own in {PIPELINE} (weights/README.md)"
    return f"move it into {folder} and `dvc add {folder}/{os.path.basename(path)}`"


def _code_remedy(instance: Instance) -> str:
    key = CODE_KEYS.get(instance.name)
    if key is None or key not in instance.entry:
        return f"name it among the deps of {instance.name} in {PIPELINE}"
    return f"move it below {instance.entry[key]}, or name its folder at {instance.place}.{key} in {PIPELINE}"

"""Under DVC, reject files in a recipe that are not covered by dependencies of the stage in `dvc.yaml`.

DVC would not notice changes of such a file, so stale results would count as current; and a queued or temporary
experiment, or another machine, would not have it. Without DVC, any file may be read. Code needs no such check: its
dependencies are computed (`figura.pipeline`).

DVC sets the environment variable `DVC_STAGE` to the name of the stage, such as `train@vunet`.
"""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from figura.base.error_collector import ErrorCollector
from figura.base.yaml12 import read_yaml
from figura.pipeline.calls import stage as running
from figura.pipeline.dag import PIPELINE, Instance, instances
from figura.recipe.resolved import named_files
from figura.recipe.schema import RESULT_SECTIONS, Recipe

OF_ONE_RECIPE = {"train": RESULT_SECTIONS, "eval-dump": ("losses", "evaluate"), "metrics": ("metrics",)}
FILES_OF = OF_ONE_RECIPE | {"pose-consistency": ("evaluate", "metrics")}
"""The sections of a recipe whose files a stage reads. Evaluations compute losses, too."""
FOLDERS = {"networks": "start", "train": "start", "losses": "losses", "metrics": "metrics"}
"""Expected folders, in weights/<recipe>, of the files named in a section."""
WRITTEN = ("runs", "data/prepared")  # folders written by stages, also by those that `pipeline.instances` skips


@dataclass(frozen=True)
class Fault:
    """A file that a stage must not read: its key, the path, what is wrong, and what to do."""

    key: str
    path: str
    why: str
    remedy: str = field(compare=False)


def refuse_untracked(recipe: Recipe) -> None:
    """Raise UserError, with one line per file, if a DVC stage would read files that it does not depend on.

    Training also checks the files of later stages, so that errors do not appear only after it has finished.
    """
    stage, _, key = (running() or "").partition("@")
    errors = ErrorCollector(recipe.path)
    if stage in FILES_OF and PIPELINE.is_file():
        find_untracked(recipe, stage, key, errors)
    errors.raise_any()


def find_untracked(recipe: Recipe, stage: str, key: str, errors: ErrorCollector) -> None:
    """Add the files that a stage, `train@<key>` for instance, would read and does not depend on."""
    known, stages = {one.name: one for one in instances(read_yaml(PIPELINE))}, dict[Fault, list[str]]()
    outs = [*WRITTEN, *(out for one in known.values() for out in one.outs)]
    for name in OF_ONE_RECIPE if stage == "train" else (stage,):
        if (instance := known.get(f"{name}@{key}")) is not None:
            for fault in file_faults(recipe, instance, outs):
                stages.setdefault(fault, []).append(instance.name)
    for fault, names in stages.items():
        errors.add(fault.key, f"{fault.path} {fault.why} {', '.join(names)}; {fault.remedy}")


def file_faults(recipe: Recipe, instance: Instance, outs: Collection[str]) -> Iterator[Fault]:
    """Yield the faults of files and folders in the sections that a stage reads; `outs` are those of all stages."""
    trained, seen = {one.arguments.get("root", "") for one in recipe.data.train.values()}, set()
    for key, path in named_files(recipe, FILES_OF[instance.name.partition("@")[0]]):
        if path in seen:
            continue
        seen.add(path)
        if not covers(instance.deps, path):
            yield Fault(key, path, _why(path), _remedy(key, path, instance, trained))
        elif os.path.isfile(path) and not covers(outs, path) and not is_shared(path):
            yield Fault(key, path, "is in neither DVC nor git, so no other clone has it for",
                f"`dvc add {path}`")  # fmt: skip


def covers(paths: Iterable[str], path: str) -> bool:
    """Whether one of `paths` is this path or a parent of it. Links to DVC's cache are not resolved."""
    full = os.path.abspath(path)
    return any(full == one or full.startswith(one + os.sep) for one in map(os.path.abspath, paths))


def is_shared(path: str) -> bool:
    """Whether a file is added with `dvc add` (or a parent is), or tracked by git."""
    inside = Path(os.path.relpath(path))
    if any(map(is_added, (inside, *inside.parents))):
        return True
    command = ["git", "ls-files", "--error-unmatch", "--", str(inside)]
    # 1: not tracked by git; 128: not a git repository
    return shutil.which("git") is None or subprocess.run(command, capture_output=True, check=False).returncode != 1


def is_added(path: str | Path) -> bool:
    """Whether a file or folder itself is added with `dvc add`."""
    return Path(f"{path}.dvc").is_file()


def _why(path: str) -> str:
    if os.path.relpath(path).startswith(os.pardir + os.sep):
        return "lies outside of the project, so no other machine has it for"
    return f"is no dependency in {PIPELINE} of"


def _remedy(key: str, path: str, instance: Instance, trained: Collection[str]) -> str:
    stage, _, recipe = instance.name.partition("@")
    if path in trained and covers(["data/prepared"], path) and not any(covers(instance.deps, one) for one in trained):
        return f"write `data: {Path(path).name}` into the entry {recipe!r} of its `recipes`"
    folder = f"weights/{recipe}/{FOLDERS.get(key.partition('.')[0])}"
    if not covers(instance.deps, folder) or os.path.isdir(path):
        return f"add it to the deps of {stage} in {PIPELINE}"
    name, of_a_run = os.path.basename(path), Path(os.path.relpath(path)).is_relative_to("runs")
    if of_a_run and key == "train.init_from.run":
        model = Path(path).parent
        copy = f"{folder}/{model.parent.name}"
        return f"copy {model} to {copy}/model, `dvc add {copy}`, and start from that"
    return f"{'copy' if of_a_run else 'move'} it into {folder} and `dvc add {folder}/{name}`"

"""Where the recipe of a trained model is, and where the classes that it names are looked up."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.recipe.dotted_keys import texts
from models.recipe.types import MODELS, OWN, TRUSTED_ONLY
from tools.pipeline import PIPELINE

RECIPE = "recipe.yaml"


@dataclass(frozen=True)
class Origin:
    """Where a model is from.

    Attributes:
        recipe: the params file that says how it predicts.
        content: what is in it.
        project: the folder whose `dvc.yaml` names the recipe; its modules are found. None: no such folder.
        trusted_types_only: only figura's and PyTorch's classes are looked up, none of the project.
    """

    recipe: Path
    content: dict[str, Any]
    project: Path | None
    trusted_types_only: bool

    @contextmanager
    def types(self) -> Iterator[None]:
        """Look classes up as this model needs it, while it loads or a prediction begins; then all is as before.

        Raises:
            UserError: Python has imported a module of another place that has the name of one of the project.
        """
        if self.trusted_types_only:
            with _trusted_types_only():
                yield
        elif self.project is None or _hides_figura(self.project):
            yield
        else:
            _refuse_other_modules(self.content, self.project)
            sys.path.insert(0, str(self.project))
            try:
                yield
            finally:
                with suppress(ValueError):  # the project's code may have removed it
                    sys.path.remove(str(self.project))


def find_origin(model: Path, recipe: Path | None, trusted_types_only: bool) -> Origin:
    """Return where a model folder is from.

    `recipe` comes first, then the recipe in the model folder if it has `evaluate` and `predict`, then the one that a
    `dvc.yaml` above the run names.

    Raises:
        UserError: there is none, or a file cannot be read.
    """
    if recipe is not None:
        return Origin(recipe, read_yaml(recipe), _project_of(recipe), trusted_types_only)
    own, (project, named) = read_yaml(model / RECIPE), _project_above(model)
    if {"evaluate", "predict"} <= own.keys():
        content = {key: value for key, value in own.items() if key != "facts"}
        return Origin(model / RECIPE, content, project, trusted_types_only)
    if project is None:
        raise UserError(
            f"{model}: no {PIPELINE} above it names its recipe; name the params file, such as "
            'figura.load(..., recipe="recipes/pose.yaml")'
        )
    return Origin(project / named, read_yaml(project / named), project, trusted_types_only)


def _project_above(model: Path) -> tuple[Path | None, str]:
    """Return the folder whose `dvc.yaml` names the recipe of a run, which is in its `runs`, and that recipe's path."""
    absolute = Path(os.path.abspath(model))
    for folder in absolute.parents:
        if absolute.is_relative_to(folder / "runs"):
            name = next(iter(absolute.relative_to(folder / "runs").parts), "")
            if named := _params(folder / PIPELINE).get(name):
                return folder, named
    return None, ""


def _project_of(recipe: Path) -> Path | None:
    """Return the nearest folder above a recipe that has a `dvc.yaml`, if that names the recipe."""
    absolute = Path(os.path.abspath(recipe))
    folder = next((one for one in absolute.parents if os.path.isfile(one / PIPELINE)), None)
    if folder is not None:
        with suppress(UserError):  # of no pipeline of ours; nothing that was asked for is in it
            if absolute in [Path(os.path.abspath(folder / one)) for one in _params(folder / PIPELINE).values()]:
                return folder
    return None


def _params(pipeline: Path) -> dict[str, str]:
    """Return the params files in a `dvc.yaml`, by recipe; {} without that file, or if it is a pipeline of others.

    What has another form than `tools.pipeline.entries` wants is passed over: it may be of others, or of another run.
    """
    if not os.path.isfile(pipeline):
        return {}
    variables = read_yaml(pipeline).get("vars")
    maps = [one.get("recipes") for one in variables if isinstance(one, dict)] if isinstance(variables, list) else []
    entries = {name: entry for one in maps if isinstance(one, dict) for name, entry in one.items()}
    params = {name: entry.get("params") for name, entry in entries.items() if isinstance(entry, dict)}
    return {name: path for name, path in params.items() if isinstance(path, str)}


def _hides_figura(project: Path) -> bool:
    """Whether `models` of a project is a copy of figura's own, whose classes are not those of the installed figura."""
    return MODELS != OWN and (project / OWN / "interfaces.py").is_file()


def _refuse_other_modules(content: Mapping[str, Any], project: Path) -> None:
    """Raise UserError if an imported module hides one of the project: a process has one module of a name."""
    types = {text for key, text in texts(content) if key.rpartition(".")[2] == "type" and "." in text}
    names = {one.partition(".")[0] for one in types} | {OWN}
    if MODELS == OWN:  # this is figura's repository: `models` is figura's, also for another clone of it
        names.remove(OWN)
    for name in sorted(names & sys.modules.keys()):
        there = (project / name).is_dir() or (project / f"{name}.py").is_file()
        if there and (other := _elsewhere(sys.modules[name], project)):
            raise UserError(
                f"{project}: its module {name!r} cannot be imported, because this process has that of {other}; "
                "load models of different projects in different processes"
            )


def _elsewhere(module: Any, project: Path) -> str | None:
    """Return a file or folder of a module if it has some, and none is the project's."""
    places = [*getattr(module, "__path__", ()), *filter(None, [getattr(module, "__file__", None)])]
    inside = os.path.realpath(project)
    if any(Path(os.path.realpath(one)).is_relative_to(inside) for one in places):
        return None
    return next(iter(places), None)


@contextmanager
def _trusted_types_only() -> Iterator[None]:
    """Keep as they are the variables that `models.recipe.trusted` sets, and that the hub's package reads but once."""
    from huggingface_hub import constants

    variables = ("HF_HUB_OFFLINE", TRUSTED_ONLY)
    before = {name: os.environ.get(name) for name in variables}
    offline = constants.HF_HUB_OFFLINE
    os.environ |= {"HF_HUB_OFFLINE": "1", TRUSTED_ONLY: "trusted_types_only"}
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

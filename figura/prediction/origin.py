"""Find the recipe of a trained model, and where to look up its classes."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.dotted_keys import texts
from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.evaluation.model_folder import model_recipe, refuse_other_networks
from figura.pipeline.dag import PIPELINE
from figura.recipe.assignments import overridden
from figura.recipe.schema_check import check_schema
from figura.recipe.trusted import OPTION, refuse_untrusted, refuse_untrusted_model
from figura.recipe.types import TRUSTED_ONLY
from figura.systems import PACKAGE, PROJECT

RECIPE = "recipe.yaml"


@dataclass(frozen=True)
class Origin:
    """The origin of a model.

    Attributes:
        recipe: the params file with its `predict` section.
        content: its content.
        project: the folder whose pipeline lists the recipe; its modules can be imported. None: no such folder.
        trusted_types_only: look up only classes of figura and PyTorch, not of the project.
    """

    recipe: Path
    content: dict[str, Any]
    project: Path | None
    trusted_types_only: bool

    def checked_content(self, model: Path, assignments: Sequence[str]) -> dict[str, Any]:
        """Return the content after assignments `key=value` in `evaluate` and `predict`, before any slow import.

        Raises:
            UserError: an assignment or the content is malformed, its networks differ from the model's, or it is not
                trusted.
        """
        if self.trusted_types_only:
            refuse_untrusted(self.content, self.recipe)
            refuse_untrusted_model(model)
        content = overridden(self.content, assignments, ("evaluate", "predict"), self.recipe)
        refuse_other_networks(self.recipe, content, model)
        check_schema(content, self.recipe)
        return content

    @contextmanager
    def types(self) -> Iterator[None]:
        """Context for looking up this model's classes, while it loads or a prediction starts; then restored.

        Raises:
            UserError: a module with the name of one of the project was already imported from elsewhere.
        """
        if self.trusted_types_only:
            with _trusted_types_only():
                yield
        elif self.project is None or self.project == PROJECT:
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
    """Return the origin of a model folder.

    `recipe` has priority, then the recipe in the model folder if it has `evaluate` and `predict`, then the one listed
    in a pipeline above the run.

    Raises:
        UserError: there is no recipe, or a file cannot be read.
    """
    if recipe is not None:
        return Origin(recipe, read_yaml(recipe), _project_of(recipe), trusted_types_only)
    own, (project, named) = model_recipe(model), _project_above(model)
    if {"evaluate", "predict"} <= own.keys():
        content = {key: value for key, value in own.items() if key != "facts"}
        return Origin(model / RECIPE, content, project, trusted_types_only)
    if project is None:
        raise UserError(f"{model}: no {PIPELINE} above it names its recipe; name the params file, such as params.yaml")
    return Origin(project / named, read_yaml(project / named), project, trusted_types_only)


def _project_above(model: Path) -> tuple[Path | None, str]:
    """Return the folder whose pipeline lists the recipe of a run in its `runs`, and that recipe's path."""
    absolute = Path(os.path.abspath(model))
    for folder in absolute.parents:
        if absolute.is_relative_to(folder / "runs"):
            name = next(iter(absolute.relative_to(folder / "runs").parts), "")
            if named := _params(folder / PIPELINE).get(name):
                return folder, named
    return None, ""


def _project_of(recipe: Path) -> Path | None:
    """Return the nearest folder above a recipe that has a pipeline, if that lists the recipe."""
    absolute = Path(os.path.abspath(recipe))
    folder = next((one for one in absolute.parents if os.path.isfile(one / PIPELINE)), None)
    if folder is not None:
        with suppress(UserError):  # not a pipeline of figura, so it is irrelevant
            if absolute in [Path(os.path.abspath(folder / one)) for one in _params(folder / PIPELINE).values()]:
                return folder
    return None


def _params(pipeline: Path) -> dict[str, str]:
    """Return the params files in the file of a pipeline, by recipe; {} without the file or if it is of another kind.

    Entries that `figura.pipeline.dag.entries` would reject are ignored: they may be unrelated.
    """
    if not os.path.isfile(pipeline):
        return {}
    variables = read_yaml(pipeline).get("vars")
    maps = [one.get("recipes") for one in variables if isinstance(one, dict)] if isinstance(variables, list) else []
    entries = {name: entry for one in maps if isinstance(one, dict) for name, entry in one.items()}
    params = {name: entry.get("params") for name, entry in entries.items() if isinstance(entry, dict)}
    return {name: path for name, path in params.items() if isinstance(path, str)}


def _refuse_other_modules(content: Mapping[str, Any], project: Path) -> None:
    """Raise UserError if an imported module shadows one of the project: a process has one module per name."""
    types = {text for key, text in texts(content) if key.rpartition(".")[2] == "type" and "." in text}
    names = {one.partition(".")[0] for one in types} | {PACKAGE}
    for name in sorted(names & sys.modules.keys()):
        there = (project / name).is_dir() or (project / f"{name}.py").is_file()
        if there and (other := _elsewhere(sys.modules[name], project)):
            raise UserError(
                f"{project}: its module {name!r} cannot be imported, because this process has that of {other}; "
                "load models of different projects in different processes"
            )


def _elsewhere(module: Any, project: Path) -> str | None:
    """Return a file or folder of a module that lies entirely outside the project, else None."""
    places = [*getattr(module, "__path__", ()), *filter(None, [getattr(module, "__file__", None)])]
    inside = os.path.realpath(project)
    if any(Path(os.path.realpath(one)).is_relative_to(inside) for one in places):
        return None
    return next(iter(places), None)


@contextmanager
def _trusted_types_only() -> Iterator[None]:
    """Restore the variables set by `figura.recipe.trusted`, which the hub's package reads only once."""
    from huggingface_hub import constants

    variables = ("HF_HUB_OFFLINE", TRUSTED_ONLY)
    before = {name: os.environ.get(name) for name in variables}
    offline = constants.HF_HUB_OFFLINE
    os.environ |= {"HF_HUB_OFFLINE": "1", TRUSTED_ONLY: OPTION}
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

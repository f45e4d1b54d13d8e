"""Reject recipes that could run foreign code or read files from elsewhere: `--trusted-types-only`.

A recipe is code: `type: mymodule.Mine` imports `mymodule` from wherever Python finds it, and importing runs it. For an
untrusted recipe or model folder, a command therefore checks, before it imports any type, that

- each `type`, at any depth, is a class defined in a file of `models`, or a schedule, injector, optimizer or callback
  of `figura`, or one of `torch.nn` or `torch.optim`;
- no string is a path that leaves the current folder: none starts with `/` or `~`, contains `..`, or is a URL;
- no file of the model folder is a link to outside it.

The classes of `models` and PyTorch then get only plain values from the recipe, and weights from safetensors, which
contain no code. Nothing is downloaded from the Hugging Face hub. A class of `models` that passes its arguments to
another package, which may read files and fetch weights, declares the package's name in the attribute
`passes_arguments_to`; it is rejected before it is constructed, also by another class.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figura.base.dotted_keys import texts
from figura.base.error_collector import ErrorCollector, shown
from figura.base.yaml12 import read_yaml
from figura.recipe.types import TRUSTED_ONLY
from figura.systems import PACKAGE, PROJECT, classes_in, modules_below

OPTION = "--trusted-types-only"
HELP = "for strangers' recipes: refuse types but of figura, models, torch.nn and torch.optim, and files elsewhere"
LIBRARY = Path(__file__).parents[1]
TYPES = ("schedules", "injectors", "optimizers", "callbacks")
"""The modules of `figura` whose classes recipes name; others may open files or start processes."""
OF_TORCH = re.compile(r"torch\.(nn|optim)(\.[a-z_][a-z0-9_]*)*\.[A-Z]\w*")
OUTSIDE = re.compile(r"[/~]|[A-Za-z][A-Za-z0-9+.-]*://|(.*/)?\.\.(/|$)", re.DOTALL)


def refuse_untrusted(content: Mapping[str, Any], path: Path) -> None:
    """Raise UserError, with one line per dotted key, if a recipe's content is not trusted.

    Imports nothing. `path` is the recipe's, for messages. Afterwards, this process fetches nothing from the hub, and
    `types.check_arguments` rejects classes that pass their arguments to another package (`passes_arguments_to`).
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", TRUSTED_ONLY: OPTION}
    errors = ErrorCollector(path)
    for key, text in texts(content):
        if key.rpartition(".")[2] == "type" and not _is_ours(text):
            errors.add(
                key, f"found {shown(text)}; {OPTION} takes types of figura, models, torch.nn and torch.optim alone"
            )
        elif OUTSIDE.match(text):
            errors.add(key, f"found {shown(text)}; {OPTION} takes paths below the current folder alone")
    errors.raise_any()


def refuse_untrusted_model(model: Path) -> None:
    """Raise UserError if a model folder's recipe is rejected (`refuse_untrusted`), or a file of it lies outside."""
    inside = model.resolve()
    errors = ErrorCollector(model)
    for path in sorted(model.iterdir()):
        if path.is_symlink() and not _leads_inside(path, inside):
            errors.add(path.name, f"a link that leads out of this folder; {OPTION} takes the folder's own files alone")
    errors.raise_any()
    refuse_untrusted(read_yaml(model / "recipe.yaml"), model / "recipe.yaml")


def _is_ours(name: str) -> bool:
    """Whether a type can only be a class of `models`, of `TYPES`, `torch.nn` or `torch.optim`.

    A word without a dot is only looked up in `models`, if it is a type at all (`type: jpeg`).
    """
    *package, attribute = name.split(".")
    if not all(part.isidentifier() for part in (*package, attribute)):
        return False
    if not package or OF_TORCH.fullmatch(name):
        return True
    if package[0] == "figura" and not {*package[1:2]} & {*TYPES}:
        return False
    inside = package if package[0] in (PACKAGE, "figura") else [PACKAGE, *package]
    path = (LIBRARY if inside[0] == "figura" else PROJECT / PACKAGE).joinpath(*inside[1:])
    files = [file for _, file in modules_below(path)] if path.is_dir() else [path.with_suffix(".py")]
    return any(attribute in classes_in(file) for file in files if file.is_file())


def _leads_inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):  # a broken link or a loop
        return False

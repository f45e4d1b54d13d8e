"""Refuses recipes that could run code that is not ours, or read files from elsewhere: `--trusted-types-only`.

A recipe is code: `type: mymodule.Mine` imports `mymodule` from wherever Python finds it, and importing runs it. So for
the recipe or the model folder of a stranger, a command checks before it imports any type that

- each `type`, wherever it stands, is a class that a file of `models` defines, or one of `torch.nn` or `torch.optim`;
- no text is a path that leaves the current folder: none begins with `/` or `~`, has `..` in it, or is an address;
- no file of the model folder is a link that leads out of it.

The classes of `models` and PyTorch then get the numbers and words of the recipe, and weights from safetensors, which
hold no code. Weights of the Hugging Face hub are not fetched. A class of `models` that passes its arguments to another
package, which may read files and fetch weights by them, says so by the attribute `passes_arguments_to`, the package's
name, and is refused before it is made, also where another class makes it.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.base.error_collector import ErrorCollector, shown
from models.base.yaml12 import read_yaml
from models.recipe.dotted_keys import texts
from models.recipe.types import TRUSTED_ONLY

OPTION = "--trusted-types-only"
HELP = "for strangers' recipes: refuse types but of models, torch.nn and torch.optim, and files elsewhere"
MODELS = Path(__file__).parents[1]
OF_TORCH = re.compile(r"torch\.(nn|optim)(\.[a-z_][a-z0-9_]*)*\.[A-Z]\w*")
OUTSIDE = re.compile(r"[/~]|[A-Za-z][A-Za-z0-9+.-]*://|(.*/)?\.\.(/|$)", re.DOTALL)


def refuse_untrusted(content: Mapping[str, Any], path: Path) -> None:
    """Raise UserError, a line for each dotted key, if a recipe's content could run or read what is not ours.

    Imports nothing. `path` is the recipe's, for messages. From here on, this process fetches nothing from the hub, and
    `types.check_arguments` refuses classes that pass their arguments to another package (`passes_arguments_to`).
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", TRUSTED_ONLY: OPTION}
    errors = ErrorCollector(path)
    for key, text in texts(content):
        if key.rpartition(".")[2] == "type" and not _is_ours(text):
            errors.add(key, f"found {shown(text)}; {OPTION} takes classes of models, torch.nn and torch.optim alone")
        elif OUTSIDE.match(text):
            errors.add(key, f"found {shown(text)}; {OPTION} takes paths below the current folder alone")
    errors.raise_any()


def refuse_untrusted_model(model: Path) -> None:
    """Raise UserError if the recipe of a model folder is refused (`refuse_untrusted`), or a file of it lies outside."""
    inside = model.resolve()
    errors = ErrorCollector(model)
    for path in sorted(model.iterdir()):
        if path.is_symlink() and not _leads_inside(path, inside):
            errors.add(path.name, f"a link that leads out of this folder; {OPTION} takes the folder's own files alone")
    errors.raise_any()
    refuse_untrusted(read_yaml(model / "recipe.yaml"), model / "recipe.yaml")


def _is_ours(name: str) -> bool:
    """Whether a type can only be a class of `models`, `torch.nn` or `torch.optim`.

    A word without a dot is looked up in `models` alone, if it is a type at all (`type: jpeg`).
    """
    *package, attribute = name.split(".")
    if not all(part.isidentifier() for part in (*package, attribute)):
        return False
    if not package or OF_TORCH.fullmatch(name):
        return True
    place = MODELS.joinpath(*package[1:] if package[0] == "models" else package)
    files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    defined = re.compile(rf"^class {attribute}\b", re.MULTILINE)
    return any(defined.search(path.read_text(encoding="utf-8")) for path in files if path.is_file())


def _leads_inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve(strict=True).is_relative_to(folder)
    except (OSError, RuntimeError):  # it leads nowhere, or to itself
        return False

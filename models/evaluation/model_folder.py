"""What a model folder says of itself before anything is loaded: its recipe, and whether it fits another."""

from pathlib import Path
from typing import Any

from models.base.checksums import refuse_damaged
from models.base.errors import UserError
from models.base.yaml12 import read_yaml


def model_folder(run: Path) -> Path:
    """Return the model of a run, or the folder itself if it is a model.

    Raises:
        UserError: it is neither.
    """
    if (run / "recipe.yaml").is_file():
        return run
    if (run / "model").is_dir():
        return run / "model"
    why = "no training has ended here: it has no folder model" if run.is_dir() else "no such folder"
    others = ", ".join(str(path.parent) for path in sorted(run.parent.glob("*/model")))
    raise UserError(f"{run}: {why}; {f'there are {others}' if others else 'dvc repro, or dvc pull, makes runs/*'}")


def refuse_other_networks(path: Path, content: dict[str, Any], model: Path) -> None:
    """Raise UserError if a recipe, of that path and content, has none of the networks of a model folder."""
    own, trained = (_types(one) for one in (content, read_yaml(model / "recipe.yaml")))
    if own and trained and not own.items() & trained.items():
        named, has = (", ".join(f"{name} ({kind})" for name, kind in one.items()) for one in (own, trained))
        raise UserError(f"{path}: its networks are {named}, but {model} has {has}; name the recipe of this run")


def _types(content: dict[str, Any]) -> dict[str, str]:
    networks = content.get("networks")
    entries = networks.items() if isinstance(networks, dict) else ()
    return {name: str(entry.get("type")) for name, entry in entries if isinstance(entry, dict)}


def trained_facts(model: Path) -> dict[str, Any]:
    """Return the facts of the data that a model was trained on (`interfaces.Examples.facts`).

    Raises:
        UserError: the folder has no readable recipe.
    """
    return trained_content(model)[1]


def trained_content(model: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the recipe beside the weights, and its facts; raises UserError as `trained_facts`,
    and if it is not what `SHA256SUMS` beside it says.
    """
    refuse_damaged(model / "recipe.yaml")
    content = read_yaml(model / "recipe.yaml")
    return content, content.pop("facts", {})

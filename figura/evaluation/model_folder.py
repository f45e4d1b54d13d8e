"""Inspect a model folder before anything is loaded: its recipe, and whether it matches another."""

from pathlib import Path
from typing import Any

from figura.base.checksums import refuse_damaged
from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError, one_line
from figura.base.files import read_json
from figura.base.yaml12 import read_yaml
from figura.recipe.expansion import expanded

EARLIER = ("find_batch_size", "frozen", "freeze_batch_norm", "rate_scaling", "requires", "rollback")
"""Keys of networks, steps and `train` in recipes of earlier versions."""


def model_folder(run: Path) -> Path:
    """Return the model folder of a run, or the folder itself if it is one.

    Raises:
        UserError: it is neither.
    """
    if (run / "recipe.yaml").is_file():
        return run
    if (run / "model").is_dir():
        return run / "model"
    why = "no training has ended here: it has no folder model" if run.is_dir() else "no such folder"
    others = ", ".join(str(path.parent) for path in sorted(run.parent.glob("*/model")))
    cure = f"there are {others}" if others else "dvc checkout, dvc pull or dvc repro brings runs/*"
    raise UserError(f"{run}: {why}; {cure}")


def kept(model: Path) -> str:
    """Return which evaluation's weights a model folder has, as text; empty for the last ones (`train.keep`)."""
    return _noted(model, "kept")


def drawn(model: Path) -> str:
    """Return a line if a model was trained on data that figura drew, which no photo resembles; else an empty string."""
    names = _noted(model, "drawn")
    return f"{model}: trained on drawn data alone ({names}): expect little of it on photos" if names else ""


def _noted(model: Path, key: str) -> str:
    path = model / "provenance.json"
    content = read_json(path) if path.is_file() else {}
    return one_line(str(content.get(key, ""))) if isinstance(content, dict) else ""


def model_recipe(model: Path) -> dict[str, Any]:
    """Return the content of the recipe in a model folder, `facts` of its data included.

    Keys of training that earlier versions had do not matter to a trained network, and are dropped.
    """
    content = read_yaml(model / "recipe.yaml")
    maps = [one for one in (content.get("networks"), content.get("steps")) if isinstance(one, dict)]
    for section in (content.get("train"), *(entry for entries in maps for entry in entries.values())):
        if isinstance(section, dict):
            for key in EARLIER:
                section.pop(key, None)
    return content


def refuse_other_networks(path: Path, content: dict[str, Any], model: Path) -> None:
    """Raise UserError if a recipe with this path and content has no network of a model folder."""
    own, trained = (_types(one) for one in (expanded(content, ErrorCollector(path)), read_yaml(model / "recipe.yaml")))
    if own and trained and not own.items() & trained.items():
        named, has = (", ".join(f"{name} ({kind})" for name, kind in one.items()) for one in (own, trained))
        raise UserError(f"{path}: its networks are {named}, but {model} has {has}; name the recipe of this run")


def _types(content: dict[str, Any]) -> dict[str, str]:
    networks = content.get("networks")
    entries = networks.items() if isinstance(networks, dict) else ()
    return {name: str(entry.get("type")) for name, entry in entries if isinstance(entry, dict)}


def trained_facts(model: Path) -> dict[str, Any]:
    """Return the facts of the data that a model was trained on (`interfaces.ExampleDataset.facts`).

    Raises:
        UserError: the folder has no readable recipe.
    """
    return trained_content(model)[1]


def trained_content(model: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of the recipe beside the weights, and its facts.

    Raises UserError like `trained_facts`, and if the digest differs from `SHA256SUMS` beside it.
    """
    refuse_damaged(model / "recipe.yaml")
    content = model_recipe(model)
    return content, content.pop("facts", {})

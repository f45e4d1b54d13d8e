"""The trained models that ship with figura, by name: `figura predict photos_x2 my.jpg`."""

from pathlib import Path

from figura.systems import PROJECT

ZOO = PROJECT / "weights/zoo"
"""A model folder for each, with its recipe and a card, README.md, whose first line says what it does."""


def models() -> dict[str, str]:
    """Return what each model of the zoo does, by name."""
    cards = sorted(ZOO.glob("*/README.md"))
    return {card.parent.name: card.read_text("utf-8").partition("\n")[0].lstrip("# ") for card in cards}


def model_path(run: Path) -> Path:
    """Return the folder of the model that `run` names; `run` itself, if it is a path that exists or no name."""
    named = ZOO / run
    return named if len(run.parts) == 1 and not run.exists() and named.is_dir() else run

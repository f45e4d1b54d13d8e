"""The trained models that ship with figura, by name: `figura predict photos_x2 my.jpg`."""

from pathlib import Path

from figura.base.errors import UserError, nearest
from figura.systems import PROJECT

ZOO = PROJECT / "weights/zoo"
"""A model folder for each, with its recipe and a card, README.md, whose first line says what it does."""


IN_CLONES = ("photos_pose",)  # models of the repository that the package, which is to be small, leaves out


def models() -> dict[str, str]:
    """Return what each model of the zoo does, by name."""
    cards = sorted(ZOO.glob("*/README.md"))
    return {card.parent.name: card.read_text("utf-8").partition("\n")[0].lstrip("# ") for card in cards}


def model_path(run: Path) -> Path:
    """Return the folder of the model that `run` names; `run` itself, if it is a path that exists or no name.

    Raises:
        UserError: it is a name, but neither a model's nor a folder's.
    """
    if len(run.parts) != 1 or run.exists():
        return run
    if (ZOO / run).is_dir():
        return ZOO / run
    if str(run) in IN_CLONES:
        raise UserError(f"{run}: ships with a clone of the repository only; name its folder there, weights/zoo/{run}")
    raise UserError(
        f"{run}: no such folder, and no model that ships{nearest(str(run), models())}; there are "
        f"{', '.join(models())}; of your own, name the folder of the run, such as runs/pose"
    )

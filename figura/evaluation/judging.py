"""Apply a trained network to the dump of another run: build the recipe, and check that the two match."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.data.formats.skeletons import COCO, skeleton_from
from figura.evaluation.model_folder import trained_content
from figura.recipe.schema import Recipe
from figura.recipe.trial import STEPS

if TYPE_CHECKING:
    from figura.dump import Dump

SECTIONS = ("evaluate", "metrics", "runtime")


def judging_content(path: Path, model: Path, drawn: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a trained model's recipe content with the sections of another recipe and the dump, and its facts.

    Raises:
        UserError: a file is not readable, or the recipe's sections are not exactly `SECTIONS`.
    """
    own = read_yaml(path)
    for key in own:
        if key not in SECTIONS:
            raise UserError(f"{path}: {key}: this is of the network in {model}; allowed are {', '.join(SECTIONS)}")
    for key in SECTIONS:
        if key not in own:
            raise UserError(f"{path}: {key}: missing")
    data = own["evaluate"].get("data") if isinstance(own["evaluate"], dict) else None
    for entry in data.values() if isinstance(data, dict) else ():
        if isinstance(entry, dict):
            entry.setdefault("dump", str(drawn))
    content, facts = trained_content(model)
    return content | own, facts


def refuse_other_joints(drawn: "Dump", facts: Mapping[str, Any], model: Path) -> None:
    """Raise UserError if the joints of a dump differ from the network's, which are COCO's unless declared.

    A dump without a skeleton, such as one of image pairs, has no joints to compare.
    """
    if not (asked := drawn.facts.get("skeleton")):
        return
    theirs, ours = (skeleton_from(one) if one else COCO for one in (asked, facts.get("skeleton")))
    if theirs.keypoints != ours.keypoints:
        raise UserError(
            f"{model}: finds the {len(ours.keypoints)} joints {', '.join(ours.keypoints)}; the people in "
            f"{drawn.folder} have {len(theirs.keypoints)}: {', '.join(theirs.keypoints)}; name a network of the same "
            "joints"
        )


def as_try(recipe: Recipe) -> Recipe:
    """Return a recipe marked as a try, with the number of steps of a try."""
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"try_": True, "steps": STEPS})})

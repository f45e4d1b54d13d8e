"""Let a trained network judge what another run drew: `python -m stages.judge RECIPE MODEL DRAWN RUN METRICS PLOTS`.

MODEL is a model folder, such as runs/pose/model, and DRAWN a dump, such as runs/vunet/dump. RECIPE has the sections
`evaluate`, `metrics` and `runtime` alone: the network runs over `evaluate.data`, whose argument `dump` is DRAWN, into
RUN/dump, and of this the metrics and pictures are made as by `stages.metrics`. Where DRAWN or the network is of a try,
so are the results.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.formats.skeletons import COCO, skeleton_from
from models.base.errors import UserError
from models.base.lock import hold
from models.base.yaml12 import read_yaml
from models.evaluation.model_folder import model_folder, trained_content
from models.recipe.load import check_recipe, check_schema
from models.recipe.schema import Recipe
from models.recipe.trial import STEPS
from stages.command import run
from stages.dependencies import refuse_untracked

if TYPE_CHECKING:
    from models.dump import Dump

SECTIONS = ("evaluate", "metrics", "runtime")


def main(arguments: list[str]) -> None:
    """Evaluate a trained network by a recipe without training, and score what it gives."""
    parser = argparse.ArgumentParser(prog="python -m stages.judge", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as recipes/consistency/vunet.yaml")
    parser.add_argument("model", type=Path, help="model folder of a trained network, such as runs/pose/model")
    parser.add_argument("drawn", type=Path, help="dump of the run that drew the pictures, such as runs/vunet/dump")
    parser.add_argument("run", type=Path, help="folder to write the dump into")
    parser.add_argument("metrics", type=Path, help="JSON file to write, and its namesake in full/")
    parser.add_argument("plots", type=Path, help="folder to write")
    args = parser.parse_args(arguments)
    model = model_folder(args.model)
    content, facts = judging_content(args.recipe, model, args.drawn)
    check_schema(content, args.recipe)

    from models.dump import Dump
    from models.evaluation.trained import load_trained, refuse_foreign, write_dump
    from models.report.results import write_results

    drawn = Dump(args.drawn)
    refuse_other_joints(drawn, facts, model)
    refuse_foreign(args.run / "dump")
    recipe = check_recipe(content, args.recipe, ["evaluate", "metrics"], facts)
    refuse_untracked(recipe)
    trained, networks = load_trained(model, recipe)
    if drawn.trial:
        trained = as_try(trained)
    if os.environ.get("RANK", "0") != "0":
        write_dump(trained, networks, args.run / "dump")
        return
    args.run.mkdir(parents=True, exist_ok=True)
    with hold(args.run):
        write_dump(trained, networks, args.run / "dump")
        header = f"{args.run.name} ({args.recipe})  read by {model}"
        write_results(recipe, Dump(args.run / "dump"), args.metrics, args.plots, header)


def judging_content(path: Path, model: Path, drawn: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of a trained model's recipe with the sections of another recipe and the dump, and its facts.

    Raises:
        UserError: a file is not readable, or the recipe has other sections than `SECTIONS`, or lacks one.
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
    """Raise UserError if the people of a dump have other joints than the network finds, which are COCO's if not said.

    A dump without a skeleton, such as one of pairs of pictures, has no joints to compare.
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
    """Return a recipe that is marked as a try, of as many steps as a try has."""
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"try_": True, "steps": STEPS})})


if __name__ == "__main__":
    sys.exit(run(main))

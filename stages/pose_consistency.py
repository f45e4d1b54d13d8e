"""Let a trained pose network judge what another run drew.

Usage: python -m stages.pose_consistency RECIPE MODEL DRAWN RUN METRICS PLOTS

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

from figura.base.dotted_keys import value_at
from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.lock import hold
from figura.base.yaml12 import read_yaml
from figura.evaluation.model_folder import model_folder, trained_content
from figura.formats.skeletons import COCO, skeleton_from
from figura.pipeline.causes import print_causes
from figura.pipeline.untracked_files import refuse_untracked
from figura.recipe.expansion import expanded
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.trial import STEPS

if TYPE_CHECKING:
    from figura.dump import Dump

READS = ("evaluate", "metrics")  # sections of the recipe whose types it loads
READS_OF_MODEL = ("data", "networks", "losses")  # the same of the recipe that trained the model
SECTIONS = ("evaluate", "metrics", "runtime")


def main(arguments: list[str]) -> None:
    """Evaluate a trained network by a recipe without training, and score what it gives."""
    parser = argparse.ArgumentParser(prog="python -m stages.pose_consistency", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as recipes/pose_consistency/vunet.yaml")
    parser.add_argument("model", type=Path, help="model folder of a trained network, such as runs/pose/model")
    parser.add_argument("drawn", type=Path, help="dump of the run that drew the pictures, such as runs/vunet/dump")
    parser.add_argument("run", type=Path, help="folder to write the dump into")
    parser.add_argument("metrics", type=Path, help="JSON file to write, and its namesake in full/")
    parser.add_argument("plots", type=Path, help="folder to write")
    args = parser.parse_args(arguments)
    print_causes()
    model = model_folder(args.model)
    content, facts = judging_content(args.recipe, model, args.drawn)
    check_schema(content, args.recipe)

    from figura.dump import Dump
    from figura.evaluation.trained import load_trained, refuse_foreign, write_dump
    from figura.report.results import write_results

    drawn = Dump(args.drawn)
    refuse_other_joints(drawn, facts, model)
    refuse_foreign(args.run / "dump")
    recipe = check_recipe(content, args.recipe, ["evaluate", "metrics"], facts)
    refuse_untracked(recipe)
    trained, networks = load_trained(model, recipe)
    if drawn.trial:
        trained = trained.model_copy(update={"train": trained.train.model_copy(update={"try_": True, "steps": STEPS})})
    if os.environ.get("RANK", "0") != "0":
        write_dump(trained, networks, args.run / "dump")
        return
    args.run.mkdir(parents=True, exist_ok=True)
    with hold(args.run):
        write_dump(trained, networks, args.run / "dump")
        header = f"{args.run.name} ({args.recipe})  read by {model}"
        write_results(recipe, Dump(args.run / "dump"), args.metrics, args.plots, header)


def judging_content(path: Path, model: Path, drawn: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a trained model's recipe content with the sections of another recipe and the dump, and its facts.

    Raises:
        UserError: a file is not readable, or the recipe has other sections than `SECTIONS`, or lacks one, or one of its
            entries extends what is not there.
    """
    own = read_yaml(path)
    for key in own:
        if key not in SECTIONS:
            raise UserError(f"{path}: {key}: this is of the network in {model}; allowed are {', '.join(SECTIONS)}")
    for key in ("evaluate", "metrics"):
        if key not in own:
            raise UserError(f"{path}: {key}: missing")
    own.setdefault("runtime", {})  # not that of the network
    content, facts = trained_content(model)
    content |= own
    errors = ErrorCollector(path)
    data = value_at(expanded(content, errors), "evaluate.data")
    errors.raise_any()
    if isinstance(data, dict):
        entries = {name: {"dump": str(drawn), **one} if isinstance(one, dict) else one for name, one in data.items()}
        content["evaluate"] = content["evaluate"] | {"data": entries}
    return content, facts


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


if __name__ == "__main__":
    sys.exit(run(main))

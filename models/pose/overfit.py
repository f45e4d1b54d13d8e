"""Overfit a pose recipe to a few images: it must then find every keypoint and every person in them.

Usage: figura pose.overfit RECIPE RUN [--images 4] [--root FOLDER] [--split train] [--side PIXELS]
       [--steps 500]

Trains only on the first images without a crowd region, without augmentation. Then two checks follow. For each visible
keypoint, a confident cell within one stride must point to within one stride of it. And COCO's AP of the decoded people
must be at least 0.95, the AP at an OKS of 0.5 must be 1. Prints a table, writes RUN/losses.png, RUN/people.png and
RUN/dump (with pictures of fields, if a mode of the recipe saves them); exits with 1 if a check fails. Not part of the
DAG.
"""

import argparse
from pathlib import Path

from figura.base.errors import UserError
from figura.recipe.expansion import read_recipe
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema

LEAST_AP = 0.95
LEAST_STEPS = 8  # it logs eight times
ALL = 1 - 1e-6  # 1 up to rounding: AP is a mean of 101 precisions


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="figura pose.overfit", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as recipes/pose.yaml")
    parser.add_argument("run", type=Path, help="folder to write, such as runs/overfit")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--root", help="prepared dataset; default: the recipe's")
    parser.add_argument("--split", default="train")
    parser.add_argument("--side", type=int, help="pixels, a multiple of 16 plus one; default: the recipe's")
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args(arguments)
    if args.steps < LEAST_STEPS:
        raise UserError(f"--steps {args.steps}: at least {LEAST_STEPS} are needed")
    content = read_recipe(args.recipe)
    check_schema(content, args.recipe)

    from figura.report.curves import draw_curves, read_histories
    from figura.training.trainer import Trainer

    from .overfitting import decoded, few_images, judge
    from .scenes import Scenes

    check_recipe(content, args.recipe)  # reports errors in the file itself, before the content is changed
    content = few_images(content, args)
    trainer = Trainer(check_recipe(content, args.recipe), args.run)
    trainer.fit()
    (data,) = trainer.loaders.train_data.values()
    assert isinstance(data, Scenes)
    draw_curves(*read_histories(args.run), args.run / "losses.png")
    missed = judge(trainer.networks.ema["network"], data)
    precision = decoded(trainer.recipe, trainer.networks.ema, data.skeleton, args.run)
    if missed:
        raise UserError(f"{missed} visible keypoints are not found within one stride; try more --steps")
    if precision["AP"] < LEAST_AP or precision["AP50"] < ALL:
        raise UserError(
            f"AP {precision['AP']:.3f} is below {LEAST_AP}, or AP50 {precision['AP50']:.3f} below 1; try more --steps"
        )

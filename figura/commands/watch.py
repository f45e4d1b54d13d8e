"""Evaluate each checkpoint once, also as it appears.

RECIPE says how to evaluate and which metrics to compute; CHECKPOINTS is a folder of model folders, such as
runs/vunet/checkpoints (see `runtime.checkpoint_every`). Without `--every` the command ends when all are evaluated; with
it, it waits for more until Ctrl-C. OUTPUT gets

<checkpoint>/      the checkpoint's dump
evaluations.csv    one row for each evaluated checkpoint: `checkpoint`, `step`, its metrics
evaluations.png    the metrics over the steps
"""

from pathlib import Path

from figura.base.errors import UserError
from figura.base.lock import hold
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of, recipe_file
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema

LONGEST = 1e9  # seconds between looks: not much longer, Python cannot sleep


def main(arguments: list[str]) -> None:
    parser = parser_of("watch", __doc__)
    parser.add_argument("recipe", type=recipe_file, help="params file, such as params.yaml")
    parser.add_argument("checkpoints", type=Path, help="folder of model folders, such as runs/vunet/checkpoints")
    parser.add_argument("output", type=Path, help="folder to write")
    parser.add_argument("--split", metavar="NAME", help="split of the datasets of evaluate.data; default: the recipe's")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="evaluate new checkpoints as they appear")
    args = parser.parse_args(arguments)
    if args.every is not None and not 0 < args.every <= LONGEST:
        raise UserError(f"--every {args.every:g}: expected a number of seconds above 0, at most {LONGEST:g}")
    if (args.checkpoints / "recipe.yaml").is_file():
        raise UserError(
            f"{args.checkpoints}: is a model folder; name the folder that holds it, or evaluate it alone: "
            "python -m stages.eval_dump RECIPE RUN --checkpoint FOLDER --output OUTPUT"
        )
    if args.output.resolve().is_relative_to(args.checkpoints.resolve()):
        raise UserError(f"{args.output}: lies in the folder of the checkpoints; choose one beside it")
    if args.output.exists() and not args.output.is_dir():
        raise UserError(f"{args.output}: is a file; expected a folder to write")
    content = read_yaml(args.recipe)
    check_schema(content, args.recipe)

    from figura.commands.checkpoint_watch import CheckpointWatch

    recipe = check_recipe(content, args.recipe, ["evaluate", "metrics"])
    watch = CheckpointWatch(args.checkpoints, args.output, recipe, args.split)
    if args.every is None:
        watch.refuse_nothing()
    with hold(args.output):
        if args.every is None:
            watch.evaluate_all()
        else:
            watch.watch(args.every)

"""Show what the networks of a recipe get: `figura show RECIPE`, before anything is trained.

Writes a sheet of examples (`--output`, by default show.png), one in each row: every name that has a picture, as it is
after augmentation, with its shape and range, and the ids of the example. Prints a table of all names. Examples and
their random numbers are those of the training: by default the first ones that its first epoch takes of each dataset.

For poses, the targets of the heads lie over the picture: red lines hatch what the losses ignore (crowds, hidden
joints), arrows point from confident cells to joints.

`--set` changes a value of the recipe for one call: `--set data.train.scenes.side=321`. Not part of the DAG.
"""

from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of, recipe_file
from figura.recipe.assignments import overridden
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema

SPLITS = ("train", "validation", "evaluate")
COUNT = 12


def main(arguments: list[str]) -> None:
    parser = parser_of("show", __doc__)
    parser.add_argument("recipe", type=recipe_file, help="params file, such as params.yaml")
    parser.add_argument("--split", choices=SPLITS, default="train", help="default: train")
    parser.add_argument("--dataset", metavar="NAME", help="one dataset of the split; default: all of them")
    parser.add_argument("--count", type=int, metavar="N", help=f"examples of each dataset; default: {COUNT}")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--start", type=int, default=0, metavar="N", help="leave out the first N")
    which.add_argument("--indices", type=int, nargs="+", metavar="I", help="these examples of the dataset, from 0")
    parser.add_argument("--epoch", type=int, default=0, metavar="N", help="of the training, from 0; default: 0")
    parser.add_argument("--output", type=Path, default=Path("show.png"), metavar="FILE", help="picture to write")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of the recipe")
    args = parser.parse_args(arguments)
    _check(args)
    content = overridden(read_yaml(args.recipe), args.set, ("data", "evaluate", "seed"), args.recipe)
    check_schema(content, args.recipe)

    from figura.show.examples import drawn_examples
    from figura.show.sheet import draw_sheet, table

    recipe = check_recipe(content, args.recipe, ["evaluate"])
    count = COUNT if args.count is None else args.count
    drawn = drawn_examples(
        recipe, args.split, count, dataset=args.dataset, start=args.start, indices=args.indices, epoch=args.epoch
    )
    print("\n".join(table(drawn, args.split)))
    write_png(args.output, draw_sheet(drawn, args.split))
    print(f"wrote {args.output}")


def _check(args: Any) -> None:
    if args.output.suffix != ".png":
        raise UserError(f"--output {args.output}: expected a file that ends in .png")
    for option, least in {"count": 1, "start": 0, "epoch": 0}.items():
        if (value := getattr(args, option)) is not None and value < least:
            raise UserError(f"--{option} {value}: expected {least} or more")
    if args.indices is not None and args.count is not None:
        raise UserError(f"--count {args.count}: --indices name the examples; leave one of them out")
    if args.epoch and args.split != "train":
        raise UserError(f"--epoch {args.epoch}: only training has epochs; {args.split} is the same in each")

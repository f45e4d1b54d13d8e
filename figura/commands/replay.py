"""Rebuild one iteration of a training: `figura replay RUN --step N` shows what each loss did, and what broke first.

RUN is the folder of a training that has ended, failed or was stopped. It is built again from its `live/recipe.yaml`
and goes on from the nearest state, a resume point or one that trainings share, to iteration N, a `step` of the history.
For each step and network it prints

value         of each loss, and whether it is that of `live/losses.csv`, bit for bit
weight        the loss counts so much
gradient      norm of the gradient of weight x loss, with respect to the network
cosine        between the gradients of two losses: below 0, they work against each other
update        norm of the update, as a share of the norm of the network's weights

and then what was not finite first: an example of the batch, an injector, a layer, a loss, a gradient or the update.
`--output` gets the pictures of the batch. Nothing is written into RUN. Not part of the DAG.
"""

from pathlib import Path

from figura.base.errors import REPRO, UserError
from figura.base.pictures import write_png
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of


def main(arguments: list[str]) -> None:
    parser = parser_of("replay", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a training, such as runs/vunet")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="the iteration, from 1")
    parser.add_argument("--output", type=Path, default=Path("replay.png"), metavar="FILE", help="picture to write")
    args = parser.parse_args(arguments)
    if args.step < 1:
        raise UserError(f"--step {args.step}: expected 1 or more")
    if args.output.suffix != ".png":
        raise UserError(f"--output {args.output}: expected a file that ends in .png")
    live = next((one for one in (args.run / "live", args.run / "try/live") if (one / "recipe.yaml").is_file()), None)
    if live is None:
        if (args.run / "model").is_dir():
            raise UserError(
                f"{args.run}/live/recipe.yaml: no such file: it was trained elsewhere; copy {args.run}/live from there "
                f"or train again: `{REPRO} --force train@{args.run.name}`"
            )
        raise UserError(f"{args.run}: no training has begun here: it has no live/recipe.yaml")
    content = read_yaml(live / "recipe.yaml")

    from figura.commands.replayed import replayed

    lines, sheet = replayed(content, live, args.step)
    print("\n".join(lines))
    write_png(args.output, sheet)
    print(f"wrote {args.output}")

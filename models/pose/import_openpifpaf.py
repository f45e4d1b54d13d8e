"""Import weights trained by OpenPifPaf: `figura pose.import_openpifpaf CHECKPOINT RECIPE OUT [--heads cif,caf]`.

An OUT that ends in .safetensors is a file for `networks.<name>.weights` of a recipe, to fine-tune from. Any other OUT
is the folder of a run: it gets `model/` as if RECIPE had trained it, for `python -m stages.eval_dump RECIPE OUT`. The
checkpoint's heads match the recipe's in order, unless `--heads` says otherwise. Pickled code in a checkpoint is never
executed. Not part of the DAG.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError, nearest
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml
from figura.commands.import_weights.outputs import SUFFIX, refuse_output
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema

if TYPE_CHECKING:
    from models.pose.pose_network import PoseNetwork

RECIPE = "recipes/published/openpifpaf_shufflenetv2k16.yaml"
TAKES = "the recipe's one pose network"


def main(arguments: list[str]) -> None:
    """Load a checkpoint into the recipe's pose network and write it."""
    parser = argparse.ArgumentParser(prog="figura pose.import_openpifpaf", description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="OpenPifPaf checkpoint or state dict (PyTorch, safetensors)")
    parser.add_argument("recipe", type=Path, help="params file, such as recipes/pose.yaml")
    parser.add_argument("out", type=Path, help="safetensors file to write, or the folder of a run")
    parser.add_argument(
        "--heads",
        help="the recipe's names of the checkpoint's heads, separated by commas; '-' drops a head. The recipe's other "
        "heads start at random",
    )
    args = parser.parse_args(arguments)
    refuse_output(args.out)
    content = read_yaml(args.recipe)
    check_schema(content, args.recipe)

    from figura.engine.build import build_networks
    from figura.engine.weights import save_weights
    from figura.training.checkpoints import write_model
    from figura.training.provenance import file_versions, package_versions
    from models.pose.openpifpaf import fitted, read_state
    from models.pose.pose_network import PoseNetwork

    recipe = check_recipe(content, args.recipe)
    networks = build_networks(recipe)
    poses = {name: network for name, network in networks.items() if isinstance(network, PoseNetwork)}
    if len(poses) != 1:
        raise UserError(f"{args.recipe}: found {len(poses)} networks of type pose.PoseNetwork; one is needed")
    ((name, network),) = poses.items()
    heads = args.heads.split(",") if args.heads else list(network.head_nets)
    _check_heads(heads, network)
    state = read_state(args.checkpoint)
    try:
        network.load_state_dict(fitted(state, network, heads))
    except UserError as error:
        raise UserError(f"{args.checkpoint}, for networks.{name} of {args.recipe}: {error}") from None
    print(table(network, heads))
    if args.out.suffix == SUFFIX:
        save_weights(network, args.out)
        print(f"{args.out}: written; `networks.{name}.weights: {args.out}` starts from it")
    else:
        provenance = {
            "packages": str(package_versions()), "start": file_versions([str(args.checkpoint)])
        }  # fmt: skip
        write_model(args.out / "model", networks, recipe, provenance)
        print(f"{args.out}/model: written; evaluate it: python -m stages.eval_dump {args.recipe} {args.out}")


def table(network: "PoseNetwork", heads: Sequence[str]) -> str:
    """Return a table of matches per part of the network: the checkpoint's name, ours, tensors, trained parameters."""
    places = {f"head_nets.{head}": f"head_nets.{place}" for place, head in enumerate(heads)}
    fresh = {f"head_nets.{head}" for head in network.head_nets if head not in heads}
    tensors: dict[str, int] = {}
    parameters: dict[str, int] = {}
    trained = dict(network.named_parameters())
    for name in network.state_dict():
        part = ".".join(name.split(".")[:2])
        tensors[part] = tensors.get(part, 0) + 1
        parameters[part] = parameters.get(part, 0) + (trained[name].numel() if name in trained else 0)
    rows = [
        ("at random" if part in fresh else places.get(part, part), part, f"{tensors[part]:,}", f"{parameters[part]:,}")
        for part in tensors
    ]
    rows.append(("", "all", f"{sum(tensors.values()):,}", f"{sum(parameters.values()):,}"))
    rows.insert(0, ("checkpoint", "network", "tensors", "parameters"))
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{a:<{first}}  {b:<{second}}  {c:>7}  {d:>11}" for a, b, c, d in rows)


def _check_heads(heads: Sequence[str], network: "PoseNetwork") -> None:
    from models.pose.openpifpaf import LEFT_OUT

    for head in heads:
        if head != LEFT_OUT and head not in network.head_nets:
            known = ", ".join(network.head_nets)
            raise UserError(f"--heads {head!r}{nearest(head, network.head_nets)}: the recipe has {known}")
        if head != LEFT_OUT and heads.count(head) > 1:
            raise UserError(f"--heads {head!r}: is there twice")


if __name__ == "__main__":
    sys.exit(run(main))

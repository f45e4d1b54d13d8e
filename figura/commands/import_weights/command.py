"""Import weights of another program: `figura import KIND FILE --output FILE_OR_FOLDER [--recipe ...]`.

KIND is `state`, for a network of any class, which `--recipe` names, or any for which a system has a module
`models/SYSTEM/import_KIND.py` with a function `plan(tensors)`, which tells the network from names and shapes. A module
with a `TYPE` cannot tell it: its `plan(tensors, network, heads)` gets the network of this type in `--recipe`, which is
needed then. A module may have `refuse_content(content)`, too, which is given all that the file holds.

An output that ends in .safetensors is a file for `networks.<name>.weights` of a recipe. Any other output is the folder
of a run: it gets `model/` as if the recipe had trained it, for `python -m stages.eval_dump`. Without `--recipe`, the
command prints the entry of a recipe for the network. Pickled code in a file is never executed. Not part of the DAG.
"""

import argparse
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.checksums import SUMS
from figura.base.errors import UserError, nearest
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands import parser_of, recipe_file
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.systems import modules_with

if TYPE_CHECKING:
    from torch import nn

    from figura.commands.import_weights.plan import Plan
    from figura.recipe.schema import Recipe

SUFFIX = ".safetensors"
SUFFIXES = {".bin", ".ckpt", ".onnx", ".pkl", ".pt", ".pth", SUFFIX, ".tar"}
"""Of files of weights; the folder of a run has none of them."""


def main(arguments: list[str]) -> None:
    kinds = modules_with("import_", "plan") | {"state": "figura.commands.import_weights.state"}
    args = _parse(arguments, kinds)
    if args.network and args.recipe is None:
        raise UserError(f"--network {args.network}: it chooses a network of --recipe, which is missing")
    if args.recipe is None and args.output.suffix != SUFFIX:
        raise UserError(
            f"--output {args.output}: the folder of a run needs --recipe; a file of weights ends in {SUFFIX}"
        )
    refuse_output(args.output)
    content = None if args.recipe is None else read_yaml(args.recipe)
    if content is not None:
        check_schema(content, args.recipe)

    importer = importlib.import_module(kinds[args.kind])
    if hasattr(importer, "TYPE") and args.recipe is None:
        raise UserError(f"{args.kind}: --recipe is needed, such as {importer.RECIPE}")
    if args.heads and not getattr(importer, "TYPE", ""):
        raise UserError(f"--heads: networks of {args.kind} have no heads")
    _convert(args, importer, None if content is None else check_recipe(content, args.recipe))


def refuse_output(output: Path) -> None:
    """Raise UserError if a file of weights lies in a model, if a run has or is a model already, which may be a
    training's only result, or if the folder of a run is called like a file of weights.
    """
    if output.suffix == SUFFIX:
        if (output.parent / SUMS).exists():
            raise UserError(f"{output}: {output.parent} is a model, whose {SUMS} guards its files; name another folder")
    elif output.suffix.lower() in SUFFIXES:
        raise UserError(f"{output}: a file of weights to write ends in {SUFFIX}; any other name is a run's folder")
    elif (output / "model").exists():
        raise UserError(f"{output}/model: a model is there already; remove it, or name another folder")
    elif (output / SUMS).exists():
        raise UserError(f"{output}: this is a model; name the folder of another run")


def _parse(arguments: list[str], kinds: Iterable[str]) -> argparse.Namespace:
    parser = parser_of("import", __doc__)
    parser.add_argument("kind", choices=list(kinds), metavar="KIND", help=", ".join(kinds))
    parser.add_argument("file", type=Path, metavar="FILE", help="checkpoint or state dictionary of PyTorch")
    parser.add_argument("--output", type=Path, required=True, help=f"{SUFFIX} file to write, or the folder of a run")
    parser.add_argument("--recipe", type=recipe_file, help="params file whose network it has to be")
    parser.add_argument("--network", help="which network of the recipe, where several have the type")
    parser.add_argument(
        "--heads", metavar="NAME,...",
        help="of openpifpaf: the recipe's names of the checkpoint's heads, in order; - drops one; default: all heads",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _convert(args: argparse.Namespace, importer: Any, recipe: "Recipe | None") -> None:
    from figura.commands.import_weights.plan import fitted
    from figura.commands.import_weights.tensor_files import read_content, tensors_of
    from figura.engine.build import build_networks
    from figura.engine.weights import save_weights
    from figura.training.checkpoints import write_model
    from figura.training.provenance import file_versions, package_versions

    networks = {} if recipe is None else build_networks(recipe)
    content = read_content(args.file)
    any_type = getattr(importer, "TYPE", None) == ""
    tensors = tensors_of(content, args.file, several=any_type)
    name, needed = "", []
    if hasattr(importer, "TYPE") and recipe is not None:
        name = _chosen(networks, recipe, importer.TYPE, args.network)
        needed = [networks[name], args.heads]
    try:
        if hasattr(importer, "refuse_content"):
            importer.refuse_content(content)
        plan: Plan = importer.plan(tensors, *needed)
    except UserError as error:
        first = f"its {len(tensors):,} tensors begin with {', '.join([*tensors][:3])}"
        raise UserError(f"{args.file}, as {args.kind}: {error}; {first}") from None
    if recipe is None:
        name = plan.published[1]
        networks = {name: _built(plan, args.file)}
        what = f"{args.file}"
    else:
        name = name or _chosen(networks, recipe, plan.type, args.network)
        what = f"{args.file}, for networks.{name} of {recipe.path}"
    faults = [] if recipe is None else _other_settings(plan, recipe, name, type(networks[name]))
    try:
        state = fitted(plan, tensors, networks[name])
    except UserError as error:
        differ = ["settings differ:", *faults] if faults else []  # first: a message is cut after some lines
        raise UserError(f"{what}: " + "\n  ".join([*differ, str(error)])) from None
    if faults:
        raise UserError("\n  ".join([f"{what}: the names fit, the settings do not:", *faults]))
    networks[name].load_state_dict(state)
    parameters = sum(parameter.numel() for parameter in networks[name].parameters())
    print(f"{args.file}: {len(tensors):,} tensors become {plan.type} with {parameters:,} parameters")
    if plan.remark:
        print(plan.remark)
    if args.output.suffix == SUFFIX:
        save_weights(networks[name], args.output)
        print(f"{args.output}: written")
        _say_who_reads(args.output, plan, name, recipe)
        return
    assert recipe is not None, "a folder needs a recipe"
    provenance = {"packages": str(package_versions()), "start": file_versions([str(args.file)])}
    write_model(args.output / "model", networks, recipe, provenance)
    others = ", ".join(one for one in networks if one != name)
    note = f"; as the recipe starts them: {others}" if others else ""
    print(f"{args.output}/model: written{note}; evaluate it: python -m stages.eval_dump {recipe.path} {args.output}")


def _say_who_reads(output: Path, plan: "Plan", name: str, recipe: "Recipe | None") -> None:
    if recipe is not None:
        print(f"`networks.{name}.weights: {output}` in {recipe.path} starts from it")
        return
    entry = {"type": plan.type, **plan.settings, "weights": str(output)}
    print(f"{plan.published[0]} reads it with this entry:\n\n{to_yaml({'networks': {name: entry}})}", end="")


def _type(name: str) -> type:
    from figura.base.error_collector import ErrorCollector
    from figura.recipe.types import NETWORK, find_type

    kind = find_type(name, NETWORK, "type", ErrorCollector(Path(name)))
    assert kind is not None, f"there is no network {name}"
    return kind


def _built(plan: "Plan", file: Path) -> "nn.Module":
    """Return the network that a file tells; of one that checks a size of images, the smallest."""
    smallest = {"image_size": 2 ** (plan.settings["n_downs"] + 2)} if "n_downs" in plan.settings else {}
    try:
        network: nn.Module = _type(plan.type)(**smallest | plan.settings)
    except ValueError as error:
        raise UserError(f"{file}: its network would be {plan.type}, which is refused: {error}") from None
    return network


def _chosen(networks: dict[str, "nn.Module"], recipe: "Recipe", kind: str, wanted: str | None) -> str:
    own = _type(kind) if kind else object
    names = [name for name, one in networks.items() if isinstance(one, own) or recipe.networks[name].type == kind]
    if wanted is not None and wanted not in networks:
        raise UserError(f"--network {wanted!r}{nearest(wanted, networks)}: {recipe.path} has {', '.join(networks)}")
    if wanted in names:
        return str(wanted)
    if wanted is not None or len(names) != 1:
        types = ", ".join(f"{name} ({recipe.networks[name].type})" for name in networks)
        which = f"; choose one by --network: {', '.join(names)}" if len(names) > 1 else ""
        holds = f"the file holds {kind}; " if kind else ""
        raise UserError(f"{recipe.path}: {holds}the recipe has {types}{which}")
    return names[0]


def _other_settings(plan: "Plan", recipe: "Recipe", name: str, kind: type) -> list[str]:
    """Return a line for each setting of the recipe that is not the file's: equal names may mean other arithmetic."""
    from inspect import signature

    arguments = recipe.networks[name].arguments
    defaults = {key: one.default for key, one in signature(kind).parameters.items()}
    return [
        f"networks.{name}.{key}: found {found!r}; the file needs {value!r}"
        for key, value in plan.settings.items()
        if key not in plan.guesses and key != "image_size" and (found := arguments.get(key, defaults.get(key))) != value
    ]

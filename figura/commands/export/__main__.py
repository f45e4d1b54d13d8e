"""Export trained networks: `figura export RUN --format onnx` makes files that run without this code.

RUN is the folder of a run, such as runs/pose, or its model. A file holds one network as a mode of the recipe's
`evaluate` calls it, with the arguments of that call: FOLDER/<network>.onnx, and FOLDER/<network>.<mode>.onnx where
another mode calls it otherwise. Inputs have the names of the network's parameters, outputs those of its results. Noise
that the network draws is an input, too. Networks that no mode calls, such as discriminators, are not exported.

Each file is run beside PyTorch on examples of `evaluate.data`: one, several, and one of another size where the network
takes any. A table says how far the results differ, and how long both take. A file whose results differ by more than
the tolerance is not written, and the exit status is 1; also where a network that a mode calls has no file.

`--format model` makes a folder for `figura predict FOLDER my.jpg` on any machine: recipe, weights in half precision,
checksums. A format may also be one for which a system has a module `models/SYSTEM/export_FORMAT.py` (spandrel): FOLDER
then gets the weights of each network that this program knows, <network>.safetensors, by its names.

Metadata of a file say the recipe, versions, the SHA-256 of the weights, and how pictures become inputs. What they
mean, and how to find people without PyTorch: docs/export.md.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError, printable
from figura.base.exit_status import run
from figura.base.tables import aligned
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of
from figura.commands.export import PACKAGES
from figura.evaluation.model_folder import model_folder, refuse_other_networks, trained_facts
from figura.pipeline.dag import PIPELINE, entries
from figura.recipe.load import check_recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.trusted import HELP, OPTION, refuse_untrusted, refuse_untrusted_model
from figura.systems import modules_with

if TYPE_CHECKING:
    from figura.commands.export.files import Exported

TOLERANCE = 1e-4
MODEL = "model"


def main(arguments: list[str]) -> None:
    """Export the networks of a run."""
    assert __doc__
    of_systems = modules_with("export_", "exported")
    parser = parser_of("export", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run, such as runs/pose, or a model")
    parser.add_argument("--format", choices=[*PACKAGES, MODEL, *of_systems], default="onnx", help="default: onnx")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: the folder `export` of the run")
    parser.add_argument("--recipe", type=Path, metavar="FILE", help=f"params file; default: that of RUN in {PIPELINE}")
    parser.add_argument(
        "--tolerance", type=_share, default=TOLERANCE, metavar="T",
        help=f"largest difference, as a share of a component's largest value; default: {TOLERANCE:g}",
    )  # fmt: skip
    parser.add_argument(OPTION, action="store_true", help=HELP)
    args = parser.parse_args(arguments)
    if args.format in PACKAGES:
        _need_packages(args.format)
    model = model_folder(args.run)
    file, output = args.recipe or _recipe_file(args.run, model), args.output or _folder(model)
    content = _content(file, model, args.trusted_types_only)

    from figura.commands.export.files import export

    recipe = check_recipe(content, file, ["evaluate", "predict"], trained_facts(model))
    if args.format == MODEL:
        from figura.commands.export.weights import export_model

        print(*map(printable, export_model(model, recipe, output)), sep="\n")
        return
    if args.format in of_systems:
        from figura.commands.export.weights import export_weights

        print(*map(printable, export_weights(model, recipe, output, of_systems[args.format])), sep="\n")
        return
    show(export(model, recipe, output, args.format, args.tolerance))


def show(done: "Exported") -> None:
    """Print a row for each file and batch, then remarks.

    Raises:
        UserError: a file was not written, or a network that a mode calls has none; a line for each.
    """
    other = "onnxruntime, ms" if done.form == "onnx" else "torch.export, ms"
    rows = [("file", "inputs", "difference", "relative", "PyTorch, ms", other)]
    rows += [
        (
            str(file.path), one.shapes, f"{one.absolute:.1e}", f"{one.relative:.1e}", f"{one.pytorch:.1f}",
            f"{one.exported:.1f}",
        )
        for file in done.files
        for one in file.comparisons
    ]  # fmt: skip
    lines = aligned(rows)
    for file in done.files:
        if file.fixed and not file.fault:
            lines.append(f"{file.path}: pictures must have the size of the examples: {file.fixed}")
        if file.least and not file.fault:
            sides = " and ".join(f"{name} {least}" for name, least in file.least.items())
            lines.append(
                f"{file.path}: traced for pictures from {sides} on; PyTorch may compute smaller ones otherwise"
            )
    lines += done.faults
    if done.unused:
        lines.append(f"not exported, because no mode of evaluate calls them: {', '.join(done.unused)}")
    print(*map(printable, lines), sep="\n")
    faults = [f"{file.path}: not written: {file.fault}" for file in done.files if file.fault]
    faults += [f"{name}: a mode of evaluate calls it, and it has no file" for name in done.missing]
    if faults:
        raise UserError("\n".join(faults))


def _content(file: Path, model: Path, trusted_only: bool) -> dict[str, Any]:
    """Return the content of the params file; raise UserError if it cannot be that of the model."""
    content = read_yaml(file)
    if trusted_only:
        refuse_untrusted(content, file)
        refuse_untrusted_model(model)
    refuse_other_networks(file, content, model)
    check_schema(content, file)
    return content


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; a number from 0 to 1 is needed")
    return value


def _need_packages(form: str) -> None:
    if missing := [name for name in PACKAGES[form] if find_spec(name) is None]:
        raise UserError(
            f"--format {form}: {', '.join(missing)}: not installed; `pip install {' '.join(PACKAGES[form])}` installs "
            "what it needs (or the extra `export` of figura)"
        )


def _recipe_file(run_folder: Path, model: Path) -> Path:
    """Return the params file of a run by its name in the pipeline."""
    name = (run_folder if model != run_folder else model.parent).absolute().name
    recipes = entries("recipes") if PIPELINE.is_file() else {}
    if name not in recipes:
        known = f"it has {', '.join(recipes)}" if recipes else "there is none here"
        raise UserError(
            f"{run_folder}: no recipe of {PIPELINE} is called {name!r} ({known}); name its params file: --recipe "
            "params.yaml"
        )
    return Path(recipes[name]["params"])


def _folder(model: Path) -> Path:
    if model.name != "model":
        raise UserError(f"{model}: is no model of a run; name the folder to write: --output exported")
    return model.parent / "export"


if __name__ == "__main__":
    sys.exit(run(main))

"""Export trained networks: `figura export RUN --format onnx` makes files that run without this code.

RUN is the folder of a run, such as runs/pose, its model, or a model that ships (`figura predict --help` names them). A
file holds one network as a mode of the recipe's `evaluate` calls it, with the arguments of that call:
FOLDER/<network>.onnx, and FOLDER/<network>.<mode>.onnx where another mode calls it otherwise. Inputs have the names of
the network's parameters, outputs those of its results. Noise that the network draws is an input, too. Networks that no
mode calls, such as discriminators, are not exported.

Each file is run beside PyTorch on examples of `evaluate.data`: one, several, and one of another size where the network
takes any. Without that data, `--pictures my.jpg` gives examples of `predict`, whose mode alone is exported then. A
table says how far the results differ, and how long both take. A file whose results differ by more than the tolerance is
not written, and the exit status is 1; also where a network that a mode calls has no file.

`--format model` makes a folder for `figura predict FOLDER my.jpg` on any machine: recipe, weights in half precision,
checksums. A format may also be one for which a system has a module `models/SYSTEM/export_FORMAT.py` (spandrel): FOLDER
then gets the weights of each network that this program knows, <network>.safetensors, by its names.

Metadata of a file say the recipe, versions, the SHA-256 of the weights, and how pictures become inputs. What they
mean, and how to find people without PyTorch: docs/export.md.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError, printable
from figura.base.tables import aligned
from figura.commands import parser_of, recipe_file
from figura.commands.export import PACKAGES
from figura.evaluation.model_folder import model_folder, trained_facts
from figura.pipeline.dag import PIPELINE
from figura.prediction.origin import Origin, find_origin
from figura.prediction.zoo import model_path
from figura.recipe.load import check_recipe
from figura.recipe.trusted import HELP, OPTION
from figura.systems import modules_with

if TYPE_CHECKING:
    from figura.commands.export.files import Exported

TOLERANCE = 1e-4
MODEL = "model"


def main(arguments: list[str]) -> None:
    assert __doc__
    parser = parser_of("export", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run, such as runs/pose, or a model's name")
    parser.add_argument(
        "--format",
        choices=[*PACKAGES, MODEL, *modules_with("export_", "exported")],
        default="onnx",
        help="default: onnx",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="default: the folder `export` of the run, else exported/<model>"
    )
    parser.add_argument(
        "--pictures", type=Path, nargs="+", metavar="FILE", default=[], help="examples in place of evaluate.data"
    )
    parser.add_argument(
        "--recipe", type=recipe_file, metavar="FILE", help=f"params file; default: that of RUN in {PIPELINE}"
    )
    parser.add_argument(
        "--tolerance", type=_share, default=TOLERANCE, metavar="T",
        help=f"largest difference, as a share of a component's largest value; default: {TOLERANCE:g}",
    )  # fmt: skip
    parser.add_argument(OPTION, action="store_true", help=HELP)
    args = parser.parse_args(arguments)
    if args.format in PACKAGES:
        _need_packages(args.format)
    model = model_folder(model_path(args.run))
    origin, output = find_origin(model, args.recipe, args.trusted_types_only), args.output or _folder(model)
    with origin.types():
        _export(args, model, origin, output)


def _export(args: argparse.Namespace, model: Path, origin: Origin, output: Path) -> None:
    content = origin.checked_content(model, [])
    recipe = check_recipe(content, origin.recipe, ["evaluate", "predict"], trained_facts(model))
    if args.format == MODEL:
        from figura.commands.export.weights import export_model

        print(*map(printable, export_model(model, recipe, output)), sep="\n")
        return
    if args.format not in PACKAGES:
        from figura.commands.export.weights import export_weights

        exporter = modules_with("export_", "exported")[args.format]
        print(*map(printable, export_weights(model, recipe, output, exporter)), sep="\n")
        return
    from figura.commands.export.files import export

    show(export(model, recipe, output, args.format, args.tolerance, args.pictures))


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


def _folder(model: Path) -> Path:
    return model.parent / "export" if model.name == "model" else Path("exported", model.name)

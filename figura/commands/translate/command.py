"""Translate a configuration of another trainer into a recipe: `figura translate SOURCE --output recipe.yaml`.

SOURCE is a file, or a command line in quotes:

    NectarGAN                      config.json, 'nectargan-train-paired -f config.json -lss extended'
    pytorch-CycleGAN-and-pix2pix   'python train.py --dataroot facades --model pix2pix'
    VUNet on edflow                base.yaml, 'edflow -b base.yaml data.yaml -t --losses/color_L1/weight 2'
    OpenPifPaf                     'python -m openpifpaf.train --lr=0.0003', .eval, .predict
    BasicSR, traiNNer-redux        train_ESRGAN_x4.yml
    DL-Art-School                  train_div2k_esrgan.yml

Prints the entry for data/params.yaml, the commands that take the place of theirs, and each key that was not taken over,
with the reason. None of their code is needed or run. Comments in the recipe name the key there where ours differs.
`--keys SYSTEM` prints what every key of a trainer is here, or why there is none, a line each.

If you can run the original, `--compare FOLDER` checks that both have the same first losses. Save in FOLDER

    values.safetensors     a batch, by the recipe's names (`lq`, `hq`) and in its ranges; also a generator's output if
                           dropout or noise make it random: what is given is not computed
    NETWORK.safetensors    each network's weights before the first update, as `figura import` writes them
    losses.json            {"G_L1": 12.25, "D_real + D_fake": 0.7}: the original's losses, or sums of them, times their
                           weights, before any update; {} prints the names of the recipe's losses

The exit status is 1 if a loss differs by more than a relative 1e-5. Without SOURCE, the recipe `--output` is compared
as it is.
"""

import importlib
import os
from pathlib import Path
from typing import Any

from figura.base.errors import UserError, one_line, printable
from figura.base.files import write_text
from figura.base.yaml12 import to_yaml
from figura.commands import parser_of
from figura.commands.translate.reading import System, assigned, command_of, options, overrides, read_file
from figura.commands.translate.recipe_text import recipe_text
from figura.commands.translate.table import read_table, table_of
from figura.commands.translate.translation import Translation
from figura.recipe.expansion import read_recipe
from figura.systems import modules_with

PYTHON = {"python", "python3", "-m", "-u"}


def main(arguments: list[str]) -> None:
    parser = parser_of("translate", __doc__)
    parser.add_argument("source", nargs="?", metavar="SOURCE", help="a configuration's file, or a command in quotes")
    parser.add_argument("--output", type=Path, metavar="FILE", help="recipe to write, a .yaml file")
    parser.add_argument(
        "--examples", type=int, metavar="N", help="pictures of the training data, where the configuration has epochs"
    )
    names = modules_with("translate_", "translate")
    parser.add_argument("--compare", type=Path, metavar="FOLDER", help="compare with losses that the original computed")
    parser.add_argument("--keys", choices=names, help="print the table of a trainer, in Markdown")
    args = parser.parse_args(arguments)
    if args.keys:
        print(table_of(importlib.import_module(names[args.keys])).read_text("utf-8"), end="")
        return
    if args.source is None and args.output and args.compare:
        _refuse_folder(args.compare)
        _compare(read_recipe(args.output), args.output, args.compare)
        return
    if args.source is None or args.output is None:
        raise UserError("expected SOURCE and --output FILE, or --keys SYSTEM")
    _refuse(args.output, args.examples, args.compare)
    translation = translated(args.source, args.examples, args.output)
    text = f"# {translation.system.name}: {one_line(translation.source)}\n"
    text += "# Behind #: the key there, where its name differs.\n"
    text += recipe_text(translation.recipe, translation.comments)
    faults = _faults(translation.recipe, args.output)
    write_text(args.output, text)
    for line in _report(translation):
        print(printable(line))
    if faults:
        raise UserError(f"{args.output} was written; `figura check` finds in it what the configuration has:\n{faults}")
    if args.compare:
        _compare(translation.recipe, args.output, args.compare)


def _compare(content: dict[str, Any], output: Path, folder: Path) -> None:
    from figura.commands.translate.comparison import compare
    from figura.recipe.schema_check import check_schema

    check_schema(content, output)
    for line in compare(content, output, folder):
        print(printable(line), flush=True)


def _refuse(output: Path, examples: int | None, folder: Path | None) -> None:
    if output.suffix not in (".yaml", ".yml"):
        raise UserError(f"--output {output}: expected a file that ends in .yaml")
    if output.exists():
        other = "name another file" + (", or leave SOURCE out to compare it as it is" if folder else "")
        raise UserError(f"--output {output}: it is there already; remove it, or {other}")
    if examples is not None and examples < 1:
        raise UserError(f"--examples {examples}: expected 1 or more")
    if folder is not None:
        _refuse_folder(folder)


def _refuse_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"--compare {folder}: no such folder")


def translated(source: str, examples: int | None, output: Path) -> Translation:
    """Return a translated configuration; `output` is the recipe to write.

    Raises:
        UserError: the source cannot be read, no system has such a configuration, or a value has no counterpart.
    """
    modules = {kind: importlib.import_module(one) for kind, one in modules_with("translate_", "translate").items()}
    systems: dict[str, System] = {kind: module.SYSTEM for kind, module in modules.items()}
    tables = {kind: read_table(table_of(module)) for kind, module in modules.items()}
    given: dict[str, Any] = {}
    before, program, naming = list[str](), "", frozenset[str]()
    files = [Path(source)] if os.path.isfile(source) else []  # a command may be too long for a path
    if not files:
        kind, command = command_of(source, systems)
        before, program = [word for word in command.before if word not in PYTHON], command.program
        system, table = systems[kind], tables[kind]
        naming = system.files
        given = options(command.words, lambda one: system.row(one) in table.switches, system.several | system.files)
        others = table.taken.get("other names", {})
        given = {others[one].here[0] if one in others else one: value for one, value in given.items()}
        files = [Path(str(one)) for option in given if option in naming for one in given[option]]
        if naming and not files:
            raise UserError(f"{one_line(source)}: expected a file behind {' or '.join(sorted(naming & {*given}))}")
    content: dict[str, Any] = {}
    for file in files:
        content |= read_file(file)
    if files:
        told = [one for one, system in systems.items() if system.marks and {*content} >= system.marks]
        if not told:
            marks = "; ".join(f"{one.name}: {', '.join(sorted(one.marks))}" for one in systems.values() if one.marks)
            raise UserError(f"{files[0]}: it has the keys {', '.join([*content][:8])}; expected those of {marks}")
        kind = told[0]
    own = tables[kind].said if systems[kind].overrides else given
    line = one_line(source.replace("\\\n", " "))
    assigns = systems[kind].assigns & given.keys()
    values = overrides(given, content, own) | assigned(word for option in assigns for word in given[option])
    program = program.removeprefix("openpifpaf.")
    translation = Translation(systems[kind], tables[kind], line, values, output, examples, program)
    translation.read(*naming, *assigns)
    if before:
        translation.remarks.append(f"in front of the command, and not taken over: {' '.join(before)}")
    modules[kind].translate(translation)
    return translation


def _faults(content: dict[str, Any], path: Path) -> str:
    from figura.recipe.load import check_recipe
    from figura.recipe.schema_check import check_schema

    try:
        check_schema(content, path)
        check_recipe(content, path)
    except UserError as error:
        return str(error)
    return ""


def _report(translation: Translation) -> list[str]:
    left = translation.listed()
    count, keys = sum(map(len, left.values())), len(translation.given)
    lines = [f"{translation.output}: written; of {keys} keys, {keys - count} taken over, {count} listed below"]
    lines += translation.remarks
    if translation.data:
        lines += ["", "In data/params.yaml:", *to_yaml({"datasets": translation.data}).splitlines()]
    lines += ["", "Commands, by what they take the place of:"]
    lines += [f"  {there}: {here}" for there, here in translation.commands.items()]
    lines += ["", "Not taken over:"] if left else []
    return lines + [f"  {', '.join(keys)}: {why}" for why, keys in left.items()]

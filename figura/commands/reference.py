"""Write docs/reference.md, the reference of recipes, from their schema: `python -m figura.commands.reference`.

One section for each map of keys, in the order of the schema: what it says of itself, then a table of its keys with
types, limits and defaults. `--check` writes nothing and exits with 1 where the page is not what would be written.
"""

import argparse
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import write_text
from figura.recipe import schema
from figura.recipe.schema import Declaration, Gated, Recipe

Places = dict[type[BaseModel], list[str]]
"""The dotted paths of each map of keys."""

PAGE = Path("docs/reference.md")
PLAIN = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}
SIGNS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}
HEAD = """# Every key of a recipe

`python -m figura.commands.reference` writes this page from `figura/recipe/schema.py`, which also checks recipes.
`<name>` stands for a name of your choice: letters, digits and `_`. Keys without a default must be written. A map that
has a `type` takes the arguments of that class beside the keys below: [injectors](classes/injectors.md),
[losses](classes/losses.md), [schedules and optimizers](classes/schedules.md), [datasets](classes/datasets.md),
[networks](classes/networks.md), [scores and pictures](classes/scores.md).
"""


def main(arguments: list[str]) -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(prog="python -m figura.commands.reference", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, metavar="FILE", help=f"page to write; default: {PAGE}")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the page differs")
    args = parser.parse_args(arguments)
    if not args.check:
        write_text(args.output, page())
    elif not args.output.is_file() or args.output.read_text() != page():
        raise UserError(
            f"{args.output}: not what the schema says; `python -m figura.commands.reference` writes it anew"
        )


def page() -> str:
    """Return the page, in Markdown."""
    places: Places = {}
    for path, model in sections(Recipe):
        places.setdefault(model, []).append(path)
    return "\n".join([HEAD, *(line for model, paths in places.items() for line in _section(model, paths, places))])


def sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the dotted path and the class of a map of keys, then those of all maps in it, in the order of the schema.

    A plain `type` with arguments is none: its keys are those of the class that it names.
    """
    yield path, model
    for name, field in model.model_fields.items():
        place = ".".join(filter(None, [path, field.alias or name]))
        for kind, suffix in _maps(field.annotation):
            if kind is not Declaration:
                yield from sections(kind, place + suffix)


def _maps(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the classes of maps in an annotation, with what stands between the key and the keys of the map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
    elif get_origin(annotation) is dict:
        yield from ((kind, ".<name>" + rest) for kind, rest in _maps(get_args(annotation)[1]))
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _maps(part)


def documentation(model: type[BaseModel]) -> list[str]:
    """Return the docstrings that say what the keys of a map mean."""
    kinds = [model, *([Gated] if issubclass(model, Gated) else [])]
    return [inspect.cleandoc(kind.__doc__ or "") for kind in kinds]


def _section(model: type[BaseModel], paths: list[str], places: Places) -> list[str]:
    path, *others = paths
    texts = documentation(model)
    if others:
        texts.append(f"The same keys: {', '.join(f'`{other}`' for other in others)}.")
    if renamed := getattr(model, "renamed", {}):
        texts.append(f"Earlier names: {', '.join(f'`{old}` is now `{new}`' for old, new in renamed.items())}.")
    level = 3 if "." in path.removesuffix(".<name>") else 2
    return [f"{'#' * level} {f'`{path}`' if path else 'The sections'}\n", *(f"{text}\n" for text in texts),
            *_table(model, places), ""]  # fmt: skip


def _table(model: type[BaseModel], places: Places) -> Iterator[str]:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    described = any(field.description for field in fields.values())
    yield "| key | value | default |" + " |" * described
    yield "| --- | --- | --- |" + " --- |" * described
    for name, field in fields.items():
        said = value(field.annotation, field.metadata)
        for kind, _ in _maps(field.annotation):
            if kind in places:
                said = re.sub(r"\bmap$", f"[map](#{anchor(places[kind][0])})", said)
        default = "" if field.is_required() else f"`{_default(field)}`"
        yield f"| `{name}` | {said} | {default} |" + f" {field.description or ''} |" * described
    if model.model_config.get("extra") == "allow":
        yield f"| … | {'arguments of the class' if issubclass(model, Declaration) else 'options of the optimizer'} | |"


def anchor(path: str) -> str:
    """Return what a link to the section of a dotted path says after `#`."""
    return re.sub(r"[^\w-]", "", path.lower())


def _default(field: FieldInfo) -> str:
    default = field.get_default()
    return default if isinstance(default, str) else json.dumps(default)


def value(annotation: Any, metadata: Any = ()) -> str:
    """Return what a key takes, in words: `whole number ≥ 1`, `list of names`, ..."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation == schema.Name:
        return "name"
    if hasattr(annotation, "__metadata__"):  # Annotated
        return value(parts[0], annotation.__metadata__)
    if any(getattr(one, "pattern", None) for one in metadata):
        return "name"
    limits = _limits(metadata)
    if origin is Literal:
        return " or ".join(f"`{_quoted(one)}`" for one in parts)
    if origin in (Union, types.UnionType):
        return ", or ".join(value(part, metadata) for part in parts if part is not type(None))
    if origin is list:
        return f"list of {_number(metadata)}{_plural(parts[0])}"
    if origin is dict:
        return f"{_number(metadata)}names, each with {_article(value(parts[1]))}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a `type` with its arguments" if annotation is Declaration else "map"
    return PLAIN[annotation] + limits


def _plural(annotation: Any) -> str:
    if annotation == schema.Name:
        return "names"
    return "texts" if annotation is str else value(annotation)


def _quoted(word: str) -> str:
    return f'"{word}"' if word in ("no", "yes", "on", "off") else word


def _article(words: str) -> str:
    return f"a {words}" if words in ("map", "name", "text", "number") else words


def _number(metadata: Any) -> str:
    return "".join(f"{one.min_length} or more " for one in _flat(metadata) if isinstance(one, MinLen))


def _flat(metadata: Any) -> list[Any]:
    return [one for part in metadata for one in (getattr(part, "metadata", None) or [part])]


def _limits(metadata: Any) -> str:
    said = [
        f"{SIGNS[type(one)][1]} {getattr(one, SIGNS[type(one)][0])}" for one in _flat(metadata) if type(one) in SIGNS
    ]
    said = [one for one in said if one not in ("≤ 1000000000", "≤ 1000000")]
    return f" {', '.join(said)}" if said else ""


if __name__ == "__main__":
    sys.exit(run(main))

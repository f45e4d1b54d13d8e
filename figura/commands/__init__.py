"""The commands of `figura`, a module or a package each, which `figura.command` lists."""

import argparse
from pathlib import Path

from figura.base.errors import UserError, nearest


def parser_of(name: str, text: str | None) -> argparse.ArgumentParser:
    """Return an empty parser of `figura NAME`, which prints `text`, a module's docstring, as its help."""
    return argparse.ArgumentParser(
        prog=f"figura {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def recipe_file(text: str | Path) -> Path:
    """Return the path of a params file on a command line. Raises UserError with a nearby one if there is none."""
    path = Path(text)
    if path.exists():
        return path
    there = {*path.parent.glob("*.yaml"), *Path("recipes").rglob("*.yaml")}
    raise UserError(f"{path}: no such file{nearest(str(path), map(str, there))}")

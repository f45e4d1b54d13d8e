"""Draw one picture a recipe for the README: `python -m figura.commands.strips FOLDER RECIPE/SHEET ...`.

A SHEET is one of `metrics.pictures` of the recipe, of the type `images.Sheet`: its columns stand side by side, with a
few of its examples in one row. They are spread evenly over the dump, as in the sheet; nobody chooses them. Writes
FOLDER/<recipe>.webp, about 1,200 pixels wide.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import write_bytes
from figura.pipeline.dag import recipe_file
from figura.recipe.expansion import read_recipe

if TYPE_CHECKING:
    from figura.base.pictures import Pixels

WIDTH = 1200
CELL = 190  # pixels of a picture's width, about
GAP = 4
LARGEST = 100_000  # bytes of a strip: four of them make 400 KB


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m figura.commands.strips", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to write, such as docs/pictures")
    parser.add_argument("sheets", nargs="+", metavar="RECIPE/SHEET", help="such as vunet/transfers")
    args = parser.parse_args(arguments)

    from figura.commands.report.pictures import as_webp

    for name in args.sheets:
        recipe, _, sheet = name.partition("/")
        settings = read_recipe(recipe_file(recipe))["metrics"]["pictures"][sheet]
        content = as_webp(strip_of(Path("runs") / recipe / "dump", settings))
        path = args.folder / f"{recipe}.webp"
        if len(content) > LARGEST:
            raise UserError(f"{path}: {len(content):,} bytes; allowed are {LARGEST:,}; name a sheet with fewer columns")
        write_bytes(path, content)
        print(f"{path}: {len(content):,} bytes")


def strip_of(folder: Path, sheet: dict[str, Any]) -> "Pixels":
    """Return a row of examples of a dump, as many as fit, (height, about 1200, 3).

    Raises:
        UserError: the dump is missing or damaged, or a column is no picture.
    """
    import cv2
    import numpy as np

    from figura.base.sampling import evenly_spaced
    from figura.dump import Dump
    from figura.report.interfaces import rows_where
    from figura.report.sheets import pixels_of, side_by_side

    rows = rows_where(Dump(folder).mode(sheet["mode"]), sheet["mode"], sheet.get("where"))
    columns: list[str] = sheet.get("columns") or [sheet["image"]]
    count = min(len(rows), max(1, round(WIDTH / (CELL * len(columns)))))
    width = WIDTH // (count * len(columns)) - GAP
    pictures = []
    for index in evenly_spaced(len(rows), count):
        for name in columns:
            pixels = pixels_of(rows, index, name)
            size = (width, round(width * pixels.shape[0] / pixels.shape[1]))
            smooth = cv2.INTER_AREA if width < pixels.shape[1] else cv2.INTER_LANCZOS4
            pictures.append(np.asarray(cv2.resize(pixels, size, interpolation=smooth), dtype=np.uint8))
    return side_by_side([pictures], [name.replace("_", " ") for name in columns] * count, gap=GAP, cell=1)


if __name__ == "__main__":
    sys.exit(run(main))

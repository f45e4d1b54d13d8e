"""Draw one picture a recipe for the README: `python -m figura.commands.strips FOLDER RECIPE/SHEET ...`.

A SHEET is one of `metrics.pictures` of the recipe, of the type `images.Sheet`: its columns stand side by side, with a
few of its examples in one row. They are spread evenly over the dump, as in the sheet; nobody chooses them. Writes
FOLDER/<recipe>.webp, 1,200 pixels wide.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError, nearest
from figura.base.exit_status import run
from figura.base.files import write_bytes
from figura.base.yaml12 import read_yaml
from figura.recipe.pipeline import recipe_file

if TYPE_CHECKING:
    from figura.base.pictures import Pixels

WIDTH = 1200
CELL = 190  # pixels of a picture's width, about
GAP, BETWEEN = 4, 16  # pixels between pictures, and between examples
TITLE = 22  # pixels of the line of titles
QUALITY = 80
LARGEST = 100_000  # bytes of a strip: four of them make 400 KB


def main(arguments: list[str]) -> None:
    """Write the strips."""
    parser = argparse.ArgumentParser(prog="python -m figura.commands.strips", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to write, such as docs/pictures")
    parser.add_argument("sheets", nargs="+", metavar="RECIPE/SHEET", help="such as vunet/transfers")
    args = parser.parse_args(arguments)
    for name in args.sheets:
        recipe, _, sheet = name.partition("/")
        settings = sheet_settings(recipe_file(recipe), sheet)
        content = encoded(strip_of(Path("runs") / recipe / "dump", settings))
        path = args.folder / f"{recipe}.webp"
        write_bytes(path, content)
        print(f"{path}: {len(content):,} bytes")


def sheet_settings(path: Path, name: str) -> dict[str, Any]:
    """Return the arguments of a sheet of a params file. Raises UserError if it has no such sheet."""
    pictures = read_yaml(path).get("metrics", {}).get("pictures", {})
    known = {key: one for key, one in pictures.items() if isinstance(one, dict)}
    sheets = {key: one for key, one in known.items() if one.get("type") == "images.Sheet"}
    if name not in sheets:
        wrong, others = f"{name!r}{nearest(name, sheets)}", ", ".join(sheets) or "none"
        raise UserError(f"{path}: metrics.pictures has no sheet {wrong}; of images.Sheet: {others}")
    return dict(sheets[name])


def strip_of(folder: Path, sheet: dict[str, Any]) -> "Pixels":
    """Return a row of examples of a dump, as many as fit, (height, 1200, 3).

    Raises:
        UserError: the dump is missing or damaged, or a column is no picture.
    """
    from figura.base.sampling import evenly_spaced
    from figura.dump import Dump
    from figura.report.interfaces import rows_where
    from figura.report.sheets import pixels_of

    rows = rows_where(Dump(folder).mode(sheet["mode"]), sheet["mode"], sheet.get("where"))
    columns: Sequence[str] = sheet["columns"]
    count = min(len(rows), max(1, round(WIDTH / (CELL * len(columns)))))
    examples = [[pixels_of(rows, place, name) for name in columns] for place in evenly_spaced(len(rows), count)]
    return in_a_row(examples, [name.replace("_", " ") for name in columns])


def in_a_row(examples: "Sequence[Sequence[Pixels]]", titles: Sequence[str]) -> "Pixels":
    """Lay examples out side by side, each with its pictures under their titles, on white, (height, 1200, 3)."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    room = WIDTH - (len(examples) - 1) * BETWEEN - len(examples) * (len(titles) - 1) * GAP
    width = room // (len(examples) * len(titles))
    heights = [round(width * one.shape[0] / one.shape[1]) for example in examples for one in example]
    strip = Image.new("RGB", (WIDTH, TITLE + max(heights)), "white")
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(15)
    x = 0
    for example in examples:
        for title, pixels in zip(titles, example, strict=True):
            draw.text((x + 2, 1), title, fill="black", font=font)
            height = round(width * pixels.shape[0] / pixels.shape[1])
            picture = Image.fromarray(np.ascontiguousarray(pixels))
            strip.paste(picture.resize((width, height), Image.Resampling.LANCZOS), (x, TITLE))
            x += width + GAP
        x += BETWEEN - GAP
    return np.asarray(strip)


def encoded(pixels: "Pixels") -> bytes:
    """Return a strip as WebP. Raises UserError if it is larger than a README should load."""
    import cv2
    import numpy as np

    _, content = cv2.imencode(".webp", np.ascontiguousarray(pixels[..., ::-1]), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])
    if content.size > LARGEST:
        raise UserError(f"a strip of {content.size:,} bytes; allowed are {LARGEST:,}; name a sheet with fewer columns")
    return content.tobytes()


if __name__ == "__main__":
    sys.exit(run(main))

"""Predict from pictures: `python -m tools.predict RECIPE RUN FILE [FILE ...] --output FOLDER`, for any trained recipe.

A FILE is an image, a folder (all images below it), a quoted pattern such as 'photos/**/*.jpg', or a video. Networks and
weights are those of RUN/model; `predict` of RECIPE says which mode runs and what is written, `evaluate` what the mode is.
Each result is FOLDER/<name>.<what>.<suffix>: poses are JSON (pixels of the upright image) and pictures of them.

`--set evaluate.modes.poses.injectors.draw.style={boxes: true}` changes these two sections for one call, `--set
predict.data.side=0` is for pictures that are not to be rescaled.

The VUNet needs to know where people are: predict with the pose recipe first, into POSES, then with the VUNet's from the
same files and `--set predict.data.people=POSES` (or `predict.data.annotations=<COCO file>`).

What cannot be read is reported and skipped; the exit status is then 1.
"""

import argparse
import sys
from pathlib import Path

from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.engine.build import make_accelerator
from models.evaluation.trained import load_trained
from models.prediction.inputs import find_files
from models.prediction.prediction import Prediction
from models.recipe.load import check_recipe
from models.recipe.overrides import overridden
from stages.command import run


def main(arguments: list[str]) -> None:
    """Predict from the files."""
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m tools.predict", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    parser.add_argument("files", nargs="+", metavar="FILE", help="images, folders, quoted glob patterns, videos")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where results are written")
    parser.add_argument("--batch-size", type=_count, metavar="N", help="evaluate.batch_size unless given")
    parser.add_argument("--every", type=_count, default=1, metavar="N", help="of a video, take every N-th frame")
    parser.add_argument("--workers", type=_whole, default=1, metavar="N", help="threads that read ahead; 0: none")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of evaluate or predict"
    )
    given = parser.parse_intermixed_args(arguments)
    asked = check_recipe(overridden(read_yaml(given.recipe), given.set, ("evaluate", "predict")), given.recipe)
    if asked.predict is None:
        raise UserError(
            f"{given.recipe}: predict: missing; it says how pictures become examples (models/recipe/schema.py)"
        )
    files = find_files(given.files, given.output)
    recipe, networks = load_trained(given.run / "model", asked)
    prediction = Prediction(
        recipe, asked.predict, networks, given.output, make_accelerator(recipe),
        batch_size=given.batch_size or recipe.evaluate.batch_size, workers=given.workers,
    )  # fmt: skip
    prediction.write(files, given.every)


def _whole(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"found {text!r}; a whole number from {least} is needed")
    return int(text)


def _count(text: str) -> int:
    return _whole(text, least=1)


if __name__ == "__main__":
    sys.exit(run(main))

"""Predict from pictures: `figura predict MODEL FILE [FILE ...]`, for any trained recipe.

MODEL is a name of the list below, the folder of a run (runs/pose), or a model (runs/pose/checkpoints/step-000200). A
FILE is an image, a folder (all images below it), a quoted pattern such as 'photos/**/*.jpg', or a video. The section
`predict` of the recipe says which mode runs and what is written; `evaluate` defines the mode. It is the project's
recipe, or the model's, unless a params file stands before MODEL: `figura predict recipes/pose.yaml runs/pose FILE`.
Results are FOLDER/<name>.<what>.<suffix>: for poses, JSON (in pixels of the upright image) and overlays. The overlays
of a video's frames are a video, FOLDER/<name>.<what>.webm, as long as it; `--frames` writes one picture a frame.
FOLDER/predictions.csv lists them: name, file, image_id (the number of the photo, as in COCO results), frame of a video.

A large picture is predicted in tiles with `--tile 256`, so that memory depends on the tile, for networks whose picture
is as large as their input or a multiple of it.

Pairs have a truth: `--set predict.data.layout=pairs` takes the half of A|B pictures that is the input (or the folder a
or b), shows the true picture beside the predicted one, and adds L1, PSNR and SSIM to predictions.csv.

`--set` changes a value of these two sections for one call: `--set predict.injectors.draw_photo.style.boxes=true` draws
boxes of people, `--set predict.data.side=0` keeps the images at their own scale.

The VUNet needs to know where people are. Predict with the pose recipe first, into POSES; then predict the same files
with the VUNet's recipe and `--set predict.data.people=POSES` (or `predict.data.annotations=<COCO file>`).

Unreadable files are reported and skipped; the exit status is then 1.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError, printable
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of, recipe_file
from figura.evaluation.model_folder import drawn, model_folder
from figura.prediction.origin import Origin, find_origin
from figura.prediction.zoo import model_path, models
from figura.recipe.trusted import HELP, OPTION

if TYPE_CHECKING:
    from figura.prediction.predictor import Predictor


def main(arguments: list[str]) -> None:
    args = _arguments(arguments)

    from figura.prediction.predictor import load_predictor  # `--help` needs no NumPy

    model = model_folder(model_path(args.model))
    if args.recipe is None:
        origin = find_origin(model, None, args.trusted_types_only)
    else:
        origin = Origin(args.recipe, read_yaml(args.recipe), None, args.trusted_types_only)
    with origin.types():
        _predict(args, load_predictor(model, origin, args.set))


def _predict(args: argparse.Namespace, predictor: "Predictor") -> None:
    """Write each result as it is ready, so that memory does not grow with the results."""
    from tqdm import tqdm

    from figura.prediction.files import ResultFiles
    from figura.prediction.input_files import count_photos, find_files, read_photos
    from figura.prediction.tiles import Tiling, tiled_results

    recipe, predict = predictor.trained.recipe, predictor.trained.predict
    trial = f"{predictor.model}: the weights of a try of {recipe.train.steps} steps" if predictor.trained.is_try else ""
    for line in filter(None, [trial, drawn(predictor.model)]):
        print(printable(f"warning: {line}"), file=sys.stderr)
    faults = 0

    def report(fault: str) -> None:
        nonlocal faults
        faults += 1
        tqdm.write(printable(f"skipped: {fault}"), file=sys.stderr)

    left_out = Counter[str]()
    files = find_files(args.files, args.output, left_out=left_out)
    runner = predictor.start(report, batch_size=args.batch_size, workers=args.workers)
    runner.left_out += left_out
    start = time.perf_counter()
    photos, total = read_photos(files, args.every, report), count_photos(files, args.every)
    if args.tile is None:
        results = runner.results(photos, recipe.runtime.progress, total)
    else:
        results = tiled_results(runner, photos, Tiling(args.tile, args.overlap), recipe.runtime.progress)
    with ResultFiles(args.output, videos=not args.frames) as output:
        for result in results:
            runner.attempt(result.image.source, output.add, result)
            runner.attempt(args.output, output.close_videos, runner.unfinished_files)
        runner.attempt(args.output, output.close_videos, ())
        runner.attempt(predict.grid, output.write_sheets, runner.sheets())
    for line in runner.warnings():
        print(printable(f"warning: {line}"), file=sys.stderr)
    seconds = time.perf_counter() - start
    done = len(runner.images)
    if runner.examples > runner.on_grid > 0:
        print(f"{predict.grid}: the first {runner.on_grid} of {runner.examples} (evaluate.grids.{predict.grid}.size)")
    examples = "" if runner.examples == done else f" ({_counted(runner.examples, 'example')})"
    image = "image" if args.tile is None else "tile"
    print(f"{_counted(done, image)}{examples} in {seconds:.1f} s: {done / seconds:.2f} {image}s/s")
    if done and not runner.examples:
        kind = predict.data.type
        print(f"warning: nothing is written, because predict.data ({kind}) makes no example of these images")
    if output.rows:
        means = ", ".join(f"{name} {mean:.4g}" for name, mean in output.means().items())
        average = f"; on average {means}" if means else ""
        print(printable(f"{output.table}: {_counted(output.rows, 'result')}{average}"))
    if faults:
        raise UserError(f"{faults} of the inputs could not be used (see above)" + "; the others are done" * bool(done))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = parser_of("predict", __doc__)
    parser.usage = "figura predict [RECIPE] MODEL FILE [FILE ...] [--output FOLDER] [OPTION ...]"
    parser.epilog = "\n".join(["models:", *(f"  {name:<12} {what}" for name, what in models().items())])
    parser.add_argument("words", nargs="+", metavar="MODEL FILE", help="the model; images, folders, patterns, videos")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("predictions"),
        metavar="FOLDER",
        help="folder to write; default: predictions",
    )
    parser.add_argument("--batch-size", type=_count, metavar="N", help="default: evaluate.batch_size")
    parser.add_argument("--every", type=_count, default=1, metavar="N", help="take every N-th frame of a video")
    parser.add_argument("--frames", action="store_true", help="of a video, write pictures of frames and no video")
    parser.add_argument("--workers", type=_whole, default=1, metavar="N", help="threads that prefetch; 0: none")
    parser.add_argument("--tile", type=_count, metavar="N", help="predict from tiles of N pixels, put together again")
    parser.add_argument("--overlap", type=_whole, metavar="N", help="of tiles, in pixels; default: a quarter of a tile")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a value of evaluate or predict"
    )
    parser.add_argument(OPTION, action="store_true", help=HELP)
    args = parser.parse_intermixed_args(arguments)
    has_recipe = args.words[0].endswith((".yaml", ".yml"))
    recipe = args.words.pop(0) if has_recipe else None
    args.model, args.files = Path(args.words[0]) if args.words else None, args.words[1:]
    if not args.files:
        parser.error("the following arguments are required: " + ("FILE" if args.model else "MODEL, FILE"))
    args.recipe = recipe_file(recipe) if recipe else None
    if args.overlap is not None and args.tile is None:
        parser.error("--overlap: there are no tiles without --tile")
    return args


def _whole(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"found {text!r}; a whole number from {least} is needed")
    return int(text)


def _count(text: str) -> int:
    return _whole(text, least=1)

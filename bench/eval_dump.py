"""How fast eval-dump is beside a plain loop of loading, forward and decode, on a trained run and the same pictures.

Usage: python -m bench.eval_dump [RECIPE RUN] [--images 96] [--repeats 5]

The plain loop keeps nothing: it loads the batches of `evaluate.data` and runs the injectors of each mode but those that
draw. `dump` is all that eval-dump does with the same batches: also losses, drawings, checks, hashes and files; its
grids and averages run other pictures and are left out. `numbers` is the same without drawings and files of pictures and
arrays. The three take turns; the table has medians of wall and processor time, milliseconds an image, and the speed
beside that of the plain loop.
"""

import argparse
import contextlib
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.table import show
from figura.base.modes import evaluating
from figura.base.yaml12 import read_yaml
from figura.engine.build import build_datasets, make_accelerator
from figura.engine.data import Mixture, ValidationBatches, load_batches
from figura.engine.inference import named_injectors, run_injectors
from figura.evaluation.evaluate import Evaluation
from figura.evaluation.model_folder import model_folder, trained_facts
from figura.evaluation.trained import load_trained
from figura.interfaces import Networks
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe

DRAWING = ("pose.Overlays", "pose.FieldPictures")


def batches_only(recipe: Recipe, numbers: bool) -> Recipe:
    """Return the recipe without grids and averages; with `numbers` without drawings, pictures and arrays too."""
    content: dict[str, Any] = recipe.model_dump(by_alias=True)
    evaluate, save = content["evaluate"], ("records", "number")
    evaluate |= {"grids": {}, "averages": {}}
    if numbers:
        evaluate["inputs"] = {name: form for name, form in evaluate["inputs"].items() if form in save}
    for mode in evaluate["modes"].values() if numbers else ():
        drawn = [name for name, one in mode["injectors"].items() if one["type"] in DRAWING]
        outputs = [str(mode["injectors"][name]["output"]) for name in drawn]
        mode["injectors"] = {name: one for name, one in mode["injectors"].items() if name not in drawn}
        mode["save"] = {
            name: form
            for name, form in mode["save"].items()
            if form in save and not any(name.startswith(output) for output in outputs)
        }
    return check_recipe(content, recipe.path, ["evaluate"], recipe.facts)


def plain(recipe: Recipe, networks: Mapping[str, nn.Module], images: int) -> None:
    """Load batches and run all injectors of all modes."""
    accelerator, data = make_accelerator(recipe), build_datasets(recipe, "evaluate")
    modes = {name: named_injectors(mode.injectors, name) for name, mode in recipe.evaluate.modes.items()}
    sampler = ValidationBatches(data, recipe.evaluate.batch_size, images, slice(None))
    both = Networks(networks, networks)
    with evaluating(*networks.values()):
        for batch in load_batches(Mixture(data, recipe.seed), sampler, recipe.runtime.workers):
            for name, mode in recipe.evaluate.modes.items():
                for _ in range(mode.repeat):
                    run_injectors(modes[name], batch, both, 2**62, accelerator)


def dumped(recipe: Recipe, networks: dict[str, nn.Module], images: int) -> None:
    """Write a dump of the images."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        Evaluation(recipe, networks, Path(folder), make_accelerator(recipe), limit=images).write()


def rows_of(path: Path, run: Path, images: int, repeats: int) -> list[list[object]]:
    """Return the rows of a run."""
    model = model_folder(run)
    asked = check_recipe(read_yaml(path), path, ["evaluate"], trained_facts(model))
    recipe, networks = load_trained(model, asked)
    numbers, all_ = (batches_only(recipe, few) for few in (True, False))
    total = min(images, sum(map(len, build_datasets(recipe, "evaluate").values())))
    ways: dict[str, Callable[[], None]] = {
        "plain loop": lambda: plain(numbers, networks, total),
        "numbers": lambda: dumped(numbers, networks, total),
        "dump": lambda: dumped(all_, networks, total),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter(), time.process_time()
            way()
            if turn:  # the first compiles
                times[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    rows: list[list[object]] = []
    medians = {n: [1000 * statistics.median(one) / total for one in zip(*t, strict=True)] for n, t in times.items()}
    for name, (wall, cpu) in medians.items():
        rows.append([run.name, name, total, wall, cpu, medians["plain loop"][0] / wall, medians["plain loop"][1] / cpu])
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.eval_dump", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, nargs="?", help="params file; default: pose and VUNet")
    parser.add_argument("run", type=Path, nargs="?", help="folder of its run")
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    default = [(Path("recipes/pose.yaml"), Path("runs/pose")), (Path("params.yaml"), Path("runs/vunet"))]
    head: list[object] = ["run", "way", "images", "wall, ms", "processor, ms", "speed, wall", "speed, processor"]
    rows = [head]
    for path, run in default if args.run is None else [(args.recipe, args.run)]:
        rows += rows_of(path, run, args.images, args.repeats)
    show(rows)
    print(f"\n{torch.get_num_threads()} threads, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

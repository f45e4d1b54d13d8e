"""Can the loader keep up? Examples per second by number of workers, beside the training step with two threads.

The rows are VUNet and poses on data/prepared/people, and poses on photos of 640 pixels: the folder `--photos`, with
`annotations.json` and `images`. `start` is the time to the first batch, of the clock; memory is the proportional share
(PSS) of a worker, MiB, the mean over workers. Needs `dvc repro prepare@people`.

`python -m bench.loader [--workers 0 1 2 4 8] [--photos shared/data/coco_keypoints_real]`
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from bench.engine_overhead import engine
from bench.table import seconds, show
from figura.base.yaml12 import read_yaml
from figura.engine.build import build_datasets
from figura.engine.data import Mixture, TrainBatches, load_batches
from figura.recipe.load import check_recipe, load_recipe
from figura.recipe.schema import Recipe

SECONDS = 8.0
"""For each number of workers."""
AHEAD = 4
"""Batches that each worker may have ready; they do not count."""
SIDE = 193
"""Of the network's input for photos, pixels."""


def photo_recipe(photos: Path, folder: Path) -> Recipe:
    """Return the recipe of poses on a folder of photos; `folder` gets links to it."""
    for split in ("train", "validation"):
        (folder / f"{split}.json").symlink_to((photos / "annotations.json").resolve())
    (folder / "images").symlink_to((photos / "images").resolve())
    path = Path("recipes/pose.yaml")
    content = read_yaml(path)
    content["data"]["common"] |= {"root": str(folder), "side": SIDE}
    return check_recipe(content, path)


def share(pid: int) -> float:
    """Return the proportional share of memory of a process, MiB."""
    content = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(content.partition("\nPss:")[2].split()[0]) / 1024


def measure(name: str, recipe: Recipe, workers: list[int], folder: Path) -> list[list[object]]:
    """Return the rows of a recipe."""
    datasets, size = build_datasets(recipe, "train"), recipe.data.batch_size
    mixture = Mixture(datasets, recipe.seed)
    lengths, weights = {one: len(data) for one, data in datasets.items()}, dict.fromkeys(datasets, 1.0)
    sampler = TrainBatches(lengths, weights, size, recipe.seed)
    iteration, batch = engine(folder, recipe), next(iter(load_batches(mixture, sampler, 0)))
    step, rows = size / seconds(lambda: iteration(batch)), list[list[object]]()
    for count in workers:
        start = time.perf_counter()
        batches = iter(load_batches(mixture, sampler, count).loader)
        next(batches)
        first = time.perf_counter() - start
        for _ in range(AHEAD * count):
            next(batches)
        done, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < SECONDS:
            next(batches)
            done += size
        memory = [share(one.pid) for one in getattr(batches, "_workers", [])]
        del batches
        mean = sum(memory) / len(memory) if memory else ""
        rows.append([name, count, done / passed, step, done / passed / step, first, mean])
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.loader")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4, 8])
    parser.add_argument("--photos", type=Path, default=Path("shared/data/coco_keypoints_real"))
    args = parser.parse_args()
    torch.set_num_threads(2)
    rows: list[list[object]] = [["source", "workers", "examples/s", "step's", "times", "start s", "MiB/worker"]]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "photos").mkdir()
        recipes = {
            "vunet": load_recipe(Path("params.yaml")),
            "pose": load_recipe(Path("recipes/pose.yaml")),
            "pose, photos": photo_recipe(args.photos, folder / "photos"),
        }
        for name, recipe in recipes.items():
            rows += measure(name, recipe, args.workers, folder / name)
    show(rows)


if __name__ == "__main__":
    main()

"""Can the loader keep up? Examples per second from data/prepared/people by number of workers, beside the training step.

Needs `dvc repro prepare@people`. `python -m bench.loader`
"""

import time
from itertools import islice
from pathlib import Path

import torch

from bench.engine_overhead import bare
from bench.table import seconds, show
from models.engine.build import build_datasets
from models.engine.data import Mixture, TrainBatches, load_batches
from models.recipe.load import load_recipe

BATCHES = 150


def main() -> None:
    """Print the table."""
    recipe = load_recipe(Path("params.yaml"))
    data, size = build_datasets(recipe, "train"), recipe.data.batch_size
    rows: list[list[object]] = [["source", "examples/s", "times the step"]]
    batch = next(
        iter(load_batches(Mixture(data, 0), TrainBatches({"people": len(data["people"])}, {"people": 1}, size, 0), 0))
    )
    iteration = bare()
    torch.set_num_threads(2)
    step = size / seconds(lambda: iteration(batch))
    rows.append(["training step (2 threads)", step, 1.0])
    for workers in (0, 1, 2):
        sampler = TrainBatches({"people": len(data["people"])}, {"people": 1}, size, seed=0)
        batches = iter(load_batches(Mixture(data, 0), sampler, workers))
        next(batches)
        start = time.perf_counter()
        for _ in islice(batches, BATCHES):
            pass
        rate = BATCHES * size / (time.perf_counter() - start)
        rows.append([f"loader, {workers} workers", rate, rate / step])
    show(rows)


if __name__ == "__main__":
    main()

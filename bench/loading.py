"""Examples a second that one core loads, beside what GPUs eat.

How many workers does a training need (`runtime.workers`, of each process)? Usage, after `dvc repro`:

    python -m bench.loading [--cases pose published] [--seconds 5]

Loads training batches in this process, with one thread, and counts its processor time, so that other work matters
little; a disk is not waited for. The published cases read
`data/prepared/facades`, `coco` and `photos`, which you prepare from those data (data/raw/README.md); a case whose data
are missing is left out, with the reason.

What a GPU eats is an **estimate**: an iteration takes the longer of `LAUNCH` for each of its kernels, and its
floating-point operations at `UTILISATION` of `PEAK`. Operations come from a dry run (figura/commands/describe), without
the optimizer. `ratio` is a GPU / loaded. `workers` keep up with one GPU, `of 8` with 8 that have the recipe's batch
each.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.table import show
from bench.trainings import DEFAULTS, PUBLISHED, Case
from figura.base.errors import UserError
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.engine.build import build_loaders, make_accelerator
from figura.launch import ALLOCATOR
from figura.recipe.schema import Recipe

PEAK, UTILISATION, LAUNCH = 989.4e12, 0.2, 10e-6
"""FLOP/s of an H100 SXM in bf16, dense, by its data sheet; and two assumptions: a fraction of it, seconds a kernel."""
CASES = {
    **DEFAULTS,
    "flow": Case(Path("recipes/flow.yaml")),
    "published vunet": PUBLISHED["vunet"],
    "published pix2pix": PUBLISHED["pix2pix, batch 1"].changed("data.common.root=data/prepared/facades"),
    "published super_resolution": PUBLISHED["super_resolution"].changed("data.common.root=data/prepared/photos"),
    "published pose": PUBLISHED["pose"].changed("data.common.root=data/prepared/coco"),
}
"""Recipes in their own sizes."""


class Kernels(TorchDispatchMode):
    """Counts operations other than views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def loaded(recipe: Recipe, budget: float) -> float:
    """Return the training examples a second that this process loads."""
    batches = iter(build_loaders(recipe, make_accelerator(recipe)).train(0))
    next(batches)
    count, begin = 0, time.process_time()
    while (taken := time.process_time() - begin) < budget:
        next(batches)
        count += recipe.data.batch_size
    return count / taken


def eaten(recipe: Recipe) -> float:
    """Return the examples a second that a GPU would train on, an estimate."""
    networks = meta_networks(recipe)
    with Kernels() as kernels:
        costs = run_training(recipe, networks)
    if costs.notes:
        raise UserError("; ".join(costs.notes))
    flops = sum(costs.forward.values()) + sum(costs.backward.values())
    return recipe.data.batch_size / max(kernels.count * LAUNCH, flops / (PEAK * UTILISATION))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.loading")
    parser.add_argument("--cases", nargs="+", default=[""], metavar="WORD", help="only those whose names contain one")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each case")
    args = parser.parse_args()
    if not ALLOCATOR.items() <= os.environ.items():  # which are read at the start
        os.execve(sys.executable, [sys.executable, "-m", "bench.loading", *sys.argv[1:]], {**os.environ, **ALLOCATOR})
    torch.set_num_threads(1)
    cv2.setNumThreads(0)  # as in a worker
    rows: list[list[object]] = [["recipe", "batch", "loaded 1/s", "a GPU 1/s", "ratio", "workers", "of 8"]]
    left_out = []
    for name in (name for name in CASES if any(word in name for word in args.cases)):
        try:
            recipe = CASES[name].recipe()
            own, gpu = loaded(recipe, args.seconds), eaten(recipe)
        except UserError as reason:
            left_out.append(f"left out: {name}: {str(reason).splitlines()[0]}")
            continue
        batch = recipe.data.batch_size
        rows.append([name, batch, round(own), round(gpu), gpu / own, math.ceil(gpu / own), math.ceil(8 * gpu / own)])
    show(rows)
    print(*left_out, sep="\n")


if __name__ == "__main__":
    main()

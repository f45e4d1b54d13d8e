"""Peak memory of a training step at the papers' sizes, eager and checkpointed, and what `figura describe` estimates.

The recipes are the published ones, on the synthetic data (bench/paper_sizes.py), with few examples in a batch. Each
cell trains for two steps in a process of its own, on the CPU in float32 with glibc's memory returned at once, or on a
GPU. `measured` is the peak above that before the networks were built: resident size, or PyTorch's allocator.
`estimated` is `figura describe`'s sum for the same batch. `paper` is the estimate for the paper's batch.

`python -m bench.peak_memory [--cases vunet pose] [--batch 2]`, after `dvc repro prepare@people prepare@pairs`
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from bench.paper_sizes import CASES
from bench.table import show
from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.commands.describe.footprint import footprint
from figura.engine.checkpointing import checkpoint_modules
from figura.engine.weights import to_device
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Recipe
from figura.training.trainer import Trainer

STEPS = 2
MEBIBYTE = 2**20


def recipe(name: str, batch: int | None, checkpointing: bool) -> Recipe:
    """Return a case's recipe for a short training, with another batch or the paper's."""
    path = CASES[name].recipe
    content = read_yaml(path)
    asked = [
        *CASES[name].here, f"train.steps={STEPS}", f"train.evaluate_every={STEPS}", "runtime.trackers=[]",
        "runtime.progress=false", "runtime.samples=null", "runtime.scores=null", "runtime.workers=0",
    ]  # fmt: skip
    asked += [f"data.batch_size={batch}"] if batch else []
    checked = check_recipe(overridden(content, asked, tuple(Recipe.model_fields)), path)
    if not checkpointing:
        return checked
    asked += [f"networks.{network}.checkpointing=true" for network in with_blocks(checked)]
    return check_recipe(overridden(content, asked, tuple(Recipe.model_fields)), path)


def with_blocks(checked: Recipe) -> list[str]:
    """Return the names of the networks that know what to checkpoint."""
    names = []
    for name, network in meta_networks(checked).items():
        with suppress(UserError):
            checkpoint_modules(network, True, name)
            names.append(name)
    return names


def estimated(checked: Recipe) -> tuple[int, int]:
    """Return bytes that do not depend on the batch, and those of its activations."""
    networks = meta_networks(checked)
    return footprint(checked, networks).total, run_training(checked, networks).peak


def resident() -> int:
    """Return the resident bytes of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Watch(threading.Thread):
    """Samples the resident bytes until `stop`; `peak` is the largest."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.on = 0, True

    def run(self) -> None:
        """Sample every 2 ms."""
        while self.on:
            self.peak = max(self.peak, resident())
            time.sleep(0.002)


def measured(checked: Recipe) -> int:
    """Return the peak in bytes of two training steps."""
    cuda = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        before = 0 if cuda else resident()
        trainer = Trainer(checked, Path(folder))
        trainer.iteration = trainer.last - 1  # all gates are open
        batch = to_device(next(iter(trainer.loaders.train(0))), trainer.accelerator.device)
        watch = Watch()
        watch.start()
        for _ in range(STEPS):
            trainer.train_op(batch)
        watch.on = False
        watch.join()
    return torch.cuda.max_memory_allocated() if cuda else watch.peak - before


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.peak_memory")
    parser.add_argument("--cases", nargs="+", default=[name for name in CASES if name != "pix2pix, batch 16"])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--cell", nargs=2, metavar=("CASE", "CHECKPOINTED"), help="measure one, print JSON")
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measured(recipe(args.cell[0], args.batch, args.cell[1] == "1"))))
        return
    rows: list[list[object]] = [["MiB", "checkpointed", "batch", "measured", "estimated", "ratio", "paper", "batch"]]
    for name in args.cases:
        for checkpointed in (False, True):
            command = [sys.executable, "-m", "bench.peak_memory", "--cell", name, f"{int(checkpointed)}"]
            environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
            done = subprocess.run(
                [*command, "--batch", f"{args.batch}"], env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            peak = int(done.stdout.splitlines()[-1])
            small, paper = (recipe(name, batch, checkpointed) for batch in (args.batch, None))
            here, there = sum(estimated(small)), sum(estimated(paper))
            row: list[Any] = [name, "yes" if checkpointed else "no", args.batch, peak / MEBIBYTE, here / MEBIBYTE]
            rows.append([*row, peak / here, there / MEBIBYTE, paper.data.batch_size])
    show(rows)


if __name__ == "__main__":
    main()

"""A training step of each recipe at its paper's size: time, memory and losses by precision, and the estimated memory.

The recipes are the published ones, on the synthetic data (bench/trainings.py). Perceptual losses have random weights,
which cost the same time and memory. Each row has a process of its own. It trains (`--steps`, the first
batches of the data, the same for all precisions), which also finds float16's loss scales; then it times steps on one
batch, without the data pipeline.

`skipped` are updates skipped in search of a scale. `loss` is the weighted total over the last tenth of the training,
relative to float32. Memory is the peak above that before the networks were built: of the allocator on a GPU, resident
on a CPU. `estimated` is what `figura describe` prints for the same batch in float32. `--checkpointing` adds rows whose
blocks are computed again in the backward pass. Float32 convolutions use PyTorch's defaults, TF32 in cuDNN on a GPU.

`python -m bench.precision [--cases vunet pose] [--precisions no bf16 fp16] [--batch 2]`, after
`dvc repro prepare@people prepare@pairs`. Without a GPU use `--small`, tiny networks and no fp16, which only shows that
the benchmark works.
"""

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bench.table import most_resident, seconds, show
from bench.trainings import PUBLISHED, Case
from figura.base.errors import UserError
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.commands.describe.footprint import footprint
from figura.engine.checkpointing import checkpoint_modules
from figura.engine.weights import to_device
from figura.recipe.schema import Recipe
from figura.training.trainer import Trainer

PRECISIONS = ("no", "bf16", "fp16")
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
"""Lets glibc return memory at once, so that what is resident is what is used."""


def recipe(case: Case, precision: str, steps: int, *more: str, small: bool) -> Recipe:
    """Return a case's recipe for a training of `steps` steps that records only its losses."""
    length = [f"{key}={steps}" for key in ("train.steps", "train.evaluate_every", "runtime.resume_every")]
    kept = [f'train.precision="{precision}"', *length, "train.record_every=1", f"runtime.log_every={steps}"]
    return case.recipe(*(case.small if small else ()), *kept, *more)


def checkpointed(checked: Recipe) -> tuple[str, ...]:
    """Return the keys that checkpoint every network that can be."""
    keys = []
    for name, network in meta_networks(checked).items():
        with suppress(UserError):
            checkpoint_modules(network, True, name)
            keys.append(f"networks.{name}.checkpointing=true")
    return tuple(keys)


def resident() -> float:
    """Return the resident size of this process now, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(case: Case, precision: str, again: bool, args: argparse.Namespace) -> dict[str, Any]:
    """Train, then time a step, in this process; `again` is with checkpointing."""
    more = (f"data.batch_size={args.batch}",) if args.batch else ()
    checked = recipe(case, precision, args.steps, *more, small=args.small)
    if again:
        checked = recipe(case, precision, args.steps, *more, *checkpointed(checked), small=args.small)
    networks = meta_networks(checked)
    estimated = (footprint(checked, networks).total + run_training(checked, networks).peak) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before = resident()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        trainer = Trainer(checked, Path(folder))
        trainer.fit()
    device = trainer.accelerator.device
    batch = to_device(next(iter(trainer.loaders.train(0))), device)

    def step() -> None:
        trainer.train_op(batch)
        if device.type == "cuda":
            torch.cuda.synchronize()

    time = seconds(step, budget=0.0 if args.small else 12.0, at_least=10)
    cuda = device.type == "cuda"
    history = pd.DataFrame(trainer.loss_log.train)
    totals = history.filter(regex=r"^[^.]+\.weighted$")
    return {
        "seconds": time,
        "peak": torch.cuda.max_memory_allocated() / 2**20 if cuda else most_resident() - before,
        "estimated": estimated,
        "batch": trainer.recipe.data.batch_size,
        "skipped": int(history.filter(regex=r"\.skipped$").sum().sum()),
        "loss": float(totals.tail(max(1, args.steps // 10)).sum(axis=1).mean()),
        "device": torch.cuda.get_device_name() if cuda else "CPU",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.precision")
    parser.add_argument("--cases", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=list(PRECISIONS))
    parser.add_argument("--checkpointing", action="store_true", help="rows with it, too")
    parser.add_argument("--steps", type=int, default=200, help="of the training whose losses are compared")
    parser.add_argument("--batch", type=int, help="default: the paper's")
    parser.add_argument("--small", action="store_true", help="tiny networks: to see that it works, without fp16")
    args = parser.parse_args()
    os.environ |= RETURNED  # for the processes below
    kinds = [p for p in args.precisions if p != "fp16" or torch.accelerator.is_available()]
    head = ["batch", "precision", "again", "ms/step", "images/s", "to no", "MiB", "estimated", "skipped", "loss to no"]
    rows: list[list[object]] = [["", *head, "device"]]
    for name in args.cases:
        base: dict[str, Any] = {}
        for precision, again in [(p, a) for p in kinds for a in (False, True)[: 1 + args.checkpointing]]:
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                found = process.submit(measure, PUBLISHED[name], precision, again, args).result()
            base = base or found
            time, batch = found["seconds"], found["batch"]
            row = [name, batch, precision, "yes" if again else "no", time * 1e3, batch / time, base["seconds"] / time]
            rows.append([*row, found["peak"], found["estimated"], found["skipped"], found["loss"] / base["loss"],
                found["device"]])  # fmt: skip
    show(rows)


if __name__ == "__main__":
    main()

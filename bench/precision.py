"""A training step of each recipe at its paper's size: time, memory and losses by precision, and the estimated memory.

The recipes are the published ones, on the synthetic data (bench/paper_sizes.py). Perceptual losses have random weights,
which cost the same time and memory. Each row has a process of its own. It trains for the curves (`--steps`, the first
batches of the data, the same for all precisions), which also finds float16's loss scales; then it times steps on one
batch, without the data pipeline.

`skipped` are updates skipped in search of a scale. `loss` is the weighted total over the last tenth of the training,
relative to float32. Memory is the peak above that before the networks were built: of the allocator on a GPU, resident
on a CPU. `estimated` is what `figura describe` prints for the same batch in float32. `--checkpointing` adds rows whose
blocks are computed again in the backward pass. Float32 convolutions use PyTorch's defaults, TF32 in cuDNN on a GPU.

`python -m bench.precision [--cases vunet pose] [--precisions no bf16 fp16] [--batch 2] [--curves FILE.png]`, after
`dvc repro prepare@people prepare@pairs`. Without a GPU use `--small`, tiny networks and no fp16, which only shows that
the benchmark works.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bench.paper_sizes import CASES, Case
from bench.table import SECONDS, most_resident, seconds, show
from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.commands.describe.footprint import footprint
from figura.engine.checkpointing import checkpoint_modules
from figura.engine.weights import to_device
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Recipe
from figura.report.curves import draw_losses, losses_of
from figura.training.trainer import Trainer

PRECISIONS = ("no", "bf16", "fp16")
SECTIONS = tuple(Recipe.model_fields)
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
"""Lets glibc return memory at once, so that what is resident is what is used."""


def recipe(case: Case, precision: str, steps: int, *, small: bool, more: tuple[str, ...] = ()) -> Recipe:
    """Return a case's recipe for a training of `steps` steps that records only its losses."""
    asked = [
        *case.here, *(case.small if small else []), f'train.precision="{precision}"', f"train.steps={steps}",
        f"train.evaluate_every={steps}", "train.record_every=1", "runtime.trackers=[]", "runtime.progress=false",
        f"runtime.resume_every={steps}", f"runtime.log_every={steps}", "runtime.samples=null", "runtime.scores=null",
        *more,
    ]  # fmt: skip
    return check_recipe(overridden(read_yaml(case.recipe), asked, SECTIONS), case.recipe)


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


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Train, leaving the history in a folder, then time a step in this process."""
    name, precision, again, folder = args.cell
    more = (f"data.batch_size={args.batch}",) if args.batch else ()
    checked = recipe(CASES[name], precision, args.steps, small=args.small, more=more)
    if again == "yes":
        checked = recipe(CASES[name], precision, args.steps, small=args.small, more=(*more, *checkpointed(checked)))
    networks = meta_networks(checked)
    estimated = (footprint(checked, networks).total + run_training(checked, networks).peak) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before = resident()
    trainer = Trainer(checked, Path(folder))
    trainer.fit()
    device = trainer.accelerator.device
    batch = to_device(next(iter(trainer.loaders.train(0))), device)

    def step() -> None:
        trainer.train_op(batch)
        if device.type == "cuda":
            torch.cuda.synchronize()

    time = seconds(step, at_least=10, budget=0 if args.small else 3 * SECONDS)
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


def cell(place: list[str], options: list[str]) -> dict[str, Any]:
    """Measure in a new process."""
    command = [sys.executable, "-m", "bench.precision", *options, "--cell", *place]
    done = subprocess.run(command, env=os.environ | RETURNED, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def draw(folders: dict[tuple[str, str], Path], path: Path) -> None:
    """Plot the losses of all cases, a line for each precision."""
    runs: dict[str, pd.DataFrame] = {}
    for (name, precision), folder in folders.items():
        history = pd.read_csv(folder / "history/train.csv")
        kept = [f"{loss}.{what}" for loss in losses_of(history) for what in ("raw", "weight")]
        found = history[["step", *kept]].rename(columns={column: f"{name}: {column}" for column in kept})
        runs[precision] = runs[precision].merge(found, on="step") if precision in runs else found
    none = pd.DataFrame({"step": []})
    draw_losses({precision: (history, none) for precision, history in runs.items()}, path)


def main() -> None:
    """Print the table; with --curves also plot the losses."""
    parser = argparse.ArgumentParser(prog="python -m bench.precision")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=list(PRECISIONS))
    parser.add_argument("--checkpointing", action="store_true", help="rows with it, too")
    parser.add_argument("--steps", type=int, default=200, help="of the training that curves show")
    parser.add_argument("--batch", type=int, help="default: the paper's")
    parser.add_argument("--small", action="store_true", help="tiny networks: to see that it works, without fp16")
    parser.add_argument("--curves", type=Path, metavar="FILE")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)  # case, precision, checkpointed, folder
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measure(args)))
        return
    options = ["--steps", f"{args.steps}", *(["--small"] if args.small else [])]
    options += ["--batch", f"{args.batch}"] if args.batch else []
    kinds = [p for p in args.precisions if p != "fp16" or torch.accelerator.is_available()]
    head = ["batch", "precision", "again", "ms/step", "images/s", "to no", "MiB", "estimated", "skipped", "loss to no"]
    rows: list[list[object]] = [["", *head, "device"]]
    folders: dict[tuple[str, str], Path] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.cases:
            base: dict[str, Any] = {}
            for precision, again in [(p, a) for p in kinds for a in ("no", "yes")[: 1 + args.checkpointing]]:
                folder = Path(temporary, f"{len(rows)}")
                found = cell([name, precision, again, str(folder)], options)
                base = base or found
                time, batch = found["seconds"], found["batch"]
                row = [name, batch, precision, again, time * 1e3, batch / time, base["seconds"] / time]
                rows.append([*row, found["peak"], found["estimated"], found["skipped"], found["loss"] / base["loss"],
                    found["device"]])  # fmt: skip
                folders.setdefault((name, precision), folder)
        if args.curves:
            draw(folders, args.curves)
    show(rows)


if __name__ == "__main__":
    main()

"""A training step of each recipe at its paper's size in float32, bfloat16 and float16: time, memory, and losses.

The recipes are the published ones, on the synthetic data (bench/paper_sizes.py). Perceptual losses have random weights,
which cost the same time and memory.
Each cell runs in its own process. It first trains for the curves (`--steps`, the first batches of the data, the same
for all precisions), which also finds float16's loss scales; then it times steps on one batch, without the data
pipeline. `skipped` are updates skipped in search of a scale. `loss` is the weighted total over the last tenth of the
training, relative to float32. Memory is the allocator's peak on a GPU, resident on a CPU. Float32 convolutions use
PyTorch's defaults, which is TF32 in cuDNN on a GPU.

`python -m bench.precision [--cases vunet pose] [--precisions no bf16 fp16] [--steps 200] [--curves FILE.png]`, after
`dvc repro prepare@people prepare@pairs`. Without a GPU use `--small`, tiny networks and no fp16, which only shows that
the benchmark works.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bench.paper_sizes import CASES, Case
from bench.table import SECONDS, seconds, show
from figura.base.yaml12 import read_yaml
from figura.engine.weights import to_device
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Recipe
from figura.report.curves import draw_losses, losses_of
from figura.training.trainer import Trainer

PRECISIONS = ("no", "bf16", "fp16")
SECTIONS = tuple(Recipe.model_fields)


def recipe(case: Case, precision: str, steps: int, *, small: bool) -> Recipe:
    """Return a case's recipe for a training of `steps` steps that records only its losses."""
    asked = [
        *case.here, *(case.small if small else []), f'train.precision="{precision}"', f"train.steps={steps}",
        f"train.evaluate_every={steps}", "train.record_every=1", "runtime.trackers=[]", "runtime.progress=false",
        f"runtime.resume_every={steps}", f"runtime.log_every={steps}", "runtime.samples=null", "runtime.scores=null",
    ]  # fmt: skip
    return check_recipe(overridden(read_yaml(case.recipe), asked, SECTIONS), case.recipe)


def measure(name: str, precision: str, steps: int, folder: Path, *, small: bool) -> dict[str, Any]:
    """Train, leaving the history in `folder`, then time a step in this process."""
    trainer = Trainer(recipe(CASES[name], precision, steps, small=small), folder)
    trainer.fit()
    device = trainer.accelerator.device
    batch = to_device(next(iter(trainer.loaders.train(0))), device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        trainer.train_op(batch)
        if device.type == "cuda":
            torch.cuda.synchronize()

    time = seconds(step, at_least=10, budget=0 if small else 3 * SECONDS)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else resident
    history = pd.DataFrame(trainer.loss_log.train)
    totals = history.filter(regex=r"^[^.]+\.weighted$")
    return {
        "seconds": time,
        "peak": peak,
        "batch": trainer.recipe.data.batch_size,
        "skipped": int(history.filter(regex=r"\.skipped$").sum().sum()),
        "loss": float(totals.tail(max(1, steps // 10)).sum(axis=1).mean()),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


def cell(name: str, precision: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure in a new process."""
    command = [
        sys.executable,
        "-m",
        "bench.precision",
        "--cell",
        name,
        precision,
        str(folder),
        "--steps",
        str(args.steps),
    ]
    done = subprocess.run(
        [*command, *(["--small"] if args.small else [])], stdout=subprocess.PIPE, text=True, check=True
    )
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
    parser.add_argument("--steps", type=int, default=200, help="of the training that curves show")
    parser.add_argument(
        "--small", action="store_true", help="tiny networks: to see that it works, on a CPU without fp16"
    )
    parser.add_argument("--curves", type=Path, metavar="FILE")
    parser.add_argument("--cell", nargs=3, metavar=("CASE", "PRECISION", "FOLDER"), help="measure one, print JSON")
    args = parser.parse_args()
    if args.cell:
        name, precision, folder = args.cell
        print(json.dumps(measure(name, precision, args.steps, Path(folder), small=args.small)))
        return
    precisions = [p for p in args.precisions if p != "fp16" or torch.accelerator.is_available()]
    head = ["batch", "precision", "ms/step", "images/s", "to no", "MiB", "to no", "skipped", "loss to no", "device"]
    rows: list[list[object]] = [["", *head]]
    folders: dict[tuple[str, str], Path] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(args.cases):
            base: dict[str, Any] = {}
            for precision in precisions:
                folders[name, precision] = Path(temporary) / f"{number}-{precision}"
                found = cell(name, precision, args, folders[name, precision])
                base = base or found
                fast, memory = base["seconds"] / found["seconds"], found["peak"] / base["peak"]
                measured = [
                    found["seconds"] * 1e3,
                    found["batch"] / found["seconds"],
                    fast,
                    found["peak"] / 2**20,
                    memory,
                ]
                learned = [found["skipped"], found["loss"] / base["loss"], found["device"]]
                rows.append([name, found["batch"], precision, *measured, *learned])
        if args.curves:
            draw(folders, args.curves)
    show(rows)


if __name__ == "__main__":
    main()

"""The cost of watching: recipes/pix2pix.yaml with its trackers, log and sample sheets, and without them.

Both train from the start to the same step in this process, including evaluations, in alternating rounds. They differ in
`runtime`: `log_every`, `trackers` and `samples` of the recipe, or one log line, no tracker and no samples. The row
`tensorboard` adds TensorBoard to the default tracker. The budget is 3 %.

CPU seconds are also meaningful on a shared machine.

`python -m bench.live_view [--steps 200] [--rounds 3] [--threads 2]`, after `dvc repro prepare@pairs`.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState

from bench.table import show
from figura.base.yaml12 import read_yaml
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer

RECIPE = Path("recipes/pix2pix.yaml")
QUIET: dict[str, Any] = {"log_every": 10**6, "trackers": [], "samples": None}
VARIANTS: dict[str, dict[str, Any]] = {
    "nothing": QUIET,
    "as in the recipe": {},
    "and TensorBoard": {"trackers": ["dvclive", "tensorboard"]},
}


def trained(changes: dict[str, Any], steps: int) -> tuple[float, float]:
    """Return the wall and CPU seconds of a training of `steps` steps."""
    AcceleratorState._reset_state(reset_partial_state=True)
    content = read_yaml(RECIPE)
    content["train"]["steps"] = steps
    content["runtime"] |= {"progress": False, **changes}
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(check_recipe(content, RECIPE), Path(folder) / "run")
        wall, cpu = time.perf_counter(), time.process_time()
        trainer.fit()
        return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_view")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for turn in range(args.rounds + 1):
        for name, changes in VARIANTS.items():
            seconds = trained(changes, args.steps if turn else 10)
            if turn:  # the first round warms up
                times[name].append(seconds)
    rows: list[list[object]] = [["", "s", "CPU s", "s to nothing", "CPU s to nothing"]]
    for name, found in times.items():
        base = times["nothing"]
        ratios = [statistics.median(own[k] / one[k] for own, one in zip(found, base, strict=True)) for k in (0, 1)]
        rows.append([name, *(statistics.median(own[k] for own in found) for k in (0, 1)), *ratios])
    show(rows)


if __name__ == "__main__":
    main()

"""What watching costs: iterations of recipes/pix2pix.yaml with its trackers, log and sample sheets, and without them.

Both train from the start to the same step in this process, evaluations included, a few rounds in turn; what differs is
`runtime`: `log_every`, `trackers` and `samples` as the recipe has them, or logging once, no tracker and no samples. With
`tensorboard` the default tracker is joined by TensorBoard. The budget is 3 %.

`python -m bench.live_view [--steps 200] [--rounds 3]`, after `dvc repro prepare@pairs`.
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
from models.engine.recipe import check_recipe
from models.engine.trainer import Trainer
from models.engine.yaml12 import read_yaml

RECIPE = Path("recipes/pix2pix.yaml")
QUIET: dict[str, Any] = {"log_every": 10**6, "trackers": [], "samples": None}
VARIANTS: dict[str, dict[str, Any]] = {
    "nothing": QUIET,
    "as in the recipe": {},
    "and TensorBoard": {"trackers": ["dvclive", "tensorboard"]},
}


def trained(changes: dict[str, Any], steps: int) -> float:
    """Return the seconds of a training of so many steps."""
    AcceleratorState._reset_state(reset_partial_state=True)
    content = read_yaml(RECIPE)
    content["train"]["steps"] = steps
    content["runtime"] |= {"progress": False, **changes}
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(check_recipe(content, RECIPE), Path(folder) / "run")
        start = time.perf_counter()
        trainer.fit()
        return time.perf_counter() - start


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_view")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(2)
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for turn in range(given.rounds + 1):
        for name, changes in VARIANTS.items():
            seconds = trained(changes, given.steps if turn else 10)
            if turn:  # the first round warms up
                times[name].append(seconds)
    rows: list[list[object]] = [["", "s", "to nothing (median of rounds)"]]
    for name, found in times.items():
        ratios = [own / base for own, base in zip(found, times["nothing"], strict=True)]
        rows.append([name, statistics.median(found), statistics.median(ratios)])
    show(rows)


if __name__ == "__main__":
    main()

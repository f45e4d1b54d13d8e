"""Strong scaling of a training step, and its communication.

The engine trains each recipe on one fixed batch of its size, sharded over the ranks, with synchronised batch
normalisation, checks and records. `speed-up` is relative to one process with all threads, `to one` to one process with
as many threads as each rank has. Rounds measure all rows in turn; values are medians. CPU time is summed over all
processes and threads. On a shared machine only rows with one thread each are meaningful: threads that wait for a
preempted one spin.

`calls` and `MB` are the collectives of a step and the bytes that one rank sends in them. They are timed in further
steps, one after another: `wait` is the time in barriers before them (the slowest rank, and the barrier itself), `move`
the time in the collectives, `share` is move over the step without barriers, where gradients travel during backward.
`average` is `GradientAverage.finish` alone, copies included, on the gradients of all steps, and GB/s their bytes over
that.

Without GPUs the ranks use gloo. With GPUs the same command uses one GPU for each rank and nccl; that was not run yet.

`python -m bench.scaling [--processes 2] [--rounds 3] [--steps 10] [--recipes pose 'published pose']`, after `dvc repro
prepare@people prepare@pairs`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from bench import fixed_batch
from bench.fixed_batch import Work
from bench.paper_sizes import CASES as PUBLISHED
from bench.table import show
from figura.base.yaml12 import read_yaml
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Recipe

Asked = tuple[Path, list[str]]


def published(case: str, *more: str) -> Asked:
    """Return a published recipe and the keys that are changed in it."""
    return PUBLISHED[case].recipe, [*PUBLISHED[case].here, *more]


DEFAULTS: dict[str, Asked] = {
    "vunet": (Path("params.yaml"), []),
    "pix2pix": (Path("recipes/pix2pix.yaml"), []),
    "pose": (Path("recipes/pose.yaml"), []),
    "super_resolution": (Path("recipes/super_resolution.yaml"), []),
}
RECIPES: dict[str, Asked] = DEFAULTS | {
    "published vunet": published("vunet", "data.common.image_size=128", "data.batch_size=4"),
    "published pix2pix": published("pix2pix, batch 1", "data.batch_size=2"),
    "published pose": published("pose", "data.common.side=193", "data.batch_size=4"),
    "published super_resolution": published("super_resolution", "data.batch_size=2"),
}
COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "all_gather_into_tensor")
WARM_UP = 3  # steps that are not timed
Cell = tuple[int, int]  # processes, threads in each


@dataclass
class Meter:
    """Seconds, calls and bytes of collectives, added up."""

    waits: float = 0.0
    moves: float = 0.0
    calls: int = 0
    bytes: int = 0

    def timed(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a collective: it starts after a barrier, and its time and bytes are recorded."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            times = [now()]
            dist.barrier()
            times.append(now())
            work = collective(*arguments, **keywords)
            if work is not None:  # an asynchronous call
                work.wait()
            times.append(now())
            self.waits += times[1] - times[0]
            self.moves += times[2] - times[1]
            self.calls += 1
            self.bytes += max(one.nbytes for one in (*arguments, *keywords.values()) if isinstance(one, Tensor))
            return work

        return call

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record the collectives inside the block."""
        with ExitStack() as stack:
            for name in COLLECTIVES:
                stack.enter_context(patch.object(dist, name, self.timed(getattr(dist, name))))
            yield


def now() -> float:
    """Return the time in seconds, after a GPU has finished all its work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


def start(name: str, folder: Path) -> Work:
    """Return the training of one of `RECIPES` on a fixed batch; it writes into `folder`."""
    path, asked = RECIPES[name]
    content = overridden(read_yaml(path), asked, tuple(Recipe.model_fields))
    content["runtime"] |= {"trackers": [], "progress": False, "workers": 0}
    return fixed_batch.start(check_recipe(content, path), folder)


def repeated(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Return wall and CPU seconds of a call in this process."""
    if dist.is_initialized():
        dist.barrier()
    wall, cpu = now(), time.process_time()
    for _ in range(times):
        call()
    return (now() - wall) / times, (time.process_time() - cpu) / times


def measure(name: str, steps: int, folder: Path) -> dict[str, float]:
    """Return rank 0's measurements of a recipe's step: seconds, bytes, calls."""
    work = start(name, folder)
    repeated(work.step, WARM_UP)
    wall, cpu = repeated(work.step, steps)
    found = {"wall": wall, "cpu": cpu}
    if not dist.is_initialized():
        return found
    accelerator, meter = work.trainer.accelerator, Meter()
    found["cpu"] = float(accelerator.reduce(torch.tensor(cpu, device=accelerator.device), "sum"))
    with meter.on():
        repeated(work.step, steps)
    for one in ("waits", "moves", "calls", "bytes"):
        found[one] = getattr(meter, one) / steps
    averages = [step.average for step in work.trainer.steps.values() if step.average is not None]
    parameters = [parameter for step in work.trainer.steps.values() for parameter in step.parameters]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)

    def averaged() -> None:
        for one in averages:
            one.finish()

    found["average"], _ = repeated(averaged, steps)
    found["gradients"] = sum(parameter.nbytes for parameter in parameters)
    return found


def run_cell(names: list[str], steps: int) -> None:
    """Measure recipes in this process, as one rank of several or alone; rank 0 prints JSON."""
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(name, steps, Path(folder))
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def cell(place: Cell, names: list[str], steps: int) -> dict[str, dict[str, float]]:
    """Measure recipes in new processes."""
    processes, threads = place
    joined = ["torch.distributed.run", "--standalone", "--nproc_per_node", f"{processes}", "-m"]
    command = [sys.executable, "-m", *(joined if processes > 1 else []), "bench.scaling", "--cell"]
    environment = os.environ | {"OMP_NUM_THREADS": f"{threads}"}
    done = subprocess.run(
        [*command, "--steps", f"{steps}", "--recipes", *names],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return dict(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{"))))


def rows_of(name: str, found: dict[Cell, list[dict[str, float]]]) -> Iterator[list[object]]:
    """Yield a row for each number of processes and threads."""
    bases = [next(iter(found.values())), found[1, next(reversed(found))[1]]]
    for (processes, threads), rounds in found.items():
        middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        faster = [statistics.median(b["wall"] / f["wall"] for f, b in zip(rounds, base, strict=True)) for base in bases]
        row: list[object] = [name, processes, threads, middle["wall"] * 1e3, middle["cpu"] * 1e3, *faster]
        if processes > 1:
            share = statistics.median(one["moves"] / one["wall"] for one in rounds)
            row += [round(middle["calls"]), middle["bytes"] / 1e6, middle["waits"] * 1e3, middle["moves"] * 1e3, share]
            row += [middle["average"] * 1e3, middle["gradients"] / middle["average"] / 1e9]
        yield row + [""] * (14 - len(row))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling")
    parser.add_argument("--processes", type=int, default=torch.accelerator.device_count() or 2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="measured in each row and round")
    parser.add_argument("--recipes", nargs="+", default=list(DEFAULTS), choices=list(RECIPES))
    parser.add_argument("--cell", action="store_true", help="measure in this process, print JSON")
    args = parser.parse_args()
    if args.cell:
        run_cell(args.recipes, args.steps)
        return
    cores = len(os.sched_getaffinity(0))
    each = max(1, cores // args.processes)
    places: list[Cell] = list(dict.fromkeys([(1, cores), (1, each), (args.processes, each)]))
    found: dict[Cell, list[dict[str, dict[str, float]]]] = {place: [] for place in places}
    for turn in range(args.rounds):
        for place in places[:: 1 if turn % 2 == 0 else -1]:
            found[place].append(cell(place, args.recipes, args.steps))
    head = ["recipe", "processes", "threads", "ms/step", "CPU ms", "speed-up", "to one", "calls", "MB", "wait ms"]
    rows: list[list[object]] = [[*head, "move ms", "share", "average ms", "GB/s"]]
    for name in args.recipes:
        rows += rows_of(name, {place: [one[name] for one in rounds] for place, rounds in found.items()})
    show(rows)


if __name__ == "__main__":
    main()

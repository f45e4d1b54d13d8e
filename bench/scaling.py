"""Strong scaling of a training step, and its communication.

The engine trains each recipe on one fixed batch of its size, sharded over the ranks, with synchronised batch
normalisation, checks and records. `speed-up` is relative to one process with all threads, `to one` to one process with
as many threads as each rank has. Rounds measure all rows in turn; values are medians. CPU time is summed over all
processes and threads. On a shared machine only rows with one thread each are meaningful: threads that wait for a
preempted one spin.

`calls` and `MB` are the collectives of a step and the bytes that one rank sends in them.

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
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from bench.table import show
from bench.trainings import DEFAULTS, ON_A_CPU, start

COLLECTIVES = ("all_reduce", "broadcast", "all_gather", "all_gather_into_tensor")
WARM_UP = 3  # steps that are not timed
Cell = tuple[int, int]  # processes, threads in each


@contextmanager
def collectives() -> Iterator[list[int]]:
    """Inside, the list gets the bytes of each collective that is called."""
    sent: list[int] = []

    def counted(collective: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            sent.append(max(one.nbytes for one in (*arguments, *keywords.values()) if isinstance(one, Tensor)))
            return collective(*arguments, **keywords)

        return call

    with ExitStack() as stack:
        for name in COLLECTIVES:
            stack.enter_context(patch.object(dist, name, counted(getattr(dist, name))))
        yield sent


def now() -> float:
    """Return the time in seconds, after a GPU has finished all its work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


def repeated(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Return wall and CPU seconds of a call in this process."""
    if dist.is_initialized():
        dist.barrier()
    wall, cpu = now(), time.process_time()
    for _ in range(times):
        call()
    return (now() - wall) / times, (time.process_time() - cpu) / times


def measure(name: str, steps: int, folder: Path) -> dict[str, float]:
    """Return rank 0's measurements of a recipe's step: seconds, calls and bytes of collectives."""
    training = start(ON_A_CPU[name].recipe(), folder)
    repeated(training.step, WARM_UP)
    wall, cpu = repeated(training.step, steps)
    if not dist.is_initialized():
        return {"wall": wall, "cpu": cpu}
    accelerator = training.trainer.accelerator
    total = float(accelerator.reduce(torch.tensor(cpu, device=accelerator.device), "sum"))
    with collectives() as sent:
        training.step()
    return {"wall": wall, "cpu": total, "calls": len(sent), "bytes": sum(sent)}


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
            row += [round(middle["calls"]), middle["bytes"] / 1e6]
        yield row + [""] * (9 - len(row))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling")
    parser.add_argument("--processes", type=int, default=torch.accelerator.device_count() or 2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="measured in each row and round")
    parser.add_argument("--recipes", nargs="+", default=list(DEFAULTS), choices=list(ON_A_CPU))
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
    rows: list[list[object]] = [
        ["recipe", "processes", "threads", "ms/step", "CPU ms", "speed-up", "to one", "calls", "MB"]
    ]
    for name in args.recipes:
        rows += rows_of(name, {place: [one[name] for one in rounds] for place, rounds in found.items()})
    show(rows)


if __name__ == "__main__":
    main()

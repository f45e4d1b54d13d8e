"""Strong scaling of a training step, and its communication.

The engine trains each recipe on one fixed batch of its size, sharded over the ranks, with synchronised batch
normalisation, checks and records. `speed-up` is relative to one process with all threads, `to one` to one process with
as many threads as each rank has. Rounds measure all rows in turn; values are medians. On a shared machine only rows
with one thread each are meaningful: threads that wait for a preempted one spin. `MB` are the bytes that one rank sends
in the collectives of a step.

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
Measured = dict[str, dict[str, float]]  # of each recipe: ms of a step, MB


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
    """Return the time in seconds, after all ranks have come here and a GPU has finished all its work."""
    if dist.is_initialized():
        dist.barrier()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


def run_cell(names: list[str], steps: int) -> None:
    """Measure recipes in this process, as one rank of several or alone; rank 0 prints JSON."""
    found: Measured = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            training = start(ON_A_CPU[name].recipe(), Path(folder))
            for _ in range(WARM_UP):
                training.step()
            begin = now()
            for _ in range(steps):
                training.step()
            found[name] = {"ms": (now() - begin) / steps * 1e3}
            with collectives() as sent:
                training.step()
            found[name]["MB"] = sum(sent) / 1e6
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def cell(place: Cell, names: list[str], steps: int) -> Measured:
    """Measure recipes in new processes."""
    processes, threads = place
    joined = ["torch.distributed.run", "--standalone", "--nproc_per_node", f"{processes}", "-m"]
    command = [sys.executable, "-m", *(joined if processes > 1 else []), "bench.scaling", "--cell"]
    done = subprocess.run(
        [*command, "--steps", f"{steps}", "--recipes", *names], env=os.environ | {"OMP_NUM_THREADS": f"{threads}"},
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return dict(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{"))))


def main() -> None:
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
    all_threads, as_each, several = places = ((1, cores), (1, each), (args.processes, each))
    rounds = [
        {place: cell(place, args.recipes, args.steps) for place in places[:: 1 if turn % 2 == 0 else -1]}
        for turn in range(args.rounds)
    ]
    rows: list[list[object]] = [["recipe", "processes", "threads", "ms/step", "speed-up", "to one", "MB"]]
    for name in args.recipes:
        for place in dict.fromkeys(places):
            ms = [one[place][name]["ms"] for one in rounds]
            faster = [
                statistics.median(one[base][name]["ms"] / time for one, time in zip(rounds, ms, strict=True))
                for base in (all_threads, as_each)
            ]
            sent = rounds[0][several][name]["MB"] if place == several else ""
            rows.append([name, *place, statistics.median(ms), *faster, sent])
    show(rows)


if __name__ == "__main__":
    main()

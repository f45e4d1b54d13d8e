"""Steps of a training beside busy processes, under settings of its threads; and what they cost on an idle machine.

Threads of OpenMP that have nothing to do spin for a while before they sleep (`GOMP_SPINCOUNT`, `OMP_WAIT_POLICY` of
libgomp). Beside other work they burn the time in which the thread that they wait for could run.

Each setting has one training on a fixed batch, started once and waiting unless it is measured; settings take turns.
`fair` is the share of the cores that the training would get among its own threads and the busy processes.

`python -m bench.busy_machine [--busy 0 2 4 8] [--spins 1000 10000] [--recipe vunet] [--seconds 20] [--rounds 3]`, after
`dvc repro prepare@people prepare@pairs`.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.before_after import worker
from bench.table import show
from bench.trainings import ON_A_CPU

BUSY = "while True: pass"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Inside, as many processes work without end."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def settings(spins: Sequence[int]) -> dict[str, dict[str, str]]:
    """Return environment variables by the name of a setting."""
    counts = {f"spin {count:,}": {"GOMP_SPINCOUNT": str(count)} for count in spins}
    return {"as it is": {}, **counts, "passive": {"OMP_WAIT_POLICY": "passive"}, "1 thread": {"OMP_NUM_THREADS": "1"}}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.busy_machine")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2, 4, 8])
    parser.add_argument("--spins", type=int, nargs="+", default=[0, 1000, 3000, 10000, 30000, 100000])
    parser.add_argument("--recipe", default="vunet", choices=list(ON_A_CPU))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_"))]:
        del os.environ[name]
    chosen, cores = settings(args.spins), len(os.sched_getaffinity(0))
    rates = {(name, count): list[float]() for name in chosen for count in args.busy}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = {}
        for name, one in chosen.items():
            started = worker(name, f"step, {args.recipe}", Path(folder), settings=one)
            workers[name] = stack.enter_context(started)
        for turn in range(args.rounds):
            for count in args.busy:
                with busy(count):
                    for name in list(chosen)[:: 1 if turn % 2 == 0 else -1]:
                        rates[name, count].append(1 / workers[name](args.seconds)["seconds"])
    middle = {key: statistics.median(values) for key, values in rates.items()}
    idle = middle["as it is", args.busy[0]]
    rows: list[list[object]] = [["setting", *(f"{count} busy" for count in args.busy)]]
    rows += [[name, *(middle[name, count] for count in args.busy)] for name in chosen]
    rows.append(["fair", *(idle * cores / (cores + count) for count in args.busy)])
    print(f"{args.recipe}: steps a second on {cores} cores, medians of {args.rounds} rounds of {args.seconds:g} s")
    show(rows)


if __name__ == "__main__":
    main()

"""Steps of a training beside busy processes, under settings of its threads; and what they cost on an idle machine.

Threads of OpenMP that have nothing to do spin for a while before they sleep (`GOMP_SPINCOUNT`, `OMP_WAIT_POLICY` of
libgomp). Beside other work they burn the time in which the thread that they wait for could run.

Each setting has one training on a fixed batch, started once and stopped (SIGSTOP) unless it is measured; settings take
turns. `fair` is the share of the cores that the training would get among its own threads and the busy processes.
`weights` is the SHA-256 of the weights after `WARM_UP` steps.

`python -m bench.busy_machine [--busy 0 2 4 8] [--spins 1000 10000] [--recipe vunet] [--seconds 20] [--rounds 3]`, after
`dvc repro prepare@people prepare@pairs`.
"""

import argparse
import hashlib
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.scaling import RECIPES, WARM_UP, start
from bench.table import show

SETTLE = 2.0  # seconds after a change that are not measured
RECORD = struct.Struct("qd64s")  # steps done, time of the last one, SHA-256 of the weights
BUSY = "while True: pass"


def train(recipe: str, file: Path) -> None:
    """Train for ever, and tell the steps done in a file."""
    with tempfile.TemporaryDirectory() as folder:
        work, steps, weights = start(recipe, Path(folder)), 0, hashlib.sha256()
        while True:
            work.step()
            steps += 1
            if steps == WARM_UP:
                for parameter in work.results():
                    weights.update(parameter.detach().numpy().tobytes())
            whole = weights.hexdigest().encode() if steps >= WARM_UP else b""
            file.write_bytes(RECORD.pack(steps, time.monotonic(), whole))


@contextmanager
def training(recipe: str, file: Path, setting: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Inside, a training under a setting, warm and stopped."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))} | setting
    child = subprocess.Popen([sys.executable, "-m", "bench.busy_machine", "--train", str(file), "--recipe", recipe],
        env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while read(file)[0] < WARM_UP:
            if child.poll() is not None:
                raise SystemExit(f"a training ended with {child.returncode}")
            time.sleep(0.1)
        child.send_signal(signal.SIGSTOP)
        yield child
    finally:
        child.kill()
        child.wait()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Inside, processes that only compute."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def read(file: Path) -> tuple[int, float, str]:
    """Return the steps of a training, the time of the last one, and the SHA-256 of its weights."""
    content = file.read_bytes() if file.is_file() else b""
    if len(content) != RECORD.size:
        return 0, 0.0, ""
    steps, last, weights = RECORD.unpack(content)
    return steps, last, weights.decode().rstrip("\0")


def rate(child: subprocess.Popen[bytes], file: Path, seconds: float) -> float:
    """Let a training run; return its steps a second, 0 where none ended."""
    child.send_signal(signal.SIGCONT)
    time.sleep(SETTLE)
    first, since, _ = read(file)
    time.sleep(seconds)
    steps, last, _ = read(file)
    child.send_signal(signal.SIGSTOP)
    return (steps - first) / (last - since) if steps > first else 0.0


def settings(spins: Sequence[int]) -> dict[str, dict[str, str]]:
    """Return environment variables by the name of a setting."""
    counts = {f"spin {count:,}": {"GOMP_SPINCOUNT": str(count)} for count in spins}
    return {"as it is": {}, **counts, "passive": {"OMP_WAIT_POLICY": "passive"}, "1 thread": {"OMP_NUM_THREADS": "1"}}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.busy_machine")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2, 4, 8])
    parser.add_argument("--spins", type=int, nargs="+", default=[0, 1000, 3000, 10000, 30000, 100000])
    parser.add_argument("--recipe", default="vunet", choices=list(RECIPES))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.recipe, args.train)
    chosen, cores = settings(args.spins), len(os.sched_getaffinity(0))
    rates = {(name, count): list[float]() for name in chosen for count in args.busy}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        files = {name: Path(folder, str(place)) for place, name in enumerate(chosen)}
        children = {name: stack.enter_context(training(args.recipe, files[name], one)) for name, one in chosen.items()}
        for turn in range(args.rounds):
            for count in args.busy:
                with busy(count):
                    for name in list(chosen)[:: 1 if turn % 2 == 0 else -1]:
                        rates[name, count].append(rate(children[name], files[name], args.seconds))
        weights = {name: read(file)[2][:8] for name, file in files.items()}
    middle = {key: statistics.median(values) for key, values in rates.items()}
    idle = middle["as it is", args.busy[0]]
    rows: list[list[object]] = [["setting", *(f"{count} busy" for count in args.busy), "weights"]]
    rows += [[name, *(middle[name, count] for count in args.busy), weights[name]] for name in chosen]
    rows.append(["fair", *(idle * cores / (cores + count) for count in args.busy), ""])
    print(f"{args.recipe}: steps a second on {cores} cores, medians of {args.rounds} rounds of {args.seconds:g} s")
    show(rows)


if __name__ == "__main__":
    main()

"""Times of two checkouts side by side: training steps, forward passes, encoder, decoder, loaders.

The table that says what a change of the code gained. Usage:

    git worktree add ../before COMMIT
    python -m bench.before_after ../before [--cases step 'forward, pose'] [--rounds 3]

Both sides do the same work: that of the recipes of the earlier checkout, on this one's data (`dvc repro prepare@people
prepare@pairs`) and fixed random pictures, with as many threads as PyTorch takes (OMP_NUM_THREADS) and the allocator
settings of this checkout's figura/launch. For each case, each side has a process that is started once and warm, and
they take turns; the others wait.

Times are medians over rounds of each round's median; `ratio` is the median over rounds of after / before in the same
round. `of peak` is the rate of multiply-adds over that of the machine's fastest plain convolution
(`peak`), measured before each case; they are counted by a dry run, as direct convolutions and matrix
products need them, so that tiles may exceed 1. MiB is the largest resident size while the case runs, Python and
PyTorch included. A case that a checkout cannot run is left out, with the reason.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional

from bench.cell import CASES, Forward, Step
from bench.table import seconds, show
from figura.base.errors import UserError
from figura.base.modes import evaluating
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.commands.describe.flops import flop_counter
from figura.interfaces import Networks, State
from figura.launch import ALLOCATOR

HERE = Path(__file__).absolute().parents[1]
SIDES = ("before", "after")
# `bench` is this checkout's; `python -P` leaves the current folder out, so that PYTHONPATH alone says whose the rest is
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
import bench
del sys.path[0]
from pathlib import Path
from bench.cell import serve
serve(sys.argv[2], *map(Path, sys.argv[3:]))
"""
WARM_UP = 5.0  # seconds of calls that are not timed
PEAK = "from bench.before_after import peak; print(peak())"
Measured = dict[str, float]


class CaseError(Exception):
    """A case cannot run; the text says why."""


def environment(code: Path) -> dict[str, str]:
    """Return the variables of a process that loads the packages of a checkout, on the CPU."""
    return {**os.environ, **ALLOCATOR, "PYTHONPATH": str(code), "CUDA_VISIBLE_DEVICES": ""}


@contextmanager
def worker(
    name: str, case: str, folder: Path, *, code: Path = HERE, recipes: Path = HERE, warm_up: float = WARM_UP
) -> Iterator[Callable[[float], Measured]]:
    """Inside, a function that lets a warm process measure a case for some seconds, with the code of a checkout.

    It returns the seconds of a call, and the peak in MiB. Raises CaseError if the case cannot run.
    """
    arguments = [str(HERE), case, str(code), str(recipes), str(folder)]
    log = folder / f"{name}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER, *arguments], env=environment(code), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip

    def measure(budget: float) -> Measured:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            print(budget, file=process.stdin, flush=True)
        if line := process.stdout.readline():
            return dict(json.loads(line))
        said = log.read_text(errors="replace").strip().splitlines() or ["nothing was said"]
        raise CaseError(f"{name} ended with {process.wait()}: {said[-1][:300]}")

    try:
        measure(warm_up)
        yield measure
    finally:
        process.kill()
        process.communicate()


def peak() -> float:
    """Return the multiply-adds a second of the fastest of some plain convolutions."""
    best = 0.0
    for channels, side in ((64, 64), (128, 64), (128, 32), (256, 32)):
        image, kernel = torch.rand(4, channels, side, side), torch.rand(channels, channels, 3, 3)
        time = seconds(partial(functional.conv2d, image, kernel, padding=1), budget=1.0)
        best = max(best, 4 * channels * channels * 9 * side * side / time)
    return best


def machine_peak() -> float:
    """Return `peak` of a new process, which has the allocator settings of the workers."""
    command = [sys.executable, "-P", "-c", PEAK]
    done = subprocess.run(command, env=environment(HERE), check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def multiply_adds(case: str, recipes: Path) -> float:
    """Return the multiply-adds of a training step or a forward pass, without optimizers; 0 for other cases."""
    asked = CASES[case]
    if not isinstance(asked, Step | Forward):
        return 0.0
    recipe = asked.case.recipe(checkout=recipes)
    networks = meta_networks(recipe)
    if isinstance(asked, Step):
        costs = run_training(recipe, networks)
        if costs.notes:
            raise CaseError("; ".join(costs.notes))
        return (sum(costs.forward.values()) + sum(costs.backward.values())) / 2
    state = State({name: torch.empty(shape, device="meta") for name, shape in asked.shapes.items()})
    with flop_counter() as counter, evaluating(*networks.values()):
        for injector in asked.injectors(recipe).values():
            injector(state, Networks(networks, networks), recipe.train.steps or 1)
    return counter.get_total_flops() / 2


def rounds_of(case: str, before: Path, rounds: int, budget: float) -> dict[str, list[Measured]]:
    """Return each round's measurements by side."""
    answers: dict[str, list[Measured]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = {}
        for side, code in zip(SIDES, (before, HERE), strict=True):
            one = worker(side, case, Path(folder), code=code, recipes=before, warm_up=min(budget, WARM_UP))
            workers[side] = stack.enter_context(one)
        for turn in range(rounds):
            for side in SIDES[:: 1 if turn % 2 == 0 else -1]:
                answers[side].append(workers[side](budget))
    return answers


def row(case: str, rounds: Mapping[str, list[Measured]], madds: float, fastest: float) -> list[object]:
    """Return a table row from the rounds of both sides."""
    times = [statistics.median(one["seconds"] for one in rounds[side]) for side in SIDES]
    pairs = zip(rounds["before"], rounds["after"], strict=True)
    ratio = statistics.median(after["seconds"] / before["seconds"] for before, after in pairs)
    shares = [f"{madds / time / fastest:.2f}" if madds else "" for time in times]
    memory = [round(max(one["peak"] for one in rounds[side])) for side in SIDES]
    return [case, *(time * 1e3 for time in times), f"{ratio:.3f}", 1 / times[1], *shares, *memory]


def main() -> None:
    """Print the table; a line for each case while it runs."""
    parser = argparse.ArgumentParser(prog="python -m bench.before_after")
    parser.add_argument("before", type=Path, metavar="BEFORE_CHECKOUT")
    parser.add_argument("--cases", nargs="+", default=[""], metavar="WORD", help="only those whose names contain one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    args = parser.parse_args()
    before, cases = args.before.absolute(), [name for name in CASES if any(word in name for word in args.cases)]
    if not (before / "figura").is_dir():
        parser.error(f"{args.before}: expected a checkout with figura/ and models/; git worktree add makes one")
    if not cases:
        parser.error(f"--cases: no name contains {' or '.join(args.cases)}; there are {'; '.join(CASES)}")
    head = ["", "before ms", "after ms", "ratio", "after 1/s", "before of peak", "after", "before MiB", "after"]
    rows: list[list[object]] = [[*head]]
    left_out = []
    for case in cases:
        try:
            madds = multiply_adds(case, before)
            fastest = machine_peak() if madds else 0.0
            rows.append(row(case, rounds_of(case, before, args.rounds, args.seconds), madds, fastest))
            print(rows[-1], file=sys.stderr, flush=True)
        except (CaseError, UserError) as reason:
            left_out.append(f"left out: {case}: {str(reason).splitlines()[0]}")
            print(left_out[-1], file=sys.stderr, flush=True)
    show(rows)
    print(*left_out, sep="\n")


if __name__ == "__main__":
    main()

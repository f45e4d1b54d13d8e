"""Where 3 x 3 convolutions by tiles (models/images/winograd.py) are faster than direct ones, by instructions.

Usage: python -m bench.tiles [--isa AVX512_CORE AVX2 SSE41] [--rounds 3]

Forward and backward of one convolution for each number of channels and size of the maps, of a batch of 4, in turns;
`ONEDNN_MAX_CPU_ISA` limits what the direct convolution may use, a process for each. The ratio is tiles / direct, below
1 is faster; `used` says whether `winograd.convolve` takes tiles there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.table import show
from models.images import winograd

CASES = [(32, 64), (32, 128), (64, 16), (64, 32), (64, 64), (64, 128), (128, 16), (128, 32), (128, 64)]
CASES += [(256, 16), (256, 32), (512, 16)]
BATCH = 4
BUDGET = 0.5  # seconds of each function in a round


def direct(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve as PyTorch does."""
    return F.conv2d(x, weight, bias, padding=1)


def tiled(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve by tiles."""
    return winograd._Winograd.apply(x, weight, bias)


def spent(convolve: Callable[[Tensor, Tensor, Tensor], Tensor], inputs: list[Tensor]) -> float:
    """Return the median seconds of forward and backward within the budget."""
    times: list[float] = []
    while sum(times) < BUDGET or len(times) < 3:
        start = time.perf_counter()
        y = convolve(*inputs)
        y.backward(torch.ones_like(y))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measured(rounds: int) -> list[tuple[float, float, bool]]:
    """Return seconds of direct and tiled convolution, and whether tiles are used, for each of `CASES`."""
    results = []
    for channels, side in CASES:
        torch.manual_seed(0)
        x, weight = torch.randn(BATCH, channels, side, side), torch.randn(channels, channels, 3, 3) / channels
        inputs = [one.requires_grad_() for one in (x, weight, torch.zeros(channels))]
        times = [[spent(one, inputs) for one in (direct, tiled)] for _ in range(rounds + 1)][1:]
        used = winograd._pays(x, weight)
        results.append((*(statistics.median(one) for one in zip(*times, strict=True)), used))
    return results


def main() -> None:
    """Print a table for all sets of instructions, or measure in this process."""
    parser = argparse.ArgumentParser(prog="python -m bench.tiles")
    parser.add_argument("--isa", nargs="+", default=["DEFAULT", "AVX2", "SSE41"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measured(args.rounds)))
        return
    rows: list[list[object]] = [["channels", "side", "used", *(f"{isa} {what}" for isa in args.isa for what in HEAD)]]
    columns = [cell(isa, args.rounds) for isa in args.isa]
    for place, (channels, side) in enumerate(CASES):
        times = [column[place] for column in columns]
        numbers = [n for first, second, _ in times for n in (first * 1e3, second * 1e3, second / first)]
        rows.append([channels, side, "yes" if times[0][2] else "no", *numbers])
    show(rows)


HEAD = ("direct ms", "tiles ms", "ratio")


def cell(isa: str, rounds: int) -> list[tuple[float, float, bool]]:
    """Measure in a new process with these instructions at most."""
    command = [sys.executable, "-m", "bench.tiles", "--cell", "--rounds", str(rounds)]
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": isa}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout))


if __name__ == "__main__":
    main()

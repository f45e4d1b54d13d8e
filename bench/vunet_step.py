"""One training step of VUNet at the reference's widths (64/128, batch 4), float32, no perceptual loss.

Compared with what the reference itself took on a machine of this kind with 2 threads (0.34, 1.28, 6.4 s at 64, 128, 256
px). Each size runs in a process of its own, with glibc's default memory thresholds and with those of stages/launch.py.
The last columns say what share of this machine's best convolution the step reaches: multiply-adds of forward and backward
(three times the forward's) over time, against the fastest of some plain 3x3 convolutions measured in the same process.

`python -m bench.vunet_step [--profile]`
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from bench.table import seconds, show
from models.images import L1
from models.vunet import LatentKL, VUNet
from stages.launch import ALLOCATOR

REFERENCE = {64: 0.34, 128: 1.28, 256: 6.4}
BATCH, THREADS = 4, 2


def step_of(size: int) -> tuple[VUNet, Callable[[], None]]:
    """Return the network and a function that takes one optimizer step on fixed random images."""
    torch.manual_seed(0)
    network = VUNet(image_size=size, nf_start=64, nf_max=128)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=True)
    pose, appearance, target = (torch.rand(BATCH, 3, size, size) * 2 - 1 for _ in range(3))
    pixels, latent = L1(), LatentKL()

    def step() -> None:
        found = network(pose, appearance)
        kl = latent(posterior=found["q_means"], prior=found["p_means"])
        loss = 0.5 * pixels(image=found["image"], target=target).mean() + 1e-5 * kl.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return network, step


def peak() -> float:
    """Return the multiply-adds a second of the fastest plain convolution, forward and backward alike."""
    best = 0.0
    for channels, side in ((64, 64), (128, 64), (128, 32), (256, 32)):
        image, kernel = torch.rand(BATCH, channels, side, side), torch.rand(channels, channels, 3, 3)
        time = seconds(partial(functional.conv2d, image, kernel, padding=1), budget=1.0)
        best = max(best, BATCH * channels * channels * 9 * side * side / time)
    return best


def measure(size: int) -> dict[str, float]:
    """Return the figures of one size in this process."""
    torch.set_num_threads(THREADS)
    network, step = step_of(size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(BATCH, 3, size, size), torch.zeros(BATCH, 3, size, size))
    return {"seconds": seconds(step), "madds": 3 * counter.get_total_flops() / 2, "peak": peak()}


def profile(size: int) -> None:
    """Print where the time of a step goes, by operation."""
    torch.set_num_threads(THREADS)
    _, step = step_of(size)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=48))


def main() -> None:
    """Print the table; with --profile also where the time goes at 64 px."""
    parser = argparse.ArgumentParser(prog="python -m bench.vunet_step")
    parser.add_argument("--size", type=int, help="measure one size in this process and print JSON")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.size:
        print(json.dumps(measure(given.size)))
        return
    rows: list[list[object]] = [
        ["px", "allocator", "s/step", "reference s", "times as fast", "Gmadd/s", "share of peak"]
    ]
    for size, reference in REFERENCE.items():
        for name, variables in (("glibc default", {}), ("launch.py", ALLOCATOR)):
            environment = {key: value for key, value in os.environ.items() if key not in ALLOCATOR} | variables
            command = [sys.executable, "-m", "bench.vunet_step", "--size", str(size)]
            found = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
            rate = found["madds"] / found["seconds"]
            rows.append(
                [
                    size,
                    name,
                    found["seconds"],
                    reference,
                    reference / found["seconds"],
                    rate / 1e9,
                    rate / found["peak"],
                ]
            )
    show(rows)
    if given.profile:
        profile(64)


if __name__ == "__main__":
    main()

"""Peak memory and time of a forward and backward pass with and without checkpointing, at the sizes of papers.

Each case runs in a process of its own on the CPU, in float32. Memory is the largest resident size above that before
the first forward pass, so it has activations and gradients. `python -m bench.checkpointing`
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from bench.table import show
from figura.engine.checkpointing import checkpoint_modules
from models.pose.pose_network import PoseNetwork
from models.super_resolution.rrdb import RRDBGenerator
from models.vunet.networks import VUNet

HEADS: dict[str, dict[str, object]] = {"cif": {}, "caf": {}}


def pose(backbone: str) -> nn.Module:
    """Return OpenPifPaf's network of COCO's people."""
    return PoseNetwork(backbone={"name": backbone}, heads=HEADS)


# network, its inputs, and the size of a batch
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "ESRGAN's RRDB, 4 x 32 to 128 px": (lambda: RRDBGenerator(scale=4), lambda: {"x": torch.rand(4, 3, 32, 32)}),
    "VUNet 32/128, 1 x 256 px": (
        lambda: VUNet(image_size=256, nf_start=32, nf_max=128, convolution="normalised", dropout=0.1),
        lambda: {"pose": torch.rand(1, 3, 256, 256), "appearance": torch.rand(1, 3, 256, 256)},
    ),
    **{
        f"{name}, 2 x 385 px": (partial(pose, name), lambda: {"image": torch.rand(2, 3, 385, 385)})
        for name in ("shufflenetv2k16", "shufflenetv2k30", "resnet50")
    },
}


def resident() -> float:
    """Return the largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(case: str, checkpointing: bool) -> tuple[float, float]:
    """Return MiB and seconds of a forward and backward pass, the second one that this process makes."""
    make, inputs = CASES[case]
    network = make()
    checkpoint_modules(network, checkpointing, "checkpointing")
    batch, before, seconds = inputs(), resident(), 0.0
    for _ in range(2):
        start = time.perf_counter()
        outputs = network(**batch).values()
        torch.stack([value.square().mean() for value in outputs if isinstance(value, Tensor)]).sum().backward()
        network.zero_grad()
        seconds = time.perf_counter() - start
    return resident() - before, seconds


def main() -> None:
    """Print the table; with arguments (a case, 0 or 1), measure that one and print the numbers alone."""
    if len(sys.argv) > 1:
        print(*measure(sys.argv[1], sys.argv[2] == "1"))
        return
    found: dict[tuple[str, int], list[float]] = {}
    for case, on in product(CASES, (0, 1)):
        command = [sys.executable, "-m", "bench.checkpointing", case, str(on)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[case, on] = [float(word) for word in done.stdout.split()]
    rows: list[list[object]] = [["network", "MiB", "with", "of it", "s", "with", "times"]]
    for case in CASES:
        (memory, seconds), (less, more) = found[case, 0], found[case, 1]
        rows.append([case, memory, less, less / memory, seconds, more, more / seconds])
    show(rows)


if __name__ == "__main__":
    main()

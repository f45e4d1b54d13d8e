"""One training step of VUNet at the widths of its PyTorch port (64/128, batch 4), float32, no perceptual loss.

`plain` computes the same network, in the same run, like the PyTorch port of VUNet: direct convolutions on contiguous
tensors, ELU of an explicit concatenation, latent noise through a full covariance matrix, unfused Adam. `ours` is the
package: tiles for wide 3 x 3 convolutions, channels-last, activations differentiated from their output, plain noise,
fused Adam. Each cell runs in its own process, with glibc's default memory thresholds and with those of figura/launch.
On another machine the port itself took 0.34, 1.28 and 6.4 s. The last columns compare the step with this machine's
fastest plain convolution, measured in the same process: multiply-adds of forward and backward (three times the
forward's, as direct convolutions would need) over time; tiles need fewer, so `ours` may exceed 1.

`python -m bench.vunet_step [--sizes 64 128] [--profile]`
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.table import SECONDS, seconds, show
from figura.launch import ALLOCATOR
from models.images.pixel_losses import L1
from models.vunet import blocks, networks
from models.vunet.losses import LatentKL
from models.vunet.networks import VUNet

REFERENCE = {64: 0.34, 128: 1.28, 256: 6.4}
BATCH, THREADS = 4, 2


def full_covariance_noise(mean: Tensor, scale: float) -> Tensor:
    """Draw around `mean` like the PyTorch port: by factorising an identity matrix of the latent's size."""
    flat = mean.flatten(1)
    normal = torch.distributions.MultivariateNormal(torch.zeros_like(flat), torch.eye(flat.shape[1]))
    return mean + scale * normal.sample().view_as(mean)


def concatenated_elu(*parts: Tensor) -> Tensor:
    """ELU of an explicit concatenation."""
    return functional.elu(torch.cat(parts, dim=1) if len(parts) > 1 else parts[0])


def shuffled(x: Tensor) -> Tensor:
    """Depth to space with `pixel_shuffle`, contiguous."""
    n, c, h, w = x.shape
    return functional.pixel_shuffle(x.view(n, 4, c // 4, h, w).transpose(1, 2).reshape(n, c, h, w), 2)


def make_plain() -> None:
    """Replace, in this process, the package's optimisations by plain operations."""
    networks.perturb = full_covariance_noise
    blocks.activate = concatenated_elu
    blocks.depth_to_space = networks.depth_to_space = shuffled
    blocks.Convolution._conv_forward = nn.Conv2d._conv_forward  # type: ignore[assignment,method-assign]


def step_of(size: int, plain: bool) -> tuple[VUNet, Callable[[], None]]:
    """Return the network and a function that takes one optimizer step on fixed random images."""
    torch.manual_seed(0)
    if plain:
        make_plain()
    network = VUNet(image_size=size, nf_start=64, nf_max=128)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, fused=not plain)
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
    """Return the multiply-adds per second of the fastest plain convolution, over forward and backward."""
    best = 0.0
    for channels, side in ((64, 64), (128, 64), (128, 32), (256, 32)):
        image, kernel = torch.rand(BATCH, channels, side, side), torch.rand(channels, channels, 3, 3)
        time = seconds(partial(functional.conv2d, image, kernel, padding=1), budget=1.0)
        best = max(best, BATCH * channels * channels * 9 * side * side / time)
    return best


def measure(size: int, plain: bool) -> dict[str, float]:
    """Return the measurements of one size in this process."""
    torch.set_num_threads(THREADS)
    network, step = step_of(size, plain)
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    madds = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal madds
        assert isinstance(layer, nn.Conv2d)
        madds += output.numel() * layer.weight[0].numel()

    handles = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        network(torch.zeros(BATCH, 3, size, size), torch.zeros(BATCH, 3, size, size))
    for handle in handles:
        handle.remove()
    return {"seconds": seconds(step, budget=3 * SECONDS), "madds": 3 * madds, "peak": peak()}


def profile(size: int) -> None:
    """Print the time of a step by operation."""
    torch.set_num_threads(THREADS)
    _, step = step_of(size, plain=False)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        step()
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=48))


def main() -> None:
    """Print the table; with --profile also the time by operation at 64 px."""
    parser = argparse.ArgumentParser(prog="python -m bench.vunet_step")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(REFERENCE), choices=list(REFERENCE))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--cell", nargs=2, metavar=("SIZE", "KIND"), help="measure one size in this process, print JSON"
    )
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measure(int(args.cell[0]), plain=args.cell[1] == "plain")))
        return
    head: list[object] = [
        "px",
        "allocator",
        "plain s",
        "ours s",
        "plain/ours",
        "stated s",
        "stated/ours",
        "Gmadd/s",
        "peak",
        "share",
    ]
    rows: list[list[object]] = [head]
    for size in args.sizes:
        for name, variables in (("glibc default", {}), ("launch.py", ALLOCATOR)):
            plain, ours = (cell(size, kind, variables) for kind in ("plain", "ours"))
            rate = ours["madds"] / ours["seconds"] / 1e9
            stated, peak_rate = REFERENCE[size], ours["peak"] / 1e9
            times: list[object] = [plain["seconds"], ours["seconds"], plain["seconds"] / ours["seconds"]]
            rows.append([size, name, *times, stated, stated / ours["seconds"], rate, peak_rate, rate / peak_rate])
    show(rows)
    if args.profile:
        profile(64)


def cell(size: int, kind: str, variables: dict[str, str]) -> dict[str, float]:
    """Measure one size in a new process with these environment variables."""
    environment = {key: value for key, value in os.environ.items() if key not in ALLOCATOR} | variables
    command = [sys.executable, "-m", "bench.vunet_step", "--cell", str(size), kind]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()

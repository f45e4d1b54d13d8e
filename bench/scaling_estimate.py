"""Estimates the time of training at the papers' sizes (bench/paper_sizes.py) on 8 to 64 GPUs.

The times are computed from FLOPs, bytes and link speeds, and not measured. A step on n GPUs, with b examples on each:

    T(n, b) = compute(b) + sum over gradients B of 4 B / HBM + send(n, b) + small * ring(0, n)
    send(n, b) = max(ring(last bucket, n), sum over gradients B of ring(B, n) - 2/3 compute(b))
    compute(b) = max(kernels * LAUNCH, b * FLOP an example / (PEAK * UTILISATION))
    ring(B, n) = 2 (m - 1) / m * B / NVLINK + 2 (k - 1) / k * B / network + 2 log2(m) * HOP + 2 log2(k) * FAR_HOP

n GPUs are k machines of m: one ring inside each machine, another between machines (Patarasuk and Yuan, *Bandwidth
optimal all-reduce algorithms*, J. Parallel Distrib. Comput. 2009); the latency is that of a tree, which nccl uses for
few numbers. Gradients travel while backward computes, for which it has 2/3 of the time, all but the last bucket.
4 B are the copies of `GradientAverage`: concatenation and division, each read and written. `small` are the collectives
of a few numbers: one for each step that checks for non-finite values, and two for each batch normalisation. The
optimizer, elementwise work and reading data are left out. FLOPs, kernels (operations other than views), calls of batch
normalisation and bytes come from a dry run (figura/commands/describe/dry_run.py).

Speeds are from data sheets, in one direction: H100 SXM 494.7 TFLOP/s (TF32, dense), 3.35 TB/s, NVLink 4 450 GB/s; one
network port in each machine, 100 GbE 12.5, InfiniBand HDR 25, NDR 50 GB/s. UTILISATION, LAUNCH and hops are
assumptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from bench.paper_sizes import CASES
from bench.precision import recipe
from bench.table import show
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.commands.describe.footprint import size_of
from figura.engine.averaging import BUCKET

MACHINE = 8  # GPUs
PEAK, UTILISATION, LAUNCH = 494.7e12, 0.2, 10e-6  # FLOP/s, fraction of it, seconds for a kernel
HBM, NVLINK = 3.35e12, 450e9  # bytes a second
HOP, FAR_HOP = 3e-6, 10e-6  # seconds
NETWORKS = {"100GbE": 12.5e9, "HDR": 25e9, "NDR": 50e9}  # bytes a second of a machine
GPUS = (8, 16, 32, 64)
TOGETHER = 64  # examples a step in strong scaling
BACKWARD = 2 / 3  # fraction of a step's computation that communication can overlap


@dataclass(frozen=True)
class Job:
    """The work of a recipe's iteration: `batch` is the paper's, `gradients` the bytes that each step averages."""

    batch: int
    flops: float  # an example
    kernels: int
    gradients: tuple[int, ...]
    small: int
    measured: float | None = None  # seconds of a step at `batch`, on one GPU

    def compute(self, examples: float) -> float:
        """Return the seconds of computation on a GPU."""
        launches = self.kernels * LAUNCH
        if self.measured is None:
            return max(launches, examples * self.flops / (PEAK * UTILISATION))
        return max(min(launches, self.measured), self.measured * examples / self.batch)

    def seconds(self, gpus: int, examples: float, network: float, *, overlap: bool = True) -> float:
        """Return T: `examples` on each of `gpus`; without `overlap`, gradients travel after backward."""
        computed = self.compute(examples)
        if gpus == 1:
            return computed
        copied = sum(4 * size / HBM for size in self.gradients)
        moved = sum(ring(size, gpus, network) for size in self.gradients)
        if overlap:
            last = ring(min(BUCKET, self.gradients[-1]), gpus, network)
            moved = max(last, moved - BACKWARD * computed)
        return computed + copied + moved + self.small * ring(0, gpus, network)

    def weak(self, gpus: int, network: float, *, overlap: bool = True) -> float:
        """Return the efficiency with the paper's batch on every GPU."""
        return self.seconds(1, self.batch, network) / self.seconds(gpus, self.batch, network, overlap=overlap)

    def strong(self, gpus: int, network: float) -> float:
        """Return the efficiency with 64 examples on all GPUs together."""
        return self.seconds(1, TOGETHER, network) / self.seconds(gpus, TOGETHER / gpus, network) / gpus


def ring(size: int, gpus: int, network: float) -> float:
    """Return the seconds for `gpus` to sum `size` bytes, with `network` bytes a second between machines."""
    inside = min(gpus, MACHINE)
    machines = gpus // inside
    near = 2 * (inside - 1) / inside * size / NVLINK + 2 * log2(inside) * HOP
    return near + 2 * (machines - 1) / machines * size / network + 2 * log2(machines) * FAR_HOP


class Kernels(TorchDispatchMode):
    """Counts operations other than views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def job(case: str, measured: float | None) -> Job:
    """Return the work of a recipe at its paper's size, from a dry run, which needs one prepared example."""
    asked = recipe(CASES[case], "no", 200, small=False)
    networks = meta_networks(asked)
    normalised = 0

    def count(*_: object) -> None:
        nonlocal normalised
        normalised += 1

    layers: list[nn.Module] = [layer for network in networks.values() for layer in network.modules()]
    for layer in layers:
        if isinstance(layer, _BatchNorm):
            layer.register_forward_hook(count)
    with Kernels() as kernels:
        costs = run_training(asked, networks)
    if costs.notes:
        raise SystemExit(f"{case}: {'; '.join(costs.notes)}")
    flops = (sum(costs.forward.values()) + sum(costs.backward.values())) / costs.batch
    gradients = [sum(size_of(networks[n]).trained_bytes for n in step.trains) for step in asked.steps.values()]
    small = len(asked.steps) + 2 * normalised
    return Job(costs.batch, flops, kernels.count, tuple(gradients), small, measured)


def main(measured: Mapping[str, float]) -> None:
    """Print the inputs of the estimate and the resulting efficiencies."""
    if unknown := measured.keys() - CASES.keys():
        raise SystemExit(f"--step-ms: no {', '.join(unknown)}; there are {', '.join(CASES)}")
    jobs = {name: job(name, measured.get(name)) for name in CASES}
    head = [
        "recipe",
        "batch",
        "GFLOP/example",
        "kernels",
        "gradient MB",
        "small calls",
        "ms/step",
        "from",
        "launches ms",
    ]
    rows: list[list[object]] = [[*head]]
    for name, one in jobs.items():
        source = "FLOP" if one.measured is None else "measured"
        asked = (one.flops / 1e9, one.kernels, sum(one.gradients) / 1e6, one.small)
        rows.append([name, one.batch, *asked, one.compute(one.batch) * 1e3, source, one.kernels * LAUNCH * 1e3])
    show(rows)
    print(f"\nefficiency; weak: the paper's batch on each GPU, strong: {TOGETHER} examples on all; HDR unless stated")
    hdr, most = NETWORKS["HDR"], GPUS[-1]
    others = {name: speed for name, speed in NETWORKS.items() if name != "HDR"}
    afterwards = {"after backward": hdr, "after backward, 100GbE": NETWORKS["100GbE"]}
    sizes = [f"{kind} {gpus}" for kind in ("weak", "strong") for gpus in GPUS]
    rows = [["recipe", *sizes, *(f"weak {most}, {name}" for name in others), *afterwards]]
    for name, one in jobs.items():
        found = [efficiency(gpus, hdr) for efficiency in (one.weak, one.strong) for gpus in GPUS]
        found += [one.weak(most, speed) for speed in others.values()]
        found += [one.weak(most, speed, overlap=False) for speed in afterwards.values()]
        rows.append([name, *(f"{value:.2f}" for value in found)])
    show(rows)

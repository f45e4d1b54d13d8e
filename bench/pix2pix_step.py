"""One training iteration of pix2pix (U-Net, 70 x 70 PatchGAN, instance norm), float32, 2 threads.

`plain` is the same pair of networks as the specification writes it: torch.nn layers on padded tensors, a hand-written loop
that gathers the discriminator's gradients in the generator's step as well, Adam unfused. `ours` is the package's networks
driven by the engine from a recipe of two steps, Adam fused; `fake twice` is the same recipe with the generator called
again in the second step. Each cell runs in a process of its own, with glibc's default memory thresholds and with those of
stages/launch.py. The specification gives 0.56 and 0.29 s for the reference and 0.49 and 0.22 s for its best-known peer, on
a machine it does not name. The last columns set the iteration against this machine's own fastest plain convolution, measured
in the same process: multiply-adds that direct convolutions would need (each network three times its forward where it is
trained, twice where only its input's gradient is asked for) over time. `forwards` counts the generator's, in one iteration
of `ours`.

`python -m bench.pix2pix_step [--sizes 64 256] [--profile]`
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bench.table import SECONDS, seconds, show
from bench.vunet_step import peak
from models.engine.examples import Example, Examples
from models.engine.recipe import check_recipe
from models.engine.trainer import Trainer
from stages.launch import ALLOCATOR

# size: batch, n_downs, seconds of the reference and of its peer
SETTINGS = {256: (1, 6, 0.56, 0.49), 64: (8, 4, 0.29, 0.22)}
KINDS = ("plain", "ours", "fake twice")
THREADS, FEATURES, LEVELS = 2, 64, 4
ADAM = {"lr": 2e-4, "betas": [0.5, 0.999]}
Step = Callable[[], object]


class Noise(Examples):
    """Pairs (3, size, size) of uniform noise in [-1, 1]."""

    names: ClassVar[tuple[str, ...]] = ("x", "y")

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size = length, size

    def __len__(self) -> int:
        return self.length

    def example(self, index: int, random: np.random.Generator) -> Example:
        pair = np.random.default_rng(index).uniform(-1, 1, (2, 3, self.size, self.size)).astype(np.float32)
        return {"x": pair[0], "y": pair[1]}


def level(convolution: nn.Module, width: int, activation: nn.Module, *, norm: bool, drop: bool = False) -> nn.Module:
    """Convolution, norm, activation, dropout, as library layers."""
    layers = [convolution, *([nn.InstanceNorm2d(width)] if norm else []), activation]
    return nn.Sequential(*layers, *([nn.Dropout(0.5)] if drop else []))


def reflecting(inputs: int, outputs: int, *, bias: bool, stride: int = 2) -> nn.Module:
    """4 x 4 convolution with reflected border."""
    return nn.Conv2d(inputs, outputs, 4, stride, padding=1, padding_mode="reflect", bias=bias)


class PlainGenerator(nn.Module):
    """The U-Net of library layers."""

    def __init__(self, n_downs: int) -> None:
        super().__init__()
        c = [min(2**i, 8) * FEATURES for i in range(n_downs + 1)]
        leaky = nn.LeakyReLU(0.2)
        self.downs = nn.ModuleList([level(reflecting(3, c[0], bias=True), c[0], leaky, norm=False)])
        for a, b in pairwise(c):
            self.downs.append(level(reflecting(a, b, bias=False), b, leaky, norm=True))
        self.bottleneck = level(reflecting(c[-1], c[-1], bias=True), c[-1], nn.ReLU(), norm=False)
        self.ups = nn.ModuleList()
        for j, (a, b) in enumerate(zip([c[-1], *(2 * w for w in c[:0:-1])], [c[-1], *c[-2::-1]], strict=True)):
            enlarge = nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False)
            self.ups.append(level(enlarge, b, nn.ReLU(), norm=True, drop=j < 3))
        self.last = level(nn.ConvTranspose2d(2 * c[0], 3, 4, 2, 1), 3, nn.Tanh(), norm=False)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for block in self.downs:
            x = block(x)
            skips.append(x)
        x = self.ups[0](self.bottleneck(x))
        for block in [*list(self.ups)[1:], self.last]:
            x = block(torch.cat([x, skips.pop()], dim=1))
        return x


class PlainDiscriminator(nn.Module):
    """The PatchGAN of library layers."""

    def __init__(self) -> None:
        super().__init__()
        c = [min(2**i, 8) * FEATURES for i in range(LEVELS)]
        leaky = nn.LeakyReLU(0.2)
        layers = [level(reflecting(6, c[0], bias=True), c[0], leaky, norm=False)]
        for i, (a, b) in enumerate(pairwise(c)):
            layers.append(level(reflecting(a, b, bias=False, stride=2 if i < LEVELS - 2 else 1), b, leaky, norm=True))
        self.layers = nn.Sequential(*layers, reflecting(c[-1], 1, bias=True, stride=1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layers(torch.cat([x, y], dim=1))


def adversarial(logits: Tensor, real: bool) -> Tensor:
    """Binary cross-entropy of a map of logits."""
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def plain(size: int) -> tuple[nn.Module, nn.Module, Step]:
    """Return generator, discriminator and an iteration of the specification's section 5."""
    batch, n_downs, *_ = SETTINGS[size]
    generator, judge = PlainGenerator(n_downs), PlainDiscriminator()
    of_generator, of_judge = (torch.optim.Adam(n.parameters(), 2e-4, (0.5, 0.999)) for n in (generator, judge))
    x, y = (torch.rand(batch, 3, size, size) * 2 - 1 for _ in range(2))

    def iteration() -> None:
        fake = generator(x)
        judged = (adversarial(judge(x, y), real=True) + adversarial(judge(x, fake.detach()), real=False)) / 2
        judge.zero_grad()
        judged.backward()
        of_judge.step()
        painted = adversarial(judge(x, fake), real=True) + 100 * (fake - y).abs().mean()
        of_generator.zero_grad()
        painted.backward()
        of_generator.step()

    return generator, judge, iteration


def recipe(size: int, twice: bool) -> dict[str, Any]:
    """Return the content of a recipe of two steps; `twice` calls the generator again in the second."""
    batch, n_downs, *_ = SETTINGS[size]
    noise = {"noise": {"type": "bench.pix2pix_step.Noise", "length": 2 * batch, "size": size}}
    optimizer = {"type": "torch.optim.Adam", **ADAM, "fused": True}

    def paint(name: str) -> dict[str, Any]:
        return {"type": "Forward", "network": "generator", "inputs": {"x": "x"}, "outputs": {"image": name}}

    def judge(image: str, name: str) -> dict[str, Any]:
        inputs = {"x": "x", "y": image}
        return {"type": "Forward", "network": "discriminator", "inputs": inputs, "outputs": {"logits": name}}

    def loss(step: str, target: str, logits: str, weight: float) -> dict[str, Any]:
        kind = {"type": "images.Adversarial", "kind": "vanilla", "role": step, "target": target}
        return {**kind, "inputs": {"logits": logits}, "weight": weight, "step": step}

    painted = "again" if twice else "fake"
    return {
        "seed": 0,
        "data": {"train": noise, "validation": noise, "batch_size": batch},
        "networks": {
            "generator": {"type": "pix2pix.UNetGenerator", "image_size": size, "n_downs": n_downs},
            "discriminator": {"type": "pix2pix.PatchDiscriminator", "n_layers": LEVELS},
        },
        "losses": {
            "D_real": loss("discriminator", "real", "real_logits", 0.5),
            "D_fake": loss("discriminator", "fake", "fake_logits", 0.5),
            "G_GAN": loss("generator", "real", "logits", 1.0),
            "G_L1": {
                "type": "images.L1",
                "inputs": {"image": painted, "target": "y"},
                "weight": 100.0,
                "step": "generator",
            },
        },
        "steps": {
            "discriminator": {
                "trains": ["discriminator"],
                "optimizer": optimizer,
                "injectors": {
                    "paint": paint("fake"),
                    "real": judge("y", "real_logits"),
                    "fake": judge("fake", "fake_logits"),
                },
            },
            "generator": {
                "trains": ["generator"],
                "optimizer": optimizer,
                "injectors": {**({"paint": paint("again")} if twice else {}), "judge": judge(painted, "logits")},
            },
        },
        "train": {"steps": 100, "precision": "no", "record_every": 100, "max_nonfinite": 5},
        "evaluate": {
            "batch_size": batch,
            "inputs": {"y": "image"},
            "modes": {"plain": {"injectors": {"paint": paint("fake")}, "save": {"fake": "image"}}},
        },
        "metrics": {
            "bootstrap": 10,
            "confidence": 0.9,
            "scores": {"fidelity": {"type": "images.Fidelity", "mode": "plain", "image": "fake", "target": "y"}},
        },
        "runtime": {
            "workers": 0, "log_every": 100, "checkpoint_every": 100, "progress": False, "timing": False, "trackers": [],
        },
    }  # fmt: skip


def ours(size: int, folder: Path, twice: bool) -> tuple[nn.Module, nn.Module, Step]:
    """Return generator, discriminator and an iteration by the engine."""
    trainer = Trainer(check_recipe(recipe(size, twice), Path("bench/pix2pix_step.py")), folder)
    batch = {name: torch.rand(SETTINGS[size][0], 3, size, size) * 2 - 1 for name in ("x", "y")}
    live = trainer.networks.live
    return live["generator"], live["discriminator"], lambda: trainer.train_op(batch)


def cost(network: nn.Module, images: tuple[Tensor, ...]) -> float:
    """Return the multiply-adds of a network's convolutions in one forward."""
    madds = 0

    def count(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal madds
        if isinstance(layer, nn.Conv2d):
            madds += output.numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.ConvTranspose2d):
            madds += inputs[0].numel() * layer.weight[0].numel()

    handles = [layer.register_forward_hook(count) for layer in network.modules()]
    with torch.no_grad():
        network(*images)
    for handle in handles:
        handle.remove()
    return madds


def measure(size: int, kind: str) -> dict[str, float]:
    """Return the figures of one size in this process."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    forwards = 0

    def count(*_: object) -> None:
        nonlocal forwards
        forwards += 1

    with tempfile.TemporaryDirectory() as folder:
        made = plain(size) if kind == "plain" else ours(size, Path(folder), kind == "fake twice")
    generator, discriminator, iteration = made
    image = torch.zeros(SETTINGS[size][0], 3, size, size)
    of_generator, of_judge = cost(generator, (image,)), cost(discriminator, (image, image))
    handle = generator.register_forward_hook(count)
    iteration()
    handle.remove()
    found = {"seconds": seconds(iteration, budget=3 * SECONDS), "peak": peak(), "forwards": forwards}
    return found | {"madds": 3 * of_generator + (3 + 3 + 2) * of_judge}


def profile(size: int) -> None:
    """Print where the time of an iteration goes, by operation."""
    torch.set_num_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        *_, iteration = ours(size, Path(folder), twice=False)
    iteration()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        iteration()
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=24, max_name_column_width=48))


def cell(size: int, kind: str, variables: dict[str, str]) -> dict[str, float]:
    """Measure one size in a new process with these environment variables."""
    environment = {key: value for key, value in os.environ.items() if key not in ALLOCATOR} | variables
    command = [sys.executable, "-m", "bench.pix2pix_step", "--cell", str(size), kind]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print the table; with --profile also where the time goes."""
    parser = argparse.ArgumentParser(prog="python -m bench.pix2pix_step")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--profile", action="store_true", help="of the first size only, and nothing else")
    parser.add_argument(
        "--cell", nargs=2, metavar=("SIZE", "KIND"), help="measure one size in this process, print JSON"
    )
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(measure(int(given.cell[0]), given.cell[1])))
        return
    if given.profile:
        profile(given.sizes[0])
        return
    times_of: list[object] = ["px", "batch", "allocator", "plain s", "ours s", "twice s", "plain/ours", "twice/ours"]
    against: list[object] = ["reference s", "peer s", "reference/ours", "peer/ours"]
    rows = [[*times_of, *against, "Gmadd/s", "peak", "share", "forwards"]]
    for size in given.sizes:
        batch, _, reference, peer = SETTINGS[size]
        for name, variables in (("glibc default", {}), ("launch.py", ALLOCATOR)):
            cells = [cell(size, kind, variables) for kind in KINDS]
            times = [found["seconds"] for found in cells]
            own = cells[1]
            rate, fastest = own["madds"] / times[1] / 1e9, own["peak"] / 1e9
            stated = [reference, peer, reference / times[1], peer / times[1]]
            ratios = [times[0] / times[1], times[2] / times[1]]
            rows.append(
                [size, batch, name, *times, *ratios, *stated, rate, fastest, rate / fastest, int(own["forwards"])]
            )
    show(rows)


if __name__ == "__main__":
    main()

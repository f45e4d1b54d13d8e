"""One training iteration of pix2pix (U-Net, 70 x 70 PatchGAN, instance norm), float32, 2 threads.

`plain` has the networks in NectarGAN's style: torch.nn layers on padded tensors, a hand-written loop that also computes
the discriminator's gradients in the generator's step, unfused Adam. `peer-like` makes the choices of
pytorch-CycleGAN-and-pix2pix that matter for speed: zero padding, batch norm, the discriminator frozen in the
generator's step. `ours` are the package's networks driven by the engine from recipes/pix2pix.yaml, with fused Adam;
`fake twice` calls the generator again in the second step. Each cell runs in its own process, with glibc's default
memory thresholds and with those of figura/launch.

`to ours` is time over ours. On another machine NectarGAN took 0.56 and 0.29 s, the peer 0.49 and 0.22 s; `stated/s` is
that over ours. `share` is the speed relative to this machine's fastest plain convolution, measured in the same run:
multiply-adds that direct convolutions would need (three times the forward pass of a trained network, twice that of one
that only passes gradients to its input) over time. `forwards` counts the generator's forward passes in one iteration.

`python -m bench.pix2pix_step [--sizes 64 256] [--profile]`
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from bench.table import SECONDS, seconds, show
from bench.vunet_step import peak
from figura.base.yaml12 import read_yaml
from figura.interfaces import Example, ExampleDataset
from figura.launch import ALLOCATOR
from figura.recipe.load import check_recipe
from figura.training.trainer import Trainer

# size: batch, n_downs, seconds of the reference and of its peer
SETTINGS = {256: (1, 6, 0.56, 0.49), 64: (8, 4, 0.29, 0.22)}
KINDS = ("plain", "peer-like", "ours", "fake twice")
THREADS, FEATURES, LEVELS = 2, 64, 4
ADAM = {"lr": 2e-4, "betas": [0.5, 0.999]}
Step = Callable[[], object]


class Noise(ExampleDataset):
    """Pairs (3, size, size) of uniform noise in [-1, 1]."""

    names: ClassVar[tuple[str, ...]] = ("x", "y")

    def __init__(self, length: int, size: int) -> None:
        self.length, self.size = length, size

    def __len__(self) -> int:
        return self.length

    def example(self, index: int, random: np.random.Generator) -> Example:
        pair = np.random.default_rng(index).uniform(-1, 1, (2, 3, self.size, self.size)).astype(np.float32)
        return {"x": pair[0], "y": pair[1]}


@dataclass(frozen=True)
class Style:
    """The differences between NectarGAN and its peer that matter for speed."""

    norm: type[nn.Module]
    padding: Literal["zeros", "reflect"]
    freezes: bool  # the discriminator in the generator's step

    def level(
        self, convolution: nn.Module, width: int, activation: nn.Module, *, norm: bool, drop: bool = False
    ) -> nn.Module:
        """Convolution, norm, activation, dropout, as library layers."""
        layers = [convolution, *([self.norm(width)] if norm else []), activation]
        return nn.Sequential(*layers, *([nn.Dropout(0.5)] if drop else []))

    def convolution(self, inputs: int, outputs: int, *, bias: bool, stride: int = 2) -> nn.Module:
        """4 x 4 convolution, padded by one pixel."""
        return nn.Conv2d(inputs, outputs, 4, stride, padding=1, padding_mode=self.padding, bias=bias)


STYLES = {
    "plain": Style(nn.InstanceNorm2d, "reflect", freezes=False),
    "peer-like": Style(nn.BatchNorm2d, "zeros", freezes=True),
}


class PlainGenerator(nn.Module):
    """The U-Net of library layers."""

    def __init__(self, style: Style, n_downs: int) -> None:
        super().__init__()
        level, convolution = style.level, style.convolution
        c = [min(2**i, 8) * FEATURES for i in range(n_downs + 1)]
        leaky = nn.LeakyReLU(0.2)
        self.downs = nn.ModuleList([level(convolution(3, c[0], bias=True), c[0], leaky, norm=False)])
        for a, b in pairwise(c):
            self.downs.append(level(convolution(a, b, bias=False), b, leaky, norm=True))
        self.bottleneck = level(convolution(c[-1], c[-1], bias=True), c[-1], nn.ReLU(), norm=False)
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

    def __init__(self, style: Style) -> None:
        super().__init__()
        level, convolution = style.level, style.convolution
        c = [min(2**i, 8) * FEATURES for i in range(LEVELS)]
        leaky = nn.LeakyReLU(0.2)
        layers = [level(convolution(6, c[0], bias=True), c[0], leaky, norm=False)]
        for i, (a, b) in enumerate(pairwise(c)):
            layers.append(level(convolution(a, b, bias=False, stride=2 if i < LEVELS - 2 else 1), b, leaky, norm=True))
        self.layers = nn.Sequential(*layers, convolution(c[-1], 1, bias=True, stride=1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.layers(torch.cat([x, y], dim=1))


def adversarial(logits: Tensor, real: bool) -> Tensor:
    """Binary cross-entropy of a map of logits."""
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def plain(size: int, style: Style) -> tuple[nn.Module, nn.Module, Step]:
    """Return generator, discriminator and a hand-written iteration."""
    batch, n_downs, *_ = SETTINGS[size]
    generator, judge = PlainGenerator(style, n_downs), PlainDiscriminator(style)
    of_generator, of_judge = (torch.optim.Adam(n.parameters(), 2e-4, (0.5, 0.999)) for n in (generator, judge))
    x, y = (torch.rand(batch, 3, size, size) * 2 - 1 for _ in range(2))

    def iteration() -> None:
        fake = generator(x)
        judged = (adversarial(judge(x, y), real=True) + adversarial(judge(x, fake.detach()), real=False)) / 2
        judge.zero_grad()
        judged.backward()
        of_judge.step()
        judge.requires_grad_(not style.freezes)
        painted = adversarial(judge(x, fake), real=True) + 100 * (fake - y).abs().mean()
        of_generator.zero_grad()
        painted.backward()
        of_generator.step()
        judge.requires_grad_(True)

    return generator, judge, iteration


def recipe(size: int, twice: bool) -> dict[str, Any]:
    """Return recipes/pix2pix.yaml's content with Adam, at this size; `twice` calls the generator again in G's step."""
    batch, n_downs, *_ = SETTINGS[size]
    content = read_yaml(Path("recipes/pix2pix.yaml"))
    noise = {"noise": {"type": "bench.pix2pix_step.Noise", "length": 2 * batch, "size": size}}
    content["data"] = {"train": noise, "validation": noise, "batch_size": batch}
    content["networks"] = {
        "generator": {"type": "pix2pix.UNetGenerator", "image_size": size, "n_downs": n_downs},
        "discriminator": {"type": "pix2pix.PatchDiscriminator", "n_layers": LEVELS},
    }
    for step in content["steps"].values():
        step["optimizer"] = {"type": "torch.optim.Adam", **ADAM, "fused": True}
    content["train"]["ema"] = None
    content["runtime"] |= {"trackers": [], "progress": False, "samples": None}
    if twice:
        again = content["steps"]["D"]["injectors"]["translate"] | {"outputs": {"image": "again"}}
        judge = content["steps"]["G"]["injectors"]["judge"]
        judge["inputs"]["y"] = content["losses"]["G_L1"]["inputs"]["image"] = "again"
        content["steps"]["G"]["injectors"] = {"translate": again, "judge": judge}
    return content


def ours(size: int, folder: Path, twice: bool) -> tuple[nn.Module, nn.Module, Step]:
    """Return generator, discriminator and an iteration by the engine."""
    trainer = Trainer(check_recipe(recipe(size, twice), Path("bench/pix2pix_step.py")), folder)
    batch = {name: torch.rand(SETTINGS[size][0], 3, size, size) * 2 - 1 for name in ("x", "y")}
    live = trainer.networks.live
    return live["generator"], live["discriminator"], lambda: trainer.train_op(batch)


def cost(network: nn.Module, images: tuple[Tensor, ...]) -> float:
    """Return the multiply-adds of a network's convolutions in one forward pass."""
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
    """Return the measurements of one size in this process."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    forwards = 0

    def count(*_: object) -> None:
        nonlocal forwards
        forwards += 1

    with tempfile.TemporaryDirectory() as folder:
        made = plain(size, STYLES[kind]) if kind in STYLES else ours(size, Path(folder), kind == "fake twice")
    generator, discriminator, iteration = made
    image = torch.zeros(SETTINGS[size][0], 3, size, size)
    of_generator, of_judge = cost(generator, (image,)), cost(discriminator, (image, image))
    handle = generator.register_forward_hook(count)
    iteration()
    handle.remove()
    found = {"seconds": seconds(iteration, budget=3 * SECONDS), "peak": peak(), "forwards": forwards}
    return found | {"madds": 3 * of_generator + (3 + 3 + 2) * of_judge}


def profile(size: int) -> None:
    """Print the time of an iteration by operation."""
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
    """Print the table; with --profile also the time by operation."""
    parser = argparse.ArgumentParser(prog="python -m bench.pix2pix_step")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--profile", action="store_true", help="of the first size only, and nothing else")
    parser.add_argument(
        "--cell", nargs=2, metavar=("SIZE", "KIND"), help="measure one size in this process, print JSON"
    )
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measure(int(args.cell[0]), args.cell[1])))
        return
    if args.profile:
        profile(args.sizes[0])
        return
    rows: list[list[object]] = [
        ["px", "batch", "allocator", "", "s", "to ours", "stated s", "stated/s", "share", "forwards"]
    ]
    for size in args.sizes:
        batch, _, reference, peer = SETTINGS[size]
        stated = {"plain": reference, "peer-like": peer}
        for name, variables in (("glibc default", {}), ("launch.py", ALLOCATOR)):
            cells = {kind: cell(size, kind, variables) for kind in KINDS}
            own = cells["ours"]["seconds"]
            for kind, found in cells.items():
                time = found["seconds"]
                share = found["madds"] / time / max(one["peak"] for one in cells.values())
                against = [stated[kind], stated[kind] / own] if kind in stated else ["", ""]
                rows.append([size, batch, name, kind, time, time / own, *against, share, int(found["forwards"])])
    show(rows)


if __name__ == "__main__":
    main()

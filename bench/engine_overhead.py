"""The engine's overhead over a bare PyTorch loop with the same work: the step of params.yaml on fixed batches.

Both run alternately in one process, with the same network, losses, optimizer, clipping, schedule and moving average;
the engine also records losses, counts, and checks for non-finite values. `python -m bench.engine_overhead`
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bench.fixed_batch import quiet
from bench.table import show
from figura.optimizers.muon import Muon
from figura.recipe.load import load_recipe
from figura.recipe.schema import Recipe
from figura.schedules import Cosine, Linear, WarmUp
from models.images.pixel_losses import L1, L2
from models.vunet.losses import LatentKL
from models.vunet.networks import VUNet

ROUNDS, STEPS = 12, 20


def bare() -> Callable[[dict[str, Any]], None]:
    """Return one iteration of params.yaml's training, written by hand."""
    torch.manual_seed(0)
    network = VUNet(image_size=64, nf_start=16, nf_max=32, initialisation="fan_in")
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = Muon(network.parameters(), lr=2e-3, rest_lr=1e-3)
    rate, ramp, noise = (
        WarmUp(30, Cosine(500, 2500, 1.0, 0.0)),
        Linear(500, 1750, 0.0, 1.0),
        Linear(500, 1750, 0.1, 1.0),
    )
    absolute, square, latent = L1(background=0.2), L2(background=0.2), LatentKL(unit="nats_per_element")
    done = 0

    def iteration(batch: dict[str, Any]) -> None:
        nonlocal done
        for group, base in zip(optimizer.param_groups, (2e-3, 1e-3), strict=True):
            group["lr"] = base * rate(done)
        found = network(batch["pose"], batch["appearance"], mode="train", noise_scale=noise(done))
        pixels = {"image": found["image"], "target": batch["target"], "mask": batch["mask"]}
        kl = latent(posterior=found["q_means"], prior=found["p_means"], image=batch["target"])
        loss = 12 * absolute(**pixels).mean() + 24 * square(**pixels).mean() + ramp(done) * kl.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 3.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(network)
        done += 1

    return iteration


def engine(folder: Path, recipe: Recipe) -> Callable[[dict[str, Any]], None]:
    """Return one iteration of a recipe through the engine, including hooks and records."""
    trainer = quiet(recipe, folder)

    def iteration(batch: dict[str, Any]) -> None:
        trainer.iterate(batch, 1)

    return iteration


def main() -> None:
    """Print medians and their ratio."""
    torch.set_num_threads(2)
    random = torch.Generator().manual_seed(0)
    names = ("pose", "appearance", "target")
    batch = {name: torch.rand(4, 3, 64, 64, generator=random) * 2 - 1 for name in names}
    batch["mask"] = (torch.rand(4, 1, 64, 64, generator=random) > 0.5).float()
    times: dict[str, list[float]] = {"bare loop": [], "engine": []}
    with tempfile.TemporaryDirectory() as folder:
        iterations = {"bare loop": bare(), "engine": engine(Path(folder), load_recipe(Path("params.yaml")))}
        for turn in range(ROUNDS + 1):
            for name, iteration in iterations.items():
                start = time.perf_counter()
                for _ in range(STEPS):
                    iteration(batch)
                if turn:  # the first round warms up
                    times[name].append((time.perf_counter() - start) / STEPS)
    ratios = [e / b for e, b in zip(times["engine"], times["bare loop"], strict=True)]
    base = statistics.median(times["bare loop"])
    rows: list[list[object]] = [["", "ms/step", "ratio to bare"], ["bare loop", base * 1e3, 1.0]]
    rows.append(["engine", statistics.median(times["engine"]) * 1e3, statistics.median(ratios)])
    show(rows)


if __name__ == "__main__":
    main()

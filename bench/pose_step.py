"""One training step of recipes/pose.yaml with and without its data pipeline: images per second, share of the peak.

`step` repeats one batch; `with data` reads, warps and encodes each batch in the same process, like the recipe's
`workers: 0`. Multiply-adds are three times those of a forward pass; the peak is this machine's fastest plain
convolution, measured in the same process.

`python -m bench.pose_step [--threads 2] [--backbone small] [--side 161]`, after `dvc repro prepare@people`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.table import SECONDS, seconds, show
from bench.vunet_step import peak
from models.base.yaml12 import read_yaml
from models.recipe.load import check_recipe
from models.training.trainer import Trainer

RECIPE = Path("recipes/pose.yaml")


def multiply_adds(network: nn.Module, image: Tensor) -> float:
    """Return the multiply-adds of a network's convolutions in one forward pass."""
    total = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal total
        assert isinstance(layer, nn.Conv2d)
        total += output.numel() * layer.weight[0].numel()

    handles = [m.register_forward_hook(count) for m in network.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        network(image)
    for handle in handles:
        handle.remove()
    return total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.pose_step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--backbone", default="small")
    parser.add_argument("--side", type=int, default=161)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    content: dict[str, Any] = read_yaml(RECIPE)
    content["networks"]["network"]["backbone"] = {"name": args.backbone}
    for split in ("train", "validation"):
        content["data"][split]["scenes"]["side"] = args.side
    content["runtime"] |= {"trackers": [], "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(check_recipe(content, RECIPE), Path(folder))
    batches = iter(trainer.loaders.train(0))
    batch = next(batches)
    size = len(batch["image"])
    madds = 3 * multiply_adds(trainer.networks.live["network"], batch["image"])
    times = {
        "data": seconds(lambda: next(batches), budget=2 * SECONDS),
        "step": seconds(lambda: trainer.train_op(batch), budget=4 * SECONDS),
        "with data": seconds(lambda: trainer.train_op(next(batches)), budget=4 * SECONDS),
    }
    fastest = peak()
    rows: list[list[object]] = [["", "ms a batch", "images/s", "ratio to step", "Gmadd/s", "share of peak"]]
    for name, time in times.items():
        rate = madds / time if name != "data" else 0.0
        rows.append([name, time * 1e3, size / time, time / times["step"], rate / 1e9, rate / fastest])
    show(rows)


if __name__ == "__main__":
    main()

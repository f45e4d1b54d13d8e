"""Forward passes of the published pose network and the default ones, by PyTorch and by onnxruntime, in turns.

Usage: python -m bench.onnxruntime_forward [--rounds 3]     (needs: pip install onnx onnxruntime onnxscript)

Networks have random weights and run as eval-dump runs them, without decoding; the allocator is set as by figura/launch.
onnxruntime takes as many threads as PyTorch. `ms an image` are medians over rounds, the ratio is PyTorch's over
onnxruntime's, below 1 is faster, and `difference` the largest one of any output. pix2pix is left out: the exporter that
is used here does not know `fold`; `figura export` uses the newer one.
"""

import argparse
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.before_after_cell import POSE, VUNET, Forward, pose
from bench.table import seconds, show
from figura.base.modes import evaluating
from figura.engine.build import build_networks
from figura.interfaces import Networks, State
from figura.launch import allocator, set_allocator

HERE = Path(__file__).absolute().parents[1]
SMALL = (1, 3, 64, 64)
CASES = {
    "published pose, 385 px x 8": pose(8),
    "published pose, 385 px x 1": pose(1),
    "pose, 193 px x 1": Forward(POSE, [], "poses", {"image": (1, 3, 193, 193)}),
    "vunet, 64 px x 1": Forward(VUNET, [], "reconstruction", {"pose": SMALL, "target": SMALL}),
    "super_resolution, 96 px x 1": Forward(
        Path("recipes/super_resolution.yaml"), [], "upscaling", {"lq": (1, 3, 96, 96)}
    ),
}  # fmt: skip


class Mode(nn.Module):
    """The tensors that the networks of a mode add, given its inputs in the order of `names`."""

    def __init__(self, case: Forward) -> None:
        super().__init__()
        recipe = case.recipe(HERE)
        self.networks = nn.ModuleDict(build_networks(recipe))
        self.injectors, self.names = case.injectors(recipe), list(case.shapes)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """Return all tensors, in the order of their names."""
        state = State(dict(zip(self.names, inputs, strict=True)))
        networks = {str(name): network for name, network in self.networks.items()}
        for injector in self.injectors.values():
            injector(state, Networks(networks, networks), 1)
        return [value for name, value in state.items() if name not in self.names and isinstance(value, Tensor)]


def exported_run(mode: Mode, inputs: list[Tensor]) -> Callable[[], list[Any]]:
    """Return the function that runs the mode in onnxruntime."""
    import onnxruntime

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        file = Path(folder) / "mode.onnx"
        torch.onnx.export(mode, tuple(inputs), file, input_names=mode.names, dynamo=False)
        content = file.read_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    feed = {one.name: tensor.numpy() for one, tensor in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: list(session.run(None, feed))


def row(name: str, case: Forward, rounds: int) -> list[object]:
    """Return a row of the table."""
    random = torch.Generator().manual_seed(0)
    inputs = [torch.rand(shape, generator=random) * 2 - 1 for shape in case.shapes.values()]
    mode = Mode(case).eval()
    images = len(inputs[0])
    with evaluating(mode):
        run = exported_run(mode, inputs)
        pairs = list(zip(mode(*inputs), run(), strict=True))
        difference = max(float((ours - torch.from_numpy(theirs)).abs().max()) for ours, theirs in pairs)
        times = [[seconds(one, budget=2.0) for one in (lambda: mode(*inputs), run)] for _ in range(rounds)]
    ours, theirs = (1e3 * statistics.median(one) / images for one in zip(*times, strict=True))
    return [name, ours, theirs, statistics.median(a / b for a, b in times), f"{difference:.1g}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.onnxruntime_forward")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    set_allocator(allocator())
    rows: list[list[object]] = [["forward", "PyTorch, ms an image", "onnxruntime", "ratio", "difference"]]
    for name, case in CASES.items():
        rows.append(row(name, case, args.rounds))
    show(rows)


if __name__ == "__main__":
    main()

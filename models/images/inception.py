"""Inception-v3 (Szegedy et al., CVPR 2016) up to its 2048 pooled features, in FID's variant. Never trained.

The Frechet Inception distance is defined by one network: TensorFlow's graph of 2015-12-05. It differs from the paper in
the pools of its mixed blocks: averages exclude the padding, and the last block uses a maximum instead of an average.
Parameters have the names of the usual PyTorch port: `Conv2d_1a_3x3.conv.weight`,
`Mixed_7c.branch3x3_2a.bn.running_var`, ... The same architecture with other weights (such as torchvision's) has the
same names and shapes but different features: distances between those are not comparable with published ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .weight_files import WeightFile

SIZE = 299
UNUSED = ("fc.", "AuxLogits.")  # classifiers, which a file may contain
COUNTER = ".num_batches_tracked"  # training state of batch normalisation
PUBLISHED = "pt_inception-2015-12-05-6726825d"
REMEDY = (
    f"give `weights` the path of FID's weights in safetensors. They are published as {PUBLISHED}.pth at "
    f"https://github.com/mseitzer/pytorch-fid/releases/tag/fid_weights; once, where that file lies, run\n"
    '  python -c "import torch, safetensors.torch as s; '
    f"w = torch.load('{PUBLISHED}.pth', weights_only=True); "
    f"s.save_file({{k: v.contiguous() for k, v in w.items()}}, '{PUBLISHED}.safetensors')\""
)
WEIGHTS = WeightFile("Inception-v3 weights", REMEDY)


@dataclass(frozen=True)
class Unit:
    """A convolution without bias, batch normalisation and ReLU; with stride 1 and `padded`, the size is kept."""

    name: str
    outputs: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    padded: bool = True


Pool = Literal["average", "max", "halve"]
Step = Unit | Pool | tuple[Unit, Unit]  # a pair reads the same input, and its outputs are concatenated
Branch = Sequence[Step]

STEM: Branch = (
    Unit("Conv2d_1a_3x3", 32, (3, 3), stride=2),
    Unit("Conv2d_2a_3x3", 32, (3, 3), padded=False),
    Unit("Conv2d_2b_3x3", 64, (3, 3)),
    "halve",
    Unit("Conv2d_3b_1x1", 80),
    Unit("Conv2d_4a_3x3", 192, (3, 3), padded=False),
    "halve",
)


def _at_35(pooled: int) -> list[Branch]:
    return [
        [Unit("branch1x1", 64)],
        [Unit("branch5x5_1", 48), Unit("branch5x5_2", 64, (5, 5))],
        [Unit("branch3x3dbl_1", 64), Unit("branch3x3dbl_2", 96, (3, 3)), Unit("branch3x3dbl_3", 96, (3, 3))],
        ["average", Unit("branch_pool", pooled)],
    ]


def _at_17(width: int) -> list[Branch]:
    names = [f"branch7x7dbl_{number}" for number in range(1, 6)]
    return [
        [Unit("branch1x1", 192)],
        [Unit("branch7x7_1", width), Unit("branch7x7_2", width, (1, 7)), Unit("branch7x7_3", 192, (7, 1))],
        [
            Unit(names[0], width),
            Unit(names[1], width, (7, 1)),
            Unit(names[2], width, (1, 7)),
            Unit(names[3], width, (7, 1)),
            Unit(names[4], 192, (1, 7)),
        ],
        ["average", Unit("branch_pool", 192)],
    ]


def _at_8(pool: Pool) -> list[Branch]:
    return [
        [Unit("branch1x1", 320)],
        [Unit("branch3x3_1", 384), (Unit("branch3x3_2a", 384, (1, 3)), Unit("branch3x3_2b", 384, (3, 1)))],
        [
            Unit("branch3x3dbl_1", 448),
            Unit("branch3x3dbl_2", 384, (3, 3)),
            (Unit("branch3x3dbl_3a", 384, (1, 3)), Unit("branch3x3dbl_3b", 384, (3, 1))),
        ],
        [pool, Unit("branch_pool", 192)],
    ]


# The outputs of a block's branches are concatenated in this order.
MIXED: Mapping[str, Sequence[Branch]] = {
    "Mixed_5b": _at_35(32),
    "Mixed_5c": _at_35(64),
    "Mixed_5d": _at_35(64),
    "Mixed_6a": [  # from 35 to 17 pixels
        [Unit("branch3x3", 384, (3, 3), stride=2)],
        [Unit("branch3x3dbl_1", 64), Unit("branch3x3dbl_2", 96, (3, 3)), Unit("branch3x3dbl_3", 96, (3, 3), stride=2)],
        ["halve"],
    ],
    "Mixed_6b": _at_17(128),
    "Mixed_6c": _at_17(160),
    "Mixed_6d": _at_17(160),
    "Mixed_6e": _at_17(192),
    "Mixed_7a": [  # from 17 to 8 pixels
        [Unit("branch3x3_1", 192), Unit("branch3x3_2", 320, (3, 3), stride=2)],
        [
            Unit("branch7x7x3_1", 192),
            Unit("branch7x7x3_2", 192, (1, 7)),
            Unit("branch7x7x3_3", 192, (7, 1)),
            Unit("branch7x7x3_4", 192, (3, 3), stride=2),
        ],
        ["halve"],
    ],
    "Mixed_7b": _at_8("average"),
    "Mixed_7c": _at_8("max"),
}


def pool(x: Tensor, kind: Pool) -> Tensor:
    """3 x 3 pooling: `average` (without the padding) and `max` of stride 1; `halve`, a max of stride 2."""
    if kind == "average":
        return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return F.max_pool2d(x, 3, stride=1, padding=1) if kind == "max" else F.max_pool2d(x, 3, stride=2)


class Convolution(nn.Module):
    """The module of a `Unit`."""

    def __init__(self, inputs: int, unit: Unit) -> None:
        super().__init__()
        padding = (unit.kernel[0] // 2, unit.kernel[1] // 2) if unit.padded and unit.stride == 1 else (0, 0)
        self.conv = nn.Conv2d(inputs, unit.outputs, unit.kernel, unit.stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(unit.outputs, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class Mixed(nn.Module):
    """Parallel branches, concatenated along the channels; `outputs` is the number of channels."""

    def __init__(self, inputs: int, branches: Sequence[Branch]) -> None:
        super().__init__()
        self.branches, self.outputs = branches, 0
        for branch in branches:
            width = inputs
            for step in branch:
                if isinstance(step, str):
                    continue
                units = (step,) if isinstance(step, Unit) else step
                for unit in units:
                    self.add_module(unit.name, Convolution(width, unit))
                width = sum(unit.outputs for unit in units)
            self.outputs += width

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self._along(branch, x) for branch in self.branches], dim=1)

    def _along(self, branch: Branch, x: Tensor) -> Tensor:
        for step in branch:
            if isinstance(step, str):
                x = pool(x, step)
            elif isinstance(step, Unit):
                x = self.get_submodule(step.name)(x)
            else:
                x = torch.cat([self.get_submodule(unit.name)(x) for unit in step], dim=1)
        return x


class Inception(Mixed):
    """Images (N, 3, H, W) in [-1, 1] to the features (N, 2048) whose statistics FID compares.

    The stem is a block of one branch, and its units are submodules of this module; the mixed blocks follow.
    """

    def __init__(self) -> None:
        super().__init__(3, [STEM])
        width = self.outputs
        for name, branches in MIXED.items():
            block = Mixed(width, branches)
            self.add_module(name, block)
            width = block.outputs

    def forward(self, x: Tensor) -> Tensor:
        # Bilinear without antialiasing, pixel centres aligned, like FID's ports.
        x = super().forward(F.interpolate(x, size=(SIZE, SIZE), mode="bilinear", align_corners=False))
        for name in MIXED:
            x = self.get_submodule(name)(x)
        return x.mean(dim=(2, 3))


def load(path: str | Path) -> Inception:
    """Return the network with weights from a safetensors file, frozen and in evaluation mode.

    The file has the names and shapes of the PyTorch port; its classifiers (`fc.*`, `AuxLogits.*`) and counters
    (`*.num_batches_tracked`) are ignored. Raises UserError if the file is missing, is not in safetensors format, or is
    for another network.
    """
    with torch.device("meta"):  # saves memory and random draws for weights that are replaced
        network = Inception()
    counters = {name for name in network.state_dict() if name.endswith(COUNTER)}
    wanted = {name: tuple(w.shape) for name, w in network.state_dict().items() if name not in counters}
    state = WEIGHTS.read(Path(path), wanted, lambda name: name.startswith(UNUSED) or name.endswith(COUNTER))
    state |= {name: torch.zeros((), dtype=torch.long) for name in counters}
    network.load_state_dict(state, assign=True)
    return network.eval().requires_grad_(False)

"""A loss for images of people in a given pose, measured by a trained pose network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from figura.base.checksums import refuse_damaged
from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.engine.weights import load_weights
from figura.interfaces import Loss
from figura.recipe.schema import NetworkEntry
from figura.recipe.types import checked_call
from models.images.example_means import at_least_float32
from models.images.vgg import MEAN, STD, as_rgb, of_channels
from models.pose.argument_types import Deviations, NonNegative, Side, skeleton_of
from models.pose.heads import CompositeHead
from models.pose.pose_network import PoseNetwork

HALF_SIDE = 2.0  # cells: the 4 x 4 cells around a joint should detect it, as in training (`encoders`)
VISIBLE = 2
TYPE = "pose.PoseNetwork"


class AskedPose(Loss):
    """Distance between the joints that a trained pose network finds in an image and the target joints.

    For each joint of visibility 2, with the joint confidence field's logits c and predicted positions q in cells, and N
    the 4 x 4 cells around the target position p:

        (sum over N of softplus(-c) + sum over all other cells of softplus(c)) / |N|
            + `place` · (mean over N of |q - p|)

    The loss is the mean over these joints, or 0 if there are none: the cross-entropy of OpenPifPaf's confidences and
    the distances of its vectors (Kreiss, Bertoni and Alahi, CVPR 2019, section 3.2), without the network's own
    uncertainty. Joints that are hidden in the target pose (visibility 1) are skipped: a correct image hides them.

    Args:
        network: model folder of a trained `pose.PoseNetwork` with a head named `cif`: a copy of `runs/pose/model`, for
            example in `weights/vunet/losses`. It is loaded on first use and stays frozen.
        side: pixels to resize the longer side to; None: as in the network's training data.
        place: weight of the distances, 0 or more.
        mean: of the network's input images in [0, 1].
        std: of the same.

    Raises:
        UserError: on first use, if the folder has no such network, or its joints differ from the images'.
    """

    def __init__(
        self, *, network: str, side: Side | None = None, place: NonNegative = 1.0,
        mean: tuple[float, float, float] = MEAN, std: Deviations = STD,
    ) -> None:  # fmt: skip
        super().__init__()
        self.folder, self.side, self.place, self.mean, self.std = Path(network), side, place, mean, std
        self._reader: _Reader | None = None  # not a submodule: it is not trained, saved or counted

    def forward(self, *, image: Tensor, joints: Tensor) -> Tensor:  # type: ignore[override]
        """Images (N, 3 or 1, H, W) in [-1, 1]; joints (N, K, 3): x, y in pixels, visibility 0 to 2; returns (N,)."""
        if self._reader is None:
            self._reader = _Reader(self.folder, self.side)
        reader, longer = self._reader.to(image.device), max(image.shape[-2:])
        if joints.shape[1:] != (len(reader.joints), 3):
            raise UserError(
                f"{self.folder}: finds {len(reader.joints)} joints ({', '.join(reader.joints)}); found joints of shape "
                f"{tuple(joints.shape)}; name a network of the same joints"
            )
        mean, std = (of_channels(one, image) for one in (self.mean, self.std))
        normalised = ((as_rgb(at_least_float32(image)) + 1) / 2 - mean) / std
        logits, vectors = reader.fields(enlarged(normalised, reader.side, reader.stride))
        # 0 is the centre of the first pixel, before and after resizing
        cells = joints[..., :2] * ((reader.side - 1) / (longer - 1) / reader.cell)
        costs = joint_costs(logits, vectors, cells, self.place)
        asked = (joints[..., 2] >= VISIBLE).to(costs.dtype)
        return (costs * asked).sum(dim=1) / asked.sum(dim=1).clamp_min(1)


def enlarged(images: Tensor, side: int, stride: int) -> Tensor:
    """Resize images (N, 3, H, W) bilinearly, the longer side to `side`; pad to a multiple of `stride` plus one.

    The centres of the corner pixels stay in the corners. The padding, at the right and bottom, is 0.
    """
    height, width = images.shape[-2:]
    scale = (side - 1) / (max(height, width) - 1)
    rows, columns = (round((n - 1) * scale) + 1 for n in (height, width))
    resized = F.interpolate(images, (rows, columns), mode="bilinear", align_corners=True)
    return F.pad(resized, (0, -(columns - 1) % stride, 0, -(rows - 1) % stride))


def joint_costs(logits: Tensor, vectors: Tensor, joints: Tensor, place: float) -> Tensor:
    """Return the formula of `AskedPose` for each joint, (N, K).

    Args:
        logits: (N, K, h, w), of confidences.
        vectors: (N, K, 2, h, w), x and y from a cell to the joint, in cells.
        joints: (N, K, 2), x and y in cells. A joint outside the image should not be detected.
        place: weight of the distances.
    """
    rows, columns = (torch.arange(n, device=logits.device, dtype=logits.dtype) for n in logits.shape[-2:])
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"))  # (2, h, w)
    missing = joints.to(logits.dtype)[..., None, None] - grid  # from each cell to the target
    near = (missing.abs() < HALF_SIDE).all(dim=2)
    count = near.sum(dim=(2, 3)).clamp_min(1)
    confidence = torch.where(near, F.softplus(-logits), F.softplus(logits)).sum(dim=(2, 3)) / count
    # the epsilon keeps the gradient finite at a distance of 0
    distance = ((vectors - missing).square().sum(dim=2) + 1e-6).sqrt()
    return confidence + place * torch.where(near, distance, 0).sum(dim=(2, 3)) / count


class _Reader:
    """A trained pose network: its joints, input size, and stride of its cells."""

    def __init__(self, folder: Path, side: int | None) -> None:
        content, facts, name = _recipe(folder)
        self.joints = skeleton_of(facts.get("skeleton")).keypoints
        settings = NetworkEntry(**content["networks"][name]).arguments
        from_data = {key: facts.get(key) for key in PoseNetwork.from_data}
        self.network = checked_call(PoseNetwork, from_data | settings, f"{folder}/recipe.yaml: networks.{name}")
        head = dict(self.network.head_nets.items()).get("cif")
        if not isinstance(head, CompositeHead) or head.fields != len(self.joints):
            raise UserError(f"{folder}: its network has no head named cif with a field for each joint")
        # a shared log-scale logit comes first
        self.confidence = 1 if head.layout.log_scales == "shared" else 0
        self.side, self.stride = _side(folder, side, facts), self.network.stride
        self.cell = self.network.head_strides["cif"]
        load_weights(self.network, folder / f"{name}.safetensors")
        self.network.eval().requires_grad_(requires_grad=False)

    def to(self, device: torch.device) -> "_Reader":
        """Move the network."""
        if next(self.network.parameters()).device != device:
            self.network.to(device)
        return self

    def fields(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return confidence logits (N, K, h, w) and vectors in cells (N, K, 2, h, w) of normalised images."""
        cif = self.network(images)["cif"]
        return cif[:, :, self.confidence], cif[:, :, self.confidence + 1 : self.confidence + 3]


def _recipe(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """Return the content of a model folder's recipe, its facts, and the name of its pose network."""
    path = folder / "recipe.yaml"
    if not path.is_file():
        raise UserError(f"{folder}: holds no trained network; copy runs/pose/model of `dvc repro` there")
    refuse_damaged(path)
    content = read_yaml(path)
    networks = content.get("networks")
    types = {name: one.get("type") for name, one in networks.items()} if isinstance(networks, dict) else {}
    names = [name for name, kind in types.items() if kind == TYPE]
    if len(names) != 1:
        raise UserError(f"{path}: networks: found {types or 'none'}; one {TYPE} is needed")
    return content, content.get("facts", {}), names[0]


def _side(folder: Path, side: int | None, facts: Mapping[str, Any]) -> int:
    if side is None and not isinstance(facts.get("side"), int):
        raise UserError(f"{folder}: the side of its training data is not known; write the loss's `side`, in pixels")
    return int(facts["side"] if side is None else side)

"""The loss of pictures of people who should take a pose: a trained pose network reads them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from data.formats.skeletons import COCO, skeleton_from
from models.base.checksums import refuse_damaged
from models.base.errors import UserError
from models.base.yaml12 import read_yaml
from models.images.losses.pixel import at_least_float32
from models.images.networks.vgg import MEAN, STD, as_rgb
from models.images.networks.weight_files import WeightFile
from models.interfaces import Loss
from models.pose.networks.heads import CompositeHead
from models.pose.networks.pose_network import PoseNetwork
from models.recipe.schema import NetworkEntry
from models.recipe.types import checked_call

HALF_SIDE = 2.0  # cells: a joint is to be found by the 4 x 4 cells around it, as in training (`encoders`)
VISIBLE = 2
TYPE = "pose.PoseNetwork"


class AskedPose(Loss):
    """How far the joints that a trained pose network reads in a picture are from those that were asked for.

    For each joint of visibility 2, with the joint confidence field's logits c and predicted places q in cells, and N
    the 4 x 4 cells around the asked place p:

        (sum over N of softplus(-c) + sum over all other cells of softplus(c)) / |N|
            + `place` · (mean over N of |q - p|)

    The loss is the mean over these joints, 0 without any: the cross-entropy of OpenPifPaf's confidences and the
    distances of its vectors (Kreiss, Bertoni and Alahi, CVPR 2019, section 3.2), without the network's own uncertainty.
    Joints that are hidden in the asked pose (visibility 1) are left out: who draws them right hides them.

    Args:
        network: model folder of a trained `pose.PoseNetwork` with a head named `cif`: a copy of `runs/pose/model`, say
            in `weights/vunet/losses`. It is loaded on first use, and stays as it is.
        side: pixels that the longer side of a picture becomes; None: as many as the network's training data have.
        place: weight of the distances, 0 or more.
        mean: of the network's pictures in [0, 1].
        std: of these.

    Raises:
        ValueError: for arguments out of range.
        UserError: on first use, for a folder without such a network, or for other joints than the pictures'.
    """

    def __init__(
        self, *, network: str, side: int | None = None, place: float = 1.0,
        mean: tuple[float, float, float] = MEAN, std: tuple[float, float, float] = STD,
    ) -> None:  # fmt: skip
        super().__init__()
        if (side is not None and side < 2) or not 0 <= place < math.inf or min(std) <= 0:
            raise ValueError(
                f"side {side}, place {place}, std {std}: null or at least 2, 0 or more, and above 0 are needed"
            )
        self.folder, self.side, self.place, self.mean, self.std = Path(network), side, place, mean, std
        self._reader: _Reader | None = None  # no module's child: it is not trained, saved or counted

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
        mean, std = (image.new_tensor(one).view(3, 1, 1) for one in (self.mean, self.std))
        normalised = ((as_rgb(at_least_float32(image)) + 1) / 2 - mean) / std
        logits, vectors = reader.fields(enlarged(normalised, reader.side, reader.stride))
        # 0 is the centre of the first pixel, before and after
        cells = joints[..., :2] * ((reader.side - 1) / (longer - 1) / reader.cell)
        costs = joint_costs(logits, vectors, cells, self.place)
        asked = (joints[..., 2] >= VISIBLE).to(costs.dtype)
        return (costs * asked).sum(dim=1) / asked.sum(dim=1).clamp_min(1)


def enlarged(images: Tensor, side: int, stride: int) -> Tensor:
    """Resize images (N, 3, H, W) bilinearly, the longer side to `side`; pad to a multiple of `stride` plus one.

    The centres of the corners' pixels stay in the corners. The padding, right and below, is 0.
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
        joints: (N, K, 2), x and y in cells. A joint outside of the picture is to be found nowhere.
        place: weight of the distances.
    """
    rows, columns = (torch.arange(n, device=logits.device, dtype=logits.dtype) for n in logits.shape[-2:])
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"))  # (2, h, w)
    missing = joints.to(logits.dtype)[..., None, None] - grid  # from each cell to the asked place
    near = (missing.abs() < HALF_SIDE).all(dim=2)
    count = near.sum(dim=(2, 3)).clamp_min(1)
    confidence = torch.where(near, F.softplus(-logits), F.softplus(logits)).sum(dim=(2, 3)) / count
    # the small number keeps the gradient of a distance of 0 finite
    distance = ((vectors - missing).square().sum(dim=2) + 1e-6).sqrt()
    return confidence + place * torch.where(near, distance, 0).sum(dim=(2, 3)) / count


class _Reader:
    """A trained pose network that reads pictures: its joints, the side of its pictures, and the stride of its cells."""

    def __init__(self, folder: Path, side: int | None) -> None:
        content, facts, name = _recipe(folder)
        skeleton = facts.get("skeleton")
        self.joints = (COCO if skeleton is None else skeleton_from(skeleton)).keypoints
        settings = NetworkEntry(**content["networks"][name]).arguments
        from_data = {key: facts.get(key) for key in PoseNetwork.from_data}
        self.network = checked_call(PoseNetwork, from_data | settings, f"{folder}/recipe.yaml: networks.{name}")
        head = dict(self.network.head_nets.items()).get("cif")
        if not isinstance(head, CompositeHead) or head.fields != len(self.joints):
            raise UserError(f"{folder}: its network has no head named cif with a field for each joint")
        # the log-scale logit comes first where all components share it
        self.confidence = 1 if head.layout.log_scales == "shared" else 0
        self.side, self.stride = _side(folder, side, facts), self.network.stride
        self.cell = self.network.head_strides["cif"]
        file = WeightFile(f"the pose network in {folder}", "copy runs/pose/model of `dvc repro` there")
        path = folder / f"{name}.safetensors"
        refuse_damaged(path)
        state = self.network.state_dict()
        weights = file.read(path, {key: tuple(one.shape) for key, one in state.items()}, may_hold=lambda _: False)
        self.network.load_state_dict({key: one.to(state[key].dtype) for key, one in weights.items()})
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

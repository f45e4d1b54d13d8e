"""The loss of a trained pose network that reads pictures, against its formula cell by cell."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from skeletons_by_hand import STAR

from figura.base.checksums import write_sums
from figura.base.errors import UserError
from figura.base.yaml12 import to_yaml
from figura.recipe.schema import NetworkEntry
from models.pose.asked_pose import AskedPose, enlarged, joint_costs
from models.pose.pose_network import PoseNetwork

SIDE = 65


def network(**heads) -> PoseNetwork:
    torch.manual_seed(3)
    made = PoseNetwork(backbone={"name": "small"}, heads=heads or {"cif": {}}, skeleton=STAR)
    for name, buffer in made.named_buffers():
        if name.endswith("running_mean"):  # as after a training; large ones would silence the network
            buffer.normal_(0, 0.1)
    return made.eval()


def model_folder(folder, heads=None, kind="pose.PoseNetwork", **facts):
    """Write what a training of a pose network leaves."""
    folder.mkdir()
    made = network(**(heads or {}))
    save_file(made.state_dict(), folder / "reader.safetensors")
    entry = NetworkEntry(type=kind, backbone={"name": "small"}, heads=heads or {"cif": {}})
    content = {"networks": {"reader": entry.model_dump()}, "facts": {"side": SIDE, "skeleton": STAR} | facts}
    (folder / "recipe.yaml").write_text(to_yaml(content))
    write_sums(folder)
    return made, folder


def by_hand(logits, vectors, joints, place):
    """The formula for one picture, float64: (K, h, w), (K, 2, h, w), (K, 2)."""
    costs = []
    for logit, vector, (x, y) in zip(logits, vectors, joints, strict=True):
        total, distances, count = 0.0, 0.0, 0
        for row, column in np.ndindex(*logit.shape):
            if abs(x - column) < 2 and abs(y - row) < 2:
                count += 1
                total += math.log1p(math.exp(-logit[row, column]))
                distances += math.hypot(column + vector[0, row, column] - x, row + vector[1, row, column] - y)
            else:
                total += math.log1p(math.exp(logit[row, column]))
        costs.append((total + place * distances) / max(count, 1))
    return costs


def test_costs_of_joints_by_hand() -> None:
    random = np.random.default_rng(0)
    logits, vectors = random.normal(size=(2, 3, 6, 9)), random.normal(size=(2, 3, 2, 6, 9))
    joints = np.array([[[4.3, 2.8], [0, 0], [8.9, 5.2]], [[3, 3], [7.5, 1.5], [-40, 90]]])  # the last is outside
    expected = [by_hand(*one, 0.5) for one in zip(logits, vectors, joints, strict=True)]
    costs = joint_costs(torch.tensor(logits), torch.tensor(vectors), torch.tensor(joints), 0.5)
    assert np.allclose(costs.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("size", [(33, 33), (20, 33)])
def test_pictures_keep_their_corners(size) -> None:
    """In a picture whose values are its columns and rows, the place of each pixel can be read after resizing."""
    rows, columns = (torch.arange(n, dtype=torch.float64) for n in size)
    picture = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))[None]
    larger = enlarged(picture, SIDE, 16)[0].float()
    assert larger.shape[1:] == ((65, 65) if size == (33, 33) else (49, 65))
    height = 2 * (size[0] - 1) + 1
    assert torch.allclose(larger[0, :height, 0], torch.arange(height) / 2)
    assert torch.allclose(larger[1, 0], torch.arange(SIDE) / 2)
    assert (larger[:, height:] == 0).all()


@pytest.mark.parametrize("log_scales", ["shared", "vector"])
def test_the_loss_of_a_trained_network(tmp_path, log_scales) -> None:
    made, folder = model_folder(tmp_path / "pose", {"cif": {"log_scales": log_scales}, "caf": {}})
    pictures = torch.rand(3, 3, 33, 33) * 2 - 1
    joints = torch.rand(3, 3, 3) * 32
    joints[..., 2] = torch.tensor([[2, 2, 1], [0, 2, 1], [0, 1, 0]])
    loss = AskedPose(network=str(folder), place=0.25)(image=pictures, joints=joints)

    rgb = torch.nn.functional.interpolate((pictures + 1) / 2, (SIDE, SIDE), mode="bilinear", align_corners=True)
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        raw = made((rgb - mean) / std)["cif"].double().numpy()
    assert raw.shape[-1] == 9  # cells of 8 pixels
    first = 1 if log_scales == "shared" else 0
    for place, seen in enumerate(([0, 1], [1], [])):
        cells = joints[place, :, :2].double().numpy() * 2 / 8
        costs = by_hand(raw[place, :, first], raw[place, :, first + 1 : first + 3], cells, 0.25)
        expected = np.mean([costs[joint] for joint in seen]) if seen else 0.0
        assert loss[place].item() == pytest.approx(expected, rel=1e-4)


def test_gradients_reach_the_picture_alone(tmp_path) -> None:
    """A picture that follows its gradient is read as asked; the network stays as it is, and is no part of the loss."""
    made, folder = model_folder(tmp_path / "pose")
    loss = AskedPose(network=str(folder))
    picture = torch.zeros(1, 3, 33, 33, requires_grad=True)
    joints = torch.tensor([[[16.0, 5, 2], [6, 20, 2], [27, 20, 2]]])
    optimizer = torch.optim.Adam([picture], lr=0.1)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss(image=picture, joints=joints).sum()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.8 * values[0], values
    assert list(loss.parameters()) == list(loss.buffers()) == []
    assert list(loss.state_dict()) == []
    kept = loss._reader.network.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in made.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": {"caf": {}}}, "no head named cif"),
        ({"kind": "vunet.VUNet"}, "one pose.PoseNetwork is needed"),
        ({"side": None}, "the side of its training data is not known"),
    ],
)
def test_folders_that_do_not_fit(tmp_path, change, message) -> None:
    _, folder = model_folder(tmp_path / "pose", **change)
    with pytest.raises(UserError, match=message):
        AskedPose(network=str(folder))(image=torch.zeros(1, 3, 9, 9), joints=torch.zeros(1, 3, 3))


def test_errors_say_what_to_do(tmp_path) -> None:
    images, joints = torch.zeros(1, 3, 9, 9), torch.zeros(1, 17, 3)
    with pytest.raises(UserError, match=r"holds no trained network; copy runs/pose/model"):
        AskedPose(network=str(tmp_path / "nothing"))(image=images, joints=joints)
    _, folder = model_folder(tmp_path / "pose")
    with pytest.raises(UserError, match=r"finds 3 joints \(tip, left_end, right_end\).*same joints"):
        AskedPose(network=str(folder))(image=images, joints=joints)
    (folder / "reader.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match="damaged"):
        AskedPose(network=str(folder))(image=images, joints=joints[:, :3])

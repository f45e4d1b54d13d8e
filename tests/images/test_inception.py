"""FID's Inception-v3: its sizes against the published ones, its blocks against plain formulas, its weights' file."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from figura.base.errors import UserError
from models.images import inception

Seen = dict[str, Tensor]

# Channels and pixels after each mixed block (table 1 of the paper, blocks as the ports name them).
BLOCKS = {
    "Mixed_5b": (256, 35),
    "Mixed_5c": (288, 35),
    "Mixed_5d": (288, 35),
    **dict.fromkeys(["Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"], (768, 17)),
    "Mixed_7a": (1280, 8),
    "Mixed_7b": (2048, 8),
    "Mixed_7c": (2048, 8),
}


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Random weights that keep values of order 1 through the stack, with every part of a normalisation at work."""
    with torch.device("meta"):
        shapes = {name: w.shape for name, w in inception.Inception().state_dict().items()}
    random = torch.Generator().manual_seed(0)
    drawn = {}
    for name, shape in shapes.items():
        if name.endswith("conv.weight"):
            drawn[name] = torch.randn(shape, generator=random) * (2 / shape[1:].numel()) ** 0.5
        elif name.endswith(("bn.weight", "running_var")):
            drawn[name] = torch.rand(shape, generator=random) * 0.4 + 0.8
        elif name.endswith(("bn.bias", "running_mean")):
            drawn[name] = torch.randn(shape, generator=random) * 0.1
    return drawn


@pytest.fixture(scope="module")
def file(weights: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inception") / "weights.safetensors"
    beside = {"fc.weight": torch.zeros(1008, 2048), "AuxLogits.conv0.conv.weight": torch.zeros(1)}
    save_file({**weights, **beside, "Mixed_5b.branch1x1.bn.num_batches_tracked": torch.tensor(3)}, path)
    return path


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(1, 3, 80, 60, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.fixture(scope="module")
def seen(file: Path, images: Tensor) -> tuple[Seen, Seen, Tensor]:
    """What every module read and gave for one image, and the features."""
    read: Seen = {}
    gave: Seen = {}
    network = inception.load(file)
    for name, module in network.named_modules():
        module.register_forward_pre_hook(lambda _, x, name=name: read.update({name: x[0]}))
        module.register_forward_hook(lambda _, __, y, name=name: gave.update({name: y}))
    return read, gave, network(images)


def test_sizes_are_the_published_ones():
    with torch.device("meta"):
        network = inception.Inception()
    shapes = {name: tuple(w.shape) for name, w in network.named_parameters()}
    # The whole model has 27,161,264 parameters; its classifiers are 2048 x 1000 + 1000 and, on the side, 1 x 1 from 768
    # to 128, 5 x 5 from 128 to 768, 768 x 1000 + 1000, with 2 parameters a normalised channel.
    side = 768 * 128 + 2 * 128 + 25 * 128 * 768 + 2 * 768 + 768 * 1000 + 1000
    assert sum(w.numel() for w in network.parameters()) == 27_161_264 - (2048 * 1000 + 1000) - side
    assert sum(len(shape) == 4 for shape in shapes.values()) == 94
    assert shapes["Conv2d_4a_3x3.conv.weight"] == (192, 80, 3, 3)
    assert shapes["Mixed_6c.branch7x7_2.conv.weight"] == (160, 160, 1, 7)
    assert shapes["Mixed_6e.branch7x7dbl_2.conv.weight"] == (192, 192, 7, 1)
    assert shapes["Mixed_7c.branch3x3dbl_3b.conv.weight"] == (384, 384, 3, 1)


def test_shape_after_every_block(seen):
    _, gave, features = seen
    assert {name: (gave[name].shape[1], *set(gave[name].shape[2:])) for name in BLOCKS} == BLOCKS
    assert features.shape == (1, 2048)
    np.testing.assert_allclose(features, gave["Mixed_7c"].double().mean(dim=(2, 3)), rtol=1e-5)


def test_images_are_resized_bilinearly(images, seen):
    expected = cv2.resize(images[0].numpy().transpose(1, 2, 0), (299, 299), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(seen[0]["Conv2d_1a_3x3"][0].permute(1, 2, 0), expected, atol=1e-4)


def windows(x: Tensor) -> np.ndarray:
    """Every 3 x 3 window of (1, C, H, W), NaN outside the image: (C, H, W, 9)."""
    padded = np.pad(x[0].double().numpy(), ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    found = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return found.reshape(*found.shape[:3], 9)


def test_average_pools_leave_the_padding_out_and_the_last_block_pools_by_maximum(seen):
    read, _, _ = seen
    for block in ("Mixed_5b", "Mixed_6e", "Mixed_7b"):
        expected = np.nanmean(windows(read[block]), axis=-1)
        np.testing.assert_allclose(read[f"{block}.branch_pool"][0], expected, rtol=1e-4, atol=1e-6)
    expected = np.nanmax(windows(read["Mixed_7c"]), axis=-1)
    np.testing.assert_array_equal(read["Mixed_7c.branch_pool"][0], expected)


def test_branches_are_joined_in_order(seen):
    read, gave, _ = seen
    last = ["branch1x1", "branch3x3_2a", "branch3x3_2b", "branch3x3dbl_3a", "branch3x3dbl_3b", "branch_pool"]
    parts = {
        "Mixed_5c": ["branch1x1", "branch5x5_2", "branch3x3dbl_3", "branch_pool"],
        "Mixed_6d": ["branch1x1", "branch7x7_3", "branch7x7dbl_5", "branch_pool"],
        "Mixed_7b": last,
        "Mixed_7c": last,
    }
    for block, names in parts.items():
        assert torch.equal(gave[block], torch.cat([gave[f"{block}.{name}"] for name in names], dim=1))
    assert torch.equal(read["Mixed_7c.branch3x3_2a"], read["Mixed_7c.branch3x3_2b"])
    for block, names in (("Mixed_6a", ["branch3x3", "branch3x3dbl_3"]), ("Mixed_7a", ["branch3x3_2", "branch7x7x3_4"])):
        shrunk = windows(read[block])[:, 1:-1:2, 1:-1:2].max(axis=-1)  # whole windows, every second
        expected = np.concatenate([*(gave[f"{block}.{name}"][0].numpy() for name in names), shrunk])
        np.testing.assert_array_equal(gave[block][0], expected)


@pytest.mark.parametrize(
    ("unit", "stride", "padding"),
    [("Conv2d_1a_3x3", 2, (0, 0)), ("Conv2d_2b_3x3", 1, (1, 1)), ("Mixed_6c.branch7x7_2", 1, (0, 3))],
)
def test_units_are_convolution_normalisation_and_relu(unit, stride, padding, weights, seen):
    read, gave, _ = seen
    own = {name: weights[f"{unit}.{name}"].double() for name in ("conv.weight", "bn.weight", "bn.bias")}
    mean, variance = (weights[f"{unit}.bn.running_{name}"].double().view(-1, 1, 1) for name in ("mean", "var"))
    x = torch.conv2d(read[unit].double(), own["conv.weight"], stride=stride, padding=padding)
    x = (x - mean) / (variance + 0.001).sqrt() * own["bn.weight"].view(-1, 1, 1) + own["bn.bias"].view(-1, 1, 1)
    torch.testing.assert_close(gave[unit].double(), x.clamp_min(0), rtol=1e-4, atol=1e-5)


def test_loading_takes_the_weights_as_they_are(file, weights):
    before = torch.get_rng_state()
    network = inception.load(str(file))
    assert torch.equal(torch.get_rng_state(), before)
    state = network.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in weights.items())
    assert not network.training
    assert not any(weight.requires_grad for weight in network.parameters())


def test_weights_of_another_network(tmp_path, weights):
    small = {name: torch.zeros(weight.shape, dtype=torch.uint8) for name, weight in weights.items()}
    save_file({**small, "Mixed_8a.conv.weight": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match=r"holds 'Mixed_8a\.conv\.weight', of another network; give `weights`"):
        inception.load(tmp_path / "x.safetensors")

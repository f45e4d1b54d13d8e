"""EfficientNet-Lite0: published counts, a block written out, timm's network, ImageNet's weights by `figura import`."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import toy
from safetensors.torch import load_file
from torch import nn

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import to_yaml
from figura.commands.import_weights.command import main as import_main
from models.pose.efficientnet_lite import EfficientNetLite, InvertedResidual
from models.pose.pose_network import PoseNetwork

HEAD = 320 * 1280 + 2 * 1280 + 1281 * 1000  # parameters of the published network's last convolution and classifier


def whole() -> EfficientNetLite:
    """With other statistics in each norm than those of a start."""
    torch.manual_seed(0)
    network = EfficientNetLite(stages=7).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 1.5)
            module.eps = 1e-3  # as `PoseNetwork` and timm have it
    return network


def test_published_size() -> None:
    with torch.device("meta"):
        network = EfficientNetLite(stages=7)
    assert sum(one.numel() for one in network.parameters()) + HEAD == 4_652_008


@pytest.mark.parametrize(("outputs", "stride", "dilation"), [(4, 1, 2), (4, 2, 1), (6, 1, 1)])
def test_block_written_out(outputs: int, stride: int, dilation: int) -> None:
    torch.manual_seed(0)
    block = InvertedResidual(4, outputs, 5, stride, dilation).eval()
    state, x = block.state_dict(), 4 * torch.randn(2, 4, 9, 11)
    one = (1 + 1e-5) ** -0.5  # BatchNorm as it starts
    y = (one * F.conv2d(x, state["conv_pw.weight"])).clamp(0, 6)
    y = F.conv2d(y, state["conv_dw.weight"], None, stride, 2 * dilation, dilation, groups=24)
    y = one * F.conv2d((one * y).clamp(0, 6), state["conv_pwl.weight"])
    torch.testing.assert_close(block(x), x + y if (outputs, stride) == (4, 1) else y)


def package_file(network: nn.Module, path: Path) -> Path:
    """A file like the package's: its own names, the same order, and a classifier."""
    named = {
        f"_blocks.{place}._x.{name.rpartition('.')[2]}": one
        for place, (name, one) in enumerate(network.state_dict().items())
    }
    torch.save({**named, "_conv_head.weight": torch.ones(2, 3, 1, 1), "_fc.bias": torch.ones(4)}, path)
    return path


def test_imported_weights_start_a_pose_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = whole()
    file, output = package_file(network, tmp_path / "lite.pth"), tmp_path / "lite0.safetensors"
    assert run(import_main, ["efficientnet_lite", str(file), "--output", str(output)]) == 0
    backbone = {"name": "efficientnet_lite0", "pretrained": str(output)}
    pose = PoseNetwork(backbone=backbone, heads={"cif": {}, "caf": {}})
    pose.load_pretrained()
    assert (pose.stride, pose.base_net.channels, pose.head_strides["cif"]) == (16, 112, 8)
    x = torch.randn(1, 3, 65, 33).contiguous(memory_format=torch.channels_last)
    features = network.blocks[:5](network.act(network.bn1(network.conv_stem(x))))
    torch.testing.assert_close(pose.eval().base_net(x), features, rtol=0, atol=0)

    recipe, again = tmp_path / "mine.yaml", tmp_path / "2.safetensors"
    for stages, status in ((7, 0), (5, 1)):
        recipe.write_text(
            to_yaml(
                toy.changed({"networks.judge": {"type": "pose.EfficientNetLite", "stages": stages, "weights": "own"}})
            )
        )
        options = ["--output", str(again), "--recipe", str(recipe), "--network", "judge"]
        assert run(import_main, ["efficientnet_lite", str(file), *options]) == status
    assert "networks.judge.stages: found 5; the file needs 7" in capsys.readouterr().err
    assert load_file(again).keys() == network.state_dict().keys()

    torch.save({"_conv_stem.weight": torch.ones(32, 3, 3, 3)}, file)
    assert run(import_main, ["efficientnet_lite", str(file), "--output", str(tmp_path / "3.safetensors")]) == 1
    assert "its 1 tensors before the classifier are not those of EfficientNet-Lite0" in capsys.readouterr().err
    missing = EfficientNetLite(pretrained=str(tmp_path / "none.safetensors"))
    with pytest.raises(UserError, match=r"no file .*none.safetensors; docs/recipes/pose.md says how to get the file"):
        missing.load_pretrained()


@pytest.mark.slow
@pytest.mark.parametrize("stages", [5, 7])
def test_maps_are_those_of_timm(stages: int) -> None:
    timm = pytest.importorskip("timm", reason="the package timm is not installed")
    network = whole()
    options = {"output_stride": 16} if stages == 7 else {"out_indices": (3,)}
    theirs = timm.create_model("tf_efficientnet_lite0", features_only=True, **options).eval()
    theirs.load_state_dict(network.state_dict(), strict=stages == 7)
    x = torch.randn(2, 3, 161, 97)
    ours = network.blocks[:stages](network.act(network.bn1(network.conv_stem(x))))
    torch.testing.assert_close(ours, theirs(x)[-1])

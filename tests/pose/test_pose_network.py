"""Backbones and heads: published shapes and counts, layers written out, weights from files, timm, decoding."""

import hashlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from openpifpaf_by_hand import shapes_of
from safetensors.torch import save_file
from skeletons_by_hand import STAR
from torch import nn

from figura.base.errors import UserError
from models.pose.heads import CompositeHead
from models.pose.pose_network import IMPORTED_FOR, PoseNetwork
from models.pose.resnet import STAGES, ResNet
from models.pose.shufflenet import DEPTHS, Unit, interleave
from models.pose.small_resnet import Residual

COMPONENTS = {"cif": 5, "caf": 8, "cifdet": 6}


def written_out(features, weight, bias, fields, components, upsample):
    """Every value of every cell by itself; the fields of one image, float64."""
    channels, rows, columns = features.shape
    cropped = (upsample - 1) // 2
    shape = (fields, components, upsample * (rows - 1) + 1, upsample * (columns - 1) + 1)
    out = np.zeros(shape)
    for f, k, y, x in np.ndindex(*shape):
        full_y, full_x = y + cropped, x + cropped
        row = (f * components + k) * upsample**2 + (full_y % upsample) * upsample + full_x % upsample
        cell = features[:, full_y // upsample, full_x // upsample]
        out[f, k, y, x] = weight[row] @ cell + bias[row]
    assert channels == weight.shape[1]
    return out


@pytest.mark.parametrize("kind", COMPONENTS)
@pytest.mark.parametrize("upsample", [1, 2, 3, 4])
def test_layout_and_shape(kind, upsample):
    torch.manual_seed(0)
    head = CompositeHead(7, kind=kind, fields=3, upsample=upsample).double()
    features = torch.randn(2, 7, 4, 5, dtype=torch.float64)
    with torch.no_grad():
        found = head(features.contiguous(memory_format=torch.channels_last))
    assert found.is_contiguous()
    weight, bias = head.conv.weight.detach().numpy()[:, :, 0, 0], head.conv.bias.detach().numpy()
    for image, fields in zip(features.numpy(), found.numpy(), strict=True):
        assert np.allclose(fields, written_out(image, weight, bias, 3, COMPONENTS[kind], upsample), atol=1e-12)


def numpy_decoded(kind, raw):
    """Decode as openpifpaf/network/heads.py does, component by component."""
    out = raw.astype(np.float64).copy()
    rows, columns = np.indices(raw.shape[-2:])
    out[:, :, 1] = 1 / (1 + np.exp(-raw[:, :, 1]))
    places = {"cif": [2], "caf": [2, 4], "cifdet": [2]}[kind]
    scales = {"cif": [4], "caf": [6, 7], "cifdet": []}[kind]
    for x in places:
        out[:, :, x] += columns
        out[:, :, x + 1] += rows
    for s in scales:
        out[:, :, s] = np.log1p(np.exp(raw[:, :, s]))
    return out


@pytest.mark.parametrize("kind", COMPONENTS)
def test_decoding(kind):
    torch.manual_seed(1)
    head = CompositeHead(6, kind=kind, fields=2)
    features = torch.randn(2, 6, 4, 6)
    with torch.no_grad():
        raw, decoded = head(features), head(features, decode=True)
    assert np.allclose(decoded.numpy(), numpy_decoded(kind, raw.numpy()), atol=1e-5)
    assert np.allclose(raw.numpy(), head(features).detach().numpy(), atol=0)  # decoding left nothing behind


@pytest.mark.parametrize("kind", COMPONENTS)
@pytest.mark.parametrize("law", ["softplus", "exp", "linear"])
def test_decoding_one_log_scale_per_vector(kind, law):
    """Raw [confidence, vectors, log b a vector, scales] -> [first log b, confidence, vectors, scales]."""
    torch.manual_seed(1)
    vectors, scales = {"cif": (1, 1), "caf": (2, 2), "cifdet": (2, 0)}[kind]
    head = CompositeHead(6, kind=kind, fields=2, log_scales="vector", scale_law=law)
    features = torch.randn(2, 6, 4, 6)
    with torch.no_grad():
        raw, decoded = head(features).numpy(), head(features, decode=True).numpy()
    assert raw.shape[2] == {"cif": 5, "caf": 9, "cifdet": 7}[kind] == 1 + 3 * vectors + scales
    order = [1 + 2 * vectors, 0, *range(1, 1 + 2 * vectors), *range(1 + 3 * vectors, 1 + 3 * vectors + scales)]
    expected = numpy_decoded(kind, raw[:, :, order])
    last = raw[:, :, raw.shape[2] - scales :].astype(np.float64)
    if law != "softplus":
        expected[:, :, expected.shape[2] - scales :] = np.exp(last) if law == "exp" else np.maximum(last, 0)
    np.testing.assert_allclose(decoded, expected, atol=1e-5)


def test_decoding_is_in_float32():
    head = CompositeHead(4, kind="cif", fields=1, upsample=1).bfloat16()
    with torch.no_grad():
        head.conv.weight.zero_()
        head.conv.bias.copy_(torch.tensor([0.0, 0.0, 0.25, 0.0, 0.0]))
        places = head(torch.zeros(1, 4, 1, 300, dtype=torch.bfloat16), decode=True)[0, 0, 2, 0]
    assert places.dtype == torch.float32
    assert places.tolist() == [column + 0.25 for column in range(300)]


def test_numbers_of_fields_are_those_of_the_data():
    body = STAR | {"dense_connections": [["left_end", "right_end"]]}
    things = [{"id": number, "name": f"thing {number}"} for number in (2, 5, 90, 91)]
    heads = {
        "cif": {},
        "caf": {},
        "far": {"kind": "caf", "connections": "dense"},
        "cifdet": {},
        "few": {"kind": "cif", "fields": 2},
    }
    network = PoseNetwork(backbone={"name": "small"}, heads=heads, skeleton=body, categories=things)
    fields = {name: head.fields for name, head in network.head_nets.items()}
    assert fields == {"cif": 3, "caf": 2, "far": 1, "cifdet": 4, "few": 2}
    coco = PoseNetwork(backbone={"name": "small"}, heads={"cif": {}, "caf": {}})
    assert {name: head.fields for name, head in coco.head_nets.items()} == {"cif": 17, "caf": 19}


def test_heads_by_name_and_kind():
    heads = {
        "cif": {"fields": 17, "upsample": 1},
        "caf25": {"kind": "caf", "fields": 25},
        "cifdet": {"fields": 3, "upsample": 4},
    }
    network = PoseNetwork(backbone={"name": "small"}, heads=heads)
    assert network.stride == 16
    assert network.head_strides == {"cif": 16, "caf25": 8, "cifdet": 4}
    found = {name: tuple(fields.shape) for name, fields in network(torch.zeros(2, 3, 97, 129)).items()}
    assert found == {"cif": (2, 17, 5, 7, 9), "caf25": (2, 25, 8, 13, 17), "cifdet": (2, 3, 6, 25, 33)}


COCO_HEADS = {"cif": {"fields": 17}, "caf": {"fields": 19}}

# backbone, options, stride, channels
OPTIONS = [
    ("shufflenetv2k16", {"input_conv2": True, "input_conv2_channels": 40}, 32, 1392),
    ("shufflenetv2k16", {"input_conv2": True, "stage4_dilation": 2}, 16, 1392),
    ("shufflenetv2k16", {"conv5_as_stage": True, "leaky_relu": True, "norm": "instance", "kernel": 7}, 16, 1392),
    ("resnet18", {"pool0_stride": 2}, 32, 512),
    ("resnet50", {"input_conv_stride": 1}, 8, 2048),
    ("resnet50", {"input_conv2": True}, 32, 2048),
    ("resnet50", {"input_conv2": True, "block5_dilation": 2}, 16, 2048),
    ("resnet18", {"block5_dilation": 4}, 8, 512),
    ("resnet18", {"remove_last_block": True}, 8, 256),
    ("resnet50", {"remove_last_block": True, "input_conv2": True}, 16, 1024),
    ("small", {"widths": [8, 16, 24], "blocks": [1, 1, 2]}, 8, 24),
]


def network(name, heads=None, meta=True, batch_norm_eps=1e-3, **options):
    with torch.device("meta" if meta else "cpu"):
        return PoseNetwork(backbone={"name": name, **options}, heads=heads or COCO_HEADS, batch_norm_eps=batch_norm_eps)


def test_every_depth_has_a_name() -> None:
    assert IMPORTED_FOR[".resnet"] == tuple(f"resnet{depth}" for depth in STAGES)
    assert IMPORTED_FOR[".shufflenet"] == tuple(f"shufflenetv2k{depth}" for depth in DEPTHS)


@pytest.mark.parametrize(("name", "options", "stride", "channels"), OPTIONS)
@torch.no_grad()
def test_stride_and_shapes(name, options, stride, channels):
    built = network(name, **options)
    assert (built.stride, built.base_net.channels) == (stride, channels)
    assert built.head_strides == {"cif": stride // 2, "caf": stride // 2}
    fields = built(torch.empty(2, 3, 65, 129, device="meta"))
    cells = (64 // (stride // 2) + 1, 128 // (stride // 2) + 1)
    assert fields["cif"].shape == (2, 17, 5, *cells)
    assert fields["caf"].shape == (2, 19, 8, *cells)


def test_cells_are_aligned_with_pixels():
    """Which cells of a row see one pixel, ResNet 18 at 321 px."""
    torch.manual_seed(0)
    built = network("resnet18", {"cif": {"fields": 1, "upsample": 1}}, meta=False).eval()
    images = torch.zeros(4, 3, 65, 321)
    for place, column in enumerate((0, 160, 320)):
        images[place + 1, :, 0, column] = 1.0
    with torch.no_grad():
        fields = built(images)["cif"]
    changed = [
        (fields[place] != fields[0]).flatten(0, 2).any(dim=0).nonzero().flatten().tolist() for place in (1, 2, 3)
    ]
    assert changed == [list(range(7)), list(range(4, 17)), list(range(14, 21))]


@pytest.mark.parametrize(("first", "stride", "dilation"), [(True, 2, 1), (True, 1, 2), (False, 1, 1)])
def test_unit_written_out(first, stride, dilation):
    torch.manual_seed(0)
    inputs = 6 if first else 8
    unit = Unit(
        inputs, 8, kernel=5, stride=stride, dilation=dilation, norm=lambda _: nn.Identity(), activation=nn.ReLU,
        first=first,
    )  # fmt: skip
    x = torch.randn(2, inputs, 9, 11)
    state = unit.state_dict()

    def depthwise(x, name):
        weight = state[name]
        return F.conv2d(x, weight, None, stride, 2 * dilation, dilation, groups=len(weight))

    kept, right = (x, x) if first else (x[:, :4], x[:, 4:])
    if first:
        kept = F.relu(F.conv2d(depthwise(x, "branch1.0.weight"), state["branch1.2.weight"]))
    right = F.relu(F.conv2d(right, state["branch2.0.weight"]))
    right = F.relu(F.conv2d(depthwise(right, "branch2.3.weight"), state["branch2.5.weight"]))
    joined = torch.cat((kept, right), dim=1)
    expected = joined[:, [0, 4, 1, 5, 2, 6, 3, 7]]
    assert torch.allclose(unit(x), expected, atol=1e-6)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_residual_block_written_out(bottleneck):
    torch.manual_seed(0)
    block = Residual(6, 4, stride=2, bottleneck=bottleneck).eval()
    x = torch.randn(2, 6, 9, 9)
    w = {name: value for name, value in block.state_dict().items() if value.ndim == 4}
    norm = (1 + 1e-5) ** -0.5  # BatchNorm as it starts
    if not bottleneck:
        y = F.relu(norm * F.conv2d(x, w["conv1.weight"], stride=2, padding=1))
        y = norm * F.conv2d(y, w["conv2.weight"], padding=1)
    else:
        y = F.relu(norm * F.conv2d(x, w["conv1.weight"]))
        y = F.relu(norm * F.conv2d(y, w["conv2.weight"], stride=2, padding=1))
        y = norm * F.conv2d(y, w["conv3.weight"])
    y = F.relu(y + norm * F.conv2d(x, w["downsample.0.weight"], stride=2))
    assert torch.allclose(block(x), y, atol=1e-5)


def modules_of(built, kind):
    return [module for module in built.modules() if isinstance(module, kind)]


def test_norms_and_kernels_are_those_asked_for():
    assert {(m.eps, m.momentum) for m in modules_of(network("shufflenetv2k16"), nn.BatchNorm2d)} == {(1e-3, 0.01)}
    assert {m.eps for m in modules_of(network("small", batch_norm_eps=0.01), nn.BatchNorm2d)} == {0.01}
    groups = modules_of(network("shufflenetv2k16", norm="group"), nn.GroupNorm)
    assert {(m.num_groups, m.eps) for m in groups} == {(4, 1e-4), (29, 1e-4)}
    wide = modules_of(network("shufflenetv2kx5", norm="group"), nn.GroupNorm)
    assert {(m.num_groups, m.num_channels) for m in wide} == {(3, 42), (32, 320), (32, 640), (32, 1280), (32, 2560)}
    for width, count in ((50, 2), (870, 29)):  # divisors of any width
        odd = network("shufflenetv2k16", norm="group", input_conv2=True, input_conv2_channels=width)
        norm = odd.base_net.input_block[1][1]
        assert (norm.num_groups, norm.num_channels) == (count, width)
    other = network("shufflenetv2k16", norm="instance", leaky_relu=True, kernel=7)
    found = {(m.eps, m.momentum, m.affine, m.track_running_stats) for m in modules_of(other, nn.InstanceNorm2d)}
    assert found == {(1e-4, 0.01, True, True)}
    assert not modules_of(other, nn.ReLU)
    assert {m.kernel_size for m in modules_of(other, nn.Conv2d) if m.groups > 1} == {(7, 7)}


RENAMED = {"input_block.0": "conv1", "input_block.1": "bn1", **{f"block{n + 1}": f"layer{n}" for n in (1, 2, 3, 4)}}


def torchvision_state(depth):
    """State of torchvision's ResNet of this depth, by its own names, random."""
    generator = torch.Generator().manual_seed(depth)
    state = {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    for name, shape in shapes_of(f"resnet{depth}", ()).items():
        ours = name.removeprefix("base_net.")
        first = next(one for one in RENAMED if ours.startswith(f"{one}."))
        counter = name.endswith("num_batches_tracked")
        value = torch.tensor(7) if counter else 0.05 * torch.rand(shape, generator=generator) + 0.5
        state[RENAMED[first] + ours.removeprefix(first)] = value
    return state


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file(torchvision_state(18), path)
    return path


def started(**options):
    network = ResNet(**options)
    network.load_pretrained()
    return network


def test_pretrained_weights_arrive(tmp_path):
    state = torchvision_state(50)
    save_file(state, tmp_path / "w.safetensors")
    found = started(depth=50, pretrained=str(tmp_path / "w.safetensors")).state_dict()
    for ours, theirs in RENAMED.items():
        part = {name: value for name, value in found.items() if name.startswith(f"{ours}.")}
        assert part
        for name, value in part.items():
            if not name.endswith("num_batches_tracked"):
                assert torch.equal(value, state[name.replace(ours, theirs, 1)])
    assert len(found) == len(state) - 2


def test_pretrained_weights_with_surgery(file):
    options = {"input_conv2": True, "block5_dilation": 2}
    torch.manual_seed(0)
    plain = ResNet(depth=18, **options)
    torch.manual_seed(0)
    filled = started(depth=18, **options, pretrained=str(file), sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    assert torch.equal(filled.input_block[3][0].weight, plain.input_block[3][0].weight)
    assert torch.equal(filled.block5[1].conv2.weight, torchvision_state(18)["layer4.1.conv2.weight"])
    removed = started(depth=18, remove_last_block=True, pretrained=str(file))
    assert torch.equal(removed.block4[1].conv2.weight, torchvision_state(18)["layer3.1.conv2.weight"])


class Patches(nn.Module):
    """A stand-in for a network of timm that cuts images into patches: maps of strides 4, 8, 16, 32."""

    def __init__(self, out_indices=(0, 1, 2, 3), output_fmt="NCHW", width=6):
        super().__init__()
        self.wanted, self.output_fmt = [range(4)[place] for place in out_indices], output_fmt
        self.convolutions = nn.ModuleList(
            nn.Conv2d(3 if i == 0 else width, width, 4 if i == 0 else 2, 4 if i == 0 else 2) for i in range(4)
        )
        self.feature_info = SimpleNamespace(
            reduction=lambda: [4 * 2**place for place in self.wanted], channels=lambda: [width for _ in self.wanted]
        )

    def forward(self, x):
        maps = []
        for convolution in self.convolutions:
            x = convolution(x)
            maps.append(x.permute(0, 2, 3, 1) if self.output_fmt == "NHWC" else x)
        return [maps[place] for place in self.wanted]


@pytest.mark.parametrize("output_fmt", ["NCHW", "NHWC"])
def test_timm_backbone(output_fmt, tmp_path, monkeypatch):
    calls, created = [], []

    class CutOffError(Exception):
        """Of an HTTP client: no OSError."""

    def create_model(name, pretrained, features_only, **options):
        if name == "far" and pretrained:
            raise CutOffError("peer closed connection")
        calls.append((name, pretrained, features_only, options))
        created.append(Patches(output_fmt=output_fmt, **options))
        return created[-1]

    module = ModuleType("timm")
    module.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", module)
    backbone = {"name": "timm", "model": "patches", "pretrained": True, "options": {"width": 10}}
    built = PoseNetwork(backbone=backbone, heads=COCO_HEADS)
    assert not any(pretrained for _, pretrained, _, _ in calls)
    before = built.base_net.model.convolutions[0].weight.clone()
    built.load_pretrained()
    assert calls[2:] == [("patches", True, True, {"out_indices": (2,), "width": 10})]  # weights are fetched once
    assert torch.equal(built.base_net.model.convolutions[0].weight, created[-1].convolutions[0].weight)
    assert not torch.equal(built.base_net.model.convolutions[0].weight, before)
    assert (built.stride, built.base_net.channels) == (16, 10)
    for height, width in ((65, 65), (193, 97)):
        cells = ((height - 1) // 8 + 1, (width - 1) // 8 + 1)
        assert built(torch.randn(1, 3, height, width))["cif"].shape == (1, 17, 5, *cells)
    far = PoseNetwork(backbone={**backbone, "model": "far"}, heads=COCO_HEADS)
    with pytest.raises(UserError, match="peer closed connection; leave `pretrained` out to train from scratch"):
        far.load_pretrained()
    own = {name: torch.rand_like(tensor) for name, tensor in created[-1].state_dict().items()}
    path, calls[:] = tmp_path / "w.safetensors", []
    save_file({**own, "classifier.weight": torch.zeros(5, 10)}, path)
    other = PoseNetwork(backbone={**backbone, "pretrained": str(path)}, heads=COCO_HEADS)
    other.load_pretrained()
    assert all(torch.equal(tensor, own[name]) for name, tensor in other.base_net.model.state_dict().items())
    assert not any(pretrained for _, pretrained, _, _ in calls)
    for name, tensor, message in (
        ("convolutions.1.bias", None, r"w.safetensors has no tensor 'convolutions.1.bias'; give `pretrained` a file"),
        ("convolutions.1.bias", torch.zeros(9), r"convolutions.1.bias has shape \(9,\), expected \(10,\); give"),
    ):
        save_file({key: value for key, value in (own | {name: tensor}).items() if value is not None}, path)
        with pytest.raises(UserError, match=message):
            other.load_pretrained()
    path.unlink()
    with pytest.raises(UserError, match=r"no file .*w.safetensors; give `pretrained` a file .* timm's patches"):
        other.load_pretrained()
    with pytest.raises(ValueError, match=r"patches has maps of stride 32; at most 16"):
        PoseNetwork(backbone={**backbone, "options": {"out_indices": (3,)}}, heads=COCO_HEADS)
    with pytest.raises(ValueError, match=r"'patches': timm refuses .*hight"):
        PoseNetwork(backbone={**backbone, "options": {"hight": 1}}, heads=COCO_HEADS)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="not installed; `pip install timm torch=="):
        PoseNetwork(backbone=backbone, heads=COCO_HEADS)


# --- the channel shuffle ---


def test_interleave_takes_the_channels_of_both_in_turn() -> None:
    a, b = (torch.randn(2, 3, 4, 5, requires_grad=True) for _ in range(2))
    out = interleave(a, b)
    for channel in range(3):
        assert torch.equal(out[:, 2 * channel], a[:, channel])
        assert torch.equal(out[:, 2 * channel + 1], b[:, channel])
    towards = torch.randn_like(out)
    out.backward(towards)
    assert a.grad is not None
    assert b.grad is not None
    assert torch.equal(a.grad, towards[:, ::2])
    assert torch.equal(b.grad, towards[:, 1::2])

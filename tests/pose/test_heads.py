"""Composite heads against their layout written out in NumPy, and decoding against its formulas."""

import numpy as np
import pytest
import torch
from skeletons_by_hand import STAR

from figura.base.errors import UserError
from models.pose.heads import CompositeHead
from models.pose.pose_network import PoseNetwork

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


def test_dropout_drops_whole_channels_in_training():
    torch.manual_seed(0)
    head = CompositeHead(5, kind="cif", fields=1, upsample=1, dropout=0.5)
    with torch.no_grad():
        head.conv.weight.copy_(torch.eye(5)[:, :, None, None])
        head.conv.bias.zero_()
    ones = torch.ones(64, 5, 3, 3)
    dropped = head(ones)[:, 0]
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :, :1, :1]).all()
    assert (head.eval()(ones) == 1).all()


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
    for settings, words in (
        ({"cifdet": {}}, r"heads\.cifdet\.fields: missing, and no categories are known from the data"),
        (
            {"caf": {"connections": "kinematic_tree"}},
            r"heads\.caf: the skeleton has no kinematic_tree connections; remove the head, or give the skeleton some",
        ),
        ({"cif": {"connections": "dense"}}, r"heads\.cif\.connections 'dense': only the fields of a caf head"),
        ({"caf": {"connections": "dens"}}, r"heads\.caf\.connections 'dens' \(did you mean 'dense'\?\)"),
        ({"caf": {"connections": "dense", "fields": 3}}, r"heads\.caf: connections 'dense' and fields 3: one of them"),
        ({"caf": {"kind": ["cif"]}}, r"heads\.caf.kind: found \['cif'\]"),
    ):
        with pytest.raises(ValueError, match=words):
            PoseNetwork(backbone={"name": "small"}, heads=settings, skeleton=body)


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
    with pytest.raises(UserError, match=r"found shape \(1, 1, 65, 65\)"):
        network(torch.zeros(1, 1, 65, 65))

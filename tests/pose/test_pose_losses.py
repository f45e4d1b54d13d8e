"""Losses of composite fields: values of OpenPifPaf 0.13, NumPy float64 loops, finite differences."""

import math

import encoder_by_hand
import numpy as np
import pytest
import torch
from people_by_hand import SIZE, standing

from figura.formats.skeletons import COCO
from figura.injectors.forward import Forward
from figura.interfaces import Networks, State
from models.pose.composite_losses import Composite
from models.pose.field_losses import TaskWeights, task_weighted
from models.pose.openpifpaf_before_0_13 import BceLaplace11, BceLaplace12, Paper2019

NAN = math.nan
VECTORS, SCALES = {"cif": 1, "caf": 2, "cifdet": 2}, {"cif": 1, "caf": 2, "cifdet": 0}


def one_cell(predicted, target, **options):
    """The components of a cif with a single cell, and the gradient of their sum."""
    fields = torch.tensor(predicted, dtype=torch.float64).reshape(1, 1, -1, 1, 1).requires_grad_()
    aim = torch.tensor(target, dtype=torch.float64).reshape(1, 1, -1, 1, 1)
    values = Composite(**{"head": "cif", **options})(fields=fields, target=aim)
    sum(values.values()).sum().backward()
    return {name: value.item() for name, value in values.items()}, fields.grad.flatten().numpy()


CONFIDENCE = [  # x; background: value, slope; foreground at z = 0: value, slopes in x and z; at z = 1, -1
    (-20, 0, 0, 0.062500, -0.250000, 0.437500, 0.506092, -0.318296),
    (-5, 0, 0.000045, 0.065018, -0.254986, 0.434982, 0.507051, -0.311690),
    (-2, 0.000095, 0.013768, 0.062390, -0.249779, 0.437610, 0.506050, -0.318585),
    (-1, 0.002242, 0.066960, 0.039268, -0.198162, 0.460732, 0.497237, -0.379246),
    (0, 0.022396, 0.211643, 0.011198, -0.105822, 0.488802, 0.486537, -0.452890),
    (1, 0.078537, 0.396325, 0.001121, -0.033480, 0.498879, 0.482696, -0.479328),
    (2, 0.124779, 0.499559, 0.000047, -0.006884, 0.499953, 0.482287, -0.482145),
    (10, 0.125091, 0.500181, 0, 0, 0.5, 0.482269, -0.482269),
]


@pytest.mark.parametrize("row", CONFIDENCE, ids=lambda row: f"x={row[0]}")
def test_golden_confidences(row):
    x, empty, empty_slope, *full = row
    unknown = [NAN] * 4
    value, slope = one_cell([0.7, x, 3, 3, 3], [0, *unknown])
    assert value == pytest.approx({"confidence": empty, "vector": 0, "scale": 0}, abs=6e-7)
    np.testing.assert_allclose(slope, [0, empty_slope, 0, 0, 0], atol=6e-7)
    found = [one_cell([z, x, 3, 3, 3], [1, *unknown]) for z in (0, 1, -1)]
    assert [value["confidence"] for value, _ in found] == pytest.approx([full[0], *full[3:]], abs=6e-7)
    np.testing.assert_allclose(found[0][1], [full[2], full[1], 0, 0, 0], atol=6e-7)


@pytest.mark.parametrize(
    ("offset", "bmin", "scale", "z", "expected"),
    [
        ((0, 0), 0.0125, 2, 0, 0.699390),
        ((1, 0), 0.0125, 2, 0, 1.193183),
        ((3, 4), 0.0125, 2, 0, 3.193166),
        ((10, 0), 0.0125, 2, 0, 4.089045),
        ((1, 0), 0.0125, 2, 1, 1.484126),
        ((1, 0), 0.0125, 2, -3, 1.118009),
        ((0.3, -0.4), 0.0125, 0.8, -2, 1.317504),
        ((1, 0), NAN, NAN, 0, 2.143041),
    ],
)
def test_golden_regressions(offset, bmin, scale, z, expected):
    value, _ = one_cell([z, 0, offset[0] + 0.5, offset[1] - 2, 0], [NAN, 0.5, -2, bmin, scale], scale=0)
    assert value == pytest.approx({"confidence": 0, "vector": expected}, abs=6e-7)


def test_golden_boxes():
    fields, target = [0.5, 0, 0.5, -0.25, 6, 8.5], [NAN, 0, 0, 6, 8, 0.3, 0.3]
    value, _ = one_cell(fields, target, head="cifdet")  # a fringe cell: no confidence, but a box
    assert value == pytest.approx({"confidence": 0, "vector": 1.188465 + 1.168430}, abs=1e-6)
    target[3] = NAN  # without its width neither centre nor size can be measured
    assert one_cell(fields, target, head="cifdet")[0] == {"confidence": 0, "vector": 0}


@pytest.mark.parametrize(
    ("raw", "scale", "b", "expected"),
    [
        (0, 1, 1, 0.038909), (0, 1, 10, 0.000389), (3, 1, 1, 1.362352),
        (10, 0.5, 1, 6.970927), (10, 0.5, 10, 1.083341), (1, 2, 5, 0.002139),
    ],
)  # fmt: skip
def test_golden_scales(raw, scale, b, expected):
    value, _ = one_cell([0, 0, 0, 0, raw], [NAN, NAN, NAN, NAN, scale], b_scale=b)
    assert value == pytest.approx({"confidence": 0, "vector": 0, "scale": expected}, abs=6e-7)


def standing_person(head):
    """The target of one standing person with nothing hidden."""
    people = [{"keypoints": standing(), "box": (68, 16, 56, 155.2), "crowd": False, "category": 0}]
    place = SIZE, (0.0, 0.0, 192.0, 192.0), 8
    if head == "cifdet":
        return torch.from_numpy(encoder_by_hand.cifdet(people, *place, 91)[None])
    more = () if head == "cif" else (COCO.connections,)
    encode = encoder_by_hand.cif if head == "cif" else encoder_by_hand.caf
    return torch.from_numpy(encode(people, *place, COCO.sigmas, COCO.standing_pose, *more)[None])


def constant(head, value):
    fields, components = {"cif": (17, 5), "caf": (19, 8), "cifdet": (91, 6)}[head]
    return torch.full((1, fields, components, 25, 25), value, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("head", "value", "expected"),
    [
        ("cif", 0.0, [234.91653, 746.23718, 36.10083]),
        ("cif", 0.3, [417.67343, 718.89868, 58.88031]),
        ("cif", -2.0, [-139.29971, 1878.43005, 67.97199]),
        ("caf", 0.0, [263.48322, 1399.02075, 57.06207]),
        ("caf", 0.3, [457.02954, 1318.06189, 85.53564]),
        ("caf", -2.0, [-112.87373, 3194.42065, 117.15236]),
        ("cifdet", 0.0, [1273.37354, 131.30917]),
        ("cifdet", 0.3, [2065.12720, 125.35912]),
        ("cifdet", -2.0, [-0.80071, 244.40756]),
    ],
)
def test_golden_scene(head, value, expected):
    found = Composite(head=head)(fields=constant(head, value), target=standing_person(head))
    np.testing.assert_allclose([v.item() for v in found.values()], expected, rtol=5e-7, atol=2e-5)


def test_golden_slopes_of_the_scene():
    fields, target = constant("cif", 0.0), standing_person("cif")
    sum(Composite(head="cif")(fields=fields, target=target).values()).sum().backward()
    norms = fields.grad[0].transpose(0, 1).flatten(1).norm(dim=1)
    golden = [7.791894, 21.606421, 13.807404, 12.560526, 9.358177]
    np.testing.assert_allclose(np.delete(norms.numpy(), 1), np.delete(golden, 1), rtol=2e-7)
    assert norms[1].item() == pytest.approx(golden[1], rel=1e-4)  # a float32 sum of 10,625 squares there; in float64:
    slope = 0.25 * (0.5 + 0.5 * math.log(2))  # q phi at q = 1/2; half of it in the 272 full cells
    assert norms[1].item() == pytest.approx(slope * math.sqrt(10353 + 272 / 4), rel=1e-9)
    found = Composite(head="cif", b_scale=10)(fields=constant("cif", 0.0), target=target)
    assert found["scale"].item() == pytest.approx(0.361123, abs=6e-7)


# --- NumPy loops, cell by cell, in the order of openpifpaf/network/losses/components.py ---


def softplus(x):
    return math.log1p(math.exp(-abs(x))) + max(x, 0)


def clamped(value, limit):
    return value if value <= limit else limit + math.log(1 - limit + value)


def huber(value):
    return value**2 / 2 if value < 1 else value - 0.5


def expected_composite(head, fields, target, *, alpha=0.5, gamma=1.0, clamps=(5, 5, 5), law="laplace", b=1.0,
                       log=False, floor=0.0, field_weights=None):  # fmt: skip
    n, m = VECTORS[head], SCALES[head]
    result = {name: np.zeros(len(fields)) for name in ("confidence", "vector", "scale")[: 3 if m else 2]}
    for i, f, row, column in np.ndindex(*fields.shape[:2], *fields.shape[3:]):
        p, t = fields[i, f, :, row, column], target[i, f, :, row, column]
        weight = 1 if field_weights is None else field_weights[f]
        s, x = 3 * math.tanh(p[0] / 3), p[1]
        if t[0] >= 0:
            y = 1 if t[0] > 0 else -1
            q = 1 / (1 + math.exp(y * x))
            step = alpha * (q**gamma + gamma * q ** (gamma - 1) * (1 - q) * softplus(-y * x)) * q
            cost = clamped(huber(step), clamps[0])
            if y == -1 and x < -15:
                cost = 0
            result["confidence"][i] += weight * (cost if y == -1 else cost * math.exp(-s) / 2 + s / 2)
        for v in range(n):
            wanted = t[1 + 2 * v : 3 + 2 * v]
            if not np.isfinite(t[1:5] if head == "cifdet" else wanted).all():
                continue
            bmin = t[1 + 2 * n + v]
            dx, dy = p[2 + 2 * v : 4 + 2 * v] - wanted
            d = math.sqrt(dx**2 + dy**2 + (0.1 if math.isnan(bmin) else bmin) ** 2)
            size = math.hypot(*t[3:5]) if head == "cifdet" else t[1 + 3 * n + v]
            size = softplus(p[2 + 2 * n + v]) if math.isnan(size) else size
            e = clamped(d / ((0.1 if head == "cifdet" else 0.5) * max(size, floor)), clamps[1])
            if law == "laplace":
                beta = s / 2 + 0.69314
                cost = e * math.exp(-beta) + beta
            else:
                cost = -math.log(math.exp(-(e**2) / 2 / math.exp(s)) / math.sqrt(2 * math.pi * math.exp(s)))
            result["vector"][i] += weight * cost
        for v in range(m):
            wanted, guess = t[1 + 3 * n + v], softplus(p[2 + 2 * n + v])
            if math.isfinite(wanted):
                d = abs(math.log(guess / wanted)) / b if log else abs(guess - wanted) / (b * (0.1 + wanted))
                result["scale"][i] += weight * huber(clamped(d, clamps[2]))
    return result


def scene(head, seed=3, log_scale_per_vector=False, scale_known=0.7):
    """Predictions and targets (2, 3, ..., 5, 4): empty, full, ignored; some bmin, scales, half vectors unknown."""
    random = np.random.default_rng(seed)
    n, m = VECTORS[head], SCALES[head]
    components = 1 + 3 * n + m if log_scale_per_vector else 2 + 2 * n + m
    fields = random.normal(0, 2, (2, 3, components, 5, 4))
    target = np.full((2, 3, 1 + 3 * n + m, 5, 4), NAN)
    target[:, :, 0] = random.choice([0, 1, NAN], target[:, :, 0].shape, p=[0.5, 0.3, 0.2])
    shape = target[:, :, 0].shape
    full = (target[:, :, 0] == 1) | (random.random(shape) < 0.1)  # a vector without a confidence, too
    for c in range(1, target.shape[2]):
        if c <= 2 * n:
            values, known = random.normal(0, 2, shape), 0.95
        elif c <= 3 * n:
            values, known = random.uniform(0.01, 0.3, shape), 0.7
        else:
            values, known = random.uniform(0.1, 2, shape), scale_known
        if head == "cifdet" and c in (3, 4):
            values = np.abs(values) + 1
        target[:, :, c] = np.where(full & (random.random(shape) < known), values, NAN)
    fields[0, 0, 1, 0] = -16  # beyond the background clamp
    return fields, target


CASES = [
    {},
    {"alpha": 0.25, "gamma": 2.0},
    {"alpha": 4.0, "gamma": 0.0, "clamps": (0.5, 2, 1)},
    {"law": "gaussian", "floor": 0.4},
    {"log": True, "b": 3.0, "field_weights": [1.0, 0.0, 2.5]},
]
NAMES = {"alpha": "focal_alpha", "gamma": "focal_gamma", "law": "regression", "floor": "scale_floor", "b": "b_scale",
         "log": "scale_log", "field_weights": "field_weights"}  # fmt: skip


def options(case):
    clamps = zip(("confidence", "regression", "scale"), case.get("clamps", ()), strict=False)
    return {NAMES[k]: v for k, v in case.items() if k in NAMES} | {f"{k}_soft_clamp": v for k, v in clamps}


@pytest.mark.parametrize("head", VECTORS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_composite_against_loops(head, case):
    fields, target = scene(head)
    expected = expected_composite(head, fields, target, **case)
    loss = Composite(head=head, **options(case))
    found = loss(fields=torch.from_numpy(fields), target=torch.from_numpy(target).float().double())
    assert list(found) == list(expected)
    single = loss(fields=torch.from_numpy(fields).float(), target=torch.from_numpy(target).float())
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=2e-5)  # the target went through float32
        assert single[name].dtype == torch.float32
        np.testing.assert_allclose(single[name], value, rtol=1e-5, atol=2e-5)
    exact = loss(fields=torch.from_numpy(fields), target=torch.from_numpy(target))
    for name, value in expected.items():
        np.testing.assert_allclose(exact[name], value, rtol=1e-9, atol=1e-9)


def test_component_weights():
    fields, target = (torch.from_numpy(x) for x in scene("caf"))
    plain = Composite(head="caf")(fields=fields, target=target)
    weighted = Composite(head="caf", confidence=4.0, vector=0.5, scale=0.0)(fields=fields, target=target)
    assert list(weighted) == ["confidence", "vector"]
    np.testing.assert_allclose(weighted["confidence"], 4 * plain["confidence"])
    np.testing.assert_allclose(weighted["vector"], plain["vector"] / 2)


# --- gradients ---


def slopes(loss, fields, target):
    fields = torch.from_numpy(fields).requires_grad_()
    sum(loss(fields=fields, target=torch.from_numpy(target)).values()).sum().backward()
    return fields.grad.numpy()


def differences(loss, fields, target, step=1e-6):
    """Central differences of the sum of all components: cells are independent, so each becomes an example."""
    result = np.zeros_like(fields)
    cells = fields.transpose(0, 1, 3, 4, 2).reshape(-1, 1, fields.shape[2], 1, 1)
    aims = torch.from_numpy(target.transpose(0, 1, 3, 4, 2).reshape(-1, 1, target.shape[2], 1, 1).copy())
    for c in range(fields.shape[2]):
        ends = []
        for sign in (1, -1):
            moved = cells.copy()
            moved[:, :, c] += sign * step
            ends.append(sum(loss(fields=torch.from_numpy(moved), target=aims).values()).numpy())
        result[:, :, c] = ((ends[0] - ends[1]) / (2 * step)).reshape(result[:, :, c].shape)
    return result


@pytest.mark.parametrize("head", VECTORS)
@pytest.mark.parametrize("case", [{}, {"law": "gaussian", "clamps": (5, 1, 0.5)}], ids=str)
def test_slopes_against_differences(head, case):
    fields, target = scene(head, scale_known=2)  # a guessed scale passes no gradient on, so every scale is known here
    loss = Composite(head=head, **options(case))
    found, expected = slopes(loss, fields, target), differences(loss, fields, target)
    others = [c for c in range(fields.shape[2]) if c != 1]  # the confidence's slope is not that of its value: below
    np.testing.assert_allclose(found[:, :, others], expected[:, :, others], rtol=1e-5, atol=1e-7)
    assert np.abs(expected[:, :, others]).max() > 0.1


@pytest.mark.parametrize(("alpha", "gamma"), [(0.5, 1.0), (1.0, 0.0), (0.25, 2.0), (0.5, 0.5)])
def test_confidence_slope_is_the_focal_losss(alpha, gamma):
    x = np.concatenate([np.linspace(-12, 12, 49), [-14.9, 40.0]])
    for sign, share in ((1, 0.5), (-1, 1.0)):  # where there is something, half: exp(-s) / 2 at s = 0
        logit = torch.from_numpy(x).requires_grad_()
        log_p = torch.nn.functional.logsigmoid(sign * logit)
        (-alpha * torch.sigmoid(-sign * logit) ** gamma * log_p).sum().backward()
        fields, target = np.zeros((1, 1, 5, 1, len(x))), np.full((1, 1, 5, 1, len(x)), NAN)
        fields[0, 0, 1, 0], target[0, 0, 0] = x, max(sign, 0)
        found = slopes(Composite(head="cif", focal_alpha=alpha, focal_gamma=gamma), fields, target)[0, 0, 1, 0]
        np.testing.assert_allclose(found, share * logit.grad, rtol=1e-9, atol=1e-13)


def test_a_guessed_scale_is_not_trained_by_the_vector():
    _, slope = one_cell([0, 0, 1, 1, 0.3], [NAN, 0, 0, 0.1, NAN])
    assert slope[4] == 0
    assert np.abs(slope[2:4]).min() > 0.1


@pytest.mark.parametrize("kind", [Composite, Paper2019, BceLaplace11, BceLaplace12])
@pytest.mark.parametrize("head", VECTORS)
def test_what_is_left_out_contributes_nothing(kind, head):
    fields, target = scene(head, log_scale_per_vector=kind.log_scale_per_vector)
    target[:, :, :, 3:] = NAN
    wild = fields.copy()
    wild[:, :, :, 3:] = 1e5  # overflows exp and friends
    loss = kind(head=head)
    calm, found = (loss(fields=torch.from_numpy(x), target=torch.from_numpy(target)) for x in (fields, wild))
    for name in calm:
        np.testing.assert_array_equal(calm[name], found[name])
    slope = slopes(loss, wild, target)
    assert not slope[:, :, :, 3:].any()
    np.testing.assert_array_equal(slope, slopes(loss, fields, target))
    target[:] = NAN
    assert not any(
        value.any() for value in loss(fields=torch.from_numpy(wild), target=torch.from_numpy(target)).values()
    )
    assert not slopes(loss, wild, target).any()


def test_a_network_that_went_astray_is_seen():
    fields, target = (torch.from_numpy(x) for x in scene("cif"))
    fields[1][target[1, :, :1].expand_as(fields[1]) == 0] = NAN
    found = Composite(head="cif")(fields=fields, target=target)
    assert found["confidence"].isnan().tolist() == [False, True]


@pytest.mark.parametrize("kind", [Composite, Paper2019, BceLaplace11, BceLaplace12])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(kind, dtype):
    fields, target = (torch.from_numpy(x).float() for x in scene("caf", log_scale_per_vector=kind.log_scale_per_vector))
    half = (3 * fields).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        found = kind(head="caf", field_weights=[1.0, 0.37, 0.1])(fields=half, target=target)
    expected = kind(head="caf", field_weights=[1.0, 0.37, 0.1])(fields=half.detach().float(), target=target)
    for name in expected:
        assert found[name].dtype == torch.float32
        np.testing.assert_array_equal(found[name].detach(), expected[name])
    sum(found.values()).sum().backward()
    assert half.grad.isfinite().all()


# --- the earlier ones ---


def bce(x, y):
    return softplus(-x) if y > 0 else softplus(x)


def earlier_confidence(kind, x, t, share):
    """`share`: examples over cells that count, for the paper's mean."""
    if kind is Paper2019:
        return bce(x, t) * share
    if kind is BceLaplace11:
        cost = min(max(bce(x, t), 0.02), 5)
        return cost * (1 - math.exp(-cost))
    x = max(x, -15) if t == 0 else x
    wrong = 1 / (1 + math.exp(x if t > 0 else -x))
    return clamped(bce(x, t), 5) * wrong / 2 * (t if t > 0 else 1)


def earlier_vector(kind, dx, dy, bmin, log_b):
    d = math.hypot(dx, dy)
    if kind is Paper2019:
        return (0.694 + log_b + d * math.exp(-log_b)) / 1000
    if kind is BceLaplace11:
        log_b = max(log_b, -3)
        return log_b + (min(d, 5) + 0.1) * math.exp(-log_b)
    log_b = 3 * math.tanh(log_b / 3)
    return log_b + clamped(math.hypot(d, bmin) * math.exp(-log_b), 5)


def earlier_scale(kind, raw, wanted):
    if kind is Paper2019:
        return abs(raw - wanted) / 1000
    if kind is BceLaplace11:
        return min(abs(math.exp(raw) - wanted), 5)
    return clamped(abs(softplus(raw) - wanted) / (0.1 + wanted), 5)


def expected_earlier(kind, head, fields, target):
    n, m = VECTORS[head], SCALES[head]
    result = {name: np.zeros(len(fields)) for name in ("confidence", "vector", "scale")[: 3 if m else 2]}
    share = len(fields) / np.sum(target[:, :, 0] >= 0)
    for i, f, row, column in np.ndindex(*fields.shape[:2], *fields.shape[3:]):
        p, t = fields[i, f, :, row, column], target[i, f, :, row, column]
        if t[0] >= 0:
            result["confidence"][i] += earlier_confidence(kind, p[0], t[0], share)
        for v in range(n):
            wanted, bmin = t[1 + 2 * v : 3 + 2 * v], t[1 + 2 * n + v]
            if np.isfinite(t[1:5] if head == "cifdet" else wanted).all():
                offset = p[1 + 2 * v : 3 + 2 * v] - wanted
                bmin = 0.1 if math.isnan(bmin) else bmin
                result["vector"][i] += earlier_vector(kind, *offset, bmin, p[1 + 2 * n + v])
        for c in range(1 + 3 * n, 1 + 3 * n + m):
            if math.isfinite(t[c]):
                result["scale"][i] += earlier_scale(kind, p[c], t[c])
    return result


@pytest.mark.parametrize("head", VECTORS)
@pytest.mark.parametrize("kind", [Paper2019, BceLaplace11, BceLaplace12])
def test_earlier_losses_against_loops(kind, head):
    fields, target = scene(head, log_scale_per_vector=True)
    target[0, 1, 0] = np.where(target[0, 1, 0] > 0, 0.3, target[0, 1, 0])  # 0.12 reads it as a weight
    fields[0, 0, 0, 0] = -16
    expected = expected_earlier(kind, head, fields, target)
    weights = {"confidence": 1.0, "vector": 1.0, "scale": 1.0}
    found = kind(head=head, **weights)(fields=torch.from_numpy(fields), target=torch.from_numpy(target))
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [Paper2019, BceLaplace12])
def test_earlier_slopes_against_differences(kind):
    fields, target = scene("caf", log_scale_per_vector=True)
    loss = kind(head="caf", confidence=0, vector=1, scale=1)
    found, expected = slopes(loss, fields, target), differences(loss, fields, target)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_weights_of_the_first_paper():
    fields, target = (torch.from_numpy(x) for x in scene("cif", log_scale_per_vector=True))
    ones = Paper2019(head="cif", confidence=1, vector=1, scale=1)(fields=fields, target=target)
    found = Paper2019(head="cif")(fields=fields, target=target)
    for name, weight in {"confidence": 30, "vector": 2, "scale": 2}.items():
        np.testing.assert_allclose(found[name], weight * ones[name])
    assert Paper2019(head="caf").weights == {"confidence": 50, "vector": 3}
    l1 = Paper2019(head="cif", regression="l1", confidence=0, vector=1, scale=0)
    cell = torch.tensor([0.0, 3, 4, 1, 1]).reshape(1, 1, 5, 1, 1)
    aim = torch.tensor([1.0, 0, 0, 0.1, 1]).reshape(1, 1, 5, 1, 1)
    assert l1(fields=cell, target=aim)["vector"].item() == pytest.approx(0.005)
    light = Paper2019(head="cif", confidence=1, vector=0, scale=0, background=0.25)
    both = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 1, 2).repeat(1, 1, 5, 1, 1)
    found = light(fields=torch.zeros(1, 1, 5, 1, 2), target=both)["confidence"]
    assert found.item() == pytest.approx(1.25 * math.log(2) / 2)


# --- automatic weights of components ---


def test_golden_total_of_weighted_tasks():
    """OpenPifPaf's six components of the standing person at 0.0, and their weighted sum before any training."""
    components = {"cif": (234.91653, 746.23718, 36.10083), "caf": (263.48322, 1399.02075, 57.06207)}
    log_sigmas = TaskWeights(heads=["cif", "caf"])()
    total = 0.0
    for head, values in components.items():
        values = {n: torch.tensor([v]) for n, v in zip(("confidence", "vector", "scale"), values, strict=True)}
        total += sum(task_weighted(values, log_sigmas[head]).values()).item()
    assert total == pytest.approx(2490.8467, abs=2e-4)


def test_weighted_tasks_and_the_best_weights():
    tasks = TaskWeights(heads=["cif"])
    with torch.no_grad():
        tasks.unbounded["cif"].copy_(torch.tensor([0.9, -20.0]))
    values = {name: torch.tensor([2.0, 5.0]) for name in ("confidence", "vector", "scale")}
    found = task_weighted(values, tasks()["cif"])
    u, v = 3 * math.tanh(0.3), 3 * math.tanh(-20 / 3)
    np.testing.assert_allclose(
        found["confidence"].detach(), 0.919 + u + np.array([1, 2.5]) * math.exp(-2 * u), rtol=1e-6
    )
    np.testing.assert_allclose(found["scale"].detach(), 0.694 + v + np.array([2, 5]) * math.exp(-v), rtol=1e-6)
    assert found["vector"] is values["vector"]
    # the best sigma follows the values: u = ln(value) / 2 for the normal law, u = ln(value) for Laplace's
    best = torch.tensor([math.log(4) / 2, math.log(4)], requires_grad=True)
    sum(
        task_weighted({"confidence": torch.tensor([4.0]), "scale": torch.tensor([4.0])}, best).values()
    ).sum().backward()
    np.testing.assert_allclose(best.grad, [0, 0], atol=1e-6)


def test_weights_of_tasks_reach_a_loss_through_the_state_and_are_trained():
    tasks, random = TaskWeights(heads=["boxes"]), torch.Generator().manual_seed(2)
    weigh = Forward(network="tasks", inputs={}, outputs={"boxes": "boxes_sigmas"})
    state = State({})
    weigh(state, Networks(live={"tasks": tasks}, ema={"tasks": tasks}), 0)
    fields = torch.randn(2, 3, 6, 4, 4, generator=random)
    target = torch.rand(2, 3, 7, 4, 4, generator=random) + 1
    plain = Composite(head="cifdet", confidence=1.0)(fields=fields, target=target)
    found = Composite(head="cifdet", confidence=3.0)(fields=fields, target=target, log_sigmas=state["boxes_sigmas"])
    np.testing.assert_allclose(found["confidence"].detach(), 3 * (0.919 + plain["confidence"] / 2), rtol=1e-5)
    np.testing.assert_array_equal(found["vector"].detach(), plain["vector"])
    found["confidence"].mean().backward()
    slope = 3 * (1 - plain["confidence"].mean().item())  # of u + value exp(-2 u) / 2 at u = 0; there are no scales
    np.testing.assert_allclose(tasks.unbounded["boxes"].grad, [slope, 0], rtol=1e-5)

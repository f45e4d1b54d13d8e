"""VUNet: parity vectors in float64, sizes, wiring, modes; its loss and its score."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from dumps_by_hand import dump_of

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.images.pixel_losses import L1, L2, Gradient
from models.vunet.blocks import Convolution, activate, depth_to_space, space_to_depth
from models.vunet.losses import LatentKL
from models.vunet.networks import VUNet
from models.vunet.scores import ClothesColour, ClothesContrast, contrast, correlation, mean_colour, share


def hashed(n, salt):
    """Return `n` numbers in [-1, 1) from a 32-bit integer hash, which fill the parameters for the parity vectors."""
    mask = np.uint64(0xFFFFFFFF)
    h = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(1000003 * salt)) & mask
    h ^= h >> np.uint64(16)
    h = (h * np.uint64(0x7FEB352D)) & mask
    h ^= h >> np.uint64(15)
    h = (h * np.uint64(0x846CA68B)) & mask
    h ^= h >> np.uint64(16)
    return torch.from_numpy(2 * h.astype(np.float64) / 2**32 - 1)


@torch.no_grad()
def fill(network, convolution):
    for name, parameter in network.named_parameters():
        u = hashed(parameter.numel(), parameter.numel()).view_as(parameter)
        kind = name.rsplit(".", 1)[1]
        if kind == "weight":
            u = u if convolution == "normalised" else 0.6 * math.sqrt(3 / parameter[0].numel()) * u
        elif kind == "bias":
            u = 0.05 * u
        else:
            u = torch.full_like(u, {"gain": 0.6, "gamma": 0.9, "beta": 0.05}[kind])
        parameter.copy_(u)


def small(**settings):
    return VUNet(**{"image_size": 16, "nf_start": 8, "nf_max": 16} | settings)


COLUMNS = {
    ("plain", 64): {
        "output": (-0.0427788, 0.1774945),
        "corner": (0.0171768, -0.1056966, -0.0623543),
        "inner": (-0.0403175, 0.1555864, -0.1124891),
        "q_T": (-0.0056993, -0.0071909, -0.1893696, 0.1406615),
        "q_L": (0.0040936, -0.0593582, -0.0013771, 0.1217830),
        "p_T": (-0.0050976, -0.0354722, -0.2092145, 0.0276148),
        "p_L": (-0.0210526, 0.0119865, 0.1307801),
        "p_L end": {"intended": (-0.0199062, -0.0509584, 0.0781095), "port": (-0.0175860, -0.0353158, 0.0648130)},
        "KL": {"intended": (3.07058, 3.12111), "port": (3.04944, 3.11405)},
        "L1": (0.5100861, 0.5140637),
        "L2": (0.3591110, 0.3628697),
        "gradient": (1.0412104, 1.0383451),
        "sample": {"intended": (-0.0419099, 0.1586192, -0.1128759), "port": (-0.0427209, 0.1581296, -0.1125718)},
    },
    ("plain", 16): {
        "output": (-0.0407611, 0.1488704),
        "corner": (0.1662707, -0.1678759, 0.0739446),
        "inner": (-0.2495122, 0.2318238, -0.1517152),
        "q_T": (-0.0047818, -0.0321608, -0.2672312, -0.0658448),
        "q_L": (0.0042280, -0.0602974, -0.0051996, 0.1096073),
        "p_T": (-0.0006539, -0.0528276, -0.0882553, 0.0249158),
        "p_L": (-0.0116613, -0.0642367, 0.0873030),
        "p_L end": {"intended": (-0.0526413, -0.0354111, 0.0660608), "port": (-0.0350930, -0.0226022, 0.0372567)},
        "KL": {"intended": (3.11715, 2.69809), "port": (3.10372, 2.74245)},
        "L1": (0.5011779, 0.5157020),
        "L2": (0.3432828, 0.3655417),
        "gradient": (1.0640514, 1.0812594),
        "sample": {"intended": (-0.2421372, 0.2248984, -0.1692818), "port": (-0.2432907, 0.2237791, -0.1684264)},
    },
    ("normalised", 64): {
        "output": (0.0155142, 0.1974470),
        "corner": (0.1688306, -0.0913253, -0.1128739),
        "inner": (0.2345558, -0.0038029, -0.0269119),
        "q_T": (0.1091481, 0.0814798, -0.0084514, 0.2584050),
        "q_L": (0.1056348, 0.0221699, 0.1132299, 0.1843323),
        "p_T": (0.1089174, 0.0927664, -0.0115863, 0.2241731),
        "p_L": (0.0714143, -0.1520399, 0.0155219),
        "p_L end": {"intended": (0.1312110, 0.2858483, 0.3392097), "port": (0.1671721, 0.2801246, 0.2778450)},
        "KL": {"intended": (4.51765, 4.52987), "port": (4.23907, 4.27145)},
        "L1": (0.5102083, 0.5159920),
        "L2": (0.3621506, 0.3682881),
        "gradient": (1.0707468, 1.0692877),
        "sample": {"intended": (0.2360623, -0.0040710, -0.0289928), "port": (0.2354990, -0.0039440, -0.0287503)},
    },
}


def mean_and_start(means):
    return [means.mean().item(), *means[0, :3].flatten().tolist()]


@pytest.mark.parametrize("wiring", ["intended", "port"])
@pytest.mark.parametrize(("convolution", "size"), COLUMNS)
@torch.no_grad()
def test_parity_vectors(convolution, size, wiring):
    expected = COLUMNS[convolution, size]
    network = VUNet(
        image_size=size,
        nf_start=64,
        nf_max=128,
        convolution=convolution,
        output="tanh" if convolution == "plain" else "linear",
        autoregression=wiring,
    ).double()
    fill(network, convolution)
    pose, appearance, target = (hashed(6 * size * size, salt).view(2, 3, size, size) for salt in (1, 2, 3))
    result = network(pose, appearance, noise_scale=0.0)
    image, q, p = result["image"], result["q_means"], result["p_means"]
    top, low = f"s{int(math.log2(size)) + 1}", f"s{int(math.log2(size))}"
    assert list(q) == list(p) == [top, low]

    def near(found, wanted, tolerance=1e-6):
        assert np.allclose(np.asarray(found), wanted, rtol=0, atol=tolerance)

    near([image.mean(), image.std(correction=0)], expected["output"])
    near(image[0, :, 0, 0], expected["corner"])
    near(image[1, :, 5, 9], expected["inner"])
    near(mean_and_start(q[top]), expected["q_T"])
    near(mean_and_start(q[low]), expected["q_L"])
    near(mean_and_start(p[top]), expected["p_T"])
    near(p[low][0, :3, 0, 0], expected["p_L"])
    near(p[low][0, -3:, 0, 0], expected["p_L end"][wiring])
    near(L1()(image=image, target=target), expected["L1"])
    near(L2()(image=image, target=target), expected["L2"])
    near(Gradient(signed=False)(image=image, target=target), expected["gradient"])
    near(LatentKL()(posterior=q, prior=p), expected["KL"][wiring], tolerance=1e-5)
    sample = network(pose, mode="sample_appearance", noise_scale=0.0)
    near(sample["image"][1, :, 5, 9], expected["sample"][wiring])
    assert sample["q_means"] is None


@pytest.mark.parametrize(
    ("nf_start", "size", "parts", "total"),
    [
        (64, 256, (3_542_400, 1_574_400, 3_066_752, 7_731_907), 19_457_859),
        (64, 64, (2_656_896, 1_574_400, 3_066_752, 5_305_027), 15_259_971),
        (64, 16, (1_771_392, 1_574_400, 3_066_752, 2_878_147), 11_062_083),
        (32, 64, (664_896, 393_984, 767_424, 1_327_459), 3_818_659),
    ],
)
def test_parameter_counts(nf_start, size, parts, total):
    def count(module):
        return sum(parameter.numel() for parameter in module.parameters())

    with torch.device("meta"):
        network = VUNet(image_size=size, nf_start=nf_start, nf_max=2 * nf_start)
    counted = (network.shape_encoder, network.posterior, network.bottleneck, network.decoder)
    assert tuple(count(part) for part in counted) == parts
    assert count(network.appearance_encoder) == parts[0]
    assert count(network) == total
    if size in (64, 256) and nf_start == 64:
        assert len(list(network.parameters())) == {256: 238, 64: 194}[size]
        with torch.device("meta"):
            network = VUNet(image_size=size, nf_start=64, nf_max=128, convolution="normalised")
        assert count(network) == {256: 19_510_860, 64: 15_302_220}[size]


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [({}, ()), ({"convolution": "normalised"}, ()), ({"autoregression": "port"}, ("skip", "conv"))],
)
def test_every_parameter_gets_a_gradient_but_the_last_block_of_the_port(settings, lacking):
    network = small(**settings)
    result = network(torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16))
    distance = sum((result["q_means"][k] - result["p_means"][k]).square().sum() for k in result["q_means"])
    (result["image"].square().sum() + distance).backward()
    found = {n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert found == {f"bottleneck.auto.2.{layer}.{kind}" for layer in lacking for kind in ("weight", "bias")}


@pytest.mark.parametrize(
    ("wiring", "reached"), [("intended", [{1, 2, 3}, {2, 3}, {3}, set()]), ("port", [set(), {2, 3}, {3}, set()])]
)
def test_which_groups_of_the_lower_prior_depend_on_which(wiring, reached):
    bottleneck = small(autoregression=wiring).double().bottleneck
    v, latent = torch.randn(1, 16, 2, 2).double(), torch.randn(1, 64, 1, 1).double()

    def means(z):
        return bottleneck._lower_prior(v, z, 0.0)[0].chunk(4, dim=1)

    before = means(latent)
    for group in range(4):
        moved = latent.clone()
        moved[:, 16 * group : 16 * group + 16] += 1
        changed = {i for i, (a, b) in enumerate(zip(before, means(moved), strict=True)) if not torch.equal(a, b)}
        assert changed == reached[group]


def test_space_to_depth_follows_the_index_formula_and_back():
    x = torch.randn(2, 3, 4, 6)
    y = space_to_depth(x)
    assert y.shape == (2, 12, 2, 3)
    for i in range(2):
        for j in range(2):
            assert torch.equal(y[:, (2 * i + j) * 3 : (2 * i + j + 1) * 3], x[:, :, i::2, j::2])
    assert torch.equal(depth_to_space(y), x)


def test_what_is_random_and_what_is_not():
    network, (pose, appearance) = small(dropout=0.5), torch.randn(2, 2, 3, 16, 16)

    def equal(**how):
        one, other = (network(pose, **how)["image"] for _ in range(2))
        return torch.equal(one, other)

    assert not equal(appearance=appearance, mode="appearance_transfer")  # dropout
    network.eval()
    assert equal(appearance=appearance, mode="appearance_transfer")
    assert not equal(appearance=appearance)
    assert not equal(mode="sample_appearance")
    transfer = network(pose, appearance, mode="appearance_transfer")
    assert torch.equal(network(pose, appearance, noise_scale=0.0)["image"], transfer["image"])
    samples = []
    for _ in range(2):
        torch.manual_seed(0)
        samples.append(network(pose, mode="sample_appearance")["image"])
    assert torch.equal(*samples)


def test_noise_has_the_scale_asked_for():
    network = small(nf_start=64, nf_max=128)
    means = torch.zeros(512, 128, 1, 1)
    features = [(means.expand(-1, -1, size, size), means.expand(-1, -1, size, size)) for size in (2, 1)]
    (top, _), (z, _) = network.posterior(features, 0.5)
    noise = z - top
    assert noise.mean().abs() < 0.01
    assert 0.49 < noise.std() < 0.51


def test_fan_in_initialisation():
    network = VUNet(image_size=16, nf_start=64, nf_max=128, initialisation="fan_in")
    up = network.decoder.ups[0].conv
    assert up.weight.std().item() == pytest.approx(1 / math.sqrt(9 * 128), rel=0.02)
    assert up.bias.abs().max() == 0
    assert network.decoder.out.weight.std().item() == pytest.approx(0.3 / math.sqrt(64), rel=0.2)
    inside = network.decoder.first[0].conv
    assert inside.weight.abs().max() <= 1 / math.sqrt(9 * 256)
    assert inside.bias.abs().max() > 0


def test_normalised_convolution_starts_as_a_plain_one():
    torch.manual_seed(0)
    network = small(convolution="normalised")
    stem = network.shape_encoder.stem
    x = torch.randn(1, 3, 5, 5)
    assert torch.allclose(stem(x), torch.nn.functional.conv2d(x, stem.weight, stem.bias), atol=1e-6)


def test_a_1x1_map_meets_the_middle_of_the_kernel_only():
    convolution = Convolution(4, 6, 3).double()
    x = torch.randn(2, 4, 1, 1).double().requires_grad_()
    plain = torch.nn.functional.conv2d(x, convolution.weight, convolution.bias, padding=1)
    assert torch.allclose(convolution(x), plain)
    ours = torch.autograd.grad(convolution(x).square().sum(), (x, convolution.weight))
    theirs = torch.autograd.grad(plain.square().sum(), (x, convolution.weight))
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))


def test_activation_differentiates_like_elu_of_the_concatenation():
    parts = [torch.randn(2, c, 3, 4, dtype=torch.float64, requires_grad=True) for c in (3, 2)]
    assert torch.equal(activate(*parts), torch.nn.functional.elu(torch.cat(parts, dim=1)))
    assert torch.autograd.gradcheck(activate, parts)
    assert torch.autograd.gradcheck(activate, parts[:1])


def test_autocast_trains():
    network = VUNet(image_size=16, nf_start=64, nf_max=128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = network(torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16))
    assert result["image"].dtype == torch.bfloat16
    result["image"].float().square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


# --- the latent KL against NumPy in float64 ---


def latents(seed):
    rng = np.random.default_rng(seed)
    return {"s7": rng.normal(size=(3, 8, 1, 1)), "s6": rng.normal(size=(3, 32, 1, 1))}


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def gaussian_kl(q, p):
    """KL of N(q, 1) from N(p, 1) per dimension, by the formula for general variances."""
    variance_q = variance_p = 1.0
    return 0.5 * (np.log(variance_p / variance_q) + (variance_q + (q - p) ** 2) / variance_p - 1)


def test_the_divergence_sums_all_levels_and_channels_in_nats():
    q, p = latents(0), latents(1)
    expected = [sum(gaussian_kl(q[name][n], p[name][n]).sum() for name in q) for n in range(3)]
    q, p = ({name: tensor.requires_grad_() for name, tensor in tensors(side).items()} for side in (q, p))
    nats = LatentKL()(posterior=q, prior=p)
    np.testing.assert_allclose(nats.detach(), expected, rtol=0, atol=1e-6)
    nats.sum().backward()
    for name in q:  # the gradient reaches both sides
        assert torch.allclose(q[name].grad, (q[name] - p[name]).detach())
        assert torch.allclose(p[name].grad, -q[name].grad)
    each = LatentKL(unit="nats_per_element")(posterior=q, prior=p, image=torch.zeros(3, 3, 16, 16))
    assert torch.allclose(each * (3 * 16 * 16), nats)
    half = torch.ones(1, 4096, 1, 1, dtype=torch.bfloat16)
    found = LatentKL()(posterior={"a": half}, prior={"a": 0 * half})
    assert (found.dtype, found.item()) == (torch.float32, 2048)  # summed in float32


# --- the colours of clothes, and their patterns ---


def test_correlation_is_numpys_averaged_over_channels():
    random = np.random.default_rng(0)
    shown = random.uniform(-1, 1, (40, 3))
    made = 0.6 * shown + 0.4 * random.uniform(-1, 1, (40, 3))
    expected = np.mean([np.corrcoef(made[:, c], shown[:, c])[0, 1] for c in range(3)])
    assert correlation(np.concatenate([made, shown], axis=1)) == pytest.approx(expected, abs=1e-12)
    assert share(np.array([[1.0, 4.0], [2.0, 2.0]])) == pytest.approx(0.5)  # of the sums


def test_mean_colour_needs_enough_cloth():
    image = np.zeros((3, 8, 8), np.float32)
    image[1, :4] = 0.5
    mask = np.zeros((1, 8, 8), np.float32)
    mask[0, :2] = 1  # 16 pixels
    assert mean_colour(image, mask) == pytest.approx([0, 0.5, 0])
    mask[0, 1] = 0  # 8 pixels
    assert mean_colour(image, mask) is None


def test_contrast_of_stripes_by_hand():
    """In 4 x 4 pixels, 12 pairs one above the other differ by 1, and 12 side by side by 0."""
    image = np.zeros((3, 8, 8), np.float32)
    image[:, ::2], image[:, 1::2] = 0.5, -0.5
    mask = np.zeros((1, 8, 8), np.float32)
    mask[0, 2:6, 2:6] = 1
    assert contrast(image, mask) == pytest.approx([0.5])
    mask[0, 2:6, 1] = mask[0, 1, 2:6] = 0.5  # an edge, which the background's colour is in too
    assert contrast(image, mask) == pytest.approx([0.5])
    mask[0, 4:] = 0  # 4 pairs one above the other, 6 side by side
    assert contrast(image, mask) is None


def test_stripes_that_are_blurred_or_invented(tmp_path):
    """Three people with stripes of rising contrast: half of it is left, or all of it by other people."""
    rows = torch.tensor([1.0, -1.0] * 4)[:, None].expand(3, 8, 8)
    shown = torch.stack([strength * rows for strength in (0.2, 0.4, 0.6)])
    whole = torch.ones(3, 1, 8, 8)
    masks = {name: whole for name in ("top", "bottom", "appearance_top", "appearance_bottom")}
    for name, made, r in (("blurred", 0.5 * shown, 1), ("others", 0.5 * shown.flip(0), -1)):
        dump = dump_of(
            tmp_path / name, mode="transfer", columns={"person_id": range(3)}, image=made, appearance=shown, **masks
        )
        score = ClothesContrast(mode="transfer", image="image", appearance="appearance", person="person_id")
        found = score(dump, Bootstrap(20, 0.9, seed=0))
        assert found["top_r"]["value"] == pytest.approx(r, abs=1e-5)
        assert found["bottom_kept"]["value"] == pytest.approx(0.5, abs=1e-5)


def dump_of_clothes(folder: Path, made: np.ndarray, shown: np.ndarray) -> Dump:
    """One row a person: clothes of constant colour, tops in the upper half, bottoms in the lower."""
    count = len(made)
    upper = torch.zeros(count, 1, 8, 8)
    upper[:, :, :4] = 1
    image, appearance = (torch.from_numpy(c).float()[:, :, None, None].expand(count, 3, 8, 8) for c in (made, shown))
    masks = {"top": upper, "bottom": 1 - upper, "appearance_top": upper, "appearance_bottom": 1 - upper}
    people = {"person_id": range(count)}
    return dump_of(folder, mode="transfer", columns=people, image=image, appearance=appearance, **masks)


@pytest.mark.parametrize(("faithful", "bounds"), [(True, (0.999, 1.0001)), (False, (-0.6, 0.6))])
def test_clothes_that_follow_the_appearance_correlate(tmp_path, faithful, bounds):
    random = np.random.default_rng(1)
    shown = random.uniform(-1, 1, (12, 3))
    made = 0.5 * shown if faithful else random.uniform(-1, 1, (12, 3))
    score = ClothesColour(mode="transfer", image="image", appearance="appearance", person="person_id")
    found = score(dump_of_clothes(tmp_path, made, shown), Bootstrap(20, 0.9, seed=0))
    assert found["top_identities"] == found["bottom_identities"] == 12
    assert bounds[0] <= found["top_r"]["value"] <= bounds[1]


def test_equal_ids_of_two_datasets_are_two_people(tmp_path):
    shown = np.random.default_rng(1).uniform(-1, 1, (12, 3))
    dump = dump_of_clothes(tmp_path, shown, shown)
    dump.table["person_id"] = [*range(6), *range(6)]
    score = ClothesColour(mode="transfer", image="image", appearance="appearance", person="person_id")
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 6
    dump.table["dataset"] = ["mine"] * 6 + ["yours"] * 6
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 12
    dump.table["person_id"] = [*"abcdefgh", *[np.nan] * 4]  # unknown people, too
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 12


def test_without_clothes_there_is_no_score(tmp_path):
    shown = np.random.default_rng(1).uniform(-1, 1, (12, 3))
    dump = dump_of_clothes(tmp_path, shown, shown)
    score = ClothesColour(mode="transfer", image="image", appearance="appearance", person="person_id", where="few")
    dump.table["few"] = [1, 1] + [0] * 10
    said = "clothes of 3 identities are needed, in both pictures; mode 'transfer' has 2 with a top and 2 with a bottom"
    with pytest.raises(NotApplicableError, match=said):
        score(dump, Bootstrap(20, 0.9, seed=0))
    dump.table["few"] = [1] * 5 + [0] * 7
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 5

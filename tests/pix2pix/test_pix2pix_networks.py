"""U-Net and PatchGAN: published parameter counts, parity vectors, blocks by formula, three steps of training."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import binary_cross_entropy_with_logits

from figura.base.errors import UserError
from models.images.pixel_losses import L2, Laplacian, Sobel
from models.pix2pix.convolutions import convolve, convolve_transposed
from models.pix2pix.discriminator import PatchDiscriminator
from models.pix2pix.generator import UNetGenerator

COUNTS = {
    (64, 3): (16_655_939, 12_410_755, 17_436_678, 13_191_494),
    (64, 6): (54_404_675, 39_150_979, 57_547_782, 42_294_086),
    (64, 7): (66_987_587, 48_064_387, 70_918_150, 51_994_950),
    (32, 6): (13_603_619, 9_790_147, 14_390_790, 10_577_318),
}
VARIANTS = [(block, up) for block in ("standard", "residual") for up in ("transposed", "bilinear")]

# mean, population standard deviation, first, middle and last element
GOLDEN = {
    (256, "standard", "transposed"): (0.0004371905, 0.4709999588, -0.0015621660, -0.3746787961, 0.1981005219),
    (64, "standard", "transposed"): (-0.0005519754, 0.1737778675, -0.1801513676, -0.1028906177, -0.2091991360),
    (64, "standard", "bilinear"): (0.0148718089, 0.0640871355, -0.0821422402, 0.0557940231, -0.0225215144),
    (64, "residual", "transposed"): (0.0199450244, 0.1892628889, -0.1784350327, 0.1553566128, -0.2347717341),
    (64, "residual", "bilinear"): (0.0340473298, 0.0789966543, 0.2301231431, 0.0771640847, 0.0370784648),
}


@torch.no_grad()
def fill(network, amplitude):
    """Fill the parameters for the parity vectors: element k of each weight is amplitude x sin(k), biases are 0."""
    for parameter in network.parameters():
        k = torch.arange(parameter.numel(), dtype=torch.float64)
        values = amplitude * torch.sin(k) if parameter.ndim == 4 else torch.zeros_like(k)
        parameter.copy_(values.view_as(parameter))
    return network


def wave(size, phase, channels=3):
    k = torch.arange(channels * size * size, dtype=torch.float64)
    return torch.sin(0.01 * k + phase).view(1, channels, size, size)


def small(**settings):
    return UNetGenerator(**{"image_size": 32, "features": 4, "n_downs": 3} | settings)


@pytest.mark.parametrize(("features", "n_downs"), COUNTS)
def test_parameter_counts(features, n_downs):
    with torch.device("meta"):
        counts = [
            sum(
                p.numel()
                for p in UNetGenerator(
                    image_size=2 ** (n_downs + 2), features=features, n_downs=n_downs, block=block, upsampling=up
                ).parameters()
            )
            for block, up in VARIANTS
        ]
    assert tuple(counts) == COUNTS[features, n_downs]


@pytest.mark.parametrize(("size", "block", "up"), GOLDEN)
def test_parity_with_the_reference(size, block, up):
    """The reference adds the last shortcut after tanh (its defect A3): `residual_output: unbounded`."""
    features, n_downs, amplitude = (64, 6, 0.05) if size == 256 else (8, 4, 0.1)
    with torch.device("meta"):
        network = UNetGenerator(
            image_size=size, features=features, n_downs=n_downs, block=block, upsampling=up, residual_output="unbounded"
        )
    network = fill(network.double().to_empty(device="cpu"), amplitude).eval()
    with torch.no_grad():
        image = network(wave(size, 0.0))["image"]
    assert image.shape == (1, 3, size, size)
    flat = image.flatten()
    found = [image.mean(), image.std(correction=0), flat[0], flat[flat.numel() // 2], flat[-1]]
    assert torch.tensor(found).tolist() == pytest.approx(list(GOLDEN[size, block, up]), abs=6e-11)


def test_the_residual_output_stays_in_range():
    network = small(block="residual").eval()
    with torch.no_grad():
        network.last.shortcut[0].bias.fill_(2.0)
        image = network(torch.rand(2, 3, 32, 32) * 2 - 1)["image"]
        x = torch.rand(1, 8, 4, 4)
        expected = torch.tanh(network.last.convolution(x) + F.relu(network.last.shortcut[0](x)))
        found = network.last(x, False)
    assert image.max() <= 1
    assert image.mean() > 0.9  # tanh(2) = 0.96
    assert torch.equal(found, expected)


def test_a_residual_bottleneck_may_be_larger_than_a_pixel():
    network = small(block="residual", image_size=(64, 96)).eval()
    x = torch.rand(1, 32, 2, 3)
    with torch.no_grad():
        assert network(torch.rand(1, 3, 64, 96))["image"].shape == (1, 3, 64, 96)
        found = network.ups[0](x, False)
        main = F.relu(F.instance_norm(network.ups[0].convolution(x)))
    assert torch.allclose(found - main, x.repeat_interleave(2, 2).repeat_interleave(2, 3), atol=1e-6)


def reflected(x):
    return F.pad(x, (1, 1, 1, 1), mode="reflect")


# Few pixels; the library's; the tiled one, with tiles that are not full; the one for few outputs; the library's.
@pytest.mark.parametrize(
    ("n", "c", "k", "h", "w", "stride"),
    [
        (2, 8, 5, 8, 4, 2),
        (1, 8, 5, 2, 2, 2),
        (3, 8, 5, 16, 32, 2),
        (2, 64, 64, 24, 17, 1),
        (2, 40, 2, 9, 8, 1),
        (1, 8, 5, 9, 8, 1),
    ],
)
def test_convolutions_are_the_library_s_and_so_are_their_gradients(n, c, k, h, w, stride):
    random = torch.Generator().manual_seed(h)
    shapes = [(n, c, h, w), (k, c, 4, 4)]
    x, weight = (torch.randn(s, generator=random, dtype=torch.float64, requires_grad=True) for s in shapes)
    ours, library = convolve(x, weight, None, stride), F.conv2d(reflected(x), weight, None, stride)
    assert_same(ours, library, (x, weight))


@pytest.mark.parametrize(("n", "h", "w"), [(2, 2, 4), (1, 1, 1), (2, 8, 8)])
def test_transposed_convolutions_are_the_library_s_and_so_are_their_gradients(n, h, w):
    random = torch.Generator().manual_seed(h)
    shapes = [(n, 6, h, w), (6, 5, 4, 4), (5,)]
    inputs = [torch.randn(s, generator=random, dtype=torch.float64, requires_grad=True) for s in shapes]
    x, weight, bias = inputs
    library = F.conv_transpose2d(x, weight, bias, stride=2, padding=1)
    assert_same(convolve_transposed(x, weight, bias), library, inputs)


def assert_same(ours, library, inputs):
    """Values, gradients, and the gradients of a gradient penalty."""
    assert ours.shape == library.shape
    assert torch.allclose(ours, library, rtol=0, atol=1e-10)
    cotangent = torch.randn_like(library)
    first = [torch.autograd.grad(y, inputs, cotangent, create_graph=True) for y in (ours, library)]
    for found, expected in zip(*first, strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-9)
    second = [torch.autograd.grad(grads[0].square().sum(), inputs[1])[0] for grads in first]
    assert torch.allclose(*second, rtol=1e-10, atol=1e-8)


def test_rounding_of_tiles_in_float32_is_small():
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1, 128, 31, 31, generator=random), torch.randn(96, 128, 4, 4, generator=random)
    exact = F.conv2d(reflected(x.double()), weight.double())
    assert (convolve(x, weight, None, 1) - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize(("position", "before"), [("after_activation", False), ("before_activation", True)])
def test_dropout_follows_the_call_and_its_place(position, before):
    network = small(dropout_position=position, dropout_layers=2)
    x = torch.rand(1, 3, 32, 32)
    quiet = network(x, dropout=False)["image"]
    assert torch.equal(quiet, network.eval()(x)["image"])
    torch.manual_seed(0)
    loud = network(x, dropout=True)["image"]
    torch.manual_seed(0)
    assert torch.equal(loud, network.train()(x)["image"])
    assert not torch.equal(loud, quiet)
    assert [block.dropout for block in network.ups] == [0.5, 0.5, 0, 0]
    hidden = torch.randn(1, 32, 8, 8)
    torch.manual_seed(1)
    found = network.ups[0](hidden, True)
    torch.manual_seed(1)
    normed = F.instance_norm(F.conv_transpose2d(hidden, network.ups[0].convolution.weight, stride=2, padding=1))
    expected = F.relu(F.dropout(normed)) if before else F.dropout(F.relu(normed))
    assert torch.allclose(found, expected, atol=1e-5)


# PyTorch's default is uniform within 1 / sqrt(fan in), here 3 * 16: its standard deviation is that over sqrt(3).
@pytest.mark.parametrize(("kind", "expected"), [("normal", 0.02), ("default", (3 * 3 * 16) ** -0.5)])
def test_initialisation(kind, expected):
    first = small(features=64, initialisation=kind).first.convolution
    assert first.weight.std().item() == pytest.approx(expected, rel=0.05)
    assert bool(first.bias.any()) == (kind == "default")


# --- the discriminator ---

# n_layers: receptive field, parameters, logits a side at 256 px
TABLE = {1: (10, 7_233, 127), 3: (34, 665_665, 62), 4: (70, 2_766_913, 30), 7: (574, 15_349_825, 2)}


@pytest.mark.parametrize("n_layers", TABLE)
def test_the_table_of_depths(n_layers):
    _, parameters, side = TABLE[n_layers]
    with torch.device("meta"):
        network = PatchDiscriminator(n_layers=n_layers)
        images = torch.empty(1, 3, 256, 256)
        assert network(images, images)["logits"].shape == (1, 1, side, side)
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize("n_layers", [1, 3, 4])
def test_the_receptive_field_is_where_gradients_arrive(n_layers):
    network = PatchDiscriminator(features=2, n_layers=n_layers, norm="none").double()
    y = torch.rand(1, 3, 160, 160, dtype=torch.float64, requires_grad=True)
    logits = network(torch.rand_like(y), y)["logits"]
    middle = logits.shape[-1] // 2
    (gradient,) = torch.autograd.grad(logits[0, 0, middle, middle], y)
    touched = gradient.abs().sum((0, 1)).nonzero()
    extent = touched.max(0).values - touched.min(0).values + 1
    assert extent.tolist() == [TABLE[n_layers][0]] * 2


@pytest.mark.parametrize(
    ("size", "features", "n_layers", "amplitude", "side", "values"),
    [
        (256, 64, 3, 0.05, 62, (0.0082303525, 0.0253202595, 0.0240675701, 0.0317442828, 0.0325113082)),
        (64, 8, 3, 0.1, 14, (0.0551672928, 0.2169912612, -0.3496149519, 0.3276888092, 0.7464921688)),
    ],
)
def test_parity_of_the_discriminator_with_the_reference(size, features, n_layers, amplitude, side, values):
    network = fill(PatchDiscriminator(features=features, n_layers=n_layers).double(), amplitude)
    with torch.no_grad():
        logits = network(wave(size, 0.0), wave(size, 1.0))["logits"]
    assert logits.shape == (1, 1, side, side)
    flat = logits.flatten()
    found = [logits.mean(), logits.std(correction=0), flat[0], flat[flat.numel() // 2], flat[-1]]
    assert torch.tensor(found).tolist() == pytest.approx(list(values), abs=6e-11)


# weighted D_real, D_fake, G_GAN, 100 L1, 10 L2, 3 Sobel, Laplacian
TRACES = {
    "basic": [
        (0.671777218, 0.709557570, 0.696268757, 63.933171921),
        (0.651857900, 0.717834312, 0.691968181, 63.549741268),
        (0.643110742, 0.712302895, 0.696929519, 63.281973961),
    ],
    "extended": [
        (0.671777218, 0.709557570, 0.696268757, 63.933171921, 5.169076511, 2.527208825, 0.214500687),
        (0.651857900, 0.717469109, 0.692973488, 63.550879181, 5.139758712, 2.523916117, 0.205909028),
        (0.642928176, 0.711508263, 0.696621732, 63.288259604, 5.121554854, 2.501137562, 0.202535197),
    ],
}


@pytest.mark.parametrize("spec", TRACES)
def test_three_steps_of_training_follow_the_reference(spec):
    generator = fill(UNetGenerator(image_size=64, features=8, n_downs=4).double(), 0.1)
    judge = fill(PatchDiscriminator(features=8, n_layers=3).double(), 0.1)
    adams = [torch.optim.Adam(n.parameters(), 2e-4, (0.5, 0.999)) for n in (judge, generator)]
    x, y = wave(64, 0.0), wave(64, 1.0)

    def adversarial(image, real):
        logits = judge(x, image)["logits"]
        return binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))

    for expected in TRACES[spec]:
        fake = generator(x, dropout=False)["image"]
        judged = [adversarial(y, True), adversarial(fake.detach(), False)]
        adams[0].zero_grad()
        (sum(judged) / 2).backward()
        adams[0].step()
        painted = [adversarial(fake, True), 100 * (fake - y).abs().mean()]
        if spec == "extended":
            more = ((10, L2()), (3, Sobel()), (1, Laplacian()))
            painted += [weight * loss(image=fake, target=y).mean() for weight, loss in more]
        adams[1].zero_grad()
        sum(painted).backward()
        adams[1].step()
        assert [loss.item() for loss in judged + painted] == pytest.approx(list(expected), abs=6e-10)


def test_the_smallest_picture_that_can_be_judged():
    network, image = PatchDiscriminator(features=2), torch.zeros(1, 3, 24, 24)
    assert network(image, image)["logits"].shape == (1, 1, 1, 1)
    with pytest.raises(UserError, match="4 layers need at least 24 a side"):
        network(image[..., :23, :23], image[..., :23, :23])


@pytest.mark.parametrize("channels", [0, 3])
def test_a_fake_in_the_same_pass_is_judged_the_same(channels):
    """Without channels of x, the layers see y alone; nothing is read of an x."""
    judge = PatchDiscriminator(in_channels=channels, features=8, n_layers=3).double()
    y, fake, x = torch.rand(3, 2, 3, 32, 32, dtype=torch.float64).unbind()
    given = {"x": x} if channels else {}
    both = judge(y=y, fake=fake, **given)
    torch.testing.assert_close(both["logits"], judge(y=y, **given)["logits"], rtol=0, atol=1e-12)
    torch.testing.assert_close(both["fake_logits"], judge(y=fake, **given)["logits"], rtol=0, atol=1e-12)
    with pytest.raises(UserError, match="found fake"):
        judge(y=y, fake=fake[:1], **given)


def test_images_of_a_judge_without_x():
    judge, y = PatchDiscriminator(in_channels=0, features=8, n_layers=3), torch.zeros(2, 3, 32, 32)
    with pytest.raises(UserError, match=r"found x \(2, 3, 32, 32\) and y .*; needed are 0 channels"):
        judge(x=y, y=y)
    with pytest.raises(UserError, match=r"found x \(2, 0, 32, 32\) and y .*; needed are 3 channels"):
        PatchDiscriminator()(y=y)
    with pytest.raises(UserError, match="y is missing"):
        judge()

"""The PatchGAN: parity vectors, and three training steps of both networks."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import binary_cross_entropy_with_logits

from figura.base.errors import UserError
from models.pix2pix.discriminator import PatchDiscriminator
from models.pix2pix.generator import UNetGenerator

# n_layers: receptive field, parameters, logits a side at 256 px
TABLE = {
    1: (10, 7_233, 127),
    2: (16, 139_329, 126),
    3: (34, 665_665, 62),
    4: (70, 2_766_913, 30),
    5: (142, 6_961_217, 14),
    6: (286, 11_155_521, 6),
    7: (574, 15_349_825, 2),
}


@torch.no_grad()
def fill(network, amplitude):
    """Fill the parameters for the parity vectors: element k of each weight is amplitude x sin(k), biases are 0."""
    for parameter in network.parameters():
        k = torch.arange(parameter.numel(), dtype=torch.float64)
        values = amplitude * torch.sin(k) if parameter.ndim == 4 else torch.zeros_like(k)
        parameter.copy_(values.view_as(parameter))
    return network


def wave(size, phase):
    return torch.sin(0.01 * torch.arange(3 * size * size, dtype=torch.float64) + phase).view(1, 3, size, size)


@pytest.mark.parametrize("n_layers", TABLE)
def test_the_table_of_depths(n_layers):
    field, parameters, side = TABLE[n_layers]
    with torch.device("meta"):
        network = PatchDiscriminator(n_layers=n_layers)
        images = torch.empty(1, 3, 256, 256)
        assert network(images, images)["logits"].shape == (1, 1, side, side)
    assert network.receptive_field == field
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
def test_the_receptive_field_is_where_gradients_arrive(n_layers):
    network = PatchDiscriminator(features=2, n_layers=n_layers, norm="none").double()
    y = torch.rand(1, 3, 160, 160, dtype=torch.float64, requires_grad=True)
    logits = network(torch.rand_like(y), y)["logits"]
    middle = logits.shape[-1] // 2
    (gradient,) = torch.autograd.grad(logits[0, 0, middle, middle], y)
    touched = gradient.abs().sum((0, 1)).nonzero()
    extent = touched.max(0).values - touched.min(0).values + 1
    assert extent.tolist() == [network.receptive_field] * 2


@pytest.mark.parametrize(
    ("size", "features", "n_layers", "amplitude", "side", "values"),
    [
        (256, 64, 3, 0.05, 62, (0.0082303525, 0.0253202595, 0.0240675701, 0.0317442828, 0.0325113082)),
        (256, 64, 4, 0.05, 30, (0.0208067350, 0.0275174427, 0.0191685668, -0.0251449241, -0.0151932985)),
        (64, 8, 3, 0.1, 14, (0.0551672928, 0.2169912612, -0.3496149519, 0.3276888092, 0.7464921688)),
    ],
)
def test_parity_with_the_reference(size, features, n_layers, amplitude, side, values):
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


def filtered(image, rows):
    return F.conv2d(image.mean(1, keepdim=True), torch.tensor([[rows]], dtype=image.dtype), padding=1)


def sobel(image):
    horizontal = filtered(image, [[1, 0, -1], [2, 0, -2], [1, 0, -1]])
    vertical = filtered(image, [[1, 2, 1], [0, 0, 0], [-1, -2, -1]])
    return (horizontal.square() + vertical.square() + 1e-6).sqrt()


def laplacian(image):
    return filtered(image, [[0, 1, 0], [1, -4, 1], [0, 1, 0]])


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
            painted.append(10 * (fake - y).square().mean())
            painted += [w * (f(fake) - f(y)).abs().mean() for w, f in ((3, sobel), (1, laplacian))]
        adams[1].zero_grad()
        sum(painted).backward()
        adams[1].step()
        assert [loss.item() for loss in judged + painted] == pytest.approx(list(expected), abs=6e-10)


def test_an_example_is_judged_by_itself():
    network = PatchDiscriminator(features=8, n_layers=3).double()
    x, y = (torch.rand(3, 3, 32, 32, dtype=torch.float64) for _ in range(2))
    together = network(x, y)["logits"]
    assert torch.allclose(together[1:2], network(x[1:2], y[1:2])["logits"], rtol=0, atol=1e-12)


def test_channels_norms_and_initialisation():
    network = PatchDiscriminator(in_channels=1, out_channels=2, features=64, norm="batch")
    assert network(torch.rand(2, 1, 64, 64), torch.rand(2, 2, 64, 64))["logits"].shape == (2, 1, 6, 6)
    convolutions = [layer for layer in network.layers if hasattr(layer, "weight") and layer.weight.ndim == 4]
    assert [c.weight.std().item() for c in convolutions] == pytest.approx([0.02] * 5, rel=0.05)
    assert convolutions[0].bias.abs().max() == 0
    gains = [layer.weight.mean().item() for layer in network.layers if isinstance(layer, torch.nn.BatchNorm2d)]
    assert gains == pytest.approx([1.0] * 3, abs=0.01)


def test_bad_input_is_explained():
    with pytest.raises(ValueError, match="n_layers 0: at least 1"):
        PatchDiscriminator(n_layers=0)
    network = PatchDiscriminator(features=2)
    image = torch.zeros(1, 3, 64, 64)
    with pytest.raises(UserError, match=r"found x \(1, 3, 64, 64\) and y \(1, 3, 32, 32\).*equal sizes"):
        network(image, torch.zeros(1, 3, 32, 32))
    with pytest.raises(UserError, match="3 channels"):
        network(image, image[:, :1])
    with pytest.raises(UserError, match="4 layers need at least 24 a side"):
        network(image[..., :23, :23], image[..., :23, :23])
    assert network(image[..., :24, :24], image[..., :24, :24])["logits"].shape == (1, 1, 1, 1)


def test_a_fake_judged_in_the_same_pass_is_judged_the_same():
    judge = PatchDiscriminator(features=8, n_layers=3).double()
    x, y, fake = torch.rand(3, 2, 3, 32, 32, dtype=torch.float64).unbind()
    both = judge(x, y, fake)
    torch.testing.assert_close(both["logits"], judge(x, y)["logits"], rtol=0, atol=1e-12)
    torch.testing.assert_close(both["fake_logits"], judge(x, fake)["logits"], rtol=0, atol=1e-12)
    with pytest.raises(UserError, match="found fake"):
        judge(x, y, fake[:1])

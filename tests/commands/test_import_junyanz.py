"""Networks of pytorch-CycleGAN-and-pix2pix, written from their description with their names, and figura's twins."""

import pytest
import torch
from import_by_hand import drawn, imported, largest, pictures, refused
from torch import nn


def norm(kind, channels):
    """Its three norms: instance norm has no parameters."""
    return {"batch": nn.BatchNorm2d, "instance": nn.InstanceNorm2d, "none": lambda _: nn.Identity()}[kind](channels)


class Level(nn.Module):
    """A level of the U-Net around the one below; all but the outermost give their input and their output."""

    def __init__(self, outer, inner, kind, inputs=None, below=None, outermost=False, drop=False):
        super().__init__()
        bias, self.outermost = kind == "instance", outermost
        down = nn.Conv2d(inputs or outer, inner, 4, 2, 1, bias=bias)
        leaky, relu = nn.LeakyReLU(0.2, True), nn.ReLU(True)
        width = inner if below is None else 2 * inner
        up = nn.ConvTranspose2d(width, outer, 4, 2, 1, bias=bias or outermost)
        if outermost:
            layers = [down, below, relu, up, nn.Tanh()]
        elif below is None:
            layers = [leaky, down, relu, up, norm(kind, outer)]
        else:
            layers = [leaky, down, norm(kind, inner), below, relu, up, norm(kind, outer)]
            layers += [nn.Dropout(0.5)] if drop else []
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        return self.model(x) if self.outermost else torch.cat([x, self.model(x)], 1)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


class UNet(nn.Module):
    def __init__(self, inputs, outputs, levels, width, kind):
        super().__init__()
        block = Level(8 * width, 8 * width, kind)
        for _ in range(levels - 5):
            block = Level(8 * width, 8 * width, kind, below=block, drop=True)
        for factor in (4, 2, 1):
            block = Level(factor * width, 2 * factor * width, kind, below=block)
        self.model = Level(outputs, width, kind, inputs=inputs, below=block, outermost=True)

    def forward(self, x):
        return self.model(x)


class ResBlock(nn.Module):
    def __init__(self, width, kind, drop):
        super().__init__()
        bias = kind == "instance"

        def half():
            return [nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3, bias=bias), norm(kind, width)]

        middle = [nn.ReLU(True)] + ([nn.Dropout(0.5)] if drop else [])
        self.conv_block = nn.Sequential(*half(), *middle, *half())

    def forward(self, x):
        return x + self.conv_block(x)


class ResNet(nn.Module):
    def __init__(self, inputs, outputs, width, blocks, kind, drop=False):
        super().__init__()
        bias = kind == "instance"
        layers = [nn.ReflectionPad2d(3), nn.Conv2d(inputs, width, 7, bias=bias), norm(kind, width), nn.ReLU(True)]
        for a in (width, 2 * width):
            layers += [nn.Conv2d(a, 2 * a, 3, 2, 1, bias=bias), norm(kind, 2 * a), nn.ReLU(True)]
        layers += [ResBlock(4 * width, kind, drop) for _ in range(blocks)]
        for a in (4 * width, 2 * width):
            up = nn.ConvTranspose2d(a, a // 2, 3, 2, 1, output_padding=1, bias=bias)
            layers += [up, norm(kind, a // 2), nn.ReLU(True)]
        self.model = nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, outputs, 7), nn.Tanh())

    def forward(self, x):
        return self.model(x)


class Patches(nn.Module):
    def __init__(self, inputs, width, layers, kind):
        super().__init__()
        bias, a = kind == "instance", width
        parts = [nn.Conv2d(inputs, width, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for i in range(1, layers + 1):
            b = width * min(2**i, 8)
            convolution = nn.Conv2d(a, b, 4, 1 if i == layers else 2, 1, bias=bias)
            parts += [convolution, norm(kind, b), nn.LeakyReLU(0.2, True)]
            a = b
        self.model = nn.Sequential(*parts, nn.Conv2d(a, 1, 4, 1, 1))

    def forward(self, x):
        return self.model(x)


KINDS = ("batch", "instance", "none")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("levels", "inputs", "outputs"), [(5, 3, 3), (7, 1, 3)])
def test_unet(kind, levels, inputs, outputs, tmp_path, capsys):
    theirs = drawn(UNet(inputs, outputs, levels, 4, kind))
    ours, entry = imported("junyanz", theirs.state_dict(), tmp_path, capsys)
    assert (entry["type"], entry["n_downs"], entry["norm"]) == ("pix2pix.UNetGenerator", levels - 2, kind)
    assert entry["dropout_layers"] == sum(isinstance(one, nn.Dropout) for one in theirs.modules())
    x = pictures(inputs, 2 * 2**levels)
    expected = theirs.double()(x.clone())
    assert expected.std() > 0.05
    assert largest(ours(x)["image"], expected) < 1e-9
    assert parameters(ours) == parameters(theirs)


def test_parameters_of_the_published_unet():
    with torch.device("meta"):
        counts = [parameters(UNet(3, 3, 8, 64, kind)) for kind in ("batch", "instance")]
    assert counts == [54_413_955, 54_409_603]  # of the original, by its spelling of the same layers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("blocks", "drop"), [(6, False), (9, True)])
def test_resnet(kind, blocks, drop, tmp_path, capsys):
    theirs = drawn(ResNet(3, 2, 4, blocks, kind, drop))
    ours, entry = imported("junyanz", theirs.state_dict(), tmp_path, capsys)
    assert (entry["type"], entry["blocks"], entry["dropout"]) == ("images.ResNetGenerator", blocks, 0.5 * drop)
    x = pictures(3, 24)
    expected = theirs.double()(x.clone())
    assert expected.std() > 0.05
    assert largest(ours(x)["image"], expected) < 1e-9


@pytest.mark.parametrize(("kind", "layers", "inputs"), [("batch", 1, 3), ("instance", 3, 0), ("none", 5, 3)])
def test_discriminator(kind, layers, inputs, tmp_path, capsys):
    """Of pairs, and of pictures alone as CycleGAN's."""
    theirs = drawn(Patches(inputs + 3, 4, layers, kind))
    ours, entry = imported("junyanz", theirs.state_dict(), tmp_path, capsys)
    assert (entry["n_layers"], entry["in_channels"], entry["out_channels"]) == (layers + 1, inputs, 3)
    x, y = pictures(3, 128)[:, :inputs], pictures(3, 128, seed=2)
    expected = theirs.double()(torch.cat([x, y], 1))
    assert largest(ours(x, y)["logits"], expected) < 1e-9


def test_gradients_agree_too(tmp_path, capsys):
    """In-place activations change what the skip connections of the original carry; so do ours."""
    theirs = drawn(UNet(3, 3, 5, 4, "instance"))
    ours, _ = imported("junyanz", theirs.state_dict(), tmp_path, capsys)
    one, two = pictures(3, 64).requires_grad_(), pictures(3, 64).requires_grad_()
    theirs.double()(one).square().sum().backward()
    ours(two)["image"].square().sum().backward()
    assert one.grad.abs().max() > 1e-3
    assert largest(one.grad, two.grad) < 1e-9 * one.grad.abs().max()


def test_statistics(tmp_path, capsys):
    """Those of batch norm are used; unused ones of instance norm, in old files, and missing counters are no fault."""
    theirs = drawn(UNet(3, 3, 5, 4, "batch"))
    state = {name: value for name, value in theirs.state_dict().items() if "num_batches" not in name}
    ours, _ = imported("junyanz", state, tmp_path, capsys)
    assert torch.equal(ours.downs[0].norm.running_var, state["model.model.1.model.2.running_var"])
    assert ours.downs[0].norm.num_batches_tracked == 0
    theirs = drawn(ResNet(3, 3, 4, 6, "instance"))
    old = theirs.state_dict() | {"model.2.running_mean": torch.ones(4), "model.2.running_var": torch.ones(4)}
    ours, _ = imported("junyanz", old, tmp_path, capsys)
    x = pictures(3, 16)
    assert largest(ours(x)["image"], theirs.double()(x)) < 1e-9


def test_what_does_not_fit(tmp_path, capsys):
    state = UNet(3, 3, 5, 4, "batch").state_dict()
    del state["model.model.1.model.2.running_mean"]
    state["model.model.1.model.1.weight"] = torch.zeros(8, 4, 3, 3)
    state["model.extra"] = torch.zeros(2)
    lines = refused("junyanz", state, tmp_path, capsys).splitlines()
    assert "3 tensors do not fit pix2pix.UNetGenerator:" in lines[0]
    assert [line.strip() for line in lines[1:]] == [
        "model.model.1.model.1.weight has shape (8, 4, 3, 3), downs.0.convolution.weight of the network (8, 4, 4, 4)",
        "missing model.model.1.model.2.running_mean, of shape (8,), for downs.0.norm.running_mean",
        "left over model.extra, of shape (2,)",
    ]
    pixel = {"net.0.weight": torch.zeros(4, 6, 1, 1)}
    assert "PixelDiscriminator" in refused("junyanz", pixel, tmp_path, capsys)
    zeros = {name.replace("conv_block.1.", "conv_block.0."): value for name, value in
             ResNet(3, 3, 4, 1, "none").state_dict().items()}  # fmt: skip
    assert "figura has reflection padding" in refused("junyanz", zeros, tmp_path, capsys)

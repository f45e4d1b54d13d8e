"""Exported files compute what the networks do, say what they are, and are not written where they differ."""

import hashlib
import json
import re
from importlib.metadata import version

import numpy as np
import pytest
import torch
import toy
import toy_photos
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from figura.base.checksums import write_sums
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import parse_yaml, read_yaml, to_yaml
from figura.commands.export.calls import Call, Exportable, example_of, wide
from figura.commands.export.command import main
from figura.commands.export.comparison import differences
from figura.commands.export.noise import NORMAL, UNIFORM, Recorder, Replay
from figura.commands.export.programs import axes_of, program_of, save_onnx
from figura.engine.build import build_networks
from figura.training.checkpoints import write_model
from models.pix2pix.generator import UNetGenerator
from models.pose.pose_network import PoseNetwork
from models.super_resolution.rrdb import RRDBGenerator
from models.vunet.networks import VUNet

onnxruntime = pytest.importorskip("onnxruntime")


class Odd(nn.Module):
    """Returns its input, or what the kind makes of it; a branch doubles pictures whose axis is longer than a limit."""

    outputs = ("image",)

    def __init__(self, kind: str, axis: int = 0, limit: int = 0) -> None:
        super().__init__()
        self.kind, self.axis, self.limit = kind, axis, limit

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        match self.kind:
            case "warped":  # another number where it is traced
                x = x * (1.5 if torch.compiler.is_exporting() else 1.0)
            case "poisson":  # draws what cannot become an input
                x = x + torch.poisson(torch.full_like(x, 9.0))
            case "branch":
                x = 2 * x if x.shape[self.axis] > self.limit else x
            case "even":  # a test in Python that PyTorch's exporter does not tell of
                x = 2 * x if x.shape[2] % 2 == 0 else x
            case "svd":  # for which ONNX has no operator
                x = x * torch.linalg.svdvals(x)[..., :1, None]
            case "nan":
                x = torch.log(x * 0 - 1)
        return {"image": x}


class TakesItAll(nn.Module):
    """Returns its first input twice; a second one has the name of an output."""

    outputs = ("image",)

    def forward(self, x: Tensor, image: Tensor) -> dict[str, list[Tensor]]:
        return {"image": [x, x + image]}


class Noises(nn.Module):
    """Adds an input that is called like noise, noise of one number for all examples, and one of one for each."""

    outputs = ("image",)

    def forward(self, x: Tensor, noise_0: Tensor, mode: str | None = "none") -> dict[str, Tensor]:
        assert mode is None
        return {"image": x + noise_0 + torch.rand(1) + torch.rand(x.shape[0], 1, 1, 1)}


def export(*words) -> int:
    return run(main, list(map(str, words)))


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def write_run(folder, changes, base=None):
    """Write a recipe and a run of untrained networks; return the arguments that name both."""
    content = toy.changed(changes, base)
    recipe = toy.checked(content=content)
    write_model(folder / "run/model", build_networks(recipe), recipe, {})
    (folder / "recipe.yaml").write_text(to_yaml(content))
    return folder / "run", "--recipe", folder / "recipe.yaml"


@pytest.fixture
def exact(tmp_path):
    """Arguments of a run whose painter gives back its input, plus noise of scale 0."""
    recipe, folder = toy_photos.write_run(tmp_path)
    return folder, "--recipe", recipe


@pytest.mark.slow
def test_a_file_runs_without_us_and_says_what_it_is(exact, tmp_path, capsys):
    assert export(*exact) == 0
    file = tmp_path / "run/export/painter.onnx"
    network = session(file)
    x = np.random.default_rng(5).uniform(-1, 1, (7, 1, 4, 4)).astype(np.float32)
    shapes = {one.name: one.shape for one in network.get_inputs()}
    assert shapes == {"x": ["batch", 1, 4, 4], "noise_0": ["batch", 1, 4, 4]}
    assert [one.name for one in network.get_outputs()] == ["image", "mean"]
    image, mean = network.run(None, {"x": x, "noise_0": np.full_like(x, 9)})
    np.testing.assert_allclose(image, x, atol=1e-6)
    np.testing.assert_allclose(mean[:, 0, 0, 0], x.mean(axis=(1, 2, 3)), atol=1e-6)
    known = network.get_modelmeta().custom_metadata_map
    weights = (tmp_path / "run/model/painter.safetensors").read_bytes()
    assert known["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert (known["network"], known["type"], known["mode"]) == ("painter", "toy.Painter", "plain")
    assert json.loads(known["versions"])["torch"] == version("torch")
    inputs = json.loads(known["inputs"])
    assert inputs["noise_0"]["noise"] == NORMAL
    assert (inputs["x"]["name"], inputs["x"]["channels"]) == ("x", "grey")
    assert json.loads(known["preprocessing"]) == {"type": "toy_photos.Reds", "arguments": {}}
    recipe = parse_yaml(known["recipe"], "metadata")
    assert recipe["networks"]["painter"]["width"] == 1
    assert recipe["evaluate"]["modes"].keys() == {"plain"}
    said = capsys.readouterr().out
    assert re.search(r"painter\.onnx +x 1 x 1 x 4 x 4, noise +(0\.0e\+00|\S+e-0[6-9])", said)
    assert "the shape of the noise depends on theirs" in said


def test_a_program_of_torch_export_computes_the_same(exact, tmp_path):
    assert export(*exact, "--format", "torch_export", "--output", tmp_path / "out") == 0
    extra = {"network": "", "recipe": ""}
    program = torch.export.load(tmp_path / "out/painter.pt2", extra_files=extra)
    x = torch.linspace(-1, 1, 48).view(3, 1, 4, 4)
    torch.testing.assert_close(program.module()(x=x, noise_0=x)["image"], x)
    assert extra["network"] == "painter"
    assert program.example_inputs is None


def test_a_file_that_differs_is_named_and_not_written(tmp_path, capsys):
    run_arguments = with_painter(tmp_path, {"kind": "warped"})
    (tmp_path / "run/export").mkdir()
    old = tmp_path / "run/export/painter.onnx"
    old.write_text("an earlier one")
    assert export(*run_arguments) == 1
    said = capsys.readouterr()
    assert (
        f"error: {old}: not written: its results differ from PyTorch's by 0.5 of the largest value of a component"
        in said.err
    )
    assert said.out.startswith(f"{old}: is written, and compared with PyTorch at several sizes\n")
    assert old.read_text() == "an earlier one"
    assert [path.name for path in old.parent.iterdir()] == ["painter.onnx"]
    assert export(*run_arguments, "--tolerance", "0.6") == 0
    assert "painter.onnx" in capsys.readouterr().out
    assert session(old).get_inputs()[0].shape == ["batch", 1, "height", "width"]


def test_each_way_to_call_a_network_is_a_file(tmp_path, capsys):
    plain = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}}
    modes = {
        name: {"injectors": {"paint": {**plain, **more}}, "save": {"image": "array"}}
        for name, more in {
            "plain": {}, "again": {"outputs": {"image": "drawn"}}, "noisy": {"args": {"noise": 0.5}},
        }.items()
    }  # fmt: skip
    modes["again"]["save"] = {"drawn": "array"}
    run_arguments = write_run(tmp_path, {"evaluate.modes": modes}, toy.gan())
    assert export(*run_arguments) == 0
    assert {one.name for one in (tmp_path / "run/export").iterdir()} == {"painter.onnx", "painter.noisy.onnx"}
    x, noise = np.zeros((2, 1, 4, 4), np.float32), np.ones((2, 1, 4, 4), np.float32)
    results = [
        session(tmp_path / f"run/export/painter{name}.onnx").run(["image"], {"x": x, "noise_0": noise})[0]
        for name in ("", ".noisy")
    ]
    np.testing.assert_allclose(results[1] - results[0], 0.5, atol=1e-6)
    assert "no mode of evaluate calls them: critic" in capsys.readouterr().out


def with_painter(folder, network, **entry):
    """Write a run whose one network is a class of this file; `entry` is changed in the mode's call."""
    paint = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}}
    call = paint | entry
    modes = {"plain": {"injectors": {"paint": call}, "save": {call["outputs"]["image"]: "array"}}}
    step = {"type": "Forward", "network": "painter", "outputs": {"image": "image"}}
    step["inputs"] = call["inputs"]
    changes = {"networks.painter": {"type": f"test_export.{network.pop('type', 'Odd')}", **network}}
    changes |= {"steps.painter.injectors.paint": step, "evaluate.modes": modes}
    return write_run(folder, changes)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ({"kind": "branch", "axis": 0, "limit": 6}, "what it computes depends on the number of examples"),
        ({"kind": "svd"}, "torch.onnx: No ONNX function found for <OpOverload(op='aten._linalg_svd'"),
        ({"kind": "nan"}, "PyTorch gives NaN in image for these examples"),
    ],
)
def test_what_has_no_file_is_told_in_a_line(network, said, tmp_path, capsys):
    """Nothing in ONNX says that a file is right for some numbers of examples alone."""
    assert export(*with_painter(tmp_path, network)) == 1
    told = capsys.readouterr().err
    assert f"painter.onnx: not written: {said}" in told
    assert len(told.splitlines()) == 1
    assert not list((tmp_path / "run/export").iterdir())


@pytest.mark.slow
def test_pictures_in_place_of_the_data(tmp_path, monkeypatch, capsys):
    """Of a model folder with its recipe: no data is needed, and only the mode of `predict` is exported."""
    plain = toy.recipe()["evaluate"]["modes"]["plain"]
    judged = {"type": "Sum", "output": "judged", "terms": {"index": 1.0}}  # photos have no index, and nobody saves it
    plain["injectors"]["judge"] = judged
    toy_photos.write_run(tmp_path, {"evaluate.modes": {"further": plain, "plain": plain}})
    shipped = (tmp_path / "run/model").rename(tmp_path / "shipped")
    own = read_yaml(shipped / "recipe.yaml") | read_yaml(tmp_path / "recipe.yaml")
    (shipped / "recipe.yaml").write_text(to_yaml(own))
    write_sums(shipped)
    for name, width in (("a", 6), ("b", 8), ("c", 6)):  # b's shape is not that of the others
        Image.new("RGB", (width, 4), (255, 0, 0)).save(tmp_path / f"{name}.png")

    def missing(*_):
        raise UserError("no such folder")

    monkeypatch.setattr("figura.commands.export.calls.build_datasets", missing)
    monkeypatch.chdir(tmp_path)
    assert export("shipped") == 1
    assert capsys.readouterr().err.endswith(
        "no such folder; or check the files on pictures of yours: --pictures my.jpg\n"
    )
    assert export("shipped", "--pictures", "a.png", "b.png", "c.png") == 0
    assert [path.name for path in (tmp_path / "exported/shipped").iterdir()] == ["painter.onnx"]
    known = session(tmp_path / "exported/shipped/painter.onnx").get_modelmeta().custom_metadata_map
    assert known["mode"] == "plain"
    assert json.loads(known["inputs"])["x"]["seen"] == [1, 1]  # red


@pytest.mark.slow
def test_a_branch_on_the_size_of_pictures(tmp_path, capsys):
    """Below a limit, and where sizes alternate, the file has the examples' size; above it, it says its least size."""
    file = tmp_path / "run/export/painter.onnx"
    assert export(*with_painter(tmp_path, {"kind": "branch", "axis": 2, "limit": 5})) == 0
    said = capsys.readouterr().out
    assert "must have the size of the examples: what it computes depends on the height: a file would hold for" in said
    assert session(file).get_inputs()[0].shape == ["batch", 1, 4, 4]
    assert export(*with_painter(tmp_path, {"kind": "even"})) == 0
    assert "must have the size of the examples: " in capsys.readouterr().out
    x = np.ones((2, 1, 4, 4), np.float32)
    np.testing.assert_array_equal(session(file).run(None, {"x": x})[0], 2 * x)
    assert export(*with_painter(tmp_path, {"kind": "branch", "axis": 3, "limit": 2})) == 0
    said = capsys.readouterr().out
    assert f"{file}: traced for pictures from width 3 on; PyTorch may compute smaller ones otherwise" in said
    assert session(file).get_inputs()[0].shape == ["batch", 1, "height", "width"]
    assert json.loads(session(file).get_modelmeta().custom_metadata_map["sizes"]) == {"least": {"width": 3}}


def test_noise_of_all_examples_and_an_input_called_like_noise(tmp_path):
    names = {"inputs": {"x": "x", "noise_0": "y"}, "outputs": {"image": "drawn"}, "args": {"mode": None}}
    assert export(*with_painter(tmp_path, {"type": "Noises"}, **names)) == 0
    network = session(tmp_path / "run/export/painter.onnx")
    picture = ["batch", 1, "height", "width"]
    shapes = {one.name: one.shape for one in network.get_inputs()}
    assert shapes == {"x": picture, "noise_0": picture, "noise_1": [1], "noise_2": ["batch", 1, 1, 1]}
    known = network.get_modelmeta().custom_metadata_map
    assert json.loads(known["outputs"]) == {"image": "drawn"}
    assert json.loads(known["arguments"]) == {"mode": None}
    x, one = np.zeros((3, 1, 2, 5), np.float32), np.float32([1])
    each = np.float32([10, 20, 30]).reshape(3, 1, 1, 1)
    (image,) = network.run(None, {"x": x, "noise_0": x + 0.5, "noise_1": one, "noise_2": each})
    np.testing.assert_array_equal(image, x + each + 1.5)


def test_a_network_that_a_mode_calls_and_that_has_no_file_is_an_error(tmp_path, capsys):
    assert export(*with_painter(tmp_path, {"kind": "poisson"})) == 1
    assert "as mode plain calls it, is not exported: it draws random numbers" in capsys.readouterr().err
    judge = {"type": "Forward", "network": "critic", "inputs": {"image": "x"}, "outputs": {"score": "s"}}
    modes = toy.recipe()["evaluate"]["modes"]
    modes["plain"]["injectors"]["judge"] = judge | {"mode": "train"}
    assert export(*write_run(tmp_path, {"evaluate.modes": modes}, toy.gan())) == 1
    said = capsys.readouterr()
    assert "critic, as mode plain calls it, is not exported: it runs in training mode there" in said.out
    assert said.err == "error: critic: a mode of evaluate calls it, and it has no file\n"


def call_of(network: nn.Module, arguments=None, **shapes) -> Call:
    random = torch.Generator().manual_seed(1)
    inputs = {name: torch.rand(shape, generator=random) * 2 - 1 for name, shape in shapes.items()}
    return Call("network", "mode", network.eval(), inputs, {}, arguments or {})


def exported(call: Call, path, sizes: bool):
    """Export a call traced with three examples; return the session and the outputs' names."""
    example = example_of(call, 3)
    module = Exportable(call, list(example.tensors))
    with torch.no_grad():
        outputs = list(module(**example.tensors))
    axes = axes_of(example_of(call, 1), example, sizes)
    save_onnx(program_of(module, example.tensors, axes), path, example.tensors, axes, outputs, {})
    return session(path), outputs


VUNET = {"nf_start": 4, "nf_max": 8, "image_size": 8}
PERSON = {"pose": (3, 3, 8, 8), "appearance": (3, 3, 8, 8)}
NETWORKS = {
    "vunet": (lambda: VUNet(**VUNET), {"mode": "appearance_transfer"}, PERSON, False),
    "prior": (lambda: VUNet(**VUNET), {"mode": "sample_appearance"}, {"pose": (3, 3, 8, 8)}, False),
    "pix2pix": (lambda: UNetGenerator(image_size=32, features=4, n_downs=3), {}, {"x": (3, 3, 32, 64)}, True),
    "dropout": (
        lambda: UNetGenerator(image_size=32, features=4, n_downs=3), {"dropout": True}, {"x": (3, 3, 32, 32)}, False
    ),
    "super_resolution": (
        lambda: RRDBGenerator(scale=2, features=8, blocks=1, growth=4, bicubic_skip=True),
        {}, {"x": (3, 3, 8, 12)}, True,
    ),
    "pose": (
        lambda: PoseNetwork(backbone={"name": "small"}, heads={"cif": {}, "cifdet": {"fields": 2}}),
        {"decode": True}, {"image": (3, 3, 33, 49)}, True,
    ),
    "clash": (TakesItAll, {}, {"x": (3, 1, 4, 4), "image": (3, 1, 4, 4)}, True),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_each_kind_of_network_computes_the_same_for_other_batches_and_sizes(name, tmp_path):
    torch.manual_seed(0)
    build, arguments, shapes, sizes = NETWORKS[name]
    call = call_of(build(), arguments, **shapes)
    network, outputs = exported(call, tmp_path / "network.onnx", sizes)
    for count, resize in [(1, None), (5, None), *([(2, wide)] if sizes else [])]:
        example = example_of(call, count, resize)
        noise = [value for name, value in example.tensors.items() if name not in call.inputs]
        inputs = {name: value for name, value in example.tensors.items() if name in call.inputs}
        with torch.no_grad(), Replay(noise):
            wanted = call.network(**inputs, **arguments)
        wanted = [wanted] if isinstance(wanted, Tensor) else list(wanted.values())
        given = network.run(None, {name: value.numpy() for name, value in example.tensors.items()})
        for value, theirs in zip(wanted, given, strict=False):  # VUNet's means are nested
            if isinstance(value, Tensor):
                np.testing.assert_allclose(theirs, value.numpy(), atol=2e-5 * float(value.abs().max()))
    if name == "clash":
        assert outputs == ["image.0", "image.1"]
    if name == "prior":  # noise of zeros gives its mean
        zeros = {key: value if key in call.inputs else 0 * value for key, value in example_of(call, 3).tensors.items()}
        with torch.no_grad():
            mean = call.network(**call.inputs, **arguments, noise_scale=0.0)["image"].numpy()
        given = network.run(["image"], {key: value.numpy() for key, value in zeros.items()})[0]
        np.testing.assert_allclose(given, mean, atol=1e-5)
    if name == "vunet":
        assert outputs == ["image", "q_means.s4", "q_means.s3", "p_means.s4", "p_means.s3"]


def test_dropout_keeps_what_its_noise_says():
    x = torch.linspace(1, 2, 2 * 4 * 3 * 3).view(2, 4, 3, 3)
    with Recorder() as recorder:
        plain = F.dropout(x, 0.25, True)
        torch.randn(2)
    assert recorder.distributions == [UNIFORM, NORMAL]
    uniform = recorder.noise[0].numpy()
    np.testing.assert_allclose(plain.numpy(), np.where(uniform >= 0.25, x.numpy() / 0.75, 0), rtol=1e-6)
    with Replay(recorder.noise):
        assert torch.equal(F.dropout(x, 0.25, True), plain)
        assert torch.equal(torch.randn(2), recorder.noise[1])
        assert torch.equal(F.dropout(x, 0.25, False), x)


def test_differences():
    a = {"x": np.array([1.0, -4.0]), "y": np.array([0.0, 0.5])}
    b = {"x": np.array([1.5, -4.0]), "y": np.array([0.25, 0.5])}
    assert differences(a, a) == (0.0, 0.0)
    assert differences(a, b) == (0.5, 0.5)  # 0.25 of 0.5 is more than 0.5 of 4
    assert differences({"x": np.zeros(2)}, {"x": np.full(2, 0.125)}) == (0.125, 0.125)
    infinite = {"x": np.array([np.inf, 1.0])}
    assert differences(infinite, infinite)[0] == 0.0
    assert differences(infinite, {"x": np.ones(2)}) == (np.inf, np.inf)
    assert differences({"x": np.ones(2)}, {"x": np.array([1.0, np.nan])}) == (np.inf, np.inf)
    with pytest.raises(UserError, match="outputs differ"):
        differences(a, {"x": a["x"]})


def test_differences_of_components():
    """A confidence beside places in cells counts as much as they do; zeros count as a hundredth of the whole."""
    field = np.ones((2, 17, 3, 4, 5)) * np.array([0.5, 50, 0]).reshape(3, 1, 1)
    worse = field.copy()
    worse[1, 2, 0, 3, 4] += 0.005
    assert differences({"x": field}, {"x": worse}) == pytest.approx((0.005, 0.01))
    worse[0, 0, 2, 0, 0] = 0.25
    assert differences({"x": field}, {"x": worse}) == pytest.approx((0.25, 0.5))
    picture = {"x": field[:, 0]}
    assert differences(picture, {"x": worse[:, 0]}) == pytest.approx((0.25, 0.5))
    for shape in ((1, 2), (1, 2, 1, 1)):  # a number in each channel: its own size says nothing
        numbers = np.array([1.0, 0.01]).reshape(shape)
        assert differences({"x": numbers}, {"x": numbers + 0.001}) == pytest.approx((0.001, 0.001))

"""OpenPifPaf's weights: state dictionaries by its naming rules, checkpoints of pickled networks, attacks."""

import os
import subprocess
import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pytest
import torch
import toy
from safetensors.torch import load_file, save_file
from torch import nn

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.import_weights.safe_unpickle import read_pickle
from figura.engine.build import build_networks
from figura.engine.weights import load_start, load_weights
from figura.recipe.load import check_recipe
from models.pose.import_openpifpaf import main
from models.pose.openpifpaf import fitted, read_state, renamed
from models.pose.pose_network import BACKBONES, PoseNetwork

COCO_HEADS = {"cif": {"fields": 17}, "caf": {"fields": 19}}
FIELDS = {"cif": (17, 5), "caf": (19, 8), "caf25": (25, 8), "cifdet": (91, 6)}  # fields, components

SHUFFLE = {16: (4, 8, 4), 20: (5, 10, 5), 30: (8, 16, 6), 44: (12, 24, 8), "x5": (6, 13, 6)}  # units of stages 2, 3, 4
WIDTHS = {16: (24, 348, 696, 1392), "x5": (42, 640, 1280, 2560)}  # of those that are not like k30
RESNET = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
TOTALS = {  # parameters with the heads of cocokp
    "shufflenetv2k16": 10_125_960, "shufflenetv2k20": 24_190_388, "shufflenetv2k30": 29_977_268,
    "shufflenetv2k44": 39_112_372, "shufflenetv2kx5": 43_112_420, "resnet18": 11_662_836, "resnet50": 25_450_484,
    "resnet101": 44_442_612, "resnet152": 60_086_260,
}  # fmt: skip
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Names:
    """Shapes by name, as OpenPifPaf's modules have them; 8.6 gives the names, 1.2 and 1.3 the layers."""

    def __init__(self):
        self.shapes = {}

    def layer(self, convolution, norm, outputs, inputs, size):
        """A convolution without bias and the BatchNorm behind it."""
        self.shapes[f"{convolution}.weight"] = (outputs, inputs, size, size)
        self.shapes |= {f"{norm}.{part}": (outputs,) for part in ("weight", "bias", *STATISTICS[:2])}
        self.shapes[f"{norm}.num_batches_tracked"] = ()

    def shufflenet(self, depth):
        widths = WIDTHS.get(depth, (32, 512, 1024, 2048))
        self.layer("base_net.input_block.0.0", "base_net.input_block.0.1", widths[0], 3, 3)
        for stage, units in enumerate(SHUFFLE[depth], start=2):
            inputs, outputs = widths[stage - 2], widths[stage - 1]
            half = outputs // 2
            for unit in range(units):
                one, two = (f"base_net.stage{stage}.{unit}.branch{branch}" for branch in (1, 2))
                if unit == 0:
                    self.layer(f"{one}.0", f"{one}.1", inputs, 1, 5)
                    self.layer(f"{one}.2", f"{one}.3", half, inputs, 1)
                self.layer(f"{two}.0", f"{two}.1", half, inputs if unit == 0 else half, 1)
                self.layer(f"{two}.3", f"{two}.4", half, 1, 5)
                self.layer(f"{two}.5", f"{two}.6", half, half, 1)
        self.layer("base_net.conv5.0", "base_net.conv5.1", widths[3], widths[3], 1)
        return widths[3]

    def residual(self, block, inputs, width, bottleneck, first_strides):
        outputs = 4 * width if bottleneck else width
        sizes = [(inputs, width, 3), (width, width, 3)]
        if bottleneck:
            sizes = [(inputs, width, 1), (width, width, 3), (width, outputs, 1)]
        for place, (a, b, size) in enumerate(sizes, start=1):
            self.layer(f"{block}.conv{place}", f"{block}.bn{place}", b, a, size)
        if first_strides or inputs != outputs:
            self.layer(f"{block}.downsample.0", f"{block}.downsample.1", outputs, inputs, 1)
        return outputs

    def resnet(self, depth):
        self.layer("base_net.input_block.0", "base_net.input_block.1", 64, 3, 7)
        inputs = 64
        for stage, units in enumerate(RESNET[depth]):
            for unit in range(units):
                block = f"base_net.block{stage + 2}.{unit}"
                inputs = self.residual(block, inputs, 64 * 2**stage, depth >= 50, unit == 0 and stage > 0)
        return inputs

    def small(self):
        """Ours alone; the names are those of its layers."""
        self.layer("base_net.input_block.0", "base_net.input_block.1", 16, 3, 3)
        inputs = 16
        for stage, (width, units) in enumerate(((16, 2), (32, 2), (64, 2), (128, 3))):
            for unit in range(units):
                block = f"base_net.stages.{stage}.{unit}"
                inputs = self.residual(block, inputs, width, False, unit == 0 and stage > 0)
        return inputs

    def heads(self, channels, names):
        for place, name in enumerate(names):
            fields, components = FIELDS[name]
            self.shapes[f"head_nets.{place}.conv.weight"] = (fields * components * 4, channels, 1, 1)
            self.shapes[f"head_nets.{place}.conv.bias"] = (fields * components * 4,)


def shapes_of(backbone, heads=("cif", "caf")):
    names = Names()
    if backbone == "small":
        channels = names.small()
    elif backbone.startswith("resnet"):
        channels = names.resnet(int(backbone.removeprefix("resnet")))
    else:
        depth = backbone.removeprefix("shufflenetv2k")
        channels = names.shufflenet(int(depth) if depth.isdigit() else depth)
    names.heads(channels, heads)
    return names.shapes


def numbered(backbone, heads=("cif", "caf")):
    """A dictionary whose n-th tensor is full of n, without the memory of one."""
    return {
        name: torch.full((), n, dtype=torch.long if name.endswith(STATISTICS[2]) else torch.float32).expand(shape)
        for n, (name, shape) in enumerate(shapes_of(backbone, heads).items())
    }


def network(backbone, heads=None):
    with torch.device("meta"):
        return PoseNetwork(backbone={"name": backbone}, heads=heads or COCO_HEADS)


@pytest.mark.parametrize("backbone", [name for name in BACKBONES if name != "timm"])
def test_every_backbone(backbone):
    state = numbered(backbone)
    trained = sum(tensor.numel() for name, tensor in state.items() if not name.endswith(STATISTICS))
    assert trained == TOTALS.get(backbone, trained)
    built = network(backbone)
    found = fitted(state, built, ["cif", "caf"])
    named = {name.replace("nets.0.", "nets.cif.").replace("nets.1.", "nets.caf."): t for name, t in state.items()}
    assert found.keys() == named.keys()
    assert all(torch.equal(found[name][(0,) * t.ndim], t[(0,) * t.ndim]) for name, t in named.items())
    built.load_state_dict(found, assign=True)
    assert {name: tensor.shape for name, tensor in built.state_dict().items()} == {n: t.shape for n, t in named.items()}


def test_names():
    state = {
        "base_net.conv5.0.weight": 1,
        "head_nets.0.conv.bias": 2,
        "head_nets.1.conv.bias": 3,
        "head_nets.12.conv.bias": 4,
    }
    expected = {"base_net.conv5.0.weight": 1, "head_nets.cif.conv.bias": 2, "head_nets.12.conv.bias": 4}
    assert renamed(state, ["cif", "-"]) == expected


def test_counters_may_be_missing_and_precision_is_the_networks():
    state = {name: tensor.to(torch.float16) for name, tensor in numbered("small").items() if "num_batches" not in name}
    found = fitted(state, network("small"), ["cif", "caf"])
    assert found["base_net.input_block.1.num_batches_tracked"].dtype == torch.int64
    assert found["base_net.input_block.0.weight"].dtype == torch.float32
    assert len(found) == len(shapes_of("small"))


def test_all_faults_in_one_message():
    state = numbered("small", ("caf", "cif", "caf25"))
    del state["base_net.stages.1.0.bn2.bias"]
    state["base_net.fc.weight"] = torch.zeros(3)
    with pytest.raises(UserError) as caught:
        fitted(state, network("small"), ["cif", "caf"])
    first, *rest = str(caught.value).splitlines()
    for words in (
        "8 tensors do not fit (head 0 is cif, 1 is caf)",
        "cif with 17 fields, caf with 19",
        "cifdet with 91",
    ):
        assert words in first
    assert [line.strip() for line in rest] == [
        "missing base_net.stages.1.0.bn2.bias, of shape (32,)",
        "surplus head_nets.2.conv.weight, of shape (800, 128, 1, 1)",
        "surplus head_nets.2.conv.bias, of shape (800,)",
        "surplus base_net.fc.weight, of shape (3,)",
        "head_nets.cif.conv.weight has shape (608, 128, 1, 1), the network (340, 128, 1, 1)",
        "head_nets.cif.conv.bias has shape (608,), the network (340,)",
        "head_nets.caf.conv.weight has shape (340, 128, 1, 1), the network (608, 128, 1, 1)",
        "head_nets.caf.conv.bias has shape (340,), the network (608,)",
    ]


def test_published_heads():
    heads = {"cif": {"fields": 17}, "caf": {"fields": 19}, "caf25": {"kind": "caf", "fields": 25}}
    fitted(numbered("small", heads), network("small", heads), list(heads))
    detection = {"cifdet": {"fields": 91}}
    fitted(numbered("small", detection), network("small", detection), list(detection))
    with pytest.raises(UserError, match=r"conv\.bias has shape \(2184,\), the network \(120,\)"):
        fitted(numbered("small", detection), network("small", {"cifdet": {"fields": 5}}), ["cifdet"])


# Checkpoints as published: a pickled network of classes that are not here.


def random_state(heads=("cif", "caf")):
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.tensor(7) if name.endswith(STATISTICS[2]) else torch.rand(shape, generator=generator)
        for name, shape in shapes_of("small", heads).items()
    }


def leaf(parts):
    """A layer of PyTorch that has these tensors."""
    weight = parts["weight"]
    if "running_mean" in parts:
        layer = nn.BatchNorm2d(len(weight))
    else:
        layer = nn.Conv2d(weight.shape[1], len(weight), weight.shape[-1], bias="bias" in parts)
    layer.load_state_dict(parts)
    return layer


def grown(state, head):
    """Modules that have this state, by the dots in its names; heads of the class `head`."""
    if "weight" in state:
        return leaf(state)
    children = {}
    for name, tensor in state.items():
        first, _, rest = name.partition(".")
        children.setdefault(first, {})[rest] = tensor
    module = head() if children.keys() == {"conv"} else nn.Sequential()
    for name, part in children.items():
        module.add_module(name, grown(part, head))
    return module


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """Writes {model, epoch, meta} of a network whose classes are gone afterwards."""

    def write(state, head="CompositeField4", name="k16.pkl", wrap=lambda model: {"model": model, "epoch": 250}):
        home = ModuleType("openpifpaf.nets")

        @dataclass
        class Meta:
            pose: np.ndarray
            categories: list[str]

        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.meta = Meta(np.arange(6.0).reshape(2, 3), ["person"])
                self.dropout, self.shuffle = nn.Dropout2d(), nn.PixelShuffle(2)
                self.register_buffer("indices", torch.arange(3), persistent=False)

        class Shell(nn.Module):
            def __init__(self):
                super().__init__()
                self.process_input = None

        with monkeypatch.context() as patch:
            for kind, called in ((Meta, "Meta"), (Head, head), (Shell, "Shell")):
                kind.__module__, kind.__qualname__ = home.__name__, called
                setattr(home, called, kind)
            package = ModuleType("openpifpaf")
            package.nets = home
            patch.setitem(sys.modules, "openpifpaf", package)
            patch.setitem(sys.modules, home.__name__, home)
            model = Shell()
            for part, child in grown(state, Head).named_children():
                model.add_module(part, child)
            assert model.state_dict().keys() == state.keys()
            torch.save(wrap(model), tmp_path / name)
        return tmp_path / name

    return write


def same(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_pickled_network_is_read_without_its_classes(checkpoint):
    state = random_state()
    path = checkpoint(state)
    with pytest.raises(Exception, match="openpifpaf"):
        torch.load(path, weights_only=True)
    with pytest.raises(ModuleNotFoundError, match="openpifpaf"):
        torch.load(path, weights_only=False)
    allowed = set(torch.serialization.get_safe_globals())
    assert same(read_state(path), state)
    assert read_pickle(path)["epoch"] == 250
    assert set(torch.serialization.get_safe_globals()) == allowed  # nothing more once it is read


def test_heads_of_earlier_releases_are_refused(checkpoint):
    with pytest.raises(UserError, match=r"head 0 is a CompositeField3, from before OpenPifPaf 0\.13"):
        read_state(checkpoint(random_state(), head="CompositeField3"))


def test_state_dictionaries(tmp_path):
    state = random_state()
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pt")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "c.pt")
    torch.save({"model": state}, tmp_path / "d.pt")
    torch.save(state, tmp_path / "e.pt", _use_new_zipfile_serialization=False)  # as before PyTorch 1.6
    for prefix in ("module.", "_orig_mod."):
        torch.save({"model": {prefix + name: tensor for name, tensor in state.items()}}, tmp_path / f"{prefix}pt")
    torch.save({"net": state}, tmp_path / "f.pt")
    torch.save({"model": {"base_net.a": torch.zeros(1)}, "state_dict": state}, tmp_path / "g.pt")
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 9
    assert all(same(read_state(path), state) for path in paths)
    mixed = {"module.base_net.a": torch.zeros(1), "base_net.b": torch.zeros(1)}  # no wrapper's prefix: a name
    torch.save(mixed, tmp_path / "mixed.pt")
    assert read_state(tmp_path / "mixed.pt").keys() == mixed.keys()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensor: torch.full_like(tensor, torch.nan), "{name} holds NaN or infinity"),
        (lambda tensor: tensor.int(), "{name} holds torch.int32; floating-point numbers are needed"),
        (lambda tensor: tensor.to(torch.complex64), "{name} holds torch.complex64; floating-point numbers are needed"),
        (lambda tensor: tensor.to_sparse(), "{name} has no plain values (torch.sparse_coo, device cpu)"),
        (lambda tensor: tensor.to("meta"), "{name} has no plain values (torch.strided, device meta)"),
    ],
)
def test_tensors_that_are_no_weights(change, said, recipe, tmp_path, capsys):
    state, name = random_state(), "base_net.input_block.0.weight"
    torch.save({"model": state | {name: change(state[name])}}, tmp_path / "bad.pt")
    out = tmp_path / "out.safetensors"
    assert run(main, [str(tmp_path / "bad.pt"), str(recipe), str(out), "--heads", "cif,caf"]) == 1
    assert said.format(name=name) in capsys.readouterr().err
    assert not out.exists()


def test_files_that_hold_no_weights(tmp_path):
    with pytest.raises(UserError, match=r"absent\.pt: no such file"):
        read_state(tmp_path / "absent.pt")
    for special in (tmp_path / "folder.pt", tmp_path / "folder.safetensors"):
        special.mkdir()
        with pytest.raises(UserError, match=r"folder\.\w+: no regular file"):
            read_state(special)
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(UserError, match=r"text\.pt: cannot be read as weights of PyTorch .*torch\.save\(torch\.load"):
        read_state(tmp_path / "text.pt")
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(UserError, match="holds no state dictionary"):
        read_state(tmp_path / "empty.pt")
    (tmp_path / "text.safetensors").write_text("no weights")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        read_state(tmp_path / "text.safetensors")


class Attack:
    """Runs a function where it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("function", [os.system, subprocess.call, eval, exec, os.mkdir])
def test_nothing_that_a_file_asks_for_is_run(function, tmp_path):
    made, path = tmp_path / "made", tmp_path / "attack.pt"
    arguments = {
        os.system: f"mkdir {made}",
        subprocess.call: ["mkdir", str(made)],
        os.mkdir: str(made),
    }
    argument = arguments.get(function, f"__import__('os').mkdir({str(made)!r})")
    weights = {"base_net.conv5.0.weight": torch.ones(2, 2)}
    torch.save({"model": weights, "meta": Attack(function, argument)}, path)
    torch.load(path, weights_only=False)
    assert made.is_dir()  # so it works where pickles are trusted
    made.rmdir()
    if function in (os.system, os.mkdir):  # the loader refuses some modules by their names
        with pytest.raises(UserError, match="cannot be read"):
            read_state(path)
    else:
        assert same(read_state(path), weights)
    assert not made.exists()


# The stage.


@pytest.fixture
def recipe(tmp_path):
    """Trains a pose network with a head more than `cocokp` has, beside another network."""
    heads = {**COCO_HEADS, "cifdet": {"fields": 5}}
    pose = {"type": "pose.PoseNetwork", "backbone": {"name": "small"}, "heads": heads}
    changes = {"networks.pose": pose, "steps.painter.trains": ["painter", "pose"]}
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(toy.changed(changes)))
    return path


def test_a_checkpoint_becomes_weights_to_start_from(recipe, checkpoint, tmp_path, capsys):
    state = random_state()
    path, out = checkpoint(state), tmp_path / "out/k16.safetensors"
    assert run(main, [str(path), str(recipe), str(out), "--heads", "cif,caf"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["head_nets.0", "head_nets.cif", "2", f"{340 * 129:,}"] in rows
    assert ["at", "random", "head_nets.cifdet", "2", f"{120 * 129:,}"] in rows
    content = read_yaml(recipe)
    content["networks"]["pose"]["weights"] = str(out)
    started = check_recipe(content, recipe)
    networks = build_networks(started)
    fresh = {name: tensor.clone() for name, tensor in networks["pose"].state_dict().items()}
    load_start(networks, started)
    found = networks["pose"].state_dict()
    for name, tensor in renamed(state, ["cif", "caf"]).items():
        assert torch.equal(found.pop(name), tensor)
    assert found.keys() == {"head_nets.cifdet.conv.weight", "head_nets.cifdet.conv.bias"}
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in found.items())  # as the seed has it


def test_a_checkpoint_becomes_a_run_to_evaluate(recipe, checkpoint, tmp_path):
    path = checkpoint(random_state(("cif", "caf")))
    assert run(main, [str(path), str(recipe), str(tmp_path / "run"), "--heads", "cif,caf"]) == 0
    folder = tmp_path / "run/model"
    trained = check_recipe(read_yaml(recipe) | read_yaml(folder / "recipe.yaml"), folder / "recipe.yaml")
    for name, built in build_networks(trained).items():  # all that eval-dump loads
        load_weights(built, folder / f"{name}.safetensors")
    assert torch.equal(
        load_file(folder / "pose.safetensors")["base_net.input_block.0.weight"],
        read_state(path)["base_net.input_block.0.weight"],
    )
    assert str(path) in (folder / "provenance.json").read_text()


def test_the_stage_explains_what_does_not_fit(recipe, checkpoint, tmp_path, capsys):
    path, out = checkpoint(random_state()), tmp_path / "out.safetensors"
    for options, words in (
        ([], "missing head_nets.cifdet.conv.weight, of shape (120, 128, 1, 1)"),
        (["--heads", "cif"], "surplus head_nets.1.conv.weight"),
        (["--heads", "cif,caff"], "--heads 'caff' (did you mean 'caf'?): the recipe has cif, caf, cifdet"),
        (["--heads", "cif,cif"], "--heads 'cif': is there twice"),
    ):
        assert run(main, [str(path), str(recipe), str(out), *options]) == 1
        assert words in capsys.readouterr().err
    assert not out.exists()
    recipe.write_text(to_yaml(toy.recipe()))
    assert run(main, [str(path), str(recipe), str(out)]) == 1
    assert "found 0 networks of type pose.PoseNetwork" in capsys.readouterr().err

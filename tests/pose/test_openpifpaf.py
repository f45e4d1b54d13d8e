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
from openpifpaf_by_hand import STATISTICS, shapes_of
from torch import nn

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.import_weights.command import main
from figura.commands.import_weights.plan import fitted
from figura.commands.import_weights.safe_unpickle import read_pickle
from figura.commands.import_weights.tensor_files import read_content, tensors_of
from figura.engine.build import build_networks
from figura.engine.weights import load_start
from figura.recipe.load import check_recipe
from models.pose.import_openpifpaf import plan
from models.pose.pose_network import PoseNetwork

COCO_HEADS = {"cif": {"fields": 17}, "caf": {"fields": 19}}


def numbered(backbone, heads=("cif", "caf")):
    """A dictionary whose n-th tensor is full of n, without the memory of one."""
    return {
        name: torch.full((), n, dtype=torch.long if name.endswith(STATISTICS[2]) else torch.float32).expand(shape)
        for n, (name, shape) in enumerate(shapes_of(backbone, heads).items())
    }


def fitting(state, network, heads):
    """The state of a network from a checkpoint whose heads have these names."""
    return fitted(plan(state, network, heads), state, network)


def network(backbone, heads=None):
    with torch.device("meta"):
        return PoseNetwork(backbone={"name": backbone}, heads=heads or COCO_HEADS)


# OpenPifPaf's parameters of the backbone and of all, with two heads; BatchNorm layers where known
COUNTS = {
    "small": (None, None, None),
    "shufflenetv2k16": (8_805_396, 10_125_960, 56),
    "shufflenetv2k20": (22_247_936, 24_190_388, None),
    "shufflenetv2k30": (28_034_816, 29_977_268, 98),
    "shufflenetv2k44": (37_169_920, 39_112_372, 140),
    "shufflenetv2kx5": (40_684_592, 43_112_420, None),
    "resnet18": (11_176_512, 11_662_836, 20),
    "resnet34": (21_284_672, 21_770_996, 36),  # torchvision's 21,797,672 without the classifier
    "resnet50": (23_508_032, 25_450_484, 53),
    "resnet101": (42_500_160, 44_442_612, None),
    "resnet152": (58_143_808, 60_086_260, None),
}


@pytest.mark.parametrize("backbone", COUNTS)
def test_every_backbone(backbone):
    state = numbered(backbone)
    built = network(backbone)
    counts = [sum(one.numel() for one in part.parameters()) for part in (built.base_net, built)]
    counts.append(sum(isinstance(module, nn.BatchNorm2d) for module in built.modules()))
    assert all(known in (None, count) for known, count in zip(COUNTS[backbone], counts, strict=True))
    found = fitting(state, built, "cif,caf")
    named = {name.replace("nets.0.", "nets.cif.").replace("nets.1.", "nets.caf."): t for name, t in state.items()}
    assert found.keys() == named.keys()
    assert all(torch.equal(found[name][(0,) * t.ndim], t[(0,) * t.ndim]) for name, t in named.items())
    built.load_state_dict(found, assign=True)
    assert {name: tensor.shape for name, tensor in built.state_dict().items()} == {n: t.shape for n, t in named.items()}


def test_names_of_heads():
    state = {f"head_nets.{number}.conv.bias": torch.zeros(1) for number in (0, 1, 12)} | {"base_net.a": torch.zeros(1)}
    found = plan(state, network("small"), "cif,-")
    assert found.places["head_nets.0.conv.bias"] == "head_nets.cif.conv.bias"
    assert found.ignored == {"head_nets.1.conv.bias"}
    assert all(found.places[name] == name for name in ("head_nets.12.conv.bias", "base_net.a"))
    assert found.kept == {"head_nets.caf.conv.weight", "head_nets.caf.conv.bias"}


def test_counters_may_be_missing_and_precision_is_the_networks():
    state = {name: tensor.to(torch.float16) for name, tensor in numbered("small").items() if "num_batches" not in name}
    found = fitting(state, network("small"), "cif,caf")
    assert found["base_net.input_block.1.num_batches_tracked"].dtype == torch.int64
    assert found["base_net.input_block.0.weight"].dtype == torch.float32
    assert len(found) == len(shapes_of("small"))


def test_all_faults_in_one_message():
    state = numbered("small", ("caf", "cif", "caf25"))
    del state["base_net.stages.1.0.bn2.bias"]
    state["base_net.fc.weight"] = torch.zeros(3)
    with pytest.raises(UserError) as caught:
        fitting(state, network("small"), "cif,caf")
    first, *rest = str(caught.value).splitlines()
    for words in (
        "8 tensors do not fit pose.PoseNetwork; head 0 is cif, head 1 is caf;",
        "cif with 17 fields, caf with 19",
        "cifdet with 91",
    ):
        assert words in first
    assert len(rest) == 8
    assert rest[0].strip() == "missing base_net.stages.1.0.bn2.bias, of shape (32,), for base_net.stages.1.0.bn2.bias"
    assert "head_nets.0.conv.bias has shape (608,), head_nets.cif.conv.bias of the network (340,)" in rest[2]
    assert rest[-1].strip() == "left over base_net.fc.weight, of shape (3,)"


def test_published_heads():
    heads = {"cif": {"fields": 17}, "caf": {"fields": 19}, "caf25": {"kind": "caf", "fields": 25}}
    fitting(numbered("small", heads), network("small", heads), None)
    detection = {"cifdet": {"fields": 91}}
    fitting(numbered("small", detection), network("small", detection), None)
    with pytest.raises(UserError, match=r"conv\.bias has shape \(2184,\), .* of the network \(120,\)"):
        fitting(numbered("small", detection), network("small", {"cifdet": {"fields": 5}}), "cifdet")


# Checkpoints as published: a pickled network of classes that are not here.


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """Writes {model, epoch, meta} of a network whose classes are gone afterwards, and gives its state, too."""

    def write(head="CompositeField4", name="k16.pkl"):
        home = ModuleType("openpifpaf.nets")

        @dataclass
        class Meta:
            pose: np.ndarray
            categories: list[str]

        class Head(nn.Module):
            def __init__(self, conv):
                super().__init__()
                self.meta = Meta(np.arange(6.0).reshape(2, 3), ["person"])
                self.conv, self.dropout, self.shuffle = conv, nn.Dropout2d(), nn.PixelShuffle(2)
                self.register_buffer("indices", torch.arange(3), persistent=False)

        class Shell(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                ours = PoseNetwork(backbone={"name": "small"}, heads=COCO_HEADS)
                self.process_input, self.base_net = None, ours.base_net
                self.head_nets = nn.ModuleList(Head(one.conv) for one in ours.head_nets.values())

        with monkeypatch.context() as patch:
            for kind, called in ((Meta, "Meta"), (Head, head), (Shell, "Shell")):
                kind.__module__, kind.__qualname__ = home.__name__, called
                setattr(home, called, kind)
            package = ModuleType("openpifpaf")
            package.nets = home
            patch.setitem(sys.modules, "openpifpaf", package)
            patch.setitem(sys.modules, home.__name__, home)
            model = Shell()
            torch.save({"model": model, "epoch": 250}, tmp_path / name)
        return tmp_path / name, model.state_dict()

    return write


def same(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_pickled_network_is_read_without_its_classes(checkpoint):
    path, state = checkpoint()
    with pytest.raises(Exception, match="openpifpaf"):
        torch.load(path, weights_only=True)
    with pytest.raises(ModuleNotFoundError, match="openpifpaf"):
        torch.load(path, weights_only=False)
    allowed = set(torch.serialization.get_safe_globals())
    assert same(tensors_of(read_content(path), path), state)
    assert read_pickle(path)["epoch"] == 250
    assert set(torch.serialization.get_safe_globals()) == allowed  # nothing more once it is read


class Attack:
    """Runs a function where it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("function", [os.system, subprocess.call, eval, exec, os.mkdir])
def test_nothing_that_a_file_asks_for_is_run(function, tmp_path):
    made, path = tmp_path / "made", tmp_path / "attack.pt"
    arguments = {os.system: f"mkdir {made}", subprocess.call: ["mkdir", str(made)], os.mkdir: str(made)}
    argument = arguments.get(function, f"__import__('os').mkdir({str(made)!r})")
    weights = {"base_net.conv5.0.weight": torch.ones(2, 2)}
    torch.save({"model": weights, "meta": Attack(function, argument)}, path)
    torch.load(path, weights_only=False)
    assert made.is_dir()  # so it works where pickles are trusted
    made.rmdir()
    if function in (os.system, os.mkdir):  # the loader refuses some modules by their names
        with pytest.raises(UserError, match="cannot be read"):
            tensors_of(read_content(path), path)
    else:
        assert same(tensors_of(read_content(path), path), weights)
    assert not made.exists()


@pytest.fixture
def recipe(tmp_path):
    """Trains a pose network with a head more than `cocokp` has, beside another network."""
    heads = {**COCO_HEADS, "cifdet": {"fields": 5}}
    pose = {"type": "pose.PoseNetwork", "backbone": {"name": "small"}, "heads": heads}
    changes = {"networks.pose": pose, "steps.painter.trains": ["painter", "pose"]}
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(toy.changed(changes)))
    return path


def imported(path, recipe, out, *options):
    return run(main, ["openpifpaf", str(path), "--recipe", str(recipe), "--output", str(out), *options])


def test_a_checkpoint_becomes_weights_to_start_from(recipe, checkpoint, tmp_path, capsys):
    (path, state), out = checkpoint(), tmp_path / "out/k16.safetensors"
    assert imported(path, recipe, out, "--heads", "cif,caf") == 0
    assert "head 0 becomes cif, head 1 becomes caf, cifdet starts at random" in capsys.readouterr().out
    content = read_yaml(recipe)
    content["networks"]["pose"]["weights"] = str(out)
    started = check_recipe(content, recipe)
    networks = build_networks(started)
    fresh = {name: tensor.clone() for name, tensor in networks["pose"].state_dict().items()}
    load_start(networks, started)
    found = networks["pose"].state_dict()
    for name, tensor in state.items():
        assert torch.equal(found.pop(name.replace("nets.0.", "nets.cif.").replace("nets.1.", "nets.caf.")), tensor)
    assert found.keys() == {"head_nets.cifdet.conv.weight", "head_nets.cifdet.conv.bias"}
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in found.items())  # as the seed has it


def test_what_does_not_fit(recipe, checkpoint, tmp_path, capsys):
    (path, _), out = checkpoint(), tmp_path / "out.safetensors"
    earlier, _ = checkpoint(head="CompositeField3", name="earlier.pkl")
    for file, options, words in (
        (path, [], "missing head_nets.cifdet.conv.weight, of shape (120, 128, 1, 1)"),
        (path, ["--heads", "cif"], "left over head_nets.1.conv.weight"),
        (path, ["--heads", "cif,caff"], "--heads 'caff' (did you mean 'caf'?): the recipe has cif, caf, cifdet"),
        (path, ["--heads", "cif,cif"], "--heads 'cif': is there twice"),
        (earlier, ["--heads", "cif,caf"], "earlier.pkl, as openpifpaf: head 0 is a CompositeField3"),
    ):
        assert imported(file, recipe, out, *options) == 1
        assert words in capsys.readouterr().err
    assert not out.exists()
    recipe.write_text(to_yaml(toy.recipe()))
    assert imported(path, recipe, out) == 1
    assert "the file holds pose.PoseNetwork; the recipe has painter (toy.Painter)" in capsys.readouterr().err

"""Files that are cut off, damaged, or of something else: one line that says so, and no output.

Also what may stand around weights, and what kind of numbers they may be.
"""

import argparse
import collections
import zipfile

import pytest
import torch
from import_by_hand import imported, largest, pictures, refused
from safetensors.torch import save_file
from test_import_discriminators import VGG
from test_import_esrgan import basicsr, old_names, released
from test_import_junyanz import Patches, ResNet, UNet
from test_import_nectargan import Discriminator, Generator
from test_import_vunet import port

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.commands.import_weights.__main__ import main
from figura.commands.import_weights.plan import numbers
from figura.commands.import_weights.tensor_files import read_tensors

STATES = {
    "basicsr": ("esrgan", lambda: basicsr().state_dict()),
    "released": ("esrgan", lambda: released().state_dict()),
    "numbered": ("esrgan", lambda: old_names(released().state_dict(), 2)),
    "vgg": ("esrgan", lambda: VGG(32, 3, 2).state_dict()),
    "unet": ("junyanz", lambda: UNet(3, 3, 5, 2, "batch").state_dict()),
    "resnet": ("junyanz", lambda: ResNet(3, 3, 2, 3, "instance").state_dict()),
    "patches": ("junyanz", lambda: Patches(6, 2, 3, "batch").state_dict()),
    "generator": ("nectargan", lambda: Generator(3, 2, 3, False, True).state_dict()),
    "discriminator": ("nectargan", lambda: Discriminator(3, 2, 3, 512).state_dict()),
    "port": ("vunet_pytorch", lambda: port(True, 4).state_dict()),
}


def line(kind, content, folder, capsys):
    """Return the message, which has to be one line."""
    said = refused(kind, content, folder, capsys)
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.parametrize("which", STATES)
def test_damage_to_any_tensor(which, tmp_path, capsys):
    """Some tensors in turn: a scalar, of size 0, not finite, of integers."""
    kind, make = STATES[which]
    state = make()
    names = [name for name in state if not name.endswith("num_batches_tracked")]
    for name in [names[0], *names[1 :: len(names) // 8 + 1], names[-1]]:
        damaged = [torch.zeros(()), state[name][:0], torch.full_like(state[name], torch.nan), state[name].int()]
        for value, word in zip(damaged, ("shape ()", "shape (0", "NaN", "torch.int32"), strict=True):
            said = refused(kind, state | {name: value}, tmp_path, capsys)
            assert f"{name} {'has' if word.startswith('shape') else 'holds'} {word}" in said


@pytest.mark.parametrize(
    ("which", "module", "said"),
    [
        (
            "basicsr",
            "conv_first",
            "there is no tensor conv_first.weight: the file is damaged, or holds another network",
        ),
        ("basicsr", "conv_last", "there is no tensor conv_last.weight"),
        ("basicsr", "body.0", "there is body.1, but no body.0"),
        ("released", "RRDB_trunk.0", "there is RRDB_trunk.1, but no RRDB_trunk.0"),
        ("numbered", "model.1.sub.0", "there is model.1.sub.1, but no model.1.sub.0"),
        ("numbered", "model.10", "the convolutions behind model.1 are numbered 3, 6, 8, not"),
        ("numbered", "model.3", "the convolutions behind model.1 are numbered 6, 8, 10, not"),
        ("vgg", "conv0_0", "there is no tensor body.0.rdb1.conv1.weight"),
        ("resnet", "model.11", "there is model.12, but no model.11"),
        ("patches", "model.5", "there is no tensor model.5.weight"),
        ("port", "e_theta.in_op", "there is no tensor e_theta.in_op.weight"),
    ],
)
def test_a_module_is_missing(which, module, said, tmp_path, capsys):
    kind, make = STATES[which]
    state = {name: value for name, value in make().items() if not name.startswith(f"{module}.")}
    assert said in line(kind, state, tmp_path, capsys)


def test_modules_that_only_a_list_can_tell(tmp_path, capsys):
    """Both doublings of BasicSR's network are in all its files, so that without them it is none of scale 1."""
    state = {name: value for name, value in basicsr().state_dict().items() if "conv_up" not in name}
    assert "missing conv_up2.weight, of shape (8, 8, 3, 3), for ups.1.weight" in refused(
        "esrgan", state, tmp_path, capsys
    )
    state = {name: value for name, value in UNet(3, 3, 6, 2, "none").state_dict().items() if value.shape[0] != 8}
    assert "missing model.model.1.model.3.model.1.weight, of shape (8, 4, 4, 4)" in refused(
        "junyanz", state, tmp_path, capsys
    )


@pytest.mark.parametrize("which", STATES)
def test_files_of_another_program(which, tmp_path, capsys):
    kind, make = STATES[which]
    for other in {kind for kind, _ in STATES.values()} - {kind}:
        said = line(other, make(), tmp_path, capsys)
        assert f"as {other}: " in said
        assert "tensors begin with" in said
    if which == "patches":
        assert "are of kind junyanz" in line("nectargan", make(), tmp_path, capsys)


def test_channels(tmp_path, capsys):
    """Four times the channels of the output are those of squares of 2 x 2 pixels; other numbers are channels."""
    state = basicsr().state_dict()
    for channels, (scale, inputs) in {12: (2, 3), 48: (1, 3), 4: (4, 4), 13: (4, 13)}.items():
        content = state | {"conv_first.weight": torch.ones(8, channels, 3, 3)}
        _, entry = imported("esrgan", content, tmp_path, capsys)
        assert (entry["scale"], entry["in_channels"]) == (scale, inputs)


def test_numbers_of_blocks():
    names = dict.fromkeys(["body.0.a", "body.1.a", "body.1.b", "body.10", "other.7.a"], torch.zeros(1))
    assert numbers(names, "body.") == range(2)
    assert numbers(names, "other.", first=None) == range(7, 8)
    assert not numbers(names, "none.")
    with pytest.raises(UserError, match=r"there is body\.1, but also body\.0"):
        numbers(names, "body.", first=1)
    with pytest.raises(UserError, match=r"there is far\.999999999, but no far\.0"):
        numbers({"far.999999999.a": torch.zeros(1)}, "far.")


@pytest.mark.parametrize("zipped", [True, False])
def test_files_that_are_cut_off(zipped, tmp_path, capsys):
    source, out = tmp_path / "source.pth", tmp_path / "out.safetensors"
    torch.save(basicsr().state_dict(), source, _use_new_zipfile_serialization=zipped)
    whole = source.read_bytes()
    for length in (0, 1, 3, 100, len(whole) // 3, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        source.write_bytes(whole[:length])
        status = run(main, ["esrgan", str(source), "--output", str(out)])
        said = capsys.readouterr().err
        assert status == 1
        assert "source.pth: cannot be read as weights of PyTorch (" in said
        assert "if it may be cut off or damaged, copy it again" in said
        assert len(said.splitlines()) == 1
    assert not out.exists()


def test_a_byte_that_changed(tmp_path):
    """PyTorch reads such a file; its weights would be wrong."""
    state = basicsr().state_dict()
    torch.save(state, tmp_path / "a.pth")
    content = bytearray((tmp_path / "a.pth").read_bytes())
    place = content.index(state["conv_last.weight"].numpy().tobytes())
    content[place] ^= 1
    (tmp_path / "a.pth").write_bytes(content)
    assert not torch.equal(torch.load(tmp_path / "a.pth")["conv_last.weight"], state["conv_last.weight"])
    with pytest.raises(UserError, match=r"a\.pth: the checksum of its part .*/data/\d+ differs: the file is damaged"):
        read_tensors(tmp_path / "a.pth")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "holds no state dictionary; one is needed, alone or under params_ema"),
        ({"a.weight": torch.zeros(1), "step": 3}, "holds no state dictionary; it holds step (int);"),
        ({"params": argparse.Namespace(a=1)}, "it holds params (argparse.Namespace)"),
        (dict.fromkeys("abcdefg", 1), "it holds a (int), b (int), c (int), d (int), e (int), ...; one is needed"),
        (collections.defaultdict(list, {"a": torch.zeros(1)}), "cannot be read as weights of PyTorch"),
        ({"netG": {"a": torch.zeros(1)}, "netD": {"a": torch.zeros(1)}}, "holds several networks, netG, netD;"),
        ({"a": torch.zeros(2, 2).to_sparse()}, "a has no plain values (torch.sparse_coo, device cpu)"),
        ({"a": torch.zeros(2, device="meta")}, "a has no plain values (torch.strided, device meta)"),
    ],
)
def test_files_without_one_network(content, said, tmp_path, capsys):
    assert said in line("esrgan", content, tmp_path, capsys)


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\n", b"PK\3\4"])
def test_files_of_another_format(content, tmp_path):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.pth: cannot be read as weights of PyTorch"):
        read_tensors(tmp_path / "a.pth")
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.safetensors: not a readable safetensors file"):
        read_tensors(tmp_path / "a.safetensors")


def test_what_may_stand_around_weights(tmp_path):
    state = {"a.weight": torch.ones(2), "b.bias": torch.zeros(3)}
    wrapped = {f"module.{name}": value for name, value in state.items()}
    compiled = {f"_orig_mod.{name}": value for name, value in state.items()}
    both = {f"_orig_mod.{name}": value for name, value in wrapped.items()}
    optimizer = {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]}
    contents = [
        state, wrapped, compiled, both, {"netG": state}, {"netG": wrapped, "optG": optimizer, "epoch": 3},
        {"params_ema": {}, "params": state}, {"model": {"state_dict": wrapped}},
        {"state_dict": state, "netD": compiled},
    ]  # fmt: skip
    contents += [{key: state} for key in ("params", "params_ema", "state_dict", "model")]
    for content in contents:
        torch.save(content, tmp_path / "a.pth")
        found = read_tensors(tmp_path / "a.pth")
        assert found.keys() == state.keys()
        assert all(torch.equal(found[name], value) for name, value in state.items())
    save_file(wrapped, tmp_path / "a.safetensors")
    assert read_tensors(tmp_path / "a.safetensors").keys() == state.keys()
    with pytest.raises(UserError, match=r"b\.safetensors: no such file"):
        read_tensors(tmp_path / "b.safetensors")


def rewritten(path, compression, parts=None):
    """Write the archive again, with other contents of some parts, by the end of their name."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, value in content.items():
            archive.writestr(name, next((new for end, new in (parts or {}).items() if name.endswith(end)), value))


def test_files_that_would_fill_the_memory_are_not_read(tmp_path, monkeypatch):
    """`torch.save` stores what it writes, so that a small file holds few numbers."""
    path = tmp_path / "a.pth"
    torch.save(basicsr().state_dict(), path)
    rewritten(path, zipfile.ZIP_STORED)
    assert read_tensors(path).keys() == basicsr().state_dict().keys()
    rewritten(path, zipfile.ZIP_DEFLATED, {"data/0": bytes(1_000_000)})
    monkeypatch.setattr(torch, "load", None)  # refused before
    with pytest.raises(UserError, match=r"a\.pth: its parts are compressed"):
        read_tensors(path)
    rewritten(path, zipfile.ZIP_STORED)
    content = path.read_bytes()
    size = content.index(b"PK\x01\x02") + 24  # of the first part, in the list at the end
    path.write_bytes(content[:size] + (10**9).to_bytes(4, "little") + content[size + 4 :])
    with pytest.raises(UserError, match=r"a\.pth: its parts are together larger than the file"):
        read_tensors(path)


class Module:
    """Like a pickled network."""

    def __init__(self, child=None):
        self._parameters = {"weight": torch.zeros(1)}
        self._modules = {"child": child or self}


def test_modules_without_end(tmp_path):
    torch.save({"model": Module()}, tmp_path / "a.pth")
    with pytest.raises(UserError, match=r"a\.pth: a module of its network contains itself, or too many lie one in"):
        read_tensors(tmp_path / "a.pth")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype, tmp_path, capsys):
    theirs = basicsr().to(dtype)
    ours, _ = imported("esrgan", theirs.state_dict(), tmp_path, capsys)
    x = pictures(3, 8, low=0.0)
    rounded = theirs.float() if dtype == torch.float64 else theirs  # the file that is written has single precision
    assert largest(ours(2 * x - 1)["image"], 2 * rounded.double()(x) - 1) < 1e-9

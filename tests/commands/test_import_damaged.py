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
from figura.commands.import_weights.command import main
from figura.commands.import_weights.tensor_files import read_content, tensors_of

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
    for name in (names[0], names[len(names) // 2], names[-1]):
        damaged = [torch.zeros(()), state[name][:0], torch.full_like(state[name], torch.nan), state[name].int()]
        for value, word in zip(damaged, ("shape ()", "shape (0", "NaN", "torch.int32"), strict=True):
            said = refused(kind, state | {name: value}, tmp_path, capsys)
            assert f"{name} {'has' if word.startswith('shape') else 'holds'} {word}" in said


@pytest.mark.parametrize(
    ("which", "module", "said"),
    [
        ("basicsr", "conv_first", "no tensor conv_first.weight: the file is damaged, or holds another network"),
        ("basicsr", "body.0", "there is body.1, but no body.0"),
        ("numbered", "model.10", "the convolutions behind model.1 are numbered 3, 6, 8, not"),
        ("patches", "model.5", "there is no tensor model.5.weight"),
        ("port", "e_theta.in_op", "there is no tensor e_theta.in_op.weight"),
    ],
)
def test_a_module_is_missing(which, module, said, tmp_path, capsys):
    kind, make = STATES[which]
    state = {name: value for name, value in make().items() if not name.startswith(f"{module}.")}
    assert said in line(kind, state, tmp_path, capsys)


@pytest.mark.parametrize("which", STATES)
def test_files_of_another_program(which, tmp_path, capsys):
    kind, make = STATES[which]
    for other in {kind for kind, _ in STATES.values()} - {kind}:
        said = line(other, make(), tmp_path, capsys)
        assert f"as {other}: " in said
        assert "tensors begin with" in said
    if which == "patches":
        assert "are of kind junyanz" in line("nectargan", make(), tmp_path, capsys)


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
        tensors_of(read_content(tmp_path / "a.pth"), tmp_path / "a.pth")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "holds no state dictionary; one is needed, alone or under params_ema"),
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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"<!DOCTYPE html>", "it is a web page instead of the file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer instead of the file"),
        (b"\x89HDF\r\n\x1a\n", "it is HDF5"),
        (b"\x89PNG\r\n\x1a\n", "cannot be read as weights of PyTorch: it is a picture"),
        (b"PK\3\4", "cannot be read as weights of PyTorch ("),
        (b"", "if it may be cut off or damaged, copy it again"),
    ],
)
def test_files_of_another_format(content, told, tmp_path, capsys):
    (tmp_path / "a.pth").write_bytes(content)
    assert run(main, ["esrgan", str(tmp_path / "a.pth"), "--output", str(tmp_path / "out.safetensors")]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert "a.pth: " in said
    assert told in said
    assert not (tmp_path / "out.safetensors").exists()
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.safetensors: (it is|not a readable safetensors file)"):
        tensors_of(read_content(tmp_path / "a.safetensors"), tmp_path / "a.safetensors")


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
        found = tensors_of(read_content(tmp_path / "a.pth"), tmp_path / "a.pth")
        assert found.keys() == state.keys()
        assert all(torch.equal(found[name], value) for name, value in state.items())
    save_file(wrapped, tmp_path / "a.safetensors")
    assert tensors_of(read_content(tmp_path / "a.safetensors"), tmp_path / "a.safetensors").keys() == state.keys()
    with pytest.raises(UserError, match=r"b\.safetensors: no such file"):
        tensors_of(read_content(tmp_path / "b.safetensors"), tmp_path / "b.safetensors")


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
    assert tensors_of(read_content(path), path).keys() == basicsr().state_dict().keys()
    rewritten(path, zipfile.ZIP_DEFLATED, {"data/0": bytes(1_000_000)})
    monkeypatch.setattr(torch, "load", None)  # refused before
    with pytest.raises(UserError, match=r"a\.pth: its parts are compressed"):
        tensors_of(read_content(path), path)
    rewritten(path, zipfile.ZIP_STORED)
    content = path.read_bytes()
    size = content.index(b"PK\x01\x02") + 24  # of the first part, in the list at the end
    path.write_bytes(content[:size] + (10**9).to_bytes(4, "little") + content[size + 4 :])
    with pytest.raises(UserError, match=r"a\.pth: its parts are together larger than the file"):
        tensors_of(read_content(path), path)


class Module:
    """Like a pickled network."""

    def __init__(self, child=None):
        self._parameters = {"weight": torch.zeros(1)}
        self._modules = {"child": child or self}


def test_modules_without_end(tmp_path):
    torch.save({"model": Module()}, tmp_path / "a.pth")
    with pytest.raises(UserError, match=r"a\.pth: a module of its network contains itself, or too many lie one in"):
        tensors_of(read_content(tmp_path / "a.pth"), tmp_path / "a.pth")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype, tmp_path, capsys):
    theirs = basicsr().to(dtype)
    ours, _ = imported("esrgan", theirs.state_dict(), tmp_path, capsys)
    x = pictures(3, 8, low=0.0)
    rounded = theirs.float() if dtype == torch.float64 else theirs  # the file that is written has single precision
    assert largest(ours(2 * x - 1)["image"], 2 * rounded.double()(x) - 1) < 1e-9

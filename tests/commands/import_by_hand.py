"""What the tests of imports share: weights drawn for other programs' networks, the command, networks from its files."""

from pathlib import Path

import torch
import toy

from figura.base.exit_status import run
from figura.base.yaml12 import parse_yaml
from figura.commands.import_weights.command import main
from figura.engine.build import build_networks
from figura.engine.weights import load_start
from figura.recipe.load import check_recipe
from figura.recipe.schema import NetworkEntry
from figura.recipe.types import NETWORK, build


@torch.no_grad()
def drawn(network, seed=0):
    """Fill all parameters and statistics with numbers of moderate size; variances are positive."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in network.state_dict().items():
        if not tensor.is_floating_point():
            tensor.fill_(7)
            continue
        values = torch.randn(tensor.shape, generator=generator)
        scale = tensor[0].numel() ** -0.5 if tensor.ndim == 4 else 0.3
        tensor.copy_(values.abs() + 0.5 if name.endswith(("running_var", "weight_g")) else values * scale)
    return network.eval()


def imported(kind, content, folder, capsys, *options):
    """Run the command on a file of this content; return the network, in float64, and the entry that it printed."""
    source, out = folder / f"{kind}.pth", folder / f"{kind}.safetensors"
    torch.save(content, source)
    status = run(main, [kind, str(source), "--output", str(out), *options])
    said = capsys.readouterr()
    assert status == 0, said.err
    entry = parse_yaml(said.out.partition("with this entry:\n\n")[2], "the command")["networks"]
    ((name, settings),) = entry.items()
    published = said.out.partition(" reads it")[0].splitlines()[-1]
    return started(published, name, settings), settings


def started(published, name, settings):
    """Put the entry into the published recipe, check all of it, and start the network from its weights."""
    content = toy.shipped(published)
    for loss in content["losses"].values():
        if loss["type"] == "images.Perceptual":
            loss["source"] = "random"
    content["networks"][name] = settings
    recipe = check_recipe(content, Path(published), ["train"])
    entry = NetworkEntry.model_validate(settings)
    network = build(entry, NETWORK, name) if "image_size" in settings else build_networks(recipe)[name]
    load_start({name: network}, recipe)
    return network.eval().double()


def largest(a, b):
    """The largest absolute difference of two tensors of one shape."""
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def pictures(channels=3, size=32, seed=1, low=-1.0):
    """Two random pictures with values in [low, 1], in double precision: rounding then hides no difference."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(2, channels, size, size, generator=generator, dtype=torch.float64)
    return values * (1 - low) + low


def refused(kind, content, folder, capsys, *options, output="out.safetensors"):
    """Run the command and return its message; it has to fail with 1 and to write nothing."""
    source = folder / "refused.pth"
    torch.save(content, source)
    assert run(main, [kind, str(source), "--output", str(folder / output), *options]) == 1
    assert not (folder / output).exists()
    return capsys.readouterr().err

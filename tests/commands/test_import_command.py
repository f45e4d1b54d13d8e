"""The command: against a recipe, run folders, settings that no name shows, files with code, OpenPifPaf, bad input."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch
import toy
from import_by_hand import drawn, largest, pictures, refused
from test_import_junyanz import Patches, ResNet, UNet

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.import_weights.command import main
from figura.engine.build import build_networks
from figura.engine.weights import load_weights
from figura.recipe.load import check_recipe
from figura.systems import modules_with
from stages import eval_dump, metrics

GENERATOR = {
    "type": "pix2pix.UNetGenerator",
    "image_size": 32,
    "features": 4,
    "n_downs": 3,
    "norm": "batch",
    "padding": "zeros",
    "biases": "with_instance_norm",
    "relu_skips": True,
}


def recipe_with(folder, **networks):
    """A small recipe that has further networks, which nothing trains but a step."""
    changes = {f"networks.{name}": entry for name, entry in networks.items()}
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(toy.changed({**changes, "steps.painter.trains": ["painter", *networks]})))
    return path


def imports(content, folder, *options, output="out.safetensors", kind="junyanz"):
    source = folder / "source.pth"
    torch.save(content, source)
    return run(main, [kind, str(source), "--output", str(folder / output), *map(str, options)])


def test_a_file_for_a_recipe(tmp_path, capsys):
    path = recipe_with(tmp_path, generator=GENERATOR)
    theirs = drawn(UNet(3, 3, 5, 4, "batch"))
    assert imports(theirs.state_dict(), tmp_path, "--recipe", path) == 0
    said = capsys.readouterr().out
    tensors = 10 + 1 + 7 * 5  # convolutions, the only bias, norms
    assert f"{tensors} tensors become pix2pix.UNetGenerator with " in said
    assert f"`networks.generator.weights: {tmp_path}/out.safetensors` in {path} starts from it" in said
    network = build_networks(check_recipe(read_yaml(path), path))["generator"]
    load_weights(network, tmp_path / "out.safetensors")
    x = pictures(3, 32)
    assert largest(network.double().eval()(x)["image"], theirs.double()(x.clone())) < 1e-9


def test_a_run_to_evaluate(tmp_path, capsys):
    path = recipe_with(tmp_path, generator=GENERATOR)
    assert imports(drawn(UNet(3, 3, 5, 4, "batch")).state_dict(), tmp_path, "--recipe", path, output="run") == 0
    assert "as the recipe starts them: painter; evaluate it: python -m stages.eval_dump" in capsys.readouterr().out
    folder = tmp_path / "run/model"
    trained = check_recipe(read_yaml(path) | read_yaml(folder / "recipe.yaml"), folder / "recipe.yaml")
    for name, network in build_networks(trained).items():
        load_weights(network, folder / f"{name}.safetensors")
    assert str(tmp_path / "source.pth") in json.dumps(json.loads((folder / "provenance.json").read_text()))
    words = [str(path), str(tmp_path / "run")]
    assert run(eval_dump.main, words) == run(metrics.main, [*words, str(tmp_path / "m.json"), str(tmp_path / "p")]) == 0
    assert "run: has no history, so it was not trained here: no curves" in capsys.readouterr().out
    assert json.loads((tmp_path / "full/m.json").read_text()).keys() == {"distance"}


def test_settings_that_no_name_shows(tmp_path, capsys):
    """With padding by reflection the tensors fit, and the pictures would be wrong."""
    path = recipe_with(tmp_path, generator=GENERATOR | {"padding": "reflect", "relu_skips": False})
    said = refused("junyanz", UNet(3, 3, 5, 4, "batch").state_dict(), tmp_path, capsys, "--recipe", str(path))
    assert [line.strip() for line in said.splitlines()[1:]] == [
        "networks.generator.padding: found 'reflect'; the file needs 'zeros'",
        "networks.generator.relu_skips: found False; the file needs True",
    ]
    path = recipe_with(tmp_path, generator=GENERATOR | {"norm": "instance"})
    said = refused("junyanz", UNet(3, 3, 5, 4, "batch").state_dict(), tmp_path, capsys, "--recipe", str(path))
    assert "settings differ:\n  networks.generator.norm: found 'instance'; the file needs 'batch'\n" in said


def test_several_networks_of_a_type(tmp_path, capsys):
    twin = {"type": "images.ResNetGenerator", "features": 4, "blocks": 6}
    path = recipe_with(tmp_path, there=twin, back=twin)
    state = drawn(ResNet(3, 3, 4, 6, "instance")).state_dict()
    said = refused("junyanz", state, tmp_path, capsys, "--recipe", str(path))
    assert "choose one by --network: there, back" in said
    said = refused("junyanz", state, tmp_path, capsys, "--recipe", str(path), "--network", "bak")
    assert "--network 'bak' (did you mean 'back'?)" in said
    said = refused("junyanz", state, tmp_path, capsys, "--recipe", str(path), "--network", "painter")
    assert "the file holds images.ResNetGenerator" in said
    said = refused("junyanz", Patches(6, 4, 3, "batch").state_dict(), tmp_path, capsys, "--recipe", str(path))
    assert "the file holds pix2pix.PatchDiscriminator; the recipe has painter" in said
    assert imports(state, tmp_path, "--recipe", path, "--network", "back") == 0
    assert "networks.back.weights" in capsys.readouterr().out


def test_a_model_is_not_replaced(tmp_path, capsys):
    """A file of weights in a model would make its SHA256SUMS wrong; a run may be the only result of a training."""
    path = recipe_with(tmp_path, generator=GENERATOR)
    state = drawn(UNet(3, 3, 5, 4, "batch")).state_dict()
    assert imports(state, tmp_path, "--recipe", path, output="run") == 0
    before = {one: one.read_bytes() for one in (tmp_path / "run/model").iterdir()}
    (tmp_path / "source.pth").unlink()
    for output, said in (
        ("run/model/generator.safetensors", "is a model, whose SHA256SUMS guards its files"),
        ("run/model", "run/model: this is a model; name the folder of another run"),
        ("run", "run/model: a model is there already"),
        ("weights.pth", "weights.pth: a file of weights to write ends in .safetensors"),
    ):
        for kind in ("junyanz", "openpifpaf"):
            words = [kind, tmp_path / "source.pth", "--output", tmp_path / output, "--recipe", path]
            assert run(main, list(map(str, words))) == 1
            assert said in capsys.readouterr().err  # before the file is looked at, which is gone
    assert {one: one.read_bytes() for one in (tmp_path / "run/model").iterdir()} == before
    assert not (tmp_path / "weights.pth").exists()


def test_a_project_has_kinds_of_its_own(tmp_path):
    """A kind is a module `import_KIND` with a `plan`, in a system of the project's own or of figura."""
    mine = tmp_path / "models/mine"
    mine.mkdir(parents=True)
    for name, text in {
        "../__init__.py": "", "__init__.py": "", "import_nothing.py": "",
        "import_own.py": "TYPE, RECIPE = 'mine.Net', 'own.yaml'\n\n\ndef plan(tensors, network, heads):\n    ...\n",
    }.items():  # fmt: skip
        (mine / name).write_text(text)

    def said(kind):
        words = [sys.executable, "-m", "figura", "import", kind, "a.pth", "--output", "o.safetensors"]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.run(words, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True).stderr

    assert "own: --recipe is needed, such as own.yaml" in said("own")
    kinds = set(re.findall(r"'(\w+)'", said("nothing"))) - {"nothing"}
    assert kinds == {"own", "state", *modules_with("import_", "plan")}
    page = (Path(__file__).parents[2] / "docs/import.md").read_text()
    assert all(f"figura import {kind} " in page for kind in ("state", *modules_with("import_", "plan")))

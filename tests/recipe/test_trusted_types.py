"""`--trusted-types-only`: a stranger's recipe or model folder runs no code but ours, and reads no files but its own.

Each foreign module here writes a file when it is imported.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import toy

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands import predict
from figura.commands.describe.command import main as describe
from figura.engine.build import build_networks
from figura.recipe.load import check_recipe
from figura.recipe.trusted import refuse_untrusted
from figura.recipe.types import LOSS, NETWORK, TRUSTED_ONLY, construct, find_type
from figura.training.checkpoints import write_model

ROOT = Path(__file__).parents[2]
FOREIGN = ("canary", "super_resolution", "images")
CODE = """
from pathlib import Path
from torch.nn import Module
Path({path!r}).touch()
class Evil(Module): pass
class RRDBGenerator(Module): pass
"""
SMALL = {
    "networks.generator.features": 4, "networks.generator.growth": 4, "networks.discriminator.features": 4,
    "data.common.root": "nowhere",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a recipe of our types alone, its model, and a picture."""
    folder = tmp_path_factory.mktemp("trained")
    content = toy.changed(SMALL, read_yaml(ROOT / "recipes/super_resolution.yaml"))
    recipe = check_recipe(content, Path("r.yaml"), ("train", "evaluate", "predict"), {"scale": 2})
    write_model(folder / "run/model", build_networks(recipe), recipe, {})
    (folder / "r.yaml").write_text(to_yaml(content))
    cv2.imwrite(str(folder / "a.png"), np.full((16, 24, 3), 100, np.uint8))
    return folder


@pytest.fixture
def stranger(trained, tmp_path, monkeypatch):
    """Make the folder a stranger's: the current one, and on Python's path, with modules; return the recipe."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv(TRUSTED_ONLY, "")
    for name in FOREIGN:
        Path(f"{name}.py").write_text(CODE.format(path=str(tmp_path / f"{name}.ran")))
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield read_yaml(Path("r.yaml"))
    for name in FOREIGN:
        sys.modules.pop(name, None)


def ran() -> list[str]:
    """Return the foreign modules that were imported."""
    assert {name for name in FOREIGN if name in sys.modules} == {path.stem for path in Path().glob("*.ran")}
    return sorted(path.name for path in Path().glob("*.ran"))


def predicted(*words: str) -> int:
    return run(predict.main, ["r.yaml", "run", "a.png", "--output", "o", *words])


def test_a_model_of_our_types_predicts(stranger, capsys):
    assert predicted("--trusted-types-only") == 0, capsys.readouterr().err
    assert cv2.imread("o/a.sr.png").shape == (32, 48, 3)
    assert not ran()


def test_without_the_option_types_are_imported(stranger, capsys):
    Path("r.yaml").write_text(to_yaml(toy.changed({"networks.generator.type": "canary.Evil"}, stranger)))
    assert run(describe, ["r.yaml"]) == 1
    assert ran() == ["canary.ran"]


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"networks.generator.type": "canary.Evil"}, "networks.generator.type: found 'canary.Evil'; --trusted-types"),
    ({"networks.generator.type": "super_resolution.Evil"}, "networks.generator.type: found 'super_resolution.Evil'"),
    ({"networks.generator.type": "models.super_resolution.Evil"}, "networks.generator.type"),
    ({"networks.generator.type": "os.system"}, "networks.generator.type: found 'os.system'"),
    ({"networks.generator.type": "figura.base.files.os.system"}, "networks.generator.type"),
    ({"networks.generator.type": "figura.recipe.types.Path"}, "networks.generator.type"),
    ({"networks.generator.type": "figura.dump.RecordsFile"}, "networks.generator.type"),
    ({"networks.generator.type": "figura.RecordsFile"}, "networks.generator.type"),
    ({"networks.generator.type": "torch.load"}, "networks.generator.type"),
    ({"networks.generator.type": "torch.hub.load"}, "networks.generator.type"),
    ({"networks.generator.type": "torch.nn.os"}, "networks.generator.type"),
    ({"networks.generator.type": "torch.package.PackageImporter"}, "networks.generator.type"),
    ({"networks.generator.type": "torch.utils.data.Dataset"}, "networks.generator.type"),
    ({"networks.generator.type": "..canary.Evil"}, "networks.generator.type"),
    ({"networks.generator.type": "../canary.Evil"}, "networks.generator.type"),
    ({"networks.generator.backbone": {"type": "canary.Evil"}}, "networks.generator.backbone.type"),
    ({"networks.generator.list": [{"x": {"type": "canary.Evil"}}]}, "networks.generator.list.0.x.type"),
    ({"losses.G_pixel.type": "canary.Evil"}, "losses.G_pixel.type"),
    ({"losses.G_pixel.schedule": {"type": "canary.Evil"}}, "losses.G_pixel.schedule.type"),
    ({"steps.G.optimizer.type": "canary.Evil"}, "steps.G.optimizer.type"),
    ({"callbacks": {"mine": {"type": "canary.Evil"}}}, "callbacks.mine.type"),
    ({"facts": {"skeleton": {"type": "canary.Evil"}}}, "facts.skeleton.type"),
    ({"networks.generator.weights": "/etc/x.safetensors"}, "networks.generator.weights: found '/etc/x.safetensors'"),
    ({"networks.generator.weights": "../x.safetensors"}, "networks.generator.weights"),
    ({"networks.generator.weights": "a/../../x"}, "networks.generator.weights"),
    ({"data.common.root": "/home/me"}, "data.common.root: found '/home/me'; --trusted-types-only takes paths"),
    ({"data.common.root": "~/pictures"}, "data.common.root"),
    ({"data.common.root": "https://example.org/x"}, "data.common.root"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), HOSTILE, ids=[str(next(iter(one.values()))) for one, _ in HOSTILE])
def test_nothing_of_a_stranger_is_imported(stranger, changes, said):
    with pytest.raises(UserError) as caught:
        refuse_untrusted(toy.changed(changes, stranger), Path("hostile.yaml"))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"hostile.yaml: {said}")
    assert not ran()


def test_commands_import_nothing_of_a_strangers_recipe_or_model(stranger, capsys):
    hostile = to_yaml(toy.changed({"networks.generator.type": "canary.Evil"}, stranger))
    Path("hostile.yaml").write_text(hostile)
    Path("stranger/model").mkdir(parents=True)
    Path("stranger/model/recipe.yaml").write_text(hostile)
    for recipe, main, *words in (
        ("hostile.yaml", describe, "hostile.yaml"),
        ("hostile.yaml", predict.main, "hostile.yaml", "run", "a.png", "--output", "o"),
        ("stranger/model/recipe.yaml", predict.main, "r.yaml", "stranger", "a.png", "--output", "o"),
    ):
        assert run(main, [*words, "--trusted-types-only"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {recipe}: networks.generator.type: found 'canary.Evil'")
    assert not ran()
    assert not Path("o").exists()


BACKBONES = {
    "its own type": ({"type": "pose.TimmBackbone"}, "networks.generator"),
    "in a network": (
        {"type": "pose.PoseNetwork", "backbone": {"name": "timm"}, "heads": {"cif": {}}}, "networks.generator.backbone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entry", "key"), BACKBONES.values(), ids=BACKBONES)
def test_a_class_that_passes_its_arguments_to_another_package(stranger, entry, key):
    errors = ErrorCollector(Path("hostile.yaml"))
    refuse_untrusted({**stranger, "networks": {"generator": entry}}, errors.file)
    arguments = {name: value for name, value in entry.items() if name != "type"}
    construct(entry["type"], arguments, NETWORK, "networks.generator", errors)
    said = "TimmBackbone passes its arguments to timm; --trusted-types-only takes no class that does"
    assert errors.lines == [f"hostile.yaml: {key}: {said}"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../elsewhere", "generator.safetensors"])
def test_weights_that_are_a_link_out_of_the_folder(stranger, target, capsys):
    Path("run/elsewhere").write_bytes(b"x")
    Path("run/model/generator.safetensors").unlink()
    Path("run/model/generator.safetensors").symlink_to(target)
    assert predicted("--trusted-types-only") == 1
    said = capsys.readouterr().err
    assert said.startswith("error: run/model: generator.safetensors: a link that leads out of this folder; ")


def test_a_class_of_ours_never_imports_a_module_of_its_name(stranger):
    """Also without the option: `images.L1` once imported a package `images` of anybody's as well."""
    errors = ErrorCollector(Path("p.yaml"))
    assert find_type("super_resolution.RRDBGenerator", NETWORK, "k", errors) is not None
    assert find_type("super_resolution.RRDBGenerator", LOSS, "k", errors) is None
    assert find_type("images.L1", LOSS, "k", errors) is not None
    assert not ran()

"""Weights and code of one's own: a change makes stale what reads them, and experiments and other clones have them."""

import hashlib
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from pipeline.project import Project
from pipeline.test_dag import stale
from pipeline.test_new_recipe import CODE, RECIPE, add_entry
from pipeline.tiny_settings import tiny

pytestmark = pytest.mark.slow
START = "weights/vunet/start/mine.safetensors"
NAMED = f"+networks.generator.weights={START}"


def write_start(project: Project, factor: float) -> str:
    """Write weights to start from, VUNet's trained ones times a factor; return the log's line on them."""
    trained = load_file(project.folder / "runs/vunet/model/generator.safetensors")
    path = project.folder / START
    save_file({name: value * factor if value.is_floating_point() else value for name, value in trained.items()}, path)
    return f"network 'generator' starts from {START}, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:8]}\n"


def add_recipe_of_own_package(project: Project) -> Path:
    """Add a recipe `tiny`, whose network and loss are in a package of one's own; return the file of these."""
    code = project.folder / "mypackage/tiny.py"
    code.parent.mkdir()
    code.write_text(CODE.lstrip())
    (project.folder / "recipes/tiny.yaml").write_text(RECIPE.lstrip().replace("tiny.", "mypackage.tiny."))
    add_entry(project.folder)
    project.set("recipes/tiny.yaml", tiny(project.folder)["recipes/tiny.yaml"])
    return code


def test_they_are_dependencies(project: Project, tmp_path: Path) -> None:
    said, code = write_start(project, 0.5), add_recipe_of_own_package(project)
    project.run("dvc", "add", START)
    project.commit("weights and code of our own")

    done = project.run("dvc", "exp", "run", "--temp", "--name", "own", "-S", NAMED, "train@vunet", "train@tiny")
    assert said in done.stdout

    project.run("dvc", "exp", "apply", "own", code=None)  # complains about the outputs of stages that nobody ran
    project.run("dvc", "checkout", "train@vunet", "train@tiny")
    project.commit("trained")
    both = {"train@vunet", "train@tiny"}
    before = stale(project)
    assert not both & before
    project.run("dvc", "remote", "add", "--default", "store", str(tmp_path / "store"))
    project.commit("remote")
    needed = (START, *both, "prepare@people", "prepare@pairs")
    project.run("dvc", "push", *needed)
    project.run("git", "clone", "-q", str(project.folder), str(tmp_path / "other"))
    other = Project(tmp_path / "other")
    assert "train@vunet" in stale(other)
    other.run("dvc", "pull", *needed)
    assert (other.folder / START).read_bytes() == (project.folder / START).read_bytes()
    assert not both & stale(other)

    write_start(project, 0.25)
    changed = stale(project)
    assert changed - before == {"train@vunet", f"{START}.dvc"}
    text = code.read_text()
    code.write_text(f"{text}# nothing but a comment\n")
    assert stale(project) == changed
    code.write_text(f"{text}CHANGED = 1\n")
    assert stale(project) - changed == {"train@tiny"}

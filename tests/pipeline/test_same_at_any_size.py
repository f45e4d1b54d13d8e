"""One process with batch 8, two with 4 each: the same losses, the same dump, the same weights in every process.

All recipes of the DAG, with their networks, losses, noise, mixtures and gates, and with BatchNorm, dropout and a
relativistic loss where a recipe may have them. In float64, where rounding cannot hide or make a difference, and in
float32.
"""

import shutil
import subprocess
import sys

import pandas as pd
import pytest
from safetensors.torch import load_file

from pipeline.dag import recipes
from pipeline.project import ENVIRONMENT, Project
from pipeline.tiny_settings import own

pytestmark = pytest.mark.slow

RECIPES = {name: entry["params"] for name, entry in recipes().items()}
STEPS, SHORT = 12, 4
COMMON = {
    "data.batch_size": 8,
    "train.steps": STEPS,
    "train.evaluate_every": 6,
    "runtime.resume_every": 6,
    "runtime.workers": 0,
    "runtime.scores": ...,
}
SCRIPT = """
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from figura.evaluation.trained import load_trained, write_dump
from figura.recipe.load import load_recipe
from figura.engine import data as batches
from figura.training import sanity_check
from figura.engine.weights import digest
from figura.training.trainer import Trainer

Accelerator.end_training = lambda self: None  # several trainings, one group of processes


def doubled(tree):
    if isinstance(tree, torch.Tensor):
        return tree.double() if tree.dtype == torch.float32 else tree
    if isinstance(tree, dict):
        return {key: doubled(value) for key, value in tree.items()}
    return [doubled(value) for value in tree] if type(tree) is list else tree


def train(path, run):
    trainer = Trainer(load_recipe(path), run)
    trainer.fit()
    place = run / f"digest-{trainer.accelerator.process_index}-of-{trainer.accelerator.num_processes}.txt"
    place.write_text(" ".join(digest(network) for network in trainer.networks.live.values()))


for name, path in RECIPES.items():
    run, path = Path("single", sys.argv[1], name), Path(f"short-{name}.yaml")
    train(path, run)
    recipe, networks = load_trained(run / "model", load_recipe(path))
    write_dump(recipe, networks, run / "dump")
torch.set_default_dtype(torch.float64)
for module in (batches, sanity_check):
    module.collated = lambda examples, collated=module.collated: doubled(collated(examples))
for name, path in RECIPES.items():
    train(Path(path), Path("double", sys.argv[1], name))
"""


@pytest.fixture(scope="module")
def runs(finished: Project, tmp_path_factory):
    """The tiny project, with folders `single/one`, ..., `double/two` of runs by as many processes."""
    project = finished.copy(tmp_path_factory.mktemp("sizes") / "figura")
    for name, path in RECIPES.items():
        project.set(path, COMMON | own(name, "processes"))
        shutil.copy(project.folder / path, project.folder / f"short-{name}.yaml")
        project.set(f"short-{name}.yaml", {"train.steps": SHORT, "train.evaluate_every": SHORT})
    (project.folder / "both.py").write_text(f"RECIPES = {RECIPES!r}\n{SCRIPT}")
    two = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    for count, launcher in (("one", ()), ("two", two)):
        done = subprocess.run(
            [sys.executable, *launcher, "both.py", count], cwd=project.folder,
            capture_output=True, text=True, timeout=600, check=False,
            env=ENVIRONMENT | {"PYTHONPATH": str(project.folder)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
    return project.folder


def difference(runs, precision, name, steps):
    """Return the largest difference of a loss in each iteration, relative where the loss is above 1."""
    one, two = (pd.read_csv(runs / precision / count / name / "live/losses.csv") for count in ("one", "two"))
    assert one["step"].max() == steps
    assert one[["step", "loss"]].equals(two[["step", "loss"]])
    return ((one["raw"] - two["raw"]).abs() / one["raw"].abs().clip(lower=1)).groupby(one["step"]).max()


@pytest.mark.parametrize("name", RECIPES)
def test_losses_are_those_of_one_process(name, runs):
    assert difference(runs, "double", name, STEPS).max() <= 1e-11


@pytest.mark.parametrize("name", RECIPES)
def test_losses_in_single_precision_are_those_of_one_process_but_for_rounding(name, runs):
    """Of few iterations: later ones multiply what rounding changed, as Muon lifts small singular values."""
    assert difference(runs, "single", name, SHORT).max() <= 1e-5


def test_the_weights_are_alike_in_all_processes(runs):
    for name in RECIPES:
        for precision in ("single", "double"):
            ranks = [(runs / precision / "two" / name / f"digest-{rank}-of-2.txt").read_text() for rank in range(2)]
            assert ranks[0] == ranks[1] != ""


@pytest.mark.parametrize("name", RECIPES)
def test_weights_are_those_of_one_process(name, runs):
    for path in sorted((runs / "double/one" / name / "model").glob("*.safetensors")):
        one, two = load_file(path), load_file(runs / "double/two" / name / "model" / path.name)
        assert one.keys() == two.keys()
        for key, value in one.items():
            assert (value - two[key]).abs().max() <= 1e-9, f"{path.stem}.{key}"


@pytest.mark.parametrize("name", RECIPES)
def test_the_dump_has_the_same_examples_once_and_in_order(name, runs):
    dumps = [runs / "single" / count / name / "dump" for count in ("one", "two")]
    one, two = (pd.read_csv(dump / "examples.csv") for dump in dumps)
    ids = ["mode", "index", "draw", "dataset"]
    assert one[ids].equals(two[ids])
    assert not one.duplicated(ids).any()
    listed = [sorted(str(path.relative_to(dump)) for path in dump.rglob("*") if path.is_file()) for dump in dumps]
    assert listed[0] == listed[1]

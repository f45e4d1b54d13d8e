"""A recipe of one's own, with network and loss: two files and one line; nothing of other recipes runs."""

import csv
from pathlib import Path

import pytest

from bench.stale_stages import stages_with_changes
from pipeline.dag import recipes, stages, stages_of
from pipeline.project import Project
from pipeline.test_dag import ran, stale
from pipeline.tiny_settings import ALWAYS, tiny

pytestmark = pytest.mark.slow
CODE = '''
"""A network that mixes colours, and a loss that a few odd pixels do not rule."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from figura.interfaces import Loss


class Mixer(nn.Module):
    """One matrix for the colours."""

    outputs: ClassVar[tuple[str, ...]] = ("image",)

    def __init__(self) -> None:
        super().__init__()
        self.colours = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"image": self.colours(x)}


class Charbonnier(Loss):
    """Mean of sqrt(difference^2 + epsilon^2)."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, *, image: Tensor, target: Tensor) -> Tensor:
        return torch.sqrt((image - target).square() + self.epsilon**2).mean(dim=(1, 2, 3))
'''
RECIPE = """
seed: 3
data:
  train:
    pairs: &pairs
      type: images.ImagePairs
      root: data/prepared/pairs
      split: train
      direction: a_to_b
      load_size: 32
      crop_size: 32
  validation:
    pairs: {<<: *pairs, split: validation}
  batch_size: 8
networks:
  mixer: {type: tiny.Mixer}
losses:
  charbonnier: {type: tiny.Charbonnier, inputs: {image: image, target: y}, weight: 1.0, after: 100}
  L1: {type: images.L1, inputs: {image: image, target: y}, weight: 1.0}
steps:
  mixer:
    trains: [mixer]
    injectors:
      mix: {type: Forward, network: mixer, inputs: {x: x}, outputs: {image: image}}
    optimizer: {type: torch.optim.Adam, lr: 1.0e-3}
    lr_schedule: {type: Linear, start: 500, end: 1000, from: 1.0, to: 0.0}
callbacks: {}
train: {steps: 1000, precision: "no", max_nonfinite: 20}
evaluate:
  batch_size: 8
  inputs: {x: image, y: image}
  modes:
    mixing:
      injectors:
        mix: {type: Forward, network: mixer, inputs: {x: x}, outputs: {image: image}}
      save: {image: image}
metrics:
  bootstrap: 500
  confidence: 0.95
  scores:
    mixing: {type: images.Fidelity, mode: mixing, image: image, target: y}
  pictures:
    mixed: {type: images.Sheet, mode: mixing, columns: [x, image, y], count: 4}
runtime: {workers: 0, timing: false}
"""
ENTRY = "      tiny: {params: recipes/tiny.yaml, data: pairs}\n"


def add_recipe(folder: Path) -> None:
    """Write the two files and the line in dvc.yaml."""
    (folder / "models/tiny").mkdir()
    (folder / "models/tiny/tiny.py").write_text(CODE.lstrip())
    (folder / "recipes/tiny.yaml").write_text(RECIPE.lstrip())
    add_entry(folder)


def add_entry(folder: Path) -> None:
    """Write the line in dvc.yaml."""
    pipeline = (folder / "dvc.yaml").read_text()
    (folder / "dvc.yaml").write_text(pipeline.replace("  - pose_consistency:\n", f"{ENTRY}  - pose_consistency:\n", 1))


def test_a_new_recipe_is_two_files_and_a_line_and_runs_by_itself(project: Project) -> None:
    others = stages(project.folder)
    add_recipe(project.folder)
    touched = project.run("git", "status", "--porcelain", "--untracked-files=all").stdout.splitlines()
    assert [line[3:] for line in touched] == ["dvc.yaml", "models/tiny/tiny.py", "recipes/tiny.yaml"]
    assert project.run("git", "diff", "--shortstat").stdout == " 1 file changed, 1 insertion(+)\n"
    assert stages(project.folder) - others == stages_of("tiny")
    settings = tiny(project.folder)[recipes(project.folder)["tiny"]["params"]]
    assert settings == ALWAYS | {
        "losses.charbonnier.after": 2,
        "steps.mixer.lr_schedule.start": 6,
        "steps.mixer.lr_schedule.end": 12,
    }

    project.set("recipes/tiny.yaml", settings)
    assert set(stages_with_changes(project.folder)) == stages_of("tiny")
    assert ran(project.run("dvc", "repro").stdout) == stages_of("tiny")
    assert set(csv.DictReader((project.folder / "runs/tiny/dump/examples.csv").open()).fieldnames or ()) >= {
        "loss.charbonnier",
        "loss.L1",
    }
    assert (project.folder / "plots/tiny/pictures/mixed.jpg").is_file()
    assert stale(project) == set()
    project.commit("tiny")  # with the folders of its weights, which are empty
    assert project.run("git", "ls-files", "weights/tiny").stdout.split() == [
        f"weights/tiny/{kind}/.gitkeep" for kind in ("losses", "metrics", "start")
    ]

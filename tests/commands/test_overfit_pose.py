"""The overfitting proof, on one drawn scene for a few steps: what it writes, and that it can fail."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from figura.base.exit_status import run
from figura.synthetic.settings import SyntheticSettings
from figura.synthetic.writer import write_synthetic
from models.pose.overfit import main
from models.pose.overfitting import distance

SETTINGS = SyntheticSettings(
    image_size=96, jpeg_quality=90, scenes={"train": 3, "validation": 1, "test": 1},
    identities={"train": 3, "validation": 3, "test": 3},
    people_per_scene={1: 1.0}, objects_per_scene={0: 1.0}, height_range=(0.7, 0.9), views={"front": 1.0},
    poses={"standing": 1.0}, max_overlap=0.0, cut_share=0.0, crowd_share=0.0, limb_thickness=1.2, head_size=1.2,
    clutter=0,
)  # fmt: skip
RECIPE = Path(__file__).parents[2] / "recipes/pose.yaml"


@pytest.fixture
def root(tmp_path):
    write_synthetic(SETTINGS, 1, tmp_path / "people", False, workers=1)
    (tmp_path / "people/manifest.json").write_text(json.dumps({"sha256": "1"}))
    return tmp_path / "people"


def overfit(root, folder, steps, images=1):
    words = [RECIPE, folder, "--images", images, "--root", root, "--side", 97, "--steps", steps]
    return run(main, list(map(str, words)))


@pytest.mark.slow
def test_one_scene_by_heart(root, tmp_path, capsys):
    assert overfit(root, tmp_path / "run", steps=500) == 0
    lines = capsys.readouterr().out.splitlines()
    _, visible, found, farthest = next(after for line, after in pairwise(lines) if "farthest px" in line).split()
    assert int(visible) == int(found) > 8
    assert float(farthest) <= 8
    assert (tmp_path / "run/losses.png").is_file()
    assert (tmp_path / "run/dump/fields.pictures.zip").is_file()
    assert (tmp_path / "run/people.png").is_file()
    (figures,) = (line for line in lines if line.startswith("keypoints: "))
    assert "AP50 1.000" in figures


@pytest.mark.slow
def test_too_few_steps_and_too_few_images_are_told(root, tmp_path, capsys):
    assert overfit(root, tmp_path / "short", steps=8) == 1
    assert "visible keypoints are not found within one stride" in capsys.readouterr().err
    assert overfit(root, tmp_path / "many", steps=8, images=9) == 1
    assert "3 images have no crowd region, 9 are asked for" in capsys.readouterr().err
    assert overfit(root, tmp_path / "none", steps=2) == 1
    assert capsys.readouterr().err == "error: --steps 2: at least 8 are needed\n"


def test_distance_is_that_of_confident_cells_near_the_keypoint():
    field = np.zeros((5, 4, 5))
    field[2], field[3] = np.mgrid[:4, :5][::-1] + 0.25
    field[1, 1, 2], field[1, 1, 3], field[1, 2, 3], field[1, 3, 4] = 0.8, 0.7, 0.4, 0.9
    # confident within 8 px of (18, 10): cells (2, 1) and (3, 1), which point to (18, 10) and (26, 10)
    assert distance(field, np.array([18.0, 10.0]), 8) == pytest.approx(0.0)
    assert distance(field, np.array([25.0, 14.0]), 8) == pytest.approx(np.hypot(25 - 26, 14 - 10))
    assert distance(field, np.array([2.0, 2.0]), 8) == np.inf

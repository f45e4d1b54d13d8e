"""Comparing an experiment of another seed with the commit that it started from, read from DVC's cache."""

import cv2
import pytest

from pipeline.project import Project

pytestmark = pytest.mark.slow


def test_an_experiment_of_another_seed_is_compared(project: Project) -> None:
    project.run("dvc", "exp", "run", "--temp", "--name", "other", "-S", "seed=8", "metrics@vunet")
    before = project.run("git", "status", "--short").stdout
    command = ["figura", "compare", "HEAD", "other", "--recipe", "vunet"]
    done = project.run(*command, "--markdown", "../c.md", "--picture", "../c.png", "--sheet", "../s.png")
    assert "HEAD: seeds 7, 8 (other)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("other and HEAD: no difference beyond seeds")
    assert "l1_person" in (project.folder.parent / "c.md").read_text()
    for name in ("c.png", "s.png"):
        assert cv2.imread(str(project.folder.parent / name)).shape[1] > 150
    assert project.run("git", "status", "--short").stdout == before

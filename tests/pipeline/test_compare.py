"""Comparing an experiment of another seed with the commit that it started from, read from DVC's cache."""

import cv2
import pytest

from pipeline.project import Project

pytestmark = pytest.mark.slow


def test_an_experiment_of_another_seed_is_compared(project: Project) -> None:
    project.run("dvc", "exp", "run", "--temp", "--name", "other", "-S", "seed=8", "metrics@vunet")
    before = project.run("git", "status", "--short").stdout
    done = project.run("figura", "compare", "HEAD", "other", "--recipe", "vunet")
    assert "HEAD: seeds 7, 8 (other)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("other and HEAD: no difference beyond seeds")
    out = project.folder.parent / "compared"
    project.run(
        "figura", "report", "HEAD", "other", "--recipe", "vunet", "--output", f"{out}.html", "--markdown", str(out)
    )
    assert "| `l1_person` | lower |" in (out / "report.md").read_text()
    for name in ("effects", "changed_in_l1_person"):
        assert cv2.imread(str(out / f"vunet--compared--{name}.webp")).shape[1] > 150
    assert project.run("git", "status", "--short").stdout == before

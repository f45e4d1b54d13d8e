"""A grid of experiments in DVC's queue, reported; one of them fails."""

import pandas as pd
import pytest

from pipeline.project import Project

pytestmark = pytest.mark.slow
METRIC = "metrics/full/vunet.json:reconstruction.l1.value"


def test_a_grid_is_queued_run_and_reported(project: Project) -> None:
    grid = ["-S", "metrics.bootstrap=40", "-S", "metrics.confidence=0.5,0.9"]  # reruns the cheapest stage
    project.run("dvc", "exp", "run", "--queue", "--name", "grid", *grid, "metrics@vunet")
    project.run("dvc", "exp", "run", "--queue", "--name", "broken", "-S", "metrics.confidence=2", "metrics@vunet")
    project.run("dvc", "exp", "run", "--run-all", "--jobs", "2", code=None)  # one of them fails
    done = project.run("figura", "sweep", "--metric", METRIC, "--output", "sweep")
    table = pd.read_csv(project.folder / "sweep/sweep.csv").set_index("name")
    assert table.loc["broken", "state"] == "failed"
    assert "broken failed:" in done.stdout
    cells = table[table["state"] == "done"]
    # a higher confidence widens the interval; the value, of the same pictures, stays that of the commit
    widths = cells["reconstruction.l1.high"] - cells["reconstruction.l1.low"]
    width = widths.groupby(cells["metrics.confidence"]).sum()
    assert list(width.index) == [0.5, 0.9]
    assert 0 < width[0.5] < width[0.9]
    assert (cells["reconstruction.l1.change"] == 0).all()
    assert (project.folder / "sweep/sweep.png").stat().st_size > 5000
    best = cells.index[0]
    project.run("dvc", "exp", "apply", best)
    assert f"confidence: {cells.loc[best, 'metrics.confidence']:g}" in (project.folder / "params.yaml").read_text()

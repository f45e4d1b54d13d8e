"""kill -9 at any moment, then `dvc repro`: the same hashes as without."""

import os
import signal
import subprocess
import time

import pytest

from pipeline.project import ENVIRONMENT, Project

pytestmark = pytest.mark.pipeline


def kill_when(project: Project, reached) -> None:
    """Start `dvc repro` and kill the whole process group at once when `reached()`."""
    child = subprocess.Popen(
        ["dvc", "repro"], cwd=project.folder, env=ENVIRONMENT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not reached():
        assert child.poll() is None, "training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_killed_trainings_go_on_to_the_same_hashes(project: Project) -> None:
    expected = project.outputs()
    project.run("rm", "-rf", "runs/vunet/model", "runs/vunet/history", ".dvc/cache", "dvc.lock", "data/prepared/people")
    resume = project.folder / "runs/vunet/resume"
    kill_when(project, lambda: (project.folder / "data/prepared/.people.partial").exists())
    kill_when(project, lambda: (resume / "writing").exists())  # inside the writing of a state
    kill_when(project, lambda: (resume / f"{6:010d}").exists())
    done = project.run("dvc", "repro")
    assert "resumed after iteration 6" in done.stdout
    assert project.outputs() == expected
    assert not resume.exists()


def test_a_state_of_another_recipe_is_refused_with_the_reason(project: Project) -> None:
    project.run("rm", "-rf", "runs/vunet/model", "runs/vunet/history", ".dvc/cache", "dvc.lock")
    kill_when(project, lambda: (project.folder / "runs/vunet/resume" / f"{6:010d}").exists())
    project.set("params.yaml", {"losses.KL.weight": 2.0})
    done = project.run("dvc", "repro")
    assert "not resumed, training starts afresh: the state of iteration" in done.stdout
    assert "made by another recipe" in done.stdout

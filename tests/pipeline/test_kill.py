"""What a killed training goes on from, and what it refuses; tests/reliability kills it at any moment."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.project import ENVIRONMENT, Project

pytestmark = pytest.mark.slow
TRAINED = ("runs/vunet/model", "runs/vunet/history")
RESUME, REFUSED = "runs/vunet/resume", "runs/vunet/resume-refused"
POINT, LOG = f"{6:010d}", "killed.log"


def kill_when(project: Project, reached: Callable[[], bool]) -> None:
    """Start `dvc repro`, which prints to `killed.log`, and kill the whole process group at once when `reached()`."""
    with (project.folder / LOG).open("w") as log:
        child = subprocess.Popen(
            ["dvc", "repro", "train@vunet"], cwd=project.folder, env=ENVIRONMENT, start_new_session=True,
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        deadline = time.monotonic() + 120
        while not reached():
            assert child.poll() is None, "training ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """The tiny project as a kill leaves it after the second resume point of a training of which nobody knows."""
    project = finished.copy(tmp_path / "figura")
    project.run("rm", "-rf", *TRAINED, "runs/vunet/finished", ".dvc/cache")
    path = project.folder / "dvc.lock"
    path.write_text(re.sub(r"(?m)^  train@vunet:\n(    .*\n)*", "", path.read_text()))
    assert "train@vunet" not in project.lock()
    kill_when(project, (project.folder / RESUME / POINT).exists)
    return project


def append(path: Path, line: str) -> None:
    """Add a line to a file of code."""
    path.write_text(f"{path.read_text()}\n{line}\n")


def test_a_state_of_other_code_is_refused_with_the_reason_and_taken_when_asked(
    finished: Project, project: Project
) -> None:
    """Comments, and code of another system, are no reason."""
    history = finished.outputs()["runs/vunet/history"]
    append(project.folder / "models/pose/encoders.py", "CHANGED = 1")
    append(project.folder / "figura/engine/step.py", "# nothing but a comment")
    append(project.folder / "figura/training/trainer.py", "CHANGED = 1")
    reason = (
        "not resumed, training starts afresh: the state of iteration 6 was made by another code "
        f"(figura/training/trainer.py). It is kept in {REFUSED}/{POINT}; to go on from it anyway, stop this "
        "training and run `FIGURA_RESUME_ANYWAY=1 dvc repro`"
    )
    kill_when(project, lambda: reason in (project.folder / LOG).read_text())
    assert (project.folder / REFUSED / POINT).is_dir()
    done = project.run("dvc", "repro", "train@vunet", FIGURA_RESUME_ANYWAY="1")
    assert "resumed after iteration 6, made by another code (figura/training/trainer.py): taken anyway" in done.stdout
    assert project.outputs()["runs/vunet/history"] == history

import json
import subprocess
import sys
from pathlib import Path

import pytest

from figura.base.yaml12 import read_yaml
from figura.pipeline.dag import instances
from pipeline.project import ENVIRONMENT, Project, clone, made_once, shared_by_workers

ORDER = ("code", "prepare", "train", "eval_dump", "metrics", "pose_consistency")
IN_ONE_PROCESS = """
import importlib, json, sys
from accelerate.state import AcceleratorState

for stage, *arguments in json.loads(sys.argv[1]):
    AcceleratorState._reset_state(reset_partial_state=True)
    importlib.import_module(f"stages.{stage}").main(arguments)
"""


def run_whole(folder: Path) -> Project:
    """Make the tiny project, run all stages in one process, tell DVC of them and commit its lock.

    To start a process takes most of the time of a stage; `test_two_runs_give_the_same_hashes` runs DVC itself.
    """
    project = clone(folder)
    (folder / "code/accepted.jsonl").unlink(missing_ok=True)  # of this repository's results
    # ["python", "-m", "figura.launch", "train", ...] or ["python", "-m", "stages.train", ...]
    commands = [("stages.code",), *(one.command[2:] for one in instances(read_yaml(folder / "dvc.yaml")))]
    words = [[one[0].removeprefix("stages."), *one[1:]] if one[0] != "figura.launch" else one[1:] for one in commands]
    words.sort(key=lambda one: ORDER.index(one[0]))
    subprocess.run([sys.executable, "-c", IN_ONE_PROCESS, json.dumps(words)], cwd=folder, env=ENVIRONMENT, check=True)
    project.run("dvc", "commit", "--force")
    project.commit("results")
    return project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project after all stages, its lock committed; all workers share it, so copy it before changing it."""
    return made_once(shared_by_workers(tmp_path_factory.getbasetemp()) / "finished" / "figura", run_whole)


@pytest.fixture
def project(finished: Project, tmp_path) -> Project:
    """A copy of the finished tiny project."""
    return finished.copy(tmp_path / "figura")

from pathlib import Path

import pytest

from pipeline.project import Project, clone, made_once, shared_by_workers


def run_whole(folder: Path) -> Project:
    """Make the tiny project, run `dvc repro` and commit its lock."""
    project = clone(folder)
    project.run("dvc", "repro")
    project.commit("results")
    return project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project after `dvc repro`, its lock committed; all workers share it, so copy it before changing it."""
    return made_once(shared_by_workers(tmp_path_factory.getbasetemp()) / "finished" / "figura", run_whole)


@pytest.fixture
def project(finished: Project, tmp_path) -> Project:
    """A copy of the finished tiny project."""
    return finished.copy(tmp_path / "figura")

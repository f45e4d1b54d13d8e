import pytest

from pipeline.project import Project, clone


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project after `dvc repro`, its lock committed; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished") / "figura"
    folder.mkdir()
    project = clone(folder)
    project.run("dvc", "repro")
    project.run("git", "add", "-A")
    project.run("git", "commit", "-qm", "results")
    return project


@pytest.fixture
def project(finished: Project, tmp_path) -> Project:
    """A copy of the finished tiny project."""
    return finished.copy(tmp_path / "figura")

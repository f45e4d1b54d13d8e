"""Results shared through a remote: a second clone has everything without training; what is wrong is said."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer
from trainings import contents

from pipeline.project import Project
from pipeline.test_dag import ran, stale

pytestmark = pytest.mark.slow
BUCKET = "results"


@dataclass
class Remote:
    """Where results are pushed to, and the options of it that each clone sets for itself."""

    url: str
    options: dict[str, str] = field(default_factory=dict)

    def set_in(self, project: Project) -> None:
        """Set the address, which git keeps, and the options, which it does not."""
        project.run("dvc", "remote", "add", "--force", "--default", "store", self.url)
        for name, value in self.options.items():
            project.run("dvc", "remote", "modify", "--local", "store", name, value)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3-compatible server on this machine."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it would write a line a request
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


@pytest.fixture
def s3(server: str) -> Remote:
    """An empty bucket."""
    requests.post(f"{server}/moto-api/reset", timeout=60)
    key = {"aws_access_key_id": "owner", "aws_secret_access_key": "owner"}
    boto3.client("s3", endpoint_url=server, region_name="us-east-1", **key).create_bucket(Bucket=BUCKET)
    options = {"access_key_id": "owner", "secret_access_key": "owner"}
    return Remote(f"s3://{BUCKET}/figura", {"endpointurl": server, "region": "us-east-1", **options})


@pytest.fixture
def local(tmp_path: Path) -> Remote:
    """A folder, such as one on a shared disk."""
    return Remote(str(tmp_path / "store"))


def pushed(project: Project, remote: Remote) -> Project:
    """Push the results of a project, and commit the address of its remote."""
    remote.set_in(project)
    project.run("git", "commit", "-qam", "remote")
    project.run("dvc", "push", "--run-cache")
    return project


def second_clone(project: Project, remote: Remote, folder: Path) -> Project:
    """Return what a colleague gets: git's files, an empty cache, keys of the remote."""
    project.run("git", "clone", "-q", str(project.folder), str(folder))
    other = Project(folder)
    for name, value in remote.options.items():
        other.run("dvc", "remote", "modify", "--local", "store", name, value)
    return other


def test_a_second_clone_has_everything_and_trains_nothing(project, s3, tmp_path):
    shared = pushed(project, s3)
    assert "Everything is up to date." in shared.run("dvc", "push").stdout
    other = second_clone(shared, s3, tmp_path / "other")
    assert not (other.folder / "runs").exists()
    other.run("dvc", "pull")
    for out in shared.outputs():
        assert contents(other.folder / out) == contents(shared.folder / out)
    assert ran(other.run("dvc", "repro").stdout) == set()
    assert stale(other) == set()
    assert other.run("git", "status", "--porcelain").stdout == ""
    assert " 0 violated, " in other.run("figura", "gate").stdout


def test_repro_alone_pulls_what_it_needs_and_what_somebody_computed_without_committing(project, local, tmp_path):
    pushed(project, local)
    project.run("gto", "register", "vunet", "--version", "v1.0.0")
    other = second_clone(project, local, tmp_path / "other")
    assert "v1.0.0" in other.run("gto", "show").stdout
    other.run("dvc", "artifacts", "get", ".", "vunet", "--rev", "v1.0.0", "-o", "released/vunet/model")
    assert contents(other.folder / "released/vunet/model") == contents(project.folder / "runs/vunet/model")
    assert ran(other.run("dvc", "repro", "--pull").stdout) == set()
    assert contents(other.folder / "runs/vunet/model") == contents(project.folder / "runs/vunet/model")
    assert other.run("git", "status", "--porcelain").stdout == ""  # manifests are those of the first clone

    change = {"metrics.bootstrap": 30, "evaluate.batch_size": 8}
    project.set("params.yaml", change)
    assert {"eval-dump@vunet", "metrics@vunet"} <= ran(project.run("dvc", "repro", "metrics@vunet").stdout)
    project.run("dvc", "push", "--run-cache")
    other.set("params.yaml", change)
    other.run("dvc", "fetch", "--run-cache")
    done = other.run("dvc", "repro", "--pull", "metrics@vunet")
    # metrics/*.json is in git and not in the cache, so that DVC must write it anew
    assert ran(done.stdout) == {"metrics@vunet"}
    assert "Stage 'eval-dump@vunet' is cached" in done.stdout

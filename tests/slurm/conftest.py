import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline import conftest

from slurm.cluster import Cluster, why_not

finished = conftest.finished


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Slurm of two nodes; nothing of it stays, neither processes nor files."""
    if reason := why_not():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="figura-slurm-"))  # short: the path of a socket has at most 107 characters
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)

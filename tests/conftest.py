import os

# Tests compare bits, and start more processes than a machine may have GPUs; before PyTorch looks for them.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from pipeline.project import made_once, shared_by_workers
from real_people import prepare_real

from models.training import provenance


@pytest.fixture(scope="session", autouse=True)
def one_code_version() -> Iterator[None]:
    """Edits while the tests run change no comparison of two runs; what is read for a provenance is read once."""
    code, real_git = cache(provenance.code_version), provenance._git
    git = cache(lambda folder, *arguments: real_git(*arguments))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "code_version", lambda modules: code(frozenset(modules)))
        patch.setattr(provenance, "package_versions", cache(provenance.package_versions))
        patch.setattr(provenance, "_git", lambda *arguments: git(Path.cwd(), *arguments))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_flush() -> Iterator[None]:
    """No test cuts the power, and a file outlives a killed process without being flushed; waiting for disks is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """One thread, and none of the settings that an accelerator or a trainer leaves in the process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def real_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder of the sample of real people, which nobody changes: all workers share it."""
    project = made_once(shared_by_workers(tmp_path_factory.getbasetemp()) / "real" / "people", prepare_real)
    return project.folder / "data/prepared/people"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run."""
    return tmp_path / "run"

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState

from models.engine import trainer


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch) -> Iterator[None]:
    """One thread, one code version, and none of the settings that an accelerator or a trainer leaves in the process."""
    monkeypatch.setattr(trainer, "code_version", functools.cache(trainer.code_version))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run."""
    return tmp_path / "run"

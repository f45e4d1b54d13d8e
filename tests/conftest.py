import os

# Tests compare bits, and start more processes than a machine may have GPUs; before PyTorch looks for them.
if "FIGURA_TEST_GPU" not in os.environ:  # set for `-m gpu` alone
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["FIGURA_STATES"] = "off"  # two runs that are compared must both train

import pickle
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from pipeline.project import made_once, shared_by_workers
from real_people import prepare_real

from figura.base import yaml12
from figura.pipeline.closure import words_of
from figura.training import process_record, provenance

# Slow files, the longest first. Those at places 2 and 3 need no finished project, which the first one makes.
LONGEST = (
    "slurm/test_slurm.py", "stages/test_launch.py", "reliability/test_long_run.py", "pipeline/test_experiments.py",
    "pipeline/test_dag.py", "workflows/test_workflows.py", "pipeline/test_readme_commands.py",
    "pipeline/test_stale_stages.py", "pipeline/test_remotes.py", "pipeline/test_same_at_any_size.py",
    "reliability/test_kills.py", "reliability/test_damage.py", "reliability/test_disks.py",
    "reliability/test_hostile.py", "commands/test_accept.py", "recipe/test_published.py", "pipeline/test_tracked.py",
    "pipeline/test_recipes_of_pages.py", "pipeline/test_real_data.py", "commands/test_overfit_pose.py",
    "commands/test_export.py", "commands/test_describe.py", "pose/test_pose_network.py",
)  # fmt: skip


@pytest.hookimpl(trylast=True)  # after `-m` has chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, then those with the most tests, so that all workers end at about the same time."""
    places = {Path(__file__).parent / name: index for index, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in places), "LONGEST names a file that is not there"
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (places.get(item.path, len(places)), -tests[item.path]))


def _changed(*paths: str) -> bool:
    """Return whether files differ from the last commit; False where there is none."""
    command = ["git", "diff", "--quiet", "HEAD", "--", *paths]
    return subprocess.run(command, cwd=Path(__file__).parent.parent, check=False).returncode == 1


@pytest.fixture(scope="session")
def pages_of_the_metrics() -> None:
    """Skip where `dvc repro` wrote figures that the pages do not have yet: another processor gives slightly others."""
    if _changed("metrics") and not _changed("README.md", "docs"):
        pytest.skip("metrics/ has figures of this machine; `python -m bench.figures` writes them into the pages")


@pytest.fixture(scope="session", autouse=True)
def one_code_version() -> Iterator[None]:
    """Edits while the tests run change no comparison of two runs; what is read for a provenance is read once."""
    real, real_git, known = provenance.code_version, process_record.git, dict[object, str]()
    git = cache(lambda folder, *arguments: real_git(*arguments))

    def code(modules: Iterable[str], content: Mapping[str, Any]) -> str:
        key = frozenset(modules), frozenset(words_of(content))
        known[key] = known.get(key) or real(key[0], content)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "code_version", code)
        patch.setattr(provenance, "package_versions", cache(provenance.package_versions))
        patch.setattr(process_record, "git", lambda *arguments: git(Path.cwd(), *arguments))
        yield


@pytest.fixture(scope="session", autouse=True)
def texts_parsed_once() -> Iterator[None]:
    """A recipe takes tenths of a second to parse, and many tests read the same; each reader gets values of its own."""
    parse = yaml12.parse_yaml
    parsed = cache(lambda text, source: pickle.dumps(parse(text, source)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml12, "parse_yaml", lambda text, source: pickle.loads(parsed(text, source)))
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
    return tmp_path / "run"

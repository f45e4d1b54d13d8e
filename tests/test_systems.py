"""Which package a system is in: `models` of a project, that of figura's repository, or `figura.models`."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from figura.systems import full_name

ROOT = Path(__file__).parents[1]
THEIRS = {
    "models/__init__.py": "raise SystemExit('their models ran')\n",
    "models/resnet.py": "SIZE = 7\n",
    "models/vunet/weights.pt": "",
    "models/pix2pix/nets.py": "",
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A repository with models of its own."""
    for name, text in THEIRS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "own", "shipped_only"),
    [
        ("resnet", "models.resnet", "figura.models.resnet"),
        ("models.resnet", "models.resnet", "figura.models.resnet"),
        ("pix2pix.losses", "models.pix2pix.losses", "figura.models.pix2pix.losses"),
        ("vunet.losses", "figura.models.vunet.losses", "figura.models.vunet.losses"),  # a folder without code
        ("models.images", "figura.models.images", "figura.models.images"),
        ("models", "models", "models"),
        ("figura.schedules", "figura.schedules", "figura.schedules"),
    ],
)
def test_a_project_goes_before_the_systems_that_ship(name: str, own: str, shipped_only: str, theirs: Path) -> None:
    assert full_name(name, [theirs / "models"]) == own
    assert full_name(name, [theirs / "models"], shipped_only=True) == shipped_only
    assert full_name(name, []) == (name if name in ("models", "figura.schedules") else shipped_only)
    in_repository = name if name.startswith("figura") else f"models.{name}".replace("models.models", "models")
    assert full_name(name, [ROOT / "models"], shipped_only=True) == in_repository


ASK = """
import multiprocessing, sys
from pathlib import Path
from figura.base.error_collector import ErrorCollector
from figura.pipeline.closure import code_of
from figura.recipe.types import NETWORK, find_type

errors = ErrorCollector(Path("p.yaml"))
kinds = [find_type(name, NETWORK, "k", errors) for name in ("vunet.VUNet", "models.vunet.VUNet")]
assert kinds[0] is kinds[1], errors.lines
print(kinds[0].__module__)
if sys.argv[1:]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(type, kinds) == [type, type]
files = sorted(code_of([], ["vunet.VUNet"]).files)
print(*sorted({name.rpartition("/")[0] for name in files if "models/" in name}))
ours = [m.__file__ for n, m in sys.modules.items() if n.startswith(("models.", "figura.")) and m.__file__]
assert len(ours) == len(set(ours))
"""


def asked(folder: Path, *words: str) -> list[str]:
    """Run ASK in a folder, beside figura's repository at the end of the path, where an editable installation has it."""
    path = os.pathsep.join([str(folder), str(ROOT), sysconfig.get_path("purelib")])
    command = [sys.executable, "-c", ASK, *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() or [done.stderr]


@pytest.mark.slow
def test_a_shipped_system_runs_beside_other_models_and_loads_no_file_twice(theirs: Path) -> None:
    folders = "figura/models/images figura/models/vunet"
    assert asked(theirs, "spawn") == ["figura.models.vunet.networks", folders]


def test_in_the_repository_a_system_has_one_name() -> None:
    assert asked(ROOT) == ["models.vunet.networks", "models/images models/vunet"]
    with pytest.raises(ImportError, match="in figura's repository, the systems are the package 'models'"):
        import figura.models  # noqa: F401

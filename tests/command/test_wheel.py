"""The wheel: what is in it, and projects that use it, beside a `models` package of their own."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT, Project, source_tree
from pipeline.tiny_settings import tiny

ROOT = Path(__file__).parents[2]
MOVED = ("data", "models", "stages", "tools")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git knows or would add."""
    return source_tree(tmp_path_factory.mktemp("wheel") / "source").folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """The wheel of this copy."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    Project(source).run(*command, str(source.parent), ".")
    (file,) = source.parent.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an empty environment in which the wheel alone is installed."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True)
    return python


@pytest.fixture(scope="module")
def complete(python: Path) -> Path:
    """The same environment with the packages that figura needs, those of this one."""
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    # packages alone: the editable figura of this environment is a line of another .pth, which is not read from here
    Path(folder, "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def project(folder: Path, python: Path) -> Project:
    """A folder in which `figura`, `python` and `dvc` are those of an environment."""
    made = Project(folder)
    folder.mkdir(parents=True, exist_ok=True)

    def run(*command: str, code: int | None = 0, **variables: str) -> "subprocess.CompletedProcess[str]":
        path = f"{python.parent}{os.pathsep}{ENVIRONMENT['PATH']}"
        return Project.run(made, *command, code=code, PATH=path, **variables)

    made.run = run  # type: ignore[method-assign]
    return made


def make_tiny(made: Project) -> None:
    """Give the recipes and datasets of a project tiny settings."""
    for file, values in tiny(made.folder).items():
        made.set(file, values)


def test_it_has_one_package_whose_files_are_those_of_the_repository(wheel: Path, source: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        entries = opened.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"figura"}
    assert "figura = figura.command:main" in entries
    ours = {str(path.relative_to(source)) for package in MOVED for path in (source / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py") and name.split("/")[1] in MOVED} == {
        f"figura/{name}" for name in ours
    }
    assert "figura/template/recipes/published/vunet_deepfashion.yaml" in names
    assert "figura/tools/report/page.html.j2" in names
    assert "figura/py.typed" in names


def test_only_imports_and_commands_differ(wheel: Path, source: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        code = {name: opened.read(name).decode() for name in opened.namelist() if name.endswith(".py")}
    checked = 0
    for name in [one for one in code if one.split("/")[1] in MOVED]:
        ours = (source / name.removeprefix("figura/")).read_text()
        for here, there in zip(code[name].splitlines(), ours.splitlines(), strict=True):
            checked += here != there
            assert plain(here) == plain(there), name
        nodes = [
            node for node in ast.walk(ast.parse(code[name])) if isinstance(node, ast.ImportFrom) and not node.level
        ]
        assert {str(node.module).partition(".")[0] for node in nodes}.isdisjoint(MOVED), name
    assert checked > 1000


def plain(line: str) -> str:
    """Return a line in which imports and commands are the same in the repository and in the wheel."""
    return re.sub(r"python -m (figura\.)?tools\.\w+|figura [a-z]+", "TOOL", line).replace("figura.", "")


def test_the_command_answers_without_any_other_package(python: Path) -> None:
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    ).stdout
    assert {line.partition("==")[0] for line in listed.splitlines()} <= {"figura", "pip", "setuptools"}
    done = subprocess.run([python.with_name("figura"), "--help"], capture_output=True, text=True, check=True)
    assert "usage: figura COMMAND" in done.stdout


def test_an_empty_folder_becomes_a_project_that_trains_with_its_own_loss(complete: Path, tmp_path: Path) -> None:
    made = project(tmp_path / "project", complete)
    assert "git init\ndvc init\nwrote README.md" in made.run("figura", "init", "--recipe", "pix2pix").stdout
    assert "no faults" in made.run("figura", "check").stdout
    made.run("python", "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider")  # as `pytest`: without the folder
    make_tiny(made)
    made.run("python", "-m", "dvc", "repro")
    assert {"prepare@pairs", "train@pix2pix", "eval-dump@pix2pix", "metrics@pix2pix"} == set(made.lock())
    header = (made.folder / "runs/pix2pix/history/train.csv").read_text().partition("\n")[0]
    assert "variation" in header
    again = made.run("python", "-m", "dvc", "repro").stdout
    assert "Data and pipelines are up to date" in again
    loss = made.folder / "models/variation.py"
    loss.write_text(loss.read_text().replace("down + right", "down + 2 * right"))
    changed = made.run("python", "-m", "dvc", "status").stdout
    assert "train@pix2pix" in changed
    assert "prepare@pairs" not in changed


def test_a_repository_with_models_of_its_own(complete: Path, tmp_path: Path) -> None:
    made = project(tmp_path / "theirs", complete)
    made.run("git", "init", "-q")
    own = {
        "models/__init__.py": "raise RuntimeError('models of theirs ran')\n",
        "models/base/__init__.py": "",
        "models/images.py": "SIZE = 7\n",
        "stages.py": "",
        "tools/__init__.py": "",
        "README.md": "# Theirs\n",
    }
    for name, text in own.items():
        (made.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / name).write_text(text)
    made.run("figura", "init", "--recipe", "pix2pix")
    assert (made.folder / "README.md").read_text() == "# Theirs\n"
    # nothing of theirs runs for a type that only figura has
    made.set("recipes/pix2pix.yaml", {"losses.variation": ..., "losses.G_L1.type": "images.losses.pixel.L1"})
    assert "no faults" in made.run("figura", "check").stdout
    # their class wins over figura's of the same name, and the rest of figura's package stays
    (made.folder / "models/__init__.py").write_text("")
    made.set("recipes/pix2pix.yaml", {"losses.G_L1.type": "images.L1"})
    (made.folder / "models/images.py").write_text(
        "from figura.models.interfaces import Loss\n\n\nclass L1(Loss):\n"
        "    def forward(self, *, image, target):\n        return 7 + 0 * image.flatten(1).mean(1)\n"
    )
    make_tiny(made)
    made.run("python", "-m", "dvc", "repro")
    history = (made.folder / "runs/pix2pix/history/train.csv").read_text().splitlines()
    column = history[0].split(",").index("G_L1.raw")
    assert {float(line.split(",")[column]) for line in history[1:]} == {7.0}
    # strangers' types are figura's own again, also where the current folder is on the path, and under `models.`
    (made.folder / "models/__init__.py").write_text("open('ran', 'w')\n")
    for name in ("images.L1", "models.images.L1"):
        made.set("recipes/pix2pix.yaml", {"losses.G_L1.type": name})
        for command in (["figura", "describe"], ["python", "-m", "figura.tools.describe"]):
            made.run(*command, "recipes/pix2pix.yaml", "--trusted-types-only", "--output", "flow.svg")
    assert not (made.folder / "ran").exists()
    made.run("figura", "describe", "recipes/pix2pix.yaml", "--output", "flow.svg")
    assert (made.folder / "ran").exists()

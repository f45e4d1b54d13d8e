"""The wheel: what is in it, and projects that use it, beside a `models` package of their own."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import cv2
import numpy as np
import pytest
from pipeline.project import ENVIRONMENT, Project, source_tree
from pipeline.tiny_settings import tiny

from figura.base.errors import DISTRIBUTION

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git knows or would add."""
    return source_tree(tmp_path_factory.mktemp("wheel") / "source").folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    Project(source).run(*command, str(source.parent), ".")
    (file,) = source.parent.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an empty environment in which the wheel alone is installed."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel]
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


def test_it_has_one_package_whose_files_are_those_of_the_repository(wheel, source):
    with zipfile.ZipFile(wheel) as opened:
        texts = {name: opened.read(name) for name in opened.namelist()}
    entries = next(text.decode() for name, text in texts.items() if name.endswith("entry_points.txt"))
    information = f"figura_dvc-{metadata.version(DISTRIBUTION)}.dist-info"
    assert {name.partition("/")[0] for name in texts} == {"figura", information}
    assert "figura = figura.command:main" in entries
    library = {path.relative_to(source).as_posix() for path in (source / "figura").rglob("*.py")}
    project = {
        f"figura/project/{path.relative_to(source).as_posix()}"
        for folder in ("models", "stages", "recipes")
        for path in (source / folder).rglob("*.*")
        if "__pycache__" not in path.parts
    }
    assert library | project <= texts.keys()
    assert {name for name in texts if name.endswith(".py")} <= library | project
    for name, text in texts.items():  # as they lie in the repository, nothing is rewritten
        if not name.partition("/")[0].endswith(".dist-info"):
            assert text == (source / name.removeprefix("figura/project/")).read_bytes(), name
    assert {"figura/project/dvc.yaml", "figura/commands/report/page.html.j2", "figura/py.typed"} <= texts.keys()


def test_the_command_answers_without_any_other_package(python):
    ask = [python, "-c", "from importlib.metadata import distributions as d; print({one.name for one in d()})"]
    assert subprocess.run(ask, capture_output=True, text=True, check=True).stdout == f"{{{DISTRIBUTION!r}}}\n"
    done = subprocess.run([python.with_name("figura"), "--help"], capture_output=True, text=True, check=True)
    assert "usage: figura COMMAND" in done.stdout
    missing = "Not installed: dvc, dvclive, jinja2, matplotlib, pandas, pycocotools, ruamel, torchmetrics."
    assert done.stdout.splitlines()[-1] == f"{missing} `pip install '{DISTRIBUTION}[train]'` brings them."


def test_a_repository_with_models_of_its_own_becomes_a_project(complete, tmp_path):
    made = project(tmp_path / "theirs", complete)
    made.run("git", "init", "-q")
    own = {"models/__init__.py": "", "models/sizes.py": "SIZE = 7\n", "README.md": "# Theirs\n"}
    for name, text in own.items():
        (made.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / name).write_text(text)
    assert "left as they are: models/__init__.py" in made.run("figura", "init", "--recipe", "pix2pix").stdout
    assert {name: (made.folder / name).read_text() for name in own} == own
    (made.folder / "models/mine.py").write_text(
        "from figura.interfaces import Loss\nfrom models.sizes import SIZE\n\n\nclass Flat(Loss):\n"
        "    def forward(self, *, image, target):\n        return SIZE + 0 * image.flatten(1).mean(1)\n"
    )
    made.set("recipes/pix2pix.yaml", {"losses.G_L1.type": "mine.Flat"})
    for file, values in tiny(made.folder).items():
        made.set(file, values)
    made.run("python", "-m", "dvc", "repro")
    assert {"prepare@pairs", "train@pix2pix", "eval-dump@pix2pix", "metrics@pix2pix"} == set(made.lock())
    history = (made.folder / "runs/pix2pix/history/train.csv").read_text().splitlines()
    column = history[0].split(",").index("G_L1.raw")
    assert {float(line.split(",")[column]) for line in history[1:]} == {7.0}
    manifest = json.loads((made.folder / "code/train-pix2pix.json").read_text())
    assert manifest["packages"][DISTRIBUTION] == metadata.version(DISTRIBUTION)
    assert "models/sizes.py" in manifest["files"]
    assert {path.partition("/")[0] for path in manifest["files"]} == {"models", "stages"}

    loss = made.folder / "models/images/adversarial_losses.py"
    loss.write_text("# a comment\n" + loss.read_text())
    assert made.run("figura", "why").stdout == "nothing would run\n"
    loss.write_text(loss.read_text() + "\nSIDE = 1\n")
    told = made.run("figura", "why").stdout
    assert "train@pix2pix would run:\n  code: models/images/adversarial_losses.py\n" in told
    assert "prepare@pairs" not in told

    # a picture, outside of any project: the systems that ship are used
    model = shutil.copytree(made.folder / "runs/pix2pix", tmp_path / "elsewhere/pix2pix")
    shutil.copy(made.folder / "recipes/pix2pix.yaml", model)
    shutil.copytree(made.folder / "recipes/shared", tmp_path / "elsewhere/recipes/shared")  # which it extends
    shutil.unpack_archive(made.folder / "data/prepared/pairs/validation.zip", tmp_path / "pairs")
    picture = next((tmp_path / "pairs/validation").glob("*.png"))
    outside = project(tmp_path / "elsewhere", complete)
    words = ["pix2pix/pix2pix.yaml", "pix2pix", str(picture), "--output", "out", "--set", "predict.data.layout=pairs"]
    outside.run("figura", "predict", *words)
    assert (tmp_path / "elsewhere/out" / f"{picture.stem}.fake.png").is_file()

    # strangers' types are figura's own, also where the current folder is on the path
    (made.folder / "models/__init__.py").write_text("open('ran', 'w')\n")
    made.set("recipes/pix2pix.yaml", {"losses.G_L1.type": "images.L1"})
    made.run("python", "-m", "figura", "describe", "recipes/pix2pix.yaml", "--trusted-types-only")
    assert not (made.folder / "ran").exists()


def test_a_model_of_the_zoo_predicts_beside_models_and_a_module_figura_of_other_content(complete, tmp_path):
    theirs = project(tmp_path / "theirs", complete)
    for name in ("models/__init__.py", "figura.py"):
        (theirs.folder / name).parent.mkdir(exist_ok=True)
        (theirs.folder / name).write_text("raise SystemExit('theirs ran')\n")
    cv2.imwrite(str(theirs.folder / "photo.png"), np.full((32, 48, 3), 99, np.uint8))
    theirs.run("figura", "predict", "photos_x2", "photo.png", "--output", "out")
    assert cv2.imread(str(theirs.folder / "out/photo.sr.png")).shape == (64, 96, 3)
    # dvc starts `python -m figura.launch`, for which a module of the current folder goes first
    assert "figura.py is there already" in theirs.run("figura", "init", code=1).stderr
    (theirs.folder / "figura.py").unlink()
    loaded = (
        "import figura, sys; figura.load('photos_x2'); print('models' in sys.modules, 'figura.models' in sys.modules)"
    )
    assert theirs.run("python", "-c", loaded).stdout == "False True\n"

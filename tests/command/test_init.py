"""`figura init`: a project of one's own for each recipe, in empty folders and in repositories that have files."""

import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT

from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, read_yaml
from figura.commands import init
from figura.commands.init import project_files, recipe_names, write_project

ROOT = Path(__file__).parents[2]
RECIPES = ("vunet", "pix2pix", "pose", "super_resolution")


@pytest.fixture(autouse=True)
def _names_for_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_all_recipes_of_the_pipeline_can_begin_a_project() -> None:
    assert sorted(recipe_names()) == sorted(RECIPES)


@pytest.mark.parametrize("names", [RECIPES[:1], RECIPES[1:3], ("vunet", "pose"), RECIPES])
def test_what_is_written_is_what_lies_here(names: tuple[str, ...]) -> None:
    """All files are the repository's own; two lack the entries that the command line does not name."""
    files = project_files(names)
    cut = {"dvc.yaml", "data/params.yaml"}
    assert [path for path in files.keys() - cut if files[path] != (ROOT / path).read_text()] == []
    for path in cut:
        lines = iter((ROOT / path).read_text().splitlines())
        assert all(line in lines for line in files[path].splitlines()), f"{path} has lines, or an order, of its own"


@pytest.mark.parametrize("names", [RECIPES[:1], RECIPES[1:3], ("vunet", "pose"), RECIPES])
def test_the_pipeline_is_figuras_for_some_recipes(names: tuple[str, ...]) -> None:
    files = project_files(names)
    pipeline, ours = parse_yaml(files["dvc.yaml"], "dvc.yaml"), read_yaml(ROOT / "dvc.yaml")
    maps = {key: value for one in pipeline["vars"] if isinstance(one, dict) for key, value in one.items()}
    before = {key: value for one in ours["vars"] if isinstance(one, dict) for key, value in one.items()}
    judged = [name for name in ("vunet", "pix2pix") if name in names and "pose" in names]
    assert maps["recipes"] == {name: before["recipes"][name] for name in names}
    assert list(maps.get("pose_consistency", {})) == judged
    assert list(pipeline["artifacts"]) == list(names)
    assert pipeline["stages"] == {
        name: stage for name, stage in ours["stages"].items() if name != "pose-consistency" or judged
    }
    datasets = parse_yaml(files["data/params.yaml"], "datasets")["datasets"]
    known = read_yaml(ROOT / "data/params.yaml")["datasets"]
    assert datasets == {
        name: known[name] for name in known if name in {one["data"] for one in maps["recipes"].values()}
    }
    for entry in [*maps["recipes"].values(), *maps.get("pose_consistency", {}).values()]:
        assert entry["params"] in files


@pytest.mark.parametrize(
    ("name", "systems"),
    [
        ("vunet", {"images", "people", "vunet"}),
        ("pix2pix", {"images", "pix2pix"}),
        ("pose", {"images", "people", "pose"}),
        ("super_resolution", {"images", "super_resolution"}),
    ],
)
def test_the_systems_are_those_that_the_recipe_needs(name: str, systems: set[str]) -> None:
    folders = {
        path.split("/")[1] for path in project_files([name]) if path.startswith("models/") and path.count("/") > 1
    }
    assert folders == systems


def test_an_empty_folder_becomes_a_repository(tmp_path: Path) -> None:
    lines = write_project(tmp_path / "new", ["vunet"])
    assert lines[:2] == ["git init", "dvc init"]
    written = project_files(["vunet"])
    assert all((tmp_path / "new" / path).read_text() == text for path, text in written.items())
    listed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path / "new", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert {path for path in written if not path.startswith(".dvc")} <= {line[3:] for line in listed.splitlines()}


def test_what_a_repository_has_stays(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in (".gitignore", "models/__init__.py", "models/networks.py", "stages/mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# mine\n")
    lines = write_project(tmp_path, ["pix2pix"])
    assert lines[0] == "dvc init"
    assert "left as they are: .gitignore, models/__init__.py" in lines
    for name in (".gitignore", "models/__init__.py", "models/networks.py", "stages/mine.py"):
        assert (tmp_path / name).read_text() == "# mine\n"
    assert (tmp_path / "recipes/pix2pix.yaml").is_file()
    assert (tmp_path / "models/pix2pix/generator.py").is_file()


def test_a_folder_of_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert write_project(tmp_path / "inside", ["vunet"])[0] == "dvc init"
    assert (tmp_path / "inside/.dvc/config").is_file()


def test_files_in_the_way_leave_everything_as_it_was(tmp_path: Path) -> None:
    for name in ("dvc.yaml", "params.yaml"):
        (tmp_path / name).write_text("# mine\n")
    with pytest.raises(UserError, match=r"dvc\.yaml, params\.yaml are there already, and nothing was written"):
        write_project(tmp_path, ["vunet"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dvc.yaml", "params.yaml"]


@pytest.mark.parametrize("name", ["models.py", "stages.py", "data.dvc", "recipes", "models"])
def test_a_file_where_a_folder_would_be(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=f"{name} is there already, and nothing was written"):
        write_project(tmp_path, ["pix2pix"])
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_stops_the_pipeline_is_told(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("*.yaml\n")
    (tmp_path / ".dvcignore").write_text("# nothing\n")
    lines = write_project(tmp_path, ["vunet"])
    assert "next: .gitignore hides dvc.yaml, data/params.yaml, params.yaml from git and DVC; allow them" in lines
    assert any(line.startswith("next: add the lines of ") for line in lines)


def test_a_module_that_a_package_would_hide_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/images.py").write_text("# mine\n")
    with pytest.raises(UserError, match=r"models/images\.py is there already, and nothing was written"):
        write_project(tmp_path, ["pix2pix"])
    assert [path.name for path in tmp_path.rglob("*")] == ["models", "images.py"]


def test_a_project_needs_an_installed_figura(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(init, "version", missing)
    with pytest.raises(UserError, match=r"figura is not installed here.*`pip install \.`"):
        init.main([str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()

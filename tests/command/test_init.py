"""`figura init`: a project of one's own for each recipe, in empty folders and in repositories that have files."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT

from figura.base.errors import UserError
from figura.base.yaml12 import parse_yaml, read_yaml
from figura.commands import init
from figura.commands.init import project_files, recipe_names, write_project
from figura.preparation.datasets import read_dataset

ROOT = Path(__file__).parents[2]
RECIPES = ("vunet", "pix2pix", "pose", "super_resolution")


@pytest.fixture(autouse=True)
def _names_for_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("names", "systems"),
    [
        (RECIPES[:1], {"images", "people", "vunet"}),
        (RECIPES[1:2], {"images", "pix2pix"}),
        (RECIPES[3:], {"images", "super_resolution"}),
        (("vunet", "pose"), {"images", "people", "pose", "vunet"}),
        (RECIPES, {"images", "people", "pix2pix", "pose", "super_resolution", "vunet"}),
    ],
)
def test_what_is_written_is_what_lies_here(names: tuple[str, ...], systems: set[str]) -> None:
    """All files are the repository's own; two lack the entries that the command line does not name."""
    files = project_files(names)
    cut = {"dvc.yaml", "data/params.yaml"}
    assert [path for path in files.keys() - cut if files[path] != (ROOT / path).read_text()] == []
    for path in cut:
        lines = iter((ROOT / path).read_text().splitlines())
        assert all(line in lines for line in files[path].splitlines()), f"{path} has lines, or an order, of its own"
    assert {path.split("/")[1] for path in files if path.startswith("models/") and path.count("/") > 1} == systems
    pipeline, ours = parse_yaml(files["dvc.yaml"], "dvc.yaml"), read_yaml(ROOT / "dvc.yaml")
    maps, before = (
        {key: value for one in of["vars"] if isinstance(one, dict) for key, value in one.items()}
        for of in (pipeline, ours)
    )
    judged = [name for name in ("vunet", "pix2pix") if name in names and "pose" in names]
    assert maps["recipes"] == {name: before["recipes"][name] for name in names}
    assert list(maps.get("pose_consistency", {})) == judged
    assert list(pipeline["artifacts"]) == list(names)
    stages = {name: stage for name, stage in ours["stages"].items() if name != "pose-consistency" or judged}
    assert pipeline["stages"] == stages
    used = {one["data"] for one in maps["recipes"].values()}
    known = read_yaml(ROOT / "data/params.yaml")["datasets"]
    datasets = parse_yaml(files["data/params.yaml"], "datasets")["datasets"]
    assert datasets == {name: one for name, one in known.items() if name in used}
    entries = [*maps["recipes"].values(), *maps.get("pose_consistency", {}).values()]
    assert all(entry["params"] in files for entry in entries)


PARAMS = {
    entry["params"]: name
    for one in read_yaml(ROOT / "dvc.yaml")["vars"] if isinstance(one, dict)
    for name, entry in one.get("recipes", {}).items()
}  # fmt: skip


@pytest.mark.slow
def test_every_recipe_begins_a_project_with_its_data(tmp_path: Path) -> None:
    """By the folders alone: each file that trains; a judge of others' pictures and what recipes share have no data."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.yaml")]
    every = ["params.yaml", *(one for one in files if one.split("/")[1] not in {"pose_consistency", "shared"})]
    stems = {one: PARAMS.get(one, Path(one).stem) for one in every}
    twice = set(PARAMS.values())  # recipes/photos/pix2pix.yaml is photos_pix2pix
    names = {one: f"photos_{stem}" if one not in PARAMS and stem in twice else stem for one, stem in stems.items()}
    assert sorted(recipe_names()) == sorted(names.values())
    for params, name in names.items():
        files = project_files([name])
        pipeline, data = (parse_yaml(files[one], one) for one in ("dvc.yaml", "data/params.yaml"))
        maps = {key: value for one in pipeline["vars"] if isinstance(one, dict) for key, value in one.items()}
        (entry,) = maps["recipes"].values()
        roots = re.findall(r"root: data/prepared/(\w+)", files[params])
        assert entry == {"params": params, "data": roots[0]}
        assert set(roots) == data["datasets"].keys()
        (tmp_path / "params.yaml").write_text(files["data/params.yaml"])
        assert read_dataset(roots[0], tmp_path / "params.yaml").source.startswith("data/raw/")
        assert pipeline.get("artifacts", {}).keys() <= {name}


def test_recipes_on_two_datasets_of_one_name() -> None:
    assert "photos:" in project_files(["esrgan_x4_psnr", "esrgan_x4_gan"])["data/params.yaml"]
    with pytest.raises(UserError, match="--recipe vunet, vunet_market: each needs another dataset 'people'"):
        project_files(["vunet", "vunet_market"])


def test_code_is_copied_from_within_another_project(tmp_path: Path) -> None:
    """Whose copies are found first."""
    for name in ("images", "super_resolution"):
        shutil.copytree(ROOT / "models" / name, tmp_path / "models" / name)
    (tmp_path / "models/__init__.py").touch()
    asked = "from figura.commands.init import systems_of; print(systems_of(['recipes/super_resolution.yaml']))"
    told = subprocess.run([sys.executable, "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout == "['images', 'super_resolution']\n"


def test_what_comes_next_is_to_bring_the_data(tmp_path: Path) -> None:
    lines = write_project(tmp_path / "new", ["pix2pix_facades"])
    comment = "the comment at the top of recipes/published/pix2pix_facades.yaml"
    assert lines[-1] == f"next: bring data/raw/facades, as {comment} says; then dvc repro"
    subprocess.run([sys.executable, "-m", "dvc", "status"], cwd=tmp_path / "new", check=True, capture_output=True)


def test_an_empty_folder_becomes_a_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init.main([str(tmp_path / "new")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("recipe: pix2pix, on pictures that figura draws; --data FOLDER")
    assert lines[1:3] == ["git init", "dvc init"]
    assert [line.split(" (")[0] for line in lines[4:]] == [
        f"next: cd {tmp_path / 'new'}",
        "next: git add . && git commit -m Start",
        "next: dvc exp run --temp -S recipes/pix2pix.yaml:train.try=true",
        "next: dvc repro",
    ]
    written = project_files(["pix2pix"])
    assert all((tmp_path / "new" / path).read_text() == text for path, text in written.items())
    listed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path / "new", capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert {path for path in written if not path.startswith(".dvc")} <= {line[3:] for line in listed.splitlines()}


def test_what_a_repository_has_stays_and_what_stops_the_pipeline_is_told(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    mine = dict.fromkeys((".dvcignore", "models/__init__.py", "models/networks.py", "stages/mine.py"), "# mine\n")
    mine[".gitignore"] = "*.yaml\n"
    for name, text in mine.items():
        (tmp_path / "inside" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "inside" / name).write_text(text)
    lines = write_project(tmp_path / "inside", ["pix2pix"])
    assert lines[0] == "dvc init"
    assert "left as they are: .dvcignore, .gitignore, models/__init__.py" in lines
    assert {name: (tmp_path / "inside" / name).read_text() for name in mine} == mine
    for written in (".dvc/config", "recipes/pix2pix.yaml", "models/pix2pix/generator.py"):
        assert (tmp_path / "inside" / written).is_file()
    (hidden,) = (line for line in lines if line.startswith("next: .gitignore hides dvc.yaml, data/params.yaml, "))
    assert hidden.endswith(" from git and DVC; allow them")
    assert any(line.startswith("next: add the lines of ") for line in lines)
    assert any(line.startswith("next: git add these files, and git commit") for line in lines)


def test_files_in_the_way_leave_everything_as_it_was(tmp_path: Path) -> None:
    for name in ("dvc.yaml", "params.yaml"):
        (tmp_path / name).write_text("# mine\n")
    with pytest.raises(UserError, match=r"dvc\.yaml, params\.yaml are there already, and nothing was written"):
        write_project(tmp_path, ["vunet"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dvc.yaml", "params.yaml"]


@pytest.mark.parametrize("name", ["models.py", "data.dvc", "recipes", "models/images.py"])
def test_a_file_where_a_folder_would_be(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=f"{name} is there already, and nothing was written"):
        write_project(tmp_path, ["pix2pix"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_a_project_needs_an_installed_figura(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(init, "version", missing)
    with pytest.raises(UserError, match=r"figura is not installed here.*`pip install \.`"):
        init.main([str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()

"""`figura init`: a project of one's own for each recipe, in empty folders and in repositories that have files."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest
import torch
from pipeline.project import ENVIRONMENT

from figura import init
from figura.init import write_project
from figura.project import LOSS, project_files, recipe_names
from models.base.errors import UserError
from models.base.yaml12 import parse_yaml, read_yaml

ROOT = Path(__file__).parents[2]
RECIPES = ("vunet", "pix2pix", "pose", "super_resolution")


@pytest.fixture(autouse=True)
def _names_for_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_all_recipes_of_the_pipeline_can_begin_a_project() -> None:
    assert tuple(recipe_names()) == RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_a_project_is_the_recipe_its_data_and_a_loss_of_its_own(name: str) -> None:
    files = project_files([name])
    entry = read_yaml(ROOT / "dvc.yaml")["vars"][-1]["recipes"][name]
    recipe, ours = parse_yaml(files[entry["params"]], "recipe"), read_yaml(ROOT / entry["params"])
    own = recipe["losses"].pop("variation")
    assert recipe == ours
    assert own["type"] == "variation.Variation"
    assert own["weight"] == 0.01
    assert set(own["inputs"].values()) <= {"image", "fake", "sr", "cif"}
    datasets = parse_yaml(files["data/params.yaml"], "datasets")["datasets"]
    assert set(datasets) == {entry["data"], entry["judged_on"]}
    known = read_yaml(ROOT / "data/params.yaml")["datasets"]
    assert datasets == {key: known[key] | {"source": "requirements.txt"} for key in datasets}


@pytest.mark.parametrize("names", [RECIPES[:1], RECIPES[1:3], RECIPES])
def test_the_pipeline_is_figuras_with_a_version_in_place_of_its_code(names: tuple[str, ...]) -> None:
    files = project_files(names)
    pipeline, ours = parse_yaml(files["dvc.yaml"], "dvc.yaml"), read_yaml(ROOT / "dvc.yaml")
    assert list(pipeline["vars"][-1]["recipes"]) == list(names)
    assert list(pipeline["artifacts"]) == list(names)
    assert set(pipeline["stages"]) == set(ours["stages"]) - {"pose-consistency"}
    for stage, content in pipeline["stages"].items():
        body, before = content["do"], ours["stages"][stage]["do"]
        assert body["cmd"] == before["cmd"].replace("python -m ", "python -m figura.")
        same = ("desc", "params", "outs", "metrics", "plots")
        assert [body.get(key) for key in same] == [before.get(key) for key in same]
        assert "requirements.txt" in body["deps"]
        assert ("models" in body["deps"]) == (stage != "prepare")
        kept = set(body["deps"]) - {"requirements.txt", "models"}
        assert kept == {
            dep for dep in before["deps"] if re.match(r"data/prepared|runs/|\$\{item\.(start|weights|source)", dep)
        }
    used = set(re.findall(r"\$\{item\.(\w+)\}", files["dvc.yaml"])) - {"source"}
    assert all(used <= set(entry) for entry in pipeline["vars"][-1]["recipes"].values())
    folders = {entry["weights"] for entry in pipeline["vars"][-1]["recipes"].values()}
    assert {f"{folder}/{kind}/.gitkeep" for folder in folders for kind in ("start", "losses", "metrics")} <= set(files)


def test_the_loss_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "variation_of_a_project.py").write_text(LOSS.replace("from figura.models.", "from models."))
    monkeypatch.syspath_prepend(tmp_path)
    variation = importlib.import_module("variation_of_a_project").Variation
    image = torch.tensor([[[1.0, 2.0, 4.0], [1.0, 0.0, 4.0]]])
    # down: |1-1|, |0-2|, |4-4| over 3; right: 1, 2, 1, 4 over 4
    assert variation()(image=image).tolist() == pytest.approx([2 / 3 + 8 / 4])


@pytest.mark.parametrize("name", RECIPES)
def test_texts_name_nothing_that_a_project_has_not(name: str) -> None:
    """Tools are commands there, and figura's documentation is elsewhere."""
    for path, text in project_files([name]).items():
        assert not re.search(r"\btools[./]|(?<!figura's )\bdocs/", text), path


def test_commands_of_the_readme_and_their_notes_are_aligned() -> None:
    for name in RECIPES:
        block = project_files([name])["README.md"].partition("```shell\n")[2].partition("```")[0]
        columns = {line.index("# ") for line in block.splitlines() if "# " in line}
        assert len(columns) == 1
        assert max(map(len, block.splitlines())) <= 120


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


def test_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit first: experiments and DVCLive need one."""
    monkeypatch.chdir(tmp_path)
    commit = "next: git add these files, and git commit: experiments start from a commit"
    repro = "next: dvc repro (draws data and trains on them: minutes)"
    assert write_project(Path("a new one"), ["pix2pix"])[-3:] == ["next: cd 'a new one'", commit, repro]
    assert [line for line in write_project(Path(), ["vunet"]) if line.startswith("next")] == [commit, repro]


def test_what_a_repository_has_stays(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("README.md", "requirements.txt", "models/__init__.py", "models/networks.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# mine\n")
    lines = write_project(tmp_path, ["pix2pix"])
    assert lines[0] == "dvc init"
    assert "left as they are: README.md, requirements.txt, models/__init__.py" in lines
    assert any("add 'figura==" in line for line in lines)
    for name in ("README.md", "requirements.txt", "models/__init__.py", "models/networks.py"):
        assert (tmp_path / name).read_text() == "# mine\n"
    assert (tmp_path / "recipes/pix2pix.yaml").is_file()


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


@pytest.mark.parametrize("name", ["models.py", "data.dvc", "recipes", "models"])
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
    assert any(line.startswith("next: add '__pycache__' to .dvcignore") for line in lines)


def test_the_reason_why_dvc_refuses(tmp_path: Path) -> None:
    (tmp_path / ".dvc").write_text("")
    with pytest.raises(UserError, match=r"\.dvc is there already"):
        write_project(tmp_path, ["vunet"])


def test_an_unknown_recipe_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--recipe 'vunett': figura has no such recipe.*vunet, pix2pix, pose"):
        write_project(tmp_path / "new", ["vunett"])
    assert not (tmp_path / "new").exists()


def test_a_clone_begins_no_project_that_could_not_import_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"this figura is a clone, .*`pip wheel --no-deps \.`"):
        init.main([str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()

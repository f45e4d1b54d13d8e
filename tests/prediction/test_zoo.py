"""Models by name: what `figura export --format model` writes predicts by itself, and what ships is whole."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import cv2
import numpy as np
import pytest
import toy_photos
from safetensors.torch import load_file

import figura
from figura.base.checksums import read_sums, refuse_damaged
from figura.base.exit_status import run
from figura.commands.export.command import main as export
from figura.commands.export.weights import CARD
from figura.commands.predict import main
from figura.prediction import zoo
from figura.systems import PROJECT

SHIPPED = sorted(zoo.models())


def whole(folder):
    """Check every file against its hash; only those of the card have none."""
    for path in folder.iterdir():
        if path.name not in (*CARD, "SHA256SUMS"):
            refuse_damaged(path)
    assert set(read_sums(folder)) == {path.name for path in folder.iterdir()} - {*CARD, "SHA256SUMS"}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A zoo with the toy painter as `painter`, in an empty working folder."""
    recipe, folder = toy_photos.write_run(tmp_path / "project")
    assert (
        run(export, [folder, "--recipe", recipe, "--format", "model", "--output", str(tmp_path / "zoo/painter")]) == 0
    )
    (tmp_path / "zoo/painter/README.md").write_text("# Gives back what it sees\n\nA card.\n")
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "zoo"


def test_a_name_needs_no_recipe_and_no_project(shelf, tmp_path, capsys):
    photo = np.zeros((6, 9, 3), np.uint8)
    photo[..., 2] = 20 + np.arange(9)
    cv2.imwrite("my.png", photo)
    assert run(main, ["painter", "my.png"]) == 0
    assert (cv2.imread("predictions/my.image.png")[..., 0] == photo[..., 2]).all()
    result = figura.load("painter").predict("my.png")[0]
    assert (result.pictures["image"][..., 0] == photo[..., 2]).all()
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "painter      Gives back what it sees" in capsys.readouterr().out


def test_a_folder_of_that_name_comes_first(shelf, tmp_path, capsys):
    (tmp_path / "work/painter").mkdir()
    assert run(main, ["painter", "my.png"]) == 1
    assert "painter: no training has ended here" in capsys.readouterr().err


def test_a_name_that_is_none_gets_those_there_are(shelf, capsys):
    assert run(main, ["pointer", "my.png"]) == 1
    assert "pointer: no such folder, and no model that ships (did you mean 'painter'?); there are painter; of" in (
        capsys.readouterr().err
    )


def test_a_model_that_the_package_leaves_out_is_in_clones(shelf, capsys):
    included = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shipped = {Path(path).name for path in included["force-include"] if path.startswith("weights/zoo/")}
    assert {*zoo.IN_CLONES} == {path.name for path in (PROJECT / "weights/zoo").iterdir()} - shipped
    assert run(main, [zoo.IN_CLONES[0], "my.png"]) == 1
    assert f"{zoo.IN_CLONES[0]}: ships with a clone" in capsys.readouterr().err


def test_weights_are_halves_and_a_card_stays(shelf, tmp_path):
    trained = load_file(tmp_path / "project/run/model/painter.safetensors")
    shipped = load_file(shelf / "painter/painter.safetensors")
    assert {str(tensor.dtype) for tensor in shipped.values()} == {"torch.float16"}
    assert all((shipped[name].float() == tensor).all() for name, tensor in trained.items())  # zeros and ones
    again = [str(tmp_path / "project/run"), "--recipe", str(tmp_path / "project/recipe.yaml"), "--format", "model"]
    assert run(export, [*again, "--output", str(shelf / "painter")]) == 0
    assert (shelf / "painter/README.md").read_text().startswith("# Gives back")
    whole(shelf / "painter")


def test_files_that_are_no_model_are_kept(shelf, tmp_path, capsys):
    again = [str(tmp_path / "project/run"), "--recipe", str(tmp_path / "project/recipe.yaml"), "--format", "model"]
    (shelf / "painter/network.onnx").touch()
    (tmp_path / "work/notes.txt").touch()
    for output, said in (
        (shelf / "painter", "painter: has network.onnx, which is no part of a model, and would be lost"),
        (shelf, "zoo: has painter, which is no part of a model"),
        (tmp_path / "project/run/model", "model: is the model to export"),
        (".", ".: is the folder of this shell, or above it"),
        ("notes.txt", "notes.txt: is a file; a model is a folder"),
        ("..", "..: is the folder of this shell, or above it"),
    ):
        assert run(export, [*again, "--output", str(output)]) == 1
        assert said in capsys.readouterr().err
    assert (shelf / "painter/network.onnx").exists()
    assert (tmp_path / "work/notes.txt").is_file()
    whole(tmp_path / "project/run/model")
    (tmp_path / "empty").mkdir()
    assert run(export, [*again, "--output", str(tmp_path / "empty")]) == 0


def test_words_that_lack_a_file(shelf, capsys):
    for words, missing in (([], "MODEL"), (["painter"], "FILE"), (["recipe.yaml"], "MODEL, FILE")):
        with pytest.raises(SystemExit):
            main(words)
        assert f"the following arguments are required: {missing}" in capsys.readouterr().err


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_is_whole_and_small(name):
    folder = zoo.ZOO / name
    whole(folder)
    most = 6.5e6 if name == "photos_pose" else 2.5 * 2**20  # two more stages: 0.64 instead of 0.50 of the joints
    assert sum(path.stat().st_size for path in folder.glob("*.safetensors")) <= most
    card = (folder / "README.md").read_text()
    for part in ("Data:", "Licence:", "Figures:", "Bad at:", "Commit:"):
        assert f"\n{part} " in card, part
    assert json.loads((folder / "provenance.json").read_text())["data"] != "{}"


def test_models_of_the_wheel_are_small_together():
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = [PROJECT / name for name in wheel["force-include"] if name.startswith("weights/zoo/")]
    assert {folder.name for folder in folders} == {*SHIPPED} - {"photos_pose"}
    assert sum(path.stat().st_size for folder in folders for path in folder.iterdir()) < 5e6
    assert zoo.ZOO == PROJECT / "weights/zoo"


def test_people_of_a_network_without_boxes_have_a_name():
    results = figura.load("photos_pose", device="cpu").predict(np.zeros((32, 32, 3), np.uint8))
    assert [(one["id"], one["name"]) for one in results.to_coco()["categories"]] == [(1, "person")]


@pytest.mark.parametrize("name", SHIPPED)
def test_predicting_with_it_loads_neither_dvc_nor_tables_nor_plots(name, tmp_path):
    photo = np.full((32, 48, 3), 128, np.uint8)
    cv2.imwrite(str(tmp_path / "my.png"), photo)
    code = (
        "import sys, figura.command; status = figura.command.main(['predict', sys.argv[1], 'my.png']); "
        "print([one for one in ('dvc', 'dvclive', 'matplotlib', 'pandas') if one in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, name], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert (tmp_path / "predictions/predictions.csv").is_file()

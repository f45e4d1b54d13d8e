"""Predicting from files: a painter that gives back what it sees shows whether each result is that of its own photo."""

import json
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
import toy
import toy_pairs
import toy_photos
from skimage.metrics import structural_similarity

from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.predict import main
from figura.engine.build import build_networks
from figura.prediction.runner import Runner
from figura.training.checkpoints import write_model

PAINT = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}}


def paint(path, value, size=(6, 9)):
    """Write a photo whose red channel rises from `value` by its column; return that channel."""
    red = np.broadcast_to(value + np.arange(size[1]), size).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.stack([np.full(size, 3), np.full(size, 200), red], axis=2))
    return red


def grey(path):
    return cv2.imread(str(path))[..., 0]


def names(folder):
    """Return the files of results; every prediction also writes their table."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert "predictions.csv" in files
    return files - {"predictions.csv"}


@pytest.fixture
def toys(tmp_path):
    return toy_photos.write_run(tmp_path)


def predict(given, tmp_path, *words):
    return run(main, [*given, *map(str, words), "--output", str(tmp_path / "out")])


def test_files_folders_and_patterns_of_mixed_sizes(toys, tmp_path, capsys):
    sizes = [(6, 9), (5, 7), (6, 9), (4, 4), (5, 7), (6, 9), (6, 9)]
    photos = {
        f"{folder}{number}": paint(tmp_path / f"{folder}{number}.png", 20 * number, size)
        for number, (folder, size) in enumerate(
            zip(["", "", "album/", "album/deep/", "p/", "p/", "p/"], sizes, strict=True)
        )
    }
    (tmp_path / "album/notes.txt").write_text("no picture")
    paint(tmp_path / "album/.thumbs/9.png", 9)
    given = [tmp_path / "0.png", tmp_path / "1.png", tmp_path / "album", str(tmp_path / "p/*.png"), tmp_path / "0.png"]
    assert predict(toys, tmp_path, *given, "--batch-size", 2) == 0
    expected = {"0": "0", "1": "1", "2": "album/2", "deep/3": "album/deep/3", "4": "p/4", "5": "p/5", "6": "p/6"}
    assert names(tmp_path / "out") == {f"{name}.image.png" for name in expected}
    for name, source in expected.items():
        assert np.array_equal(grey(tmp_path / f"out/{name}.image.png"), photos[source])
    said = capsys.readouterr().out
    assert "7 images in " in said
    assert "images/s" in said


def test_same_names_do_not_overwrite_each_other(toys, tmp_path):
    given = {
        "one/x.png": "one/x",
        "two/x.png": "two/x",
        "one/y.png": "one/y.png",
        "one/y.bmp": "one/y.bmp",
        "one/z.png": "z",
    }
    photos = {file: paint(tmp_path / file, 30 * number) for number, file in enumerate(given)}
    assert predict(toys, tmp_path, *(tmp_path / file for file in given)) == 0
    assert names(tmp_path / "out") == {f"{name}.image.png" for name in given.values()}
    for file, name in given.items():
        assert np.array_equal(grey(tmp_path / f"out/{name}.image.png"), photos[file])


def test_a_name_that_is_taken(toys, tmp_path, capsys):
    toy_photos.write_video(tmp_path / "b.avi", 1)
    paint(tmp_path / "b-000000.png", 2)
    assert predict(toys, tmp_path, tmp_path / "b.avi", tmp_path / "b-000000.png") == 1
    assert "b-000000: another input has results of this name already" in capsys.readouterr().err


def test_results_of_an_earlier_run_are_no_input(toys, tmp_path, capsys):
    paint(tmp_path / "in/a.png", 50)
    for photos, said in (
        ("in", ""),
        ("in", ""),
        ("in/out", "in/out: its files are in"),
        ("in/out/*.png", "in/out/*.png: its files are in"),
        ("in/b.png", "in/b.png: no such file or folder, and no file matches it as a pattern\n"),
    ):
        words = [str(tmp_path / photos), "--output", str(tmp_path / "in/out")]
        assert run(main, [*toys, *words]) == (1 if said else 0)
        assert names(tmp_path / "in/out") == {"a.image.png"}
        told = capsys.readouterr()
        assert said in told.err
        assert said or ("1 image in " in told.out and told.out.endswith("/predictions.csv: 1 result\n"))


def test_frames_of_a_video(tmp_path, capsys):
    given = toy_photos.write_run(tmp_path, {"predict.save": {"image": "image", "facts": "records"}})
    toy_photos.write_video(tmp_path / "clip.avi", 7)
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    paint(tmp_path / "a,b.png", 50)
    files = [tmp_path / name for name in ("clip.avi", "torn.mp4", "a,b.png")]
    assert predict(given, tmp_path, *files, "--every", 3, "--frames") == 1
    kept = (0, 3, 6)
    results = [*(f"clip-{n:06d}" for n in kept), "a,b"]
    assert names(tmp_path / "out") == {f"{name}.{end}" for name in results for end in ("image.png", "facts.json")}
    table = pd.read_csv(tmp_path / "out/predictions.csv")
    assert table["name"].tolist() == results
    assert table["image_id"].tolist() == [1, 2, 3, 5]  # the torn video has a number
    assert table["frame"].fillna(-1).tolist() == [*kept, -1]
    for number, place in enumerate(kept, 1):
        assert abs(grey(tmp_path / f"out/clip-{place:06d}.image.png").mean() - 20 * place) < 3  # JPEG
        records = json.loads((tmp_path / f"out/clip-{place:06d}.facts.json").read_text())
        assert records == [{"number": number, "size": [32, 48]}]
    assert "torn.mp4: no readable video" in capsys.readouterr().err


def test_values_set_at_the_command_line(toys, tmp_path, capsys):
    red = paint(tmp_path / "a.png", 40)
    words = ["--set", "predict.save={image: array, x: mask}", "--set", "evaluate.modes.plain.repeat=2"]
    assert predict(toys, tmp_path, tmp_path / "a.png", *words) == 0
    assert names(tmp_path / "out") == {f"a-{draw}.{end}" for draw in (0, 1) for end in ("image.npy", "x.png")}
    assert np.abs(np.load(tmp_path / "out/a-0.image.npy") - (red / 127.5 - 1)).max() < 1e-6
    for wrong, said in {
        "predict.data.peices=2": "unknown argument of Reds 'peices' (did you mean 'pieces'?)",
        "predict.save={": "not valid YAML",
        "predict=null": "recipe.yaml: predict: missing",
    }.items():
        assert predict(toys, tmp_path, tmp_path / "a.png", "--set", wrong) == 1
        assert said in capsys.readouterr().err


def test_a_grid_of_every_row_with_every_column(tmp_path, capsys):
    grid = {
        "rows": ["x"], "columns": ["y"], "size": 3, "save": {"image": "image", "x": "image", "y": "image"},
        "injectors": {"paint": {**PAINT, "inputs": {"x": "x"}}},
    }  # fmt: skip
    given = toy_photos.write_run(tmp_path, {"evaluate.grids": {"grid": grid}, "predict.grid": "grid"})
    reds = [paint(tmp_path / f"in/{number}.png", 60 * number, (6, 6)) for number in range(4)]
    assert predict(given, tmp_path, tmp_path / "in") == 0
    assert "grid: the first 3 of 4" in capsys.readouterr().out
    sheet = grey(tmp_path / "out/grid.image.png")

    def cell(row, column):  # 6 pixels 16 times as large, gaps of 2, a bar of 18 above
        return sheet[18 + 98 * row :, 98 * column :][:96, :96][8::16, 8::16]

    assert (cell(0, 0) == 255).all()
    for index in range(3):
        assert np.abs(cell(0, index + 1).astype(int) - (255 - reds[index])).max() <= 1  # y = -x
        assert np.array_equal(cell(index + 1, 0), reds[index])
        assert all(np.array_equal(cell(index + 1, column), reds[index]) for column in (1, 2, 3))


def test_pix2pix_from_pictures(tmp_path):
    content = toy_pairs.content({"predict.data.image_size": 32})
    recipe = toy.checked(content=content)
    networks = build_networks(recipe)
    write_model(tmp_path / "run/model", networks, recipe, {})
    (tmp_path / "recipe.yaml").write_text(to_yaml(content))
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "a.png"), pixels)
    paint(tmp_path / "b.png", 3, (40, 90))
    files = [tmp_path / "a.png", tmp_path / "b.png"]
    assert predict((str(tmp_path / "recipe.yaml"), str(tmp_path / "run")), tmp_path, *files) == 0
    x = torch.from_numpy(pixels[..., ::-1].transpose(2, 0, 1).astype(np.float32))[None] / 127.5 - 1
    generator = networks["generator"].eval()
    with torch.no_grad():
        fake = generator(x)
    fake = fake["image"] if isinstance(fake, dict) else fake
    found = cv2.imread(str(tmp_path / "out/a.fake.png"))[..., ::-1].transpose(2, 0, 1)
    assert np.abs((fake[0].numpy() + 1) * 127.5 - found).max() <= 0.51
    assert cv2.imread(str(tmp_path / "out/b.fake.png")).shape == (32, 32, 3)


@pytest.fixture
def translator(tmp_path):
    """A recipe of pairs of 32 pixels, B to A, and its untrained run."""
    data = {"type": "images.ImagePairs", "root": str(tmp_path / "pairs"), "direction": "b_to_a", "crop_size": 32}
    content = toy_pairs.content(
        {
            "data.common": data,
            "data.train": {"pairs": {"split": "train"}},
            "data.validation": {"pairs": {"split": "train"}},
        }
    )
    recipe = toy.checked(content=content)
    write_model(tmp_path / "run/model", build_networks(recipe), recipe, {})
    (tmp_path / "recipe.yaml").write_text(to_yaml(content))
    return str(tmp_path / "recipe.yaml"), str(tmp_path / "run")


def test_pairs_are_shown_beside_their_truth_and_scored(translator, tmp_path, capsys):
    random = np.random.default_rng(0)
    truths = {name: random.integers(0, 256, (32, 32, 3), np.uint8) for name in ("one", "two")}
    for name, a in truths.items():
        (tmp_path / "val").mkdir(exist_ok=True)
        b = random.integers(0, 256, (32, 32, 3), np.uint8)
        cv2.imwrite(str(tmp_path / f"val/{name}.png"), np.hstack([a, b]))
    assert predict(translator, tmp_path, tmp_path / "val", "--set", "predict.data.layout=pairs") == 0
    assert names(tmp_path / "out") == {f"{name}.fake{more}.png" for name in truths for more in ("", ".compared")}
    table = pd.read_csv(tmp_path / "out/predictions.csv").set_index("name")
    assert list(table) == ["file", "image_id", "frame", "fake.l1", "fake.psnr", "fake.ssim"]
    assert table["image_id"].to_dict() == {"one": 1, "two": 2}
    assert [Path(file).name for file in table["file"]] == ["one.png", "two.png"]
    assert table["frame"].isna().all()
    for name, a in truths.items():
        fake = cv2.imread(str(tmp_path / f"out/{name}.fake.png")).astype(np.float64)
        off = (fake - a) / 127.5  # the PNG is rounded to half a level
        assert table.loc[name, "fake.l1"] == pytest.approx(np.abs(off).mean(), abs=0.5 / 127.5)
        assert table.loc[name, "fake.psnr"] == pytest.approx(10 * np.log10(4 / (off**2).mean()), abs=0.05)
        sides = [
            structural_similarity(
                fake[..., c] / 127.5 - 1, a[..., c] / 127.5 - 1, gaussian_weights=True, sigma=1.5,
                use_sample_covariance=False, data_range=2.0,
            )
            for c in range(3)
        ]  # fmt: skip
        assert table.loc[name, "fake.ssim"] == pytest.approx(np.mean(sides), abs=0.01)
        beside = cv2.imread(str(tmp_path / f"out/{name}.fake.compared.png"))
        assert np.array_equal(beside[18 : 18 + 96, 2 * 98 : 2 * 98 + 96][1::3, 1::3], a)  # three times as large
    said = capsys.readouterr().out
    mean = table["fake.l1"].mean()
    assert f"predictions.csv: 2 results; on average fake.l1 {mean:.4g}, " in said


def test_pictures_that_are_no_pairs_are_told(translator, tmp_path, capsys):
    paint(tmp_path / "pair/one.png", 10, (32, 64))
    assert predict(translator, tmp_path, tmp_path / "pair") == 1
    said = "predict.data.layout=pairs takes the half that is the input (direction b_to_a: B)"
    assert said in capsys.readouterr().err
    for side in ("a", "b"):
        paint(tmp_path / f"val/{side}/one.png", 5, (32, 32))
    assert predict(translator, tmp_path, tmp_path / "val/a", "--set", "predict.data.layout=pairs") == 0
    warning = "warning: nothing is written, because predict.data (images.Photos) makes no example of these images\n"
    assert capsys.readouterr().out.endswith(warning)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_prediction_that_stops_midway_has_whole_rows_of_what_it_wrote(toys, tmp_path, monkeypatch):
    for number in range(3):
        paint(tmp_path / f"in/{number}.png", 10 * number)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/predictions.csv").write_text("earlier")
    batch, earlier = Runner._batch, []

    def stopping(self, examples, place, draws):
        earlier.append((tmp_path / "out/predictions.csv").read_text())
        if place == 2:
            raise KeyboardInterrupt
        batch(self, examples, place, draws)

    monkeypatch.setattr(Runner, "_batch", stopping)
    with pytest.raises(KeyboardInterrupt):
        main([*toys, str(tmp_path / "in"), "--batch-size", "1", "--output", str(tmp_path / "out")])
    assert earlier == ["earlier"] * 3  # it is replaced whole
    assert pd.read_csv(tmp_path / "out/predictions.csv")["name"].tolist() == [0, 1]


def test_a_model_of_a_run_is_taken_and_other_folders_are_told(toys, tmp_path, capsys):
    recipe, folder = toys
    paint(tmp_path / "a.png", 1)
    assert predict((recipe, f"{folder}/model"), tmp_path, tmp_path / "a.png") == 0
    for wrong, message in {
        "runn": f"{tmp_path / 'runn'}: no such folder; there are {folder}",
        "out": f"{tmp_path / 'out'}: no training has ended here: it has no folder model; there are {folder}",
    }.items():
        assert predict((recipe, str(tmp_path / wrong)), tmp_path, tmp_path / "a.png") == 1
        assert message in capsys.readouterr().err
    other = Path(__file__).parents[2] / "recipes/pix2pix.yaml"
    assert predict((str(other), folder), tmp_path, tmp_path) == 1
    said = capsys.readouterr().err
    assert f"{other}: its networks are generator (pix2pix.UNetGenerator), discriminator " in said
    assert "has painter (toy.Painter); name the recipe of this run" in said


def test_a_recipe_may_take_its_networks_from_another(toys, tmp_path):
    recipe, folder = toys
    content = read_yaml(Path(recipe))
    content["networks"] = {"painter": {"extends": f"{recipe}#networks.painter"}}
    (tmp_path / "extending.yaml").write_text(to_yaml(content))
    paint(tmp_path / "a.png", 1)
    assert predict((str(tmp_path / "extending.yaml"), folder), tmp_path, tmp_path / "a.png") == 0


@pytest.mark.parametrize("trial", [False, True])
def test_weights_of_a_try_are_told(trial, tmp_path, capsys):
    paint(tmp_path / "0.png", 9)
    toys = toy_photos.write_run(tmp_path, {"train.try": trial, "runtime.progress": False})
    assert predict(toys, tmp_path, tmp_path / "0.png") == 0
    said = f"warning: {tmp_path}/run/model: the weights of a try of 10 steps\n"
    assert (said in capsys.readouterr().err) is trial

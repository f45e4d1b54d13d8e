"""`figura.load`: a painter that gives back what it sees shows that each result is that of its own image."""

import filecmp
import io
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy_photos
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from PIL import Image
from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.predict import main
from figura.prediction import runner
from figura.prediction.input_files import photos_from
from figura.prediction.model import Device
from figura.prediction.predictor import Predictor, load

ROOT = Path(__file__).parents[2]
BOTH = {"predict.save": {"image": "image", "facts": "records", "x": "array"}}


def picture(value: int, height: int = 6, width: int = 9) -> np.ndarray:
    """Return pixels whose red channel rises from `value` by its column."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = value + np.arange(width)
    pixels[..., 1] = 200
    return pixels


def write(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def toys(tmp_path: Path) -> tuple[str, str]:
    return toy_photos.write_run(tmp_path, BOTH)


@pytest.fixture
def predictor(toys: tuple[str, str]) -> Predictor:
    return load(toys[1], recipe=toys[0], device="cpu")


def reds(results) -> list[np.ndarray]:
    """Return the pictures, which show the red channel in grey."""
    assert all((one.draw() == one.draw()[..., :1]).all() for one in results)
    return [one.draw()[..., 0] for one in results]


def same(results, pictures: list[np.ndarray]) -> bool:
    assert [one.image.id for one in results] == list(range(1, len(pictures) + 1))
    return all(np.array_equal(a, b[..., 0]) for a, b in zip(reds(results), pictures, strict=True))


def test_saved_files_are_those_of_the_command_byte_by_byte(toys, predictor, tmp_path):
    for number, size in enumerate([(6, 9), (5, 7), (6, 9), (5, 7), (6, 9)]):
        write(tmp_path / f"in/{number}.png", picture(20 * number, *size))
    words = ["--batch-size", "2", "--output", str(tmp_path / "command")]
    assert run(main, [*toys, str(tmp_path / "in"), *words]) == 0
    predictor.predict(tmp_path / "in", batch_size=2).save(tmp_path / "api")
    names = {path.name for path in (tmp_path / "command").iterdir()}
    assert names == {path.name for path in (tmp_path / "api").iterdir()}
    assert len(names) == 3 * 5 + 1
    equal, _, _ = filecmp.cmpfiles(tmp_path / "command", tmp_path / "api", names, shallow=False)
    assert set(equal) >= names - {"predictions.csv"}
    tables = [pd.read_csv(tmp_path / folder / "predictions.csv") for folder in ("command", "api")]
    pd.testing.assert_frame_equal(tables[0].sort_values("image_id", ignore_index=True), tables[1])


def test_noise_is_that_of_the_command(tmp_path):
    paint = {"type": "Forward", "network": "painter", "inputs": {"x": "x"}, "outputs": {"image": "image"}}
    noisy = paint | {"args": {"noise": 0.5}}
    toys = toy_photos.write_run(
        tmp_path, {"evaluate.modes.plain.injectors": {"paint": noisy}, "evaluate.modes.plain.repeat": 2}
    )
    for number in range(3):
        write(tmp_path / f"in/{number}.png", picture(20 * number))
    assert run(main, [*toys, str(tmp_path / "in"), "--output", str(tmp_path / "command")]) == 0
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    expected = torch.rand(3), np.random.rand(3), random.random()
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    results = load(toys[1], recipe=toys[0]).predict(tmp_path / "in")
    assert torch.equal(torch.rand(3), expected[0])  # the caller's generators go on as if nothing had happened
    assert np.array_equal(np.random.rand(3), expected[1])
    assert random.random() == expected[2]
    assert [one.name for one in results] == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
    for one in results:
        assert np.array_equal(one.draw(), np.array(Image.open(tmp_path / f"command/{one.name}.image.png")))
    assert not np.array_equal(results[0].draw(), results[1].draw())


def test_arrays_pictures_paths_and_iterators_of_them(predictor, tmp_path):
    pictures = [picture(10 * number) for number in range(4)]
    files = [write(tmp_path / f"in/{number}.png", one) for number, one in enumerate(pictures)]
    assert same(predictor.predict(pictures[2]), pictures[2:3])
    assert same(predictor.predict(np.stack(pictures)), pictures)
    assert same(predictor.predict(tuple(pictures)), pictures)
    assert same(predictor.predict(one for one in pictures), pictures)
    assert same(predictor.predict(Image.fromarray(pictures[1])), pictures[1:2])
    assert same(predictor.predict(files), pictures)
    assert same(predictor.predict(str(files[3])), pictures[3:])
    assert same(predictor.predict(tmp_path / "in"), pictures)
    assert same(predictor.predict(f"{tmp_path}/in/*.png"), pictures)
    mixed = predictor.predict(iter([files[0], pictures[1], Image.open(files[2]), np.stack(pictures[3:])]))
    assert same(mixed, pictures)
    assert [one.name for one in mixed] == ["0", "000002", "000003", "000004"]
    assert [one.image.file for one in mixed] == [files[0], None, None, None]
    assert len(predictor.predict([], every=np.uint8(1), batch_size=np.int64(2))) == 0
    assert np.abs(mixed[0].arrays["x"][0] - (pictures[0][..., 0] / 127.5 - 1)).max() < 1e-6
    assert mixed[1].records == {"facts": [{"number": 2, "size": [6, 9]}]}
    assert mixed[1].image.size == (6, 9)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_bar_counts_what_is_done_and_not_what_is_read(workers, predictor, tmp_path, monkeypatch):
    bars = []

    class Bar(tqdm):
        def __init__(self, **settings):
            super().__init__(**settings, file=io.StringIO())
            bars.append(self)

    monkeypatch.setattr(runner, "tqdm", Bar)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    images = [picture(0), picture(1), tmp_path / "broken.png", picture(2), picture(3)]
    begun = predictor.start(lambda fault: None, batch_size=2, workers=workers)
    photos = photos_from(images, 1, begun.report)
    assert [bars[0].n for _ in begun.results(photos, progress=True)] == [2, 2, 5, 5]


def test_a_buffer_that_the_caller_refills():
    buffer = np.empty((6, 9, 3), np.uint8)

    def camera():
        for value in (0, 50, 100):
            buffer[...] = picture(value)
            yield buffer

    photos = list(photos_from(camera(), 1, pytest.fail))  # as a stream that reads ahead asks for them
    assert [photo.pixels()[0, 0, 0] for photo in photos] == [0, 50, 100]
    assert [photo.pixels()[0, 0, 0] for photo in photos_from([buffer[None], buffer], 1, pytest.fail)] == [100, 100]


def test_a_picture_of_pil_is_upright_and_of_8_bits(predictor, tmp_path):
    pixels = picture(30)
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(pixels)))
    turned.getexif()[0x0112] = 6  # shown turned clockwise
    assert same(predictor.predict(turned), [pixels])
    deep = np.arange(54, dtype=np.uint16).reshape(6, 9) * 1200
    Image.fromarray(deep).save(tmp_path / "deep.png")
    with Image.open(tmp_path / "deep.png") as opened:
        assert same(predictor.predict(opened), [np.repeat((deep // 256).astype(np.uint8)[:, :, None], 3, axis=2)])


def test_names_that_a_file_has_already(predictor, tmp_path):
    files = [write(tmp_path / name, picture(10 * n)) for n, name in enumerate(["a/y-000003.png", "a/y.png", "b/y.png"])]
    results = predictor.predict(iter([*files, write(tmp_path / "000005.png", picture(40)), picture(30)]))
    assert [one.name for one in results] == ["y-000003", "y", "y-000003-000003", "000005", "000005-000005"]


def torn() -> Image.Image:
    """Return a PNG that ends in the midst of its pixels, which PIL reads when asked for them."""
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(whole, "PNG")
    return Image.open(io.BytesIO(whole.getvalue()[:2000]))


def test_pictures_and_arrays_that_are_left_out(predictor, tmp_path):
    file = write(tmp_path / "a.png", picture(40))
    images = [
        picture(0), torn(), np.zeros((4, 4), np.uint8), "nowhere.png", [7, picture(50)], file, io.BytesIO(b"7"),
        file.read_bytes(), torch.zeros(8, 8, 3, requires_grad=True), {str(file): picture(60)},
    ]  # fmt: skip
    results = predictor.predict(images, skip=True)
    assert [one.image.id for one in results] == [1, 6, 7]  # the places in the list
    assert [one.name for one in results] == ["000001", "000006", "a"]
    assert [one.draw()[0, 0, 0] for one in results] == [0, 50, 40]
    for fault, start in zip(results.faults, (
        "images[1]: no readable picture: ", "images[2]: found an array of uint8 (4, 4); allowed are paths, ",
        "nowhere.png: no such file or folder, and no file matches it as a pattern", "images[4][0]: found int; allowed ",
        "images[6]: found BytesIO; open it by PIL.Image.open; allowed ", "images[7]: found bytes; open it by PIL",
        "images[8]: no readable picture: Can't call numpy() on Tensor that requires grad.",
        "images[9]: found dict; allowed are paths, ",
    ), strict=True):  # fmt: skip
        assert fault.startswith(start)
    with pytest.raises(UserError, match=r"/\*: no such file or folder, and no file matches it as a pattern$"):
        predictor.predict("a\0b/*")
    (tmp_path / "test.zip").touch()  # a split that `prepare` wrote
    with pytest.raises(UserError, match=r"/test/: no such folder; its pictures are in .*/test\.zip: unzip it$"):
        predictor.predict(f"{tmp_path}/test/")
    with pytest.raises(UserError, match=r"^images\[1\]: no readable picture: "):
        predictor.predict(images)
    with pytest.raises(UserError, match=r"^images\[1\]: no readable picture: "):
        list(predictor.stream(images))


def test_a_pattern_that_goes_up_names_nothing_outside(predictor, tmp_path, monkeypatch):
    (tmp_path / "photos/a").mkdir(parents=True)
    file = write(tmp_path / "other/x.png", picture(40))
    dots = write(tmp_path / "other/y.png", picture(50)).rename(tmp_path / "other/..png")
    results = predictor.predict([f"{tmp_path}/photos/*/../../other/x.png", str(dots)])
    assert [one.name for one in results] == ["x", "..png"]
    assert file.samefile(results[0].image.file)
    results.save(tmp_path / "out")
    assert {path.name for path in (tmp_path / "other").iterdir()} == {"x.png", "..png"}
    assert (tmp_path / "out/x.image.png").is_file()


def test_a_device_of_torch(toys):
    for device in (torch.device("cpu"), torch.device("cpu:0")):
        assert load(toys[1], recipe=toys[0], device=device).device == "cpu"
    with pytest.raises(UserError, match="device: found 'xpu:7'; allowed here: auto, cpu"):
        load(toys[1], recipe=toys[0], device=torch.device("xpu:7"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(("version", "why"), [(None, "is a build without CUDA"), ("13.0", "finds no GPU: run")])
def test_why_there_is_no_cuda(version, why, toys, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", version)
    with pytest.raises(UserError, match=f"device: found 'cuda:1', but PyTorch .*{why}.*; allowed here: auto, cpu"):
        load(toys[1], recipe=toys[0], device="cuda:1")


def test_what_a_notebook_shows(predictor, tmp_path):
    """Pictures, at most 1,024 pixels a side, and a line for each result instead of all its fields."""
    results = predictor.predict([picture(0), picture(3, 700, 1400)])
    small, large = (Image.open(io.BytesIO(one._repr_png_())) for one in results)
    assert (np.asarray(small) == results[0].draw()).all()
    assert large.size == (1024, 512)
    both = Image.open(io.BytesIO(results._repr_png_()))
    assert both.size[1] > 256 + 96  # the wide one has 512 x 256 pixels, the other is enlarged
    assert repr(results).splitlines()[:2] == [
        "<figura.Results: 2 of 2 images>", "  <figura.Result 000001: 1 facts, image 9 x 6, x (1, 6, 9)>"
    ]  # fmt: skip
    without = replace(results[0], pictures={})
    assert without._repr_png_() is None
    assert replace(results, items=(without,))._repr_png_() is None


@pytest.mark.parametrize(("workers", "batch_size"), [(0, 1), (2, 3), (1, 8)])
def test_results_before_an_error_come_before_it(workers, batch_size, predictor, tmp_path):
    files = [write(tmp_path / f"{number}.png", picture(number)) for number in range(8)]
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no picture")
    for wrong, message in ((damaged, r"damaged\.png: no readable picture"), (7, r"images\[5\]: found int")):
        images, got = [*files[:5], wrong, *files[5:]], []
        with pytest.raises(UserError, match=message):
            got.extend(one.name for one in predictor.stream(images, batch_size=batch_size, workers=workers))
        assert got == ["0", "1", "2", "3", "4"]


def test_what_a_stream_left_out_is_warned_of_before_an_error(predictor):
    def images():
        yield picture(0)
        yield torn()
        raise UserError("the camera is gone")

    stream = predictor.stream(images(), batch_size=1, workers=0, skip=True)
    assert next(stream).image.id == 1
    with (
        pytest.warns(UserWarning, match=r"images\[1\]: no readable picture"),
        pytest.raises(UserError, match="the camera is gone"),
    ):
        next(stream)


def test_random_images_of_a_generator(predictor):
    """What they draw is the caller's: the networks' seeds come between, and do not count."""

    def images():
        for _ in range(6):
            values = random.randrange(256), np.random.randint(256), int(torch.randint(256, (1,)))
            yield np.full((6, 9, 3), values[0], np.uint8) | np.array(values, np.uint8)

    drawn = []
    for draw in (lambda: [one.draw() for one in predictor.stream(images(), batch_size=2)], lambda: list(images())):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        drawn.append([int(one[0, 0, 0]) for one in draw()])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 2


@pytest.mark.parametrize("shape", [(5, 6, 9), (6, 9)])
def test_pictures_of_another_shape_are_refused(shape, toys, monkeypatch):
    example = {"x": np.zeros(shape, np.float32), "y": np.zeros(shape, np.float32), "name": "a", "facts": []}
    monkeypatch.setattr(toy_photos.Reds, "examples", lambda self, photo: [example])
    message = re.escape(f"predict.save.x: found the shape {shape}; a picture is (3 or 1, height, width); save it as ")
    masks = load(toys[1], recipe=toys[0], device="cpu", settings={"predict.save": {"x": "mask"}})
    with pytest.raises(UserError, match=message):
        masks.predict(picture(0), skip=True)  # another photo would not do, either


def test_values_that_are_no_numbers_are_no_black_picture(predictor, tmp_path, monkeypatch):
    examples = toy_photos.Reds.examples

    def odd(self, photo):
        odd = {2: np.nan, 3: np.inf}.get(photo.number, 0)
        return [one | {"x": one["x"] + np.float32(odd)} for one in examples(self, photo)]

    monkeypatch.setattr(toy_photos.Reds, "examples", odd)
    results = predictor.predict([picture(10 * number) for number in range(4)], skip=True)
    assert [one.image.id for one in results] == [1, 4]
    assert results.faults == tuple(
        f"00000{number}: image: 54 of 54 values are NaN or infinite; a picture has none" for number in (2, 3)
    )


def test_a_model_may_hold_the_whole_recipe(toys, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "run").rename(tmp_path / "runs/reds")
    monkeypatch.chdir(tmp_path / "runs")
    with pytest.raises(UserError, match=r"no dvc\.yaml above it names its recipe; name the params file"):
        load("reds")
    own, recipe = Path("reds/model/recipe.yaml"), read_yaml(Path(toys[0]))
    sections = {key: recipe[key] for key in ("evaluate", "predict", "metrics", "runtime")}
    own.write_text(to_yaml(read_yaml(own) | sections))
    (own.parent / "SHA256SUMS").unlink(missing_ok=True)
    assert load("reds").recipe == own


def test_settings_and_what_is_wrong_with_them(toys):
    predictor = load(
        toys[1], recipe=toys[0], settings={"predict.save": {"x": "mask"}, "predict.data.pieces": np.int64(2)}
    )
    assert predictor.saves == {"x": "mask"}
    assert [one.name for one in predictor.predict(picture(0))] == ["000001-0", "000001-1"]
    for settings, message in {
        ("predict.data.peices", 2): "unknown argument of Reds 'peices'",
        ("predict.mode", "\ud800"): "unacceptable character",
        ("predict.data.pieces", frozenset({1})): "settings: predict.data.pieces: .*; allowed are numbers, strings",
        ("seed", 2): "expected key=value with a dotted key of evaluate or predict",
    }.items():
        with pytest.raises(UserError, match=message):
            load(toys[1], recipe=toys[0], settings=dict([settings]))
    with pytest.raises(UserError, match="device: found 'gpu'; allowed here: auto, cpu"):
        load(toys[1], recipe=toys[0], device="gpu")
    with pytest.raises(UserError, match="no such folder"):
        load("nowhere")


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("every", 0, 1), ("batch_size", np.int64(0), 1), ("batch_size", 1.5, 1), ("workers", -1, 0)],
)
def test_numbers_out_of_range(name, value, least, predictor):
    message = f"^{name}: found {re.escape(repr(value))}; a whole number from {least} is needed$"
    with pytest.raises(UserError, match=message):
        predictor.predict([picture(0)], **{name: value})
    with pytest.raises(UserError, match=message):
        predictor.stream([picture(0)], **{name: value})  # at once, not at the first result


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_precision_is_that_of_an_accelerator(precision):
    layer, inputs = torch.nn.Linear(64, 64), torch.randn(8, 64)
    AcceleratorState._reset_state()
    with Device("cpu", precision).autocast():
        own = layer(inputs)
    with Accelerator(cpu=True, mixed_precision=precision).autocast():
        other = layer(inputs)
    assert own.dtype == other.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    assert torch.equal(own, other)
    assert Device("cpu", "fp16").precision == "no"


def test_what_the_package_offers():
    code = (
        "import sys, figura; names = {'load', 'Predictor', 'Result', 'Results', 'UserError'};"
        "assert names == set(figura.__all__) <= set(dir(figura));"
        "assert 'figura.prediction.predictor' not in sys.modules;"
        "assert issubclass(figura.UserError, Exception); assert all(hasattr(figura, name) for name in names);"
        "assert not {'torch', 'pandas', 'accelerate'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert (ROOT / "figura/py.typed").is_file()

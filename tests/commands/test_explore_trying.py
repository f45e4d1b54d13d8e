"""What the tab Try computes: people in dragged poses, what is read in them, label maps, photos and uploads."""

import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import trials_by_hand
from trials_by_hand import PALETTE, PEOPLE, write_project, write_run

import figura
from figura.base.errors import UserError
from figura.base.pictures import encode_jpeg, encode_png, shrunk
from figura.base.raw_pictures import read_picture
from figura.commands.explore.cache import Cache
from figura.commands.explore.try_photos import offered, photo_results
from figura.commands.explore.trying import read_recipes, recipes_on, uploaded_picture, validation_dataset
from figura.pipeline.dag import entries
from figura.prediction.result import Box, Person
from figura.recipe.schema import Recipe
from models.images.explore_label_maps import label_translator, painted, palette_of
from models.images.pairs import ImagePairs
from models.people.explore_person_drawer import best_person, nearest_joint, people_trial, with_joint, without_joint
from models.people.pairs import PersonPairs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trials")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(folder)
    return folder


def read_all() -> tuple[dict[str, Recipe], list[str]]:
    return read_recipes({name: Path(entry["params"]) for name, entry in entries("recipes").items()})


@pytest.fixture
def recipes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Recipe]:
    monkeypatch.chdir(folder)
    return read_all()[0]


def test_recipes_are_chosen_by_what_they_have(recipes):
    assert list(recipes) == ["drawer", "reader", "larger", "painter"]
    assert recipes_on(recipes, PersonPairs) == ["drawer"]
    assert recipes_on(recipes, ImagePairs) == ["painter"]
    assert offered(recipes) == ["reader", "larger", "drawer", "painter"]  # of photos, what reads any comes first


def test_what_is_not_trained_says_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, trained=("drawer", "larger"))
    recipes, faults = read_all()
    assert faults == []
    assert list(recipes)[:2] == ["drawer", "larger"]  # those that are trained first
    assert offered(recipes)[:2] == ["larger", "drawer"]
    with pytest.raises(UserError, match="painter is not trained yet: run dvc repro train@painter"):
        label_translator(recipes, "painter")
    trial = people_trial(recipes, "drawer")
    assert trial.reader is None
    assert "dvc repro train@reader" in trial.unread
    joints, look = trial.drawer.example(0)
    assert trial.drawn(joints, look)[1:] == (None, trial.unread)
    assert "no pose network" in trial.appearance(np.zeros((40, 40, 3), np.uint8))[1]
    with pytest.raises(UserError, match=r"where people are.*dvc repro train@reader"):
        photo_results(recipes, "drawer", np.zeros((40, 40, 3), np.uint8), 64)
    (tmp_path / "painter.yaml").write_text("seed: [")
    recipes, faults = read_all()
    assert "painter" not in recipes
    assert "painter.yaml" in faults[0]


def test_a_person_is_drawn_as_the_network_draws_an_example(recipes):
    drawer = people_trial(recipes, "drawer").drawer
    assert len(drawer) == PEOPLE
    example = validation_dataset(recipes["drawer"], PersonPairs).example(1, np.random.default_rng(0))
    joints, look = drawer.example(1)
    assert np.allclose(joints, example["joints"])
    assert np.array_equal(look, example["target"])
    network = drawer._trained.networks["generator"].eval()
    with torch.no_grad():
        pose, appearance = (torch.as_tensor(one)[None] for one in (example["pose"], look))
        image = network(pose, appearance, mode="appearance_transfer")["image"][0]
    expected = np.rint((image.clamp(-1, 1).numpy().transpose(1, 2, 0) + 1) * 127.5).astype(np.uint8)
    assert np.array_equal(drawer.picture(joints, look), expected)
    torch.rand(5)
    assert np.array_equal(drawer.picture(joints, look), expected)
    assert not np.array_equal(drawer.picture(with_joint(joints, 10, 2, 2, drawer.size), look), expected)


def test_joints_are_taken_moved_and_left_out():
    joints = np.array([[10.0, 10, 2], [20, 10, 1], [0, 0, 0]])
    assert nearest_joint(joints, 17, 10, 5) == 1
    assert nearest_joint(joints, 0, 0, 5) is None  # a joint that is not there cannot be taken
    moved = with_joint(joints, 1, 99, -4, 32)
    assert moved[1].tolist() == [31, 0, 1]
    assert joints[1].tolist() == [20, 10, 1]
    assert with_joint(joints, 2, 5, 6, 32)[2].tolist() == [5, 6, 1]
    assert without_joint(joints, 0)[0].tolist() == [0, 0, 0]


def test_label_maps_have_the_colours_of_the_examples(recipes):
    translator = label_translator(recipes, "painter")
    assert sorted(translator.palette) == sorted(PALETTE)
    assert translator.palette[0] == PALETTE[0]  # the most frequent
    first = translator.picture(translator.example(0))
    assert first.shape == (32, 32, 3)
    assert np.array_equal(translator.picture(translator.example(0)), first)
    stroke = painted(translator.example(0), (1, 1), (30, 1), 3, PALETTE[1])
    assert not np.array_equal(translator.picture(stroke), first)
    large = cv2.resize(translator.example(1), (128, 128), interpolation=cv2.INTER_NEAREST)
    assert np.array_equal(translator.fitted(large), translator.example(1))


def test_a_stroke_is_as_wide_as_the_brush_and_leaves_the_map_before_as_it_was():
    before = np.zeros((16, 16, 3), np.uint8)
    after = painted(before, (3.5, 8.5), (12.5, 8.5), 3, (9, 8, 7))
    assert not before.any()
    assert (after[:, 8] == (9, 8, 7)).all(axis=1).sum() == 3
    assert (after[8] == (9, 8, 7)).all(axis=1).sum() == 12  # from 2 to 13: round ends
    for width, pixels in ((1, 1), (2, 4), (3, 9)):
        assert painted(before, (5.2, 5.9), (5.2, 5.9), width, (9, 8, 7)).any(axis=2).sum() == pixels


def test_blurred_borders_give_no_colours():
    label_map = np.zeros((40, 40, 3), np.uint8)
    label_map[:, 20:], label_map[:, 19] = (200, 100, 0), (195, 98, 3)
    assert palette_of([label_map]) == [(200, 100, 0), (0, 0, 0)]
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    assert palette_of([noise]) == [(0, 0, 0), (255, 255, 255)]  # no colour is frequent


def test_photos_through_each_recipe(recipes):
    file = Path("data/prepared/people/images/validation/1.png")
    photo = read_picture(file)
    small, larger = photo_results(recipes, "larger", photo, 48)
    assert small.shape == (48, 48, 3)
    assert larger[0].pictures["sr"].shape == (96, 96, 3)
    _, read = photo_results(recipes, "reader", photo, 512)
    assert (list(read[0].pictures), list(read[0].records)) == (["drawn"], ["people", "objects"])
    expected = figura.load("runs/reader", recipe="reader.yaml").predict(file)[0]
    assert np.array_equal(read[0].draw(), expected.draw())
    assert read[0].records == expected.records
    _, painting = photo_results(recipes, "painter", photo, 512)
    assert painting[0].draw().shape == (32, 32, 3)
    with pytest.raises(UserError, match=r"^photo.png: 64 x 32 pixels would be squeezed to 32 x 32"):
        photo_results(recipes, "painter", np.zeros((32, 64, 3), np.uint8), 512)
    assert shrunk(np.zeros((30, 90, 3), np.uint8), 45).shape == (15, 45, 3)
    assert shrunk(np.zeros((30, 20, 3), np.uint8), 45).shape == (30, 20, 3)


def test_an_appearance_is_cropped_to_the_person_read(recipes):
    trial = people_trial(recipes, "drawer")
    size = trial.drawer.size
    halves = np.zeros((8 * size, 8 * size, 3), np.uint8)
    halves[:, 4 * size :] = 255
    look = trial.drawer.cropped(halves, None)
    assert np.array_equal(look[:, :, : size // 2], np.full((3, size, size // 2), -1.0))
    assert np.array_equal(look[:, :, size // 2 :], np.full((3, size, size // 2), 1.0))
    look = trial.drawer.cropped(np.full((60, 50, 3), 200, np.uint8), Box(1, 2, 20, 29))
    assert look[0, 16, 16] == pytest.approx(200 / 127.5 - 1, abs=1e-6)
    assert look[0, 16, 0] == 0  # the background that the network knows, beside the box


def test_pictures_of_any_shape_become_an_appearance(recipes):
    """A strip of 60,000 x 40 pixels has a square of 40 GiB in floats around it."""
    trial = people_trial(recipes, "drawer")
    look, note = trial.appearance(np.full((40, 60_000, 3), 200, np.uint8))
    assert look.shape == (3, trial.drawer.size, trial.drawer.size)
    assert note.startswith("the whole picture")


def test_a_person_counts_as_read_from_a_score_on():
    weak, strong = (Person(score, Box(1, 2, 20, 29), (), "person") for score in (0.05, 0.9))
    assert best_person((weak, strong)) is strong
    assert best_person((weak,)) is None


def test_people_of_a_photo_are_read_before_they_are_drawn(recipes, monkeypatch):
    photo = read_picture(Path("data/prepared/people/images/validation/1.png"))
    joints = trials_by_hand.joints_of(0)
    person = {"image_id": 1, "category_id": 1, "score": 0.9, "bbox": [34, 4, 32, 86],
              "keypoints": joints.ravel().tolist()}  # fmt: skip

    monkeypatch.setattr("models.pose.decode.decoding.people_records", lambda *_: [person])
    _, results = photo_results(recipes, "drawer", photo, 512)
    assert [one.name for one in results] == ["photo-1"]
    assert set(results[0].pictures) == {"image", "pose", "target"}
    assert list(results.sheets) == ["transfer.image"]


PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
PARTS = {b"IHDR": struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0), b"IDAT": zlib.compress(bytes(999))}
BOMB = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
    for kind, part in PARTS.items()
)


def test_an_upload_is_decoded():
    assert np.array_equal(uploaded_picture("a.PNG", encode_png(PIXELS)), PIXELS)
    assert uploaded_picture("../../b.jpg", encode_jpeg(PIXELS)).shape == PIXELS.shape


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", BOMB, "a.png: no readable picture: it has more than 64 megapixels: make it smaller"),
        ("a.jpg", encode_jpeg(PIXELS)[:200], "a.jpg: no readable picture"),
        ("a.png", b"", "a.png: no readable picture"),
        ("a.svg", b"<svg/>", "a.svg: no picture by its name; images end in .avif"),
        ("", encode_png(PIXELS), "the file: no picture by its name"),
    ],
)
def test_an_upload_that_is_no_picture_is_one_line(name, content, message):
    with pytest.raises(UserError) as error:
        uploaded_picture(name, content)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_model_is_loaded_once_and_again_when_it_was_trained_again(recipes, folder):
    first = people_trial(recipes, "drawer")
    second = people_trial(recipes, "drawer")
    assert first.drawer is second.drawer
    assert first.reader is second.reader
    write_run(folder, "drawer")
    assert people_trial(recipes, "drawer").drawer is not first.drawer
    assert people_trial(recipes, "drawer").reader is first.reader


def test_threads_that_ask_for_the_same_make_it_once(tmp_path):
    cache, made, together = Cache(), [], threading.Barrier(4)

    def ask(_: int) -> object:
        together.wait()
        return cache.get(("it",), [tmp_path / "file"], lambda: made.append(object()) or made[-1])

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(ask, range(4))) == {made[0]}
    (tmp_path / "file").write_text("now there")
    assert cache.get(("it",), [tmp_path / "file"], object) is not made[0]


def test_what_was_not_asked_for_longest_leaves_the_cache():
    cache = Cache(2)
    first = [cache.get((key,), [], object) for key in "aba"]
    assert first[2] is first[0]
    third = cache.get(("c",), [], object)
    assert cache.get(("a",), [], object) is first[0]
    assert cache.get(("c",), [], object) is third
    assert cache.get(("b",), [], object) is not first[1]

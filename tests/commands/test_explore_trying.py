"""What the tab Try computes: people in dragged poses, what is read in them, label maps, photos and uploads."""

import struct
import threading
import zlib
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
import trials_by_hand
from trials_by_hand import PALETTE, PEOPLE, write_project, write_run

from figura.base.errors import UserError
from figura.base.pictures import encode_jpeg, encode_png, read_picture
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.explore import trying, trying_people
from figura.commands.explore.project import Project
from figura.commands.explore.trying import Cache, faults_of, recipes_of_photos, recipes_on
from figura.commands.explore.trying_labels import label_translator, painted, palette_of
from figura.commands.explore.trying_people import (
    nearest_joint,
    people_trial,
    stickman_svg,
    with_joint,
    without_joint,
)
from figura.commands.explore.trying_photos import magnified, photo_results, sample_photos, shrunk, table_of
from figura.commands.explore.uploads import LARGEST_FILE, uploaded_picture
from figura.data.formats.skeletons import COCO
from figura.recipe.pipeline import entries
from models.images.pairs import ImagePairs
from models.people.pairs import PersonPairs
from models.pose.dumped_people import DumpedPeople


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trials")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_project(folder)
    return folder


def opened() -> Project:
    return Project(Path.cwd(), entries("recipes"), entries("pose_consistency"))


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(folder)
    return opened()


def test_recipes_are_chosen_by_what_they_have(project: Project) -> None:
    assert recipes_on(project, PersonPairs) == ["drawer"]
    assert recipes_on(project, ImagePairs) == ["painter"]
    assert recipes_of_photos(project) == ["drawer", "reader", "larger", "painter"]
    assert faults_of(project) == []


def test_what_is_not_trained_says_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, trained=("drawer", "larger"))
    project = opened()
    assert recipes_of_photos(project)[:2] == ["drawer", "larger"]  # those that are trained first
    with pytest.raises(UserError, match="painter is not trained yet: run dvc repro train@painter"):
        label_translator(project, "painter")
    trial = people_trial(project, "drawer")
    assert trial.reader is None
    assert "dvc repro train@reader" in trial.unread
    with pytest.raises(UserError, match=r"where people are.*dvc repro train@reader"):
        photo_results(project, "drawer", np.zeros((40, 40, 3), np.uint8), 64)
    (tmp_path / "painter.yaml").write_text("seed: [")
    assert recipes_on(project, ImagePairs) == []
    assert "painter.yaml" in faults_of(project)[0]


def test_a_person_is_drawn_as_the_network_draws_an_example(project: Project) -> None:
    drawer = people_trial(project, "drawer").drawer
    assert len(drawer) == PEOPLE
    examples = trying.validation_dataset(trying.trained(project, "drawer").recipe, PersonPairs)
    example = examples.example(1, np.random.default_rng(0))
    joints, look = drawer.example(1)
    assert np.allclose(joints, example["joints"])
    assert np.array_equal(look, example["target"])
    network = trying.trained(project, "drawer").networks["generator"].eval()
    with torch.no_grad():
        pose, appearance = (torch.as_tensor(one)[None] for one in (example["pose"], look))
        image = network(pose, appearance, mode="appearance_transfer")["image"][0]
    expected = np.rint((image.clamp(-1, 1).numpy().transpose(1, 2, 0) + 1) * 127.5).astype(np.uint8)
    assert np.array_equal(drawer.picture(joints, look), expected)


def test_pictures_of_any_shape_become_an_appearance_in_little_memory(project: Project) -> None:
    """A strip of 60,000 x 40 pixels has a square of 40 GiB in floats around it."""
    drawer = people_trial(project, "drawer").drawer
    strip = np.full((40, 60_000, 3), 200, np.uint8)
    look = drawer.cropped(strip, None)
    assert look.shape == (3, drawer.size, drawer.size)
    shown = np.isclose(look, 200 * 2 / 255 - 1, atol=0.02).all(axis=0)
    assert shown.any(axis=1).sum() <= 2  # a line: the rest of the square is no picture
    square = np.zeros((8 * drawer.size, 8 * drawer.size, 3), np.uint8)
    square[:, 4 * drawer.size :] = 255
    halves = drawer.cropped(square, None)
    assert np.array_equal(halves[:, :, : drawer.size // 2], np.full((3, drawer.size, drawer.size // 2), -1.0))
    assert np.array_equal(halves[:, :, drawer.size // 2 :], np.full((3, drawer.size, drawer.size // 2), 1.0))


def test_a_dragged_joint_changes_the_picture_and_nothing_else_does(project: Project) -> None:
    drawer = people_trial(project, "drawer").drawer
    joints, look = drawer.example(0)
    first = drawer.picture(joints, look)
    torch.rand(5)
    assert np.array_equal(drawer.picture(joints, look), first)
    assert not np.array_equal(drawer.picture(with_joint(joints, 10, 2, 2, drawer.size), look), first)
    with pytest.raises(UserError, match="example 3: allowed are 0 to 2"):
        drawer.example(PEOPLE)


def test_the_reader_gets_what_the_stage_gives_the_network(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture is prepared as `pose.DumpedPeople` prepares that of a dump, and read with the same injectors."""
    reader = people_trial(project, "drawer").reader
    assert reader is not None
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    batches = []
    real = trying.run_injectors
    monkeypatch.setattr(trying, "run_injectors", lambda *args: batches.append(args[1]) or real(*args))
    reader.person(pixels)
    arguments = {"dump": "none", "pictures": {"real": "target"}, "side": 65}  # of the training
    monkeypatch.setattr("models.pose.dumped_people.Dump", lambda path: DumpOfOne())
    monkeypatch.setattr("models.pose.dumped_people.pixels_of", lambda *_: pixels)
    monkeypatch.setattr("models.pose.dumped_people._first_draws", lambda *_: DumpOfOne())
    expected = DumpedPeople(**arguments).example(0, np.random.default_rng(0))
    assert np.allclose(batches[0]["image"][0].numpy(), expected["image"], atol=1e-6)
    assert np.allclose(batches[0]["to_original"][0].numpy(), expected["to_original"])


class DumpOfOne:
    """A dump of one picture, as far as `DumpedPeople` asks it."""

    folder = Path("dump")

    def __init__(self) -> None:
        self.table = pd.DataFrame({"index": [0]})

    def __len__(self) -> int:
        return 1


def test_what_is_read_is_compared_with_what_was_asked_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = people_trial(project, "drawer")
    reader = trial.reader
    assert reader is not None
    joints, _ = trial.drawer.example(0)
    moved = joints + np.array([3, 4, 0])  # by 5 pixels
    found = {"image_id": 1, "category_id": 1, "score": 0.9, "keypoints": moved.ravel().tolist(), "bbox": [1, 2, 20, 29]}
    weak = found | {"score": 0.05}
    for people, said in (([weak, found], "score 0.90; joints 5.0 pixels away on average"), ([weak], "nobody is read")):
        monkeypatch.setattr(trying_people, "run_once", lambda *_, people=people: {"people": [people]})
        reading = reader.reading(np.zeros((32, 32, 3), np.uint8), joints)
        assert reading.text.startswith(said)
        assert max(reading.overlay.shape) >= 384
    monkeypatch.setattr(trying_people, "run_once", lambda *_: {"people": [[found]]})
    picture = np.full((60, 50, 3), 200, np.uint8)
    look, note = trial.appearance(picture)
    assert note == "the person read, of score 0.90"
    assert look.shape == (3, trial.drawer.size, trial.drawer.size)
    assert look[0, 16, 16] == pytest.approx(200 / 127.5 - 1, abs=1e-6)
    assert look[0, 16, 0] == 0  # the background that the network knows, beside the box
    monkeypatch.setattr(trying_people, "run_once", lambda *_: {"people": [[]]})
    look, note = trial.appearance(picture)
    assert "nobody is read" in note
    assert look[0, 16, 10] == pytest.approx(200 / 127.5 - 1, abs=1e-6)


def test_joints_are_taken_moved_and_left_out() -> None:
    joints = np.array([[10.0, 10, 2], [20, 10, 1], [0, 0, 0]])
    assert nearest_joint(joints, 17, 10, 5) == 1
    assert nearest_joint(joints, 0, 0, 5) is None  # a joint that is not there cannot be taken
    moved = with_joint(joints, 1, 99, -4, 32)
    assert moved[1].tolist() == [31, 0, 1]
    assert joints[1].tolist() == [20, 10, 1]
    assert with_joint(joints, 2, 5, 6, 32)[2].tolist() == [5, 6, 1]
    assert without_joint(joints, 0)[0].tolist() == [0, 0, 0]


def test_the_svg_has_a_line_for_each_connection_whose_joints_are_there() -> None:
    joints = trials_by_hand.joints_of(0)
    svg = stickman_svg(joints, COCO, 3, 96)
    assert svg.count("<circle") == 17
    assert svg.count("<line") == len(COCO.connections)
    without = stickman_svg(without_joint(joints, 9), COCO, 3, 96)  # the left wrist ends one connection
    assert (without.count("<circle"), without.count("<line")) == (16, len(COCO.connections) - 1)
    x, y = joints[0, :2] + 0.5
    assert f'cx="{x:.2f}" cy="{y:.2f}"' in svg


def test_label_maps_have_the_colours_of_the_examples(project: Project) -> None:
    translator = label_translator(project, "painter")
    assert sorted(translator.palette) == sorted(PALETTE)
    assert translator.palette[0] == PALETTE[0]  # the most frequent
    first = translator.picture(translator.example(0))
    assert first.shape == (32, 32, 3)
    assert np.array_equal(translator.picture(translator.example(0)), first)
    stroke = painted(translator.example(0), (1, 1), (30, 1), 3, PALETTE[1])
    assert not np.array_equal(translator.picture(stroke), first)
    large = cv2.resize(translator.example(1), (128, 128), interpolation=cv2.INTER_NEAREST)
    assert np.array_equal(translator.fitted(large), translator.example(1))
    with pytest.raises(UserError, match="example 3: allowed are 0 to 2"):
        translator.example(3)


def test_a_stroke_is_as_wide_as_the_brush_and_leaves_the_map_before_as_it_was() -> None:
    before = np.zeros((16, 16, 3), np.uint8)
    after = painted(before, (3.5, 8.5), (12.5, 8.5), 3, (9, 8, 7))
    assert not before.any()
    assert (after[:, 8] == (9, 8, 7)).all(axis=1).sum() == 3
    assert (after[8] == (9, 8, 7)).all(axis=1).sum() == 12  # from 2 to 13: round ends
    for width, pixels in ((1, 1), (2, 4), (3, 9)):
        assert painted(before, (5.2, 5.9), (5.2, 5.9), width, (9, 8, 7)).any(axis=2).sum() == pixels


def test_blurred_borders_give_no_colours() -> None:
    label_map = np.zeros((40, 40, 3), np.uint8)
    label_map[:, 20:], label_map[:, 19] = (200, 100, 0), (195, 98, 3)
    assert palette_of([label_map]) == [(200, 100, 0), (0, 0, 0)]


def test_maps_without_frequent_colours_are_painted_black_and_white() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    assert palette_of([noise]) == [(0, 0, 0), (255, 255, 255)]


def test_photos_through_each_recipe(project: Project) -> None:
    photo = read_picture(Path("data/prepared/people/images/validation/1.png"))
    larger = photo_results(project, "larger", photo, 48)
    assert larger.photo.shape == (48, 48, 3)
    assert larger.pictures["sr"].shape == (96, 96, 3)
    assert larger.enlarged == ["sr"]
    assert list(larger.files) == ["photo.sr.png"]
    read = photo_results(project, "reader", photo, 512)
    assert set(read.pictures) == {"drawn"}
    assert read.enlarged == []  # drawn over the photo, by no network
    assert set(read.records) == {"people", "objects"}
    painting = photo_results(project, "painter", photo, 512)
    assert painting.pictures["fake"].shape == (32, 32, 3)
    with pytest.raises(UserError, match=r"^photo.png: 64 x 32 pixels would be squeezed to 32 x 32"):
        photo_results(project, "painter", np.zeros((32, 64, 3), np.uint8), 512)


def test_people_of_a_photo_are_read_before_they_are_drawn(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = read_picture(Path("data/prepared/people/images/validation/1.png"))
    joints = trials_by_hand.joints_of(0)
    person = {"image_id": 1, "category_id": 1, "score": 0.9, "bbox": [34, 4, 32, 86],
              "keypoints": joints.ravel().tolist()}  # fmt: skip

    def records(self: object, poses: object, matrix: object, number: int) -> list:
        from figura.interfaces import Records

        return Records([person])

    monkeypatch.setattr("models.pose.decode.decoding.FindPeople._records", records)
    results = photo_results(project, "drawer", photo, 512)
    assert {"1.image", "1.pose", "1.target", "transfer.image"} == set(results.pictures)
    assert results.pictures["1.image"].shape == (32, 32, 3)


def test_photos_of_the_data_and_sizes(project: Project) -> None:
    assert list(sample_photos(project, "reader")) == ["1.png", "2.png", "3.png"]
    assert sample_photos(project, "painter") == {}  # pairs are no photos
    assert shrunk(np.zeros((30, 90, 3), np.uint8), 45).shape == (15, 45, 3)
    assert shrunk(np.zeros((30, 20, 3), np.uint8), 45).shape == (30, 20, 3)


def test_records_as_a_table() -> None:
    titles, rows = table_of(
        [
            {"image_id": 1, "category_id": 2, "score": 0.51234, "keypoints": [1, 2, 0.3, 0, 0, 0]},
            {"bbox": [1.4, 2]},
        ],
        {2: "ball"},
    )
    assert titles == ["category_id", "score", "keypoints", "bbox"]
    assert rows == [["ball", "0.512", "1 of 2", ""], ["", "", "", "1, 2"]]


def test_the_magnifier_shows_one_place_in_both_pictures() -> None:
    photo = np.random.default_rng(0).integers(0, 256, (60, 40, 3), np.uint8)
    picture = photo.repeat(2, axis=0).repeat(2, axis=1)
    for x, y in ((0, 0), (0.3, 0.8), (1, 1)):
        small, large = magnified(photo, picture, x, y)
        assert np.array_equal(small, large)
        assert small.shape == (48, 48, 3)
    assert np.array_equal(magnified(photo, picture, 1, 0)[1], picture[:48, 32:])


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bomb(width: int, height: int) -> bytes:
    """Return a PNG whose header says so many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(999)))


PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def test_an_upload_is_decoded() -> None:
    assert np.array_equal(uploaded_picture("a.PNG", encode_png(PIXELS)), PIXELS)
    assert uploaded_picture("../../b.jpg", encode_jpeg(PIXELS)).shape == PIXELS.shape


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.png", bomb(10_000, 10_000), "a.png: has 100 megapixels; at most 64 are allowed"),
        ("a.png", bomb(100_000, 100_000), "a.png: has 10000 megapixels; at most 64"),
        ("a.png", bomb(100, 100), "a.png: no readable picture"),
        ("a.jpg", encode_jpeg(PIXELS)[:200], "a.jpg: no readable picture"),
        ("a.png", b"", "a.png: no readable picture"),
        ("a.gif", b"GIF89a", "a.gif: no picture by its name; images end in .bmp"),
        ("", encode_png(PIXELS), "the file: no picture by its name"),
        ("a.png", bytes(LARGEST_FILE + 1), "a.png: has 33,554,433 bytes; at most 33,554,432"),
    ],
)
def test_an_upload_that_is_no_picture_is_one_line(name: str, content: bytes, message: str) -> None:
    with pytest.raises(UserError) as error:
        uploaded_picture(name, content)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_model_is_loaded_once_and_again_when_it_was_trained_again(project: Project, folder: Path) -> None:
    first = people_trial(project, "drawer")
    second = people_trial(project, "drawer")
    assert first.drawer is second.drawer
    assert first.reader is second.reader
    write_run(folder, "drawer")
    assert people_trial(project, "drawer").drawer is not first.drawer
    assert people_trial(project, "drawer").reader is first.reader


def test_two_threads_that_ask_for_the_same_make_it_once(tmp_path: Path) -> None:
    cache, made, together = Cache(), [], threading.Barrier(4)

    def make() -> object:
        made.append(object())
        return made[-1]

    def ask() -> None:
        together.wait()
        cache.get(("it",), [tmp_path / "file"], make)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    (tmp_path / "file").write_text("now there")
    assert cache.get(("it",), [tmp_path / "file"], make) is made[1]


def test_recipes_of_different_precision_run_in_one_process(project: Project, folder: Path) -> None:
    whole, half = (folder / "painter.yaml").read_text(), read_yaml(folder / "painter.yaml")
    half["train"]["precision"] = "bf16"
    try:
        (folder / "painter.yaml").write_text(to_yaml(half))
        write_run(folder, "painter")
        translator = label_translator(project, "painter")
        drawer = people_trial(project, "drawer").drawer
        joints, look = drawer.example(0)
        for _ in range(2):
            assert translator.picture(translator.example(0)).shape == (32, 32, 3)
            assert drawer.picture(joints, look).shape == (32, 32, 3)
        assert trying.trained(project, "painter").recipe.train.precision == "bf16"
    finally:
        (folder / "painter.yaml").write_text(whole)
        write_run(folder, "painter")

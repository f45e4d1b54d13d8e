"""Scenes and photos: examples, targets and the way back to the file, by hand, and bad files."""

import hashlib
import json

import cv2
import drawn_scenes
import numpy as np
import pytest
import torch
from drawn_scenes import CATEGORIES
from pictures_by_hand import noise

from figura.base.errors import UserError
from figura.formats.coco import KEYPOINTS
from figura.formats.coco_writer import write_coco
from figura.interfaces import Networks, State
from figura.prediction.inputs import Photo
from models.pose.decode.injectors import PhotoOverlays
from models.pose.decode.overlays import OverlayStyle
from models.pose.photos import Photos
from models.pose.scenes import SceneAugmentation, Scenes

HEADS = {"cif": {"kind": "cif", "stride": 8}}
PERSON = {
    "image_id": 1, "category_id": 1, "score": 0.9, "bbox": [20, 10, 60, 60],
    "keypoints": [value for joint in range(17) for value in (25 + 3 * joint, 12 + 3 * joint, 0.8)],
}  # fmt: skip


def photo_of(path, pixels, number=3):
    cv2.imwrite(str(path), pixels[..., ::-1])
    return Photo(path, path.stem, number)


def test_a_photo_is_shown_as_a_scene_of_a_dataset(tmp_path):
    drawn_scenes.write(tmp_path, 1)
    (scene,) = (Scenes(root=str(tmp_path), split="validation", side=49, multiple=8, heads=HEADS)[0],)
    (example,) = Photos(side=49, multiple=8).examples(Photo(tmp_path / "images/1.png", "1", 1))
    for name in ("image", "valid_area", "to_original"):
        assert np.array_equal(example[name], scene[name])
    assert [example[name] for name in ("image_id", "width", "height")] == [1, 65, 65]
    with pytest.raises(ValueError, match="side: missing, and the training data tell none"):
        Photos(multiple=8)


def test_overlays_have_the_size_of_each_photo(tmp_path):
    pixels = noise(390, 500), noise(400, 300)
    photos = [photo_of(tmp_path / f"{n}.png", one) for n, one in enumerate(pixels)]
    weak = {**PERSON, "score": 0.1}
    state = State({"photo": photos, "people": [[PERSON], [weak]], "objects": [[], []]})
    injector = PhotoOverlays("photo", "drawn", people="people", objects="objects", style=OverlayStyle(least_score=0.2))
    injector(state, Networks({}, {}), 0)
    first, second = (one.permute(1, 2, 0).numpy() for one in state["drawn"])
    assert state["drawn"][0].dtype == torch.uint8
    assert np.array_equal(second, pixels[1])  # its only person is too weak
    changed = (first != pixels[0]).any(axis=2)
    assert changed[12:60, 25:73].any()
    changed[:100, :140] = False  # joints to (73, 60), a label at the box
    assert not changed.any()


HEIGHT, WIDTH, SIDE = 60, 80, 81
CIF = {"cif": {"kind": "cif", "stride": 8}}
DETECTION = {"boxes": {"kind": "cifdet", "categories": 2, "stride": 8}}


def annotation(number, image, box=(10, 10, 40, 40), *, joints=(), category=1, **extra):
    record = {"id": number, "image_id": image, "category_id": category, "bbox": list(box), "iscrowd": 0} | extra
    if category == 1:
        flat = [0] * 51
        for place, x, y, visibility in joints:
            flat[3 * place : 3 * place + 3] = x, y, visibility
        record = {"keypoints": flat} | record
    return record


ANNOTATIONS = [
    annotation(21, 3, joints=[(0, 30, 20, 2), (9, 40, 30, 1)]),
    annotation(12, 1, joints=[(0, 50, 25, 2)]),
    annotation(11, 1, (60, 2, 8, 8), category=2),
    annotation(13, 1, (0, 30, 20, 20), iscrowd=1),
    annotation(31, 5, (5, 5, 10, 10)),  # a person without keypoints
    annotation(41, 7, (5, 5, 10, 10), iscrowd=1),
    annotation(51, 8, (20, 20, 30, 10), category=2),
]


@pytest.fixture
def make(tmp_path):
    def make_dataset(annotations=ANNOTATIONS, *, heads=CIF, categories=CATEGORIES, side=SIDE, chosen=None, **arguments):
        (tmp_path / "images").mkdir(exist_ok=True)
        images = []
        for number in (5, 3, 1, 7, 8, 9):
            picture = np.random.default_rng(number).integers(256, size=(HEIGHT, WIDTH, 3)).astype(np.uint8)
            cv2.imwrite(str(tmp_path / f"images/{number}.png"), picture)
            images.append({"id": number, "file_name": f"{number}.png", "height": HEIGHT, "width": WIDTH})
        content = {"images": images, "annotations": annotations, "categories": categories}
        (tmp_path / "train.json").write_text(json.dumps(content))
        return Scenes(root=str(tmp_path), split="train", side=side, heads=heads, categories=chosen, **arguments)

    return make_dataset


def ids(dataset):
    return [dataset.example(index, np.random.default_rng(0))["image_id"] for index in range(len(dataset))]


def augmentation(**geometry):
    return SceneAugmentation.model_validate({"geometry": geometry})


def test_example_without_augmentation(make):
    dataset = make(heads=CIF | DETECTION)
    example = dataset.example(0, np.random.default_rng(0))
    assert set(example) == {*Scenes.names, "cif_target", "boxes_target"}
    assert (example["index"], example["image_id"]) == (0, 1)
    # 80 x 60 becomes 81 x 60 (60.75, truncated): 10 rows above.
    np.testing.assert_allclose(example["valid_area"], [0, 10, 80, 59])
    assert example["image"].shape == (3, SIDE, SIDE)
    assert example["image"].dtype == np.float32
    first = np.random.default_rng(1).integers(256, size=(HEIGHT, WIDTH, 3)).astype(np.uint8)[0, 0, ::-1]
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(example["image"][:, 10, 0], (first / 255 - mean) / std, atol=1e-5)
    np.testing.assert_allclose(example["image"][:, 0, 0], (np.array([124, 116, 104]) / 255 - mean) / std, atol=1e-5)


def test_targets_are_those_of_the_moved_annotations(make):
    example = make(heads=CIF | DETECTION).example(0, np.random.default_rng(0))
    nose = np.array([50 * 80 / 79, 25 + 10]) / 8  # in cells: (6.33, 4.375)
    target = example["cif_target"]
    assert target.shape == (17, 5, 11, 11)
    np.testing.assert_allclose(target[0, :3, 4, 6], [1, *(nose - (6, 4))], atol=1e-5)
    assert not (target[1:, 0] == 1).any()
    assert np.isnan(target[0, 0, 7, 1])  # the crowd region
    ball = np.array([(60 + 4) * 80 / 79, 2 + 4 + 10]) / 8  # (8.1, 2)
    np.testing.assert_allclose(example["boxes_target"][1, :3, 2, 8], [1, *(ball - (8, 2))], atol=1e-5)
    np.testing.assert_allclose(example["boxes_target"][1, 3:5, 2, 8], [8 / 8 * 80 / 79, 1], atol=1e-5)
    assert (example["boxes_target"][0, 0] == 1).any()  # the person


def test_images_by_id_that_have_what_is_to_be_learned(make):
    assert ids(make()) == [1, 3]
    assert ids(make(heads=DETECTION)) == [1, 3, 5, 8]
    assert ids(make(heads=CIF | DETECTION, min_keypoint_annotations=0)) == [1, 3, 5, 8]
    assert ids(make(min_keypoint_annotations=0)) == [1, 3, 5]
    assert ids(make(min_keypoint_annotations=0, keep_empty=True)) == [1, 3, 5, 7, 8, 9]
    assert ids(make(image_ids=(3,))) == [3]
    two = [*ANNOTATIONS, annotation(22, 3, joints=[(4, 50, 50, 1)])]
    assert ids(make(two, min_keypoint_annotations=2)) == [3]


def test_annotations_of_an_image_by_id_whatever_the_order_in_the_file(make):
    view = make(heads=CIF | DETECTION).view(0, np.random.default_rng(0))
    assert view.objects.ids.tolist() == [11, 12, 13]
    assert view.objects.categories.tolist() == [1, 0, 0]
    assert view.people.ids.tolist() == [12, 13]
    assert view.people.crowd.tolist() == [False, True]
    assert make(heads=DETECTION).view(0, np.random.default_rng(0)).objects.ids.tolist() == [11, 12, 13]


def test_rows_count_what_an_image_shows_without_reading_it(make):
    both = make(heads=CIF | DETECTION, min_keypoint_annotations=0)
    people, detection = make(), make(heads=DETECTION)
    for number in (1, 3, 5, 8):
        (both.table.root / f"images/{number}.png").unlink()
    size = {"width": WIDTH, "height": HEIGHT}
    first = {"image_id": 1, "file": "1.png"} | size
    assert both.row(0) == first | {"crowds": 1, "people": 1, "joints": 1, "objects": 1}
    assert people.row(0) == first | {"crowds": 1, "people": 1, "joints": 1}  # other objects are not read
    assert detection.row(0) == first | {"crowds": 1, "people": 1, "objects": 1}
    counts = [[row[name] for name in ("image_id", "people", "joints", "objects")] for row in map(both.row, range(4))]
    assert counts == [[1, 1, 1, 1], [3, 1, 2, 0], [5, 1, 0, 0], [8, 0, 0, 1]]


def test_flip_swaps_sides(make):
    dataset = make(augmentation=augmentation(horizontal_flip={"chance": 1.0}))
    people = dataset.view(1, np.random.default_rng(0)).people
    assert people.keypoints[0, 9, 2] == 0
    np.testing.assert_allclose(people.keypoints[0, 10], [(79 - 40) * 80 / 79, 30 + 10, 1], atol=1e-4)
    mirrored = make(heads=DETECTION, augmentation=augmentation(horizontal_flip={"chance": 1.0}))
    mirrored.example(0, np.random.default_rng(0))


def test_what_leaves_the_picture_is_dropped_or_ignored(make):
    people = [
        annotation(1, 3, (0, 0, 80, 60), joints=[(0, 40, 30, 2)]),
        annotation(2, 3, (0, 0, 6, 60), joints=[(0, 3, 30, 2)]),
        annotation(3, 3, (5, 10, 10, 10), joints=[(0, 9, 15, 2)]),
        annotation(4, 3, (50, 10, 3, 10), joints=[(0, 51, 15, 2)]),
    ]
    shape = {"rescale": {"relative": (1.0, 1.0)}, "crop": {"margin": 0.0}}
    # A square of 61: x from an offset in [0, 19] to 60 more.
    dataset = make(people, side=61, augmentation=augmentation(**shape, ignore_small=4.0, ignore_cut=0.75))
    offsets = set()
    for seed in range(60):
        scene = dataset.view(0, np.random.default_rng(seed)).people
        left = 40 - float(scene.keypoints[0, 0, 0])
        offsets.add(round(left))
        kept = [1] + [2] * (left < 6) + [3] * (left < 15) + [4]
        assert scene.ids.tolist() == kept
        expected = {1: 60 * 59 / (80 * 60) <= 0.75, 2: left >= 1.5, 3: left >= 7.5, 4: True}
        assert scene.crowd.tolist() == [expected[one] for one in kept]
        np.testing.assert_allclose(scene.boxes[0], [0, 0, 60, 59], atol=1e-4)
    assert {0, 19} <= offsets


def test_pixels_vary_without_moving(make):
    geometry = {"rotation": {"chance": 1.0, "degrees": (-20.0, 20.0)}, "padding": (0, 254)}
    plain = make(augmentation=augmentation(**geometry))
    settings = {
        "geometry": geometry,
        "blur": {"chance": 1.0, "sigma": (1.0, 2.0)},
        "pixels": {"greyscale": {"chance": 1.0}},
    }
    varied = make(augmentation=SceneAugmentation.model_validate(settings))
    one, other = (dataset.view(1, np.random.default_rng(4)) for dataset in (plain, varied))
    np.testing.assert_array_equal(one.people.keypoints, other.people.keypoints)
    np.testing.assert_array_equal(one.placement.valid_area, other.placement.valid_area)
    grey = other.picture.astype(int)
    assert (grey[..., 0] == grey[..., 2]).all()
    inner = (slice(30, 50), slice(30, 50))
    assert grey[inner].std() < 0.5 * one.picture[inner].mean(axis=2).std()


ONE_FIELD = {"d": {"kind": "cifdet", "categories": 1, "stride": 8}}
FAR = ["a box or keypoint is no finite number, or farther than 1,000,000"]


@pytest.mark.parametrize(
    ("bad", "heads", "words"),
    [
        ({"keypoints": [1, 2, 2] * 5}, CIF, ["15 numbers", "17 keypoints"]),
        ({"category_id": 9}, CIF, ["category_id 9", "[1, 2]"]),
        ({"category_id": 2}, ONE_FIELD, ["category_id 2", "detection fields for [1]"]),
        ({"bbox": [5, 5, 0, 10]}, CIF, ["[5, 5, 0, 10]", "no area"]),
        ({"bbox": [5, 5, 10]}, CIF, ["[5, 5, 10]", "four numbers"]),
        ({"image_id": 4}, CIF, ["image_id 4"]),
        ({"keypoints": [float("nan"), 5, 2] * 17}, CIF, FAR),
        ({"keypoints": [10**400, 5, 2] * 17}, CIF, FAR),
        ({"bbox": [0, 0, 5, 1e9]}, CIF, FAR),
        ({"bbox": [0, 0, 5, True]}, CIF, FAR),
    ],
)
def test_bad_annotations_are_named(make, bad, heads, words):
    with pytest.raises(UserError) as error:
        make([annotation(12, 1, joints=[(0, 50, 25, 2)]), annotation(77, 1) | bad], heads=heads)
    for word in ["train.json: annotation 77", *words]:
        assert word in str(error.value)


def test_bad_files_and_filters_are_named(make, tmp_path):
    with pytest.raises(UserError, match=r"train\.json: none of 6 images .* lower min_keypoint_annotations"):
        make(min_keypoint_annotations=5)
    with pytest.raises(UserError, match="need keep_empty: true and min_keypoint_annotations: 0"):
        make([])
    assert len(make([], keep_empty=True, min_keypoint_annotations=0, truth=True)) == 6
    with pytest.raises(UserError, match=r"image_ids: \[4\] are none"):
        make(image_ids=(3, 4))
    with pytest.raises(UserError, match=r"person has 3 keypoints.*skeleton has 17"):
        make(categories=[{"id": 1, "name": "person", "keypoints": ["a", "b", "c"]}, CATEGORIES[1]])
    with pytest.raises(UserError, match=r"found \['ball'\], but none is named 'person'"):
        make([], categories=CATEGORIES[1:])
    dataset = make()
    (tmp_path / "images/1.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"1\.png: no readable picture"):
        dataset.example(0, np.random.default_rng(0))
    with pytest.raises(UserError, match=r"test\.json: no such file"):
        Scenes(root=str(tmp_path), split="test", side=SIDE, heads=CIF)


def test_joints_of_the_only_person(make):
    dataset = make(joints=True)
    assert {"joints", "person_height"} <= set(Scenes.provides({"heads": CIF, "joints": True})) & set(dataset.names)
    examples = {e["image_id"]: e for e in (dataset.example(i, np.random.default_rng(0)) for i in range(len(dataset)))}
    alone = examples[3]  # (30, 20) of 80 x 60 pixels becomes (30 * 80/79, 20 * 59/59 + 10)
    np.testing.assert_allclose(alone["joints"][0], [30 * 80 / 79, 20 * 59 / 59 + 10, 2], atol=1e-4)
    assert alone["joints"][9, 2] == 1
    assert alone["person_height"] == pytest.approx(40 * 59 / 59, rel=1e-3)
    assert not examples[1]["joints"].any()  # a person and a crowd
    assert examples[1]["person_height"] == 0


def test_native_aspect_and_the_way_back(make):
    wide, tall = make(heads=CIF | DETECTION, side=65, multiple=16), make(side=41, multiple=16)
    example = wide.example(0, np.random.default_rng(0))
    # 80 x 60 becomes 65 x 48 (48.75, truncated), on 65 x 49: nothing to pad but the last row
    assert wide.group(0) == (49, 65) == example["image"].shape[1:]
    assert tall.group(0) == (33, 49)  # 41 x 30
    assert example["cif_target"].shape == (17, 5, 7, 9)
    np.testing.assert_allclose(example["valid_area"], [0, 0, 64, 47])
    joint = example["to_original"] @ np.array([50 * 64 / 79, 25 * 47 / 59, 1.0])
    np.testing.assert_allclose(joint, [50, 25], atol=1e-4)
    assert (example["width"], example["height"]) == (WIDTH, HEIGHT)
    whole = make(side=0, multiple=16)
    assert whole.group(0) == whole[0]["image"].shape[1:] == (65, 81)
    np.testing.assert_allclose(whole[0]["to_original"][:, :2], np.eye(2), atol=1e-6)
    with pytest.raises(ValueError, match="side 0, which keeps the size of pictures, needs `multiple`"):
        make(side=0)
    with pytest.raises(ValueError, match="multiple 16: pictures of a dataset with augmentation"):
        make(multiple=16, augmentation=augmentation())


def test_the_way_back_undoes_any_augmentation(make):
    varied = augmentation(
        horizontal_flip={"chance": 1.0}, rescale={"relative": [0.5, 1.5]}, rotation={"chance": 1.0, "degrees": [20, 40]}
    )
    dataset = make(augmentation=varied)
    view = dataset.view(0, np.random.default_rng(3))
    back = dataset.example(0, np.random.default_rng(3))["to_original"]
    nose = back @ np.array([*view.people.keypoints[0, 0, :2], 1.0])
    np.testing.assert_allclose(nose, [50, 25], atol=1e-3)


def test_truth_is_what_the_file_says(make):
    records = [annotation(11, 1, (60.5, 2, 8, 8), category=2, area=40.0)] + [a for a in ANNOTATIONS if a["id"] != 11]
    dataset = make(records, heads=CIF | DETECTION, truth=True, min_keypoint_annotations=0, keep_empty=True)
    found = {record["id"]: record for index in range(6) for record in dataset[index]["truth"]}
    assert set(found) == {one["id"] for one in ANNOTATIONS}
    for one in records:
        given = found[one["id"]]
        assert {key: given[key] for key in ("image_id", "category_id", "bbox", "iscrowd")} == {
            key: one[key] for key in ("image_id", "category_id", "bbox", "iscrowd")
        }
        assert given.get("keypoints") == one.get("keypoints")
    assert (found[11]["area"], found[12]["area"]) == (40.0, 1600.0)  # the box's where the file has none
    assert (found[21]["num_keypoints"], found[31]["num_keypoints"]) == (2, 0)


def confirm(folder, *more):
    """Write the annotations, and `more`, in the order that `prepare` would, and the manifest."""
    content = json.loads((folder / "train.json").read_text())
    images, annotations = content["images"], [*content["annotations"], *more]
    records = ([json.dumps(one).encode() for one in some] for some in (images, annotations))
    write_coco(folder / "train.json", {"categories": content["categories"]}, *records)
    names = ["train.json", *(f"images/{number}.png" for number in (1, 3, 5, 7, 8, 9))]
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "manifest.json").write_text(json.dumps({"files": len(hashes), "hashes": hashes, "sha256": "0"}))


def test_confirmed_records_give_the_same_examples(make, tmp_path):
    arguments = {"root": str(tmp_path), "split": "train", "side": SIDE, "heads": CIF | DETECTION, "truth": True}
    by_hand = make(heads=CIF | DETECTION, truth=True)
    confirm(tmp_path)
    confirmed = Scenes(**arguments)
    assert (by_hand.table.checked, confirmed.table.checked) == (False, True)
    for index in range(len(by_hand)):
        expected, found = (one.example(index, np.random.default_rng(0)) for one in (by_hand, confirmed))
        assert expected.keys() == found.keys()
        for name in expected:
            np.testing.assert_equal(found[name], expected[name])


@pytest.mark.parametrize("place", [1_000_001, -1e12])
def test_a_confirmed_joint_beyond_any_picture(make, tmp_path, place):
    """`prepare` accepts it, because it is not labelled; the encoders would overflow."""
    make()
    confirm(tmp_path, annotation(99, 3, joints=[(0, 30, 20, 2), (1, 5, place, 0)]))
    with pytest.raises(UserError, match=r"annotation 99: .* farther than 1,000,000 pixels"):
        Scenes(root=str(tmp_path), split="train", side=SIDE, heads=CIF)


SPARSE = [
    {"id": 1, "name": "person", "keypoints": list(KEYPOINTS)},
    {"id": 18, "name": "dog"},
    {"id": 90, "name": "toothbrush"},
]


def test_categories_with_gaps_between_their_ids(make):
    """COCO's 80 categories have ids up to 90: a field is a place among the categories, and the truth keeps the ids."""
    records = [
        annotation(21, 3, joints=[(0, 30, 20, 2)]),
        annotation(22, 3, (8, 8, 16, 16), category=90),
        annotation(23, 3, (40, 30, 16, 16), category=18),
    ]
    dataset = make(records, heads={"cif": {"stride": 8}, "cifdet": {"stride": 8}}, categories=SPARSE, truth=True)
    example = dataset[0]
    assert example["cifdet_target"].shape[0] == 3
    centres = [(30, 30), (48, 38), (16, 16)]  # by field: person, dog, toothbrush
    for field, (x, y) in zip(example["cifdet_target"], centres, strict=True):
        column, row = round(x * 80 / 79 / 8), round((y + 10) / 8)
        assert field[0, row, column] == 1
        assert (column + field[1, row, column]) * 8 == pytest.approx(x * 80 / 79, abs=1e-3)
    assert {one["id"]: one["category_id"] for one in example["truth"]} == {21: 1, 22: 90, 23: 18}
    fewer = {"cifdet": {"stride": 8, "categories": 2}}
    with pytest.raises(UserError, match=r"annotation 22: category_id 90 .* detection fields for \[1, 18\]"):
        make(records, heads=fewer, categories=SPARSE)


def test_facts_are_those_of_the_data_that_the_heads_are_about(make, tmp_path):
    make()
    heads = {"people": {"kind": "caf", "stride": 8}}
    arguments = {"root": str(tmp_path), "split": "train", "side": 65, "skeleton": {"keypoints": []}, "heads": heads}
    assert Scenes.facts(arguments) == {"skeleton": {"keypoints": []}, "category": 1, "side": 65, "stride": 8}
    names = [{"id": 1, "name": "person"}, {"id": 2, "name": "ball"}]
    assert Scenes.facts(arguments | {"heads": DETECTION}) == {"categories": names, "side": 65, "stride": 8}
    body = {
        "keypoints": ["a", "b"],
        "sigmas": [0.1, 0.1],
        "connections": [["a", "b"]],
        "standing_pose": [[0, 0], [0, 1]],
    }
    prepared = {
        "skeleton": body,
        "categories": [{"id": 3, "name": "ball"}, {"id": 7, "name": "gecko"}],
        "people": "gecko",
    }
    (tmp_path / "facts.json").write_text(json.dumps(prepared))
    heads = {"cif": {"stride": 8}, "cifdet": {"stride": 8}}
    arguments = {"root": str(tmp_path), "split": "train", "side": 65, "heads": heads}
    assert Scenes.facts(arguments) == {
        "skeleton": body, "categories": prepared["categories"], "category": 7, "side": 65, "stride": 8,
    }  # fmt: skip
    others = {"skeleton": {"keypoints": []}, "categories": [{"id": 1, "name": "gecko"}]}
    chosen = Scenes.facts(arguments | others | {"heads": {"cif": {"stride": 8}, "cifdet": {"stride": 16}}})
    assert chosen == others | {"category": 1, "side": 65}
    (tmp_path / "facts.json").write_text(json.dumps(prepared | {"skeleton": None, "people": None}))
    assert Scenes.facts(arguments).keys() == {"categories", "side", "stride"}


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"kind": "cifs", "stride": 8}, r"heads\.a\.kind 'cifs' \(did you mean 'cif'\?\)"),
        ({"kind": "cif"}, r"heads\.a\.stride: missing; Cif needs it"),
        ({"kind": "caf", "stride": 8, "connections": "all"}, r"heads\.a\.connections: found "),
    ],
)
def test_heads_that_cannot_be(make, head, said):
    with pytest.raises(ValueError, match=said):
        make(heads={"a": head})


def test_categories_are_checked(make):
    for wrong, words in (
        ([{"name": "person"}], r"found \{'name': 'person'\}; a map such as"),
        ([{"id": "1", "name": "person"}], r"found \{'id': '1', 'name': 'person'\}"),
        ([{"id": 1, "name": "person"}, {"id": 1, "name": "dog"}], "the id 1 occurs more than once"),
    ):
        with pytest.raises(ValueError, match=words):
            make(heads=DETECTION, chosen=wrong)
        Scenes.facts({"root": "nowhere", "split": "train", "side": 65, "heads": CIF, "categories": wrong})
    for chosen in ([{"id": 1, "name": "person"}, {"id": 2, "name": "ball"}], [{"id": 2, "name": "ball"}, SPARSE[0]]):
        make(heads=DETECTION, chosen=chosen)
    with pytest.raises(UserError, match=r"train\.json: categories: 2 is 'ball', but 'cup' in the `categories`"):
        make(heads=DETECTION, chosen=[{"id": 1, "name": "person"}, {"id": 2, "name": "cup"}])

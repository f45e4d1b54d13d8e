"""Drawn people: skeletons, what occlusion hides, interpolation, settings; the dataset as pycocotools reads it."""

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pydantic import ValidationError

from figura.formats.coco import KEYPOINTS
from figura.synthetic import staging
from figura.synthetic.canvas import Canvas, instance_of
from figura.synthetic.catalogue import write_catalogue
from figura.synthetic.day_night import write_day_night
from figura.synthetic.figure import build
from figura.synthetic.identity import draw_identity
from figura.synthetic.pose import Pose, draw_pose, place
from figura.synthetic.resampling import cubic, enlarge, linear, sample
from figura.synthetic.scene import compose, draw_scene
from figura.synthetic.settings import CatalogueSettings, Counts, SyntheticSettings
from figura.synthetic.staging import Stage, draw_actors, overlap, stand
from figura.synthetic.writer import write_synthetic

SIDE = 400


def settings(**changes):
    keys = {
        "image_size": 128,
        "jpeg_quality": 90,
        "scenes": {"train": 10, "validation": 4, "test": 4},
        "identities": {"train": 30, "validation": 10, "test": 10},
        "people_per_scene": {1: 0.4, 2: 0.4, 3: 0.2},
        "objects_per_scene": {0: 0.2, 1: 0.4, 2: 0.4},
        "height_range": (0.5, 0.9),
        "views": {"front": 0.6, "back": 0.2, "side": 0.2},
        "poses": {"standing": 0.4, "walking": 0.2, "waving": 0.1, "sitting": 0.1, "crouching": 0.1, "arms_up": 0.1},
        "max_overlap": 0.3,
        "cut_share": 0.2,
        "crowd_share": 0.3,
        "limb_thickness": 1.2,
        "head_size": 1.2,
        "clutter": 10,
    }
    return SyntheticSettings(**(keys | changes))


def identity(seed=0):
    return draw_identity(np.random.default_rng(seed), limb_thickness=1.2, head_size=1.2)


UPRIGHT = Pose(
    "standing",
    spine=np.zeros(3),
    head=np.zeros(2),
    arms=np.array([[0.0, 12.0, 0.0, 10.0]] * 2),
    legs=np.array([[0.0, 5.0, 3.0]] * 2),
)


def person(seed=0, *, turn=0.0, x=SIDE / 2, height=0.8 * SIDE, ground=0.95 * SIDE, pose=UPRIGHT):
    return stand(build(identity(seed), pose, turn=turn, light=0.0), height=height, x=x, ground=ground)


def painted(*actors):
    return compose(Canvas(np.full((SIDE, SIDE, 3), 200, dtype=np.uint8)), actors)


def seen(scene, index=0):
    return dict(zip(KEYPOINTS, scene.keypoints[index][:, 2].astype(int).tolist(), strict=True))


def test_left_is_the_persons_left_and_poses_do_what_they_are_called():
    random = np.random.default_rng(1)
    for seed in range(15):
        body = identity(seed).body
        front, back = (place(body, draw_pose(random, "standing"), turn=turn, pitch=0.0) for turn in (0.0, 180.0))
        assert front.arms[0, 0, 0] > front.arms[1, 0, 0]  # facing the camera, left is on the image's right
        assert back.arms[0, 0, 0] < back.arms[1, 0, 0]
        raised = place(body, draw_pose(random, "arms_up"), turn=0.0, pitch=0.0)
        assert np.all(raised.arms[:, 2, 1] < raised.head_centre[1])  # y points down
        sitting, crouching = (
            place(body, draw_pose(random, name), turn=0.0, pitch=0.0) for name in ("sitting", "crouching")
        )
        assert crouching.hip_centre[1] > sitting.hip_centre[1] > 1.5 * front.hip_centre[1]
        assert -0.7 < sitting.hip_centre[1] < -0.2


def test_a_standing_person_has_the_asked_height():
    for seed in range(4):
        scene = painted(person(seed, height=320.0, ground=390.0))
        rows = np.flatnonzero((instance_of(scene.labels) == 1).any(axis=1))
        assert np.ptp(rows) + 1 == pytest.approx(160.0, rel=0.08)


def test_everything_is_seen_from_the_front_and_no_face_from_behind():
    hairs = set()
    for seed in range(25):
        hairs.add(identity(seed).hairstyle)
        front, back = seen(painted(person(seed))), seen(painted(person(seed, turn=180.0)))
        hidden = {name for name, value in front.items() if value != 2}
        assert hidden <= {"left_ear", "right_ear"}, (seed, hidden)
        assert (back["nose"], back["left_eye"], back["right_eye"]) == (1, 1, 1)
        assert all(back[name] == 2 for name in ("left_shoulder", "right_hip", "left_knee", "right_ankle"))
    assert len(hairs) >= 5


def test_from_the_side_the_far_side_is_hidden():
    reaching = replace(UPRIGHT, arms=np.array([[80.0, 0.0, 0.0, 0.0]] * 2))
    joints = ("shoulder", "elbow", "hip", "knee", "eye", "ear")
    for seed in range(12):
        long_hair = identity(seed).hairstyle in ("long", "bob", "curls")
        # Looks to the right of the image: its right side is near.
        values = seen(painted(person(seed, turn=90.0, pose=reaching)))
        assert all(values[f"right_{joint}"] == 2 for joint in joints if joint != "ear" or not long_hair)
        assert all(values[f"left_{joint}"] == 1 for joint in ("shoulder", "hip", "eye", "ear"))
        # Its own hanging arm hides the hip behind it.
        assert seen(painted(person(seed, turn=90.0)))["right_hip"] == 1


def test_what_another_person_covers_is_hidden_and_nothing_else():
    behind = person(1, x=190.0, height=300.0, ground=350.0)
    before = person(2, x=225.0, height=330.0, ground=395.0, pose=draw_pose(np.random.default_rng(0), "crouching"))
    alone, occluder, both = painted(behind), painted(before), painted(behind, before)
    covered = 0
    for (x, y, v), (x2, y2, v2) in zip(alone.keypoints[0], both.keypoints[0], strict=True):
        assert (x, y) == (x2, y2)
        under = instance_of(occluder.labels)[int(y), int(x)] == 1
        near_edge = len(np.unique(instance_of(occluder.labels)[int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2])) > 1
        if not near_edge:
            assert v2 == (1 if under else v)
            covered += under
    assert 2 <= covered <= 12
    np.testing.assert_array_equal(both.keypoints[1], occluder.keypoints[0])


def test_people_overlap_no_more_than_asked():
    chosen = settings(people_per_scene={4: 1.0}, max_overlap=0.15, crowd_share=0.0)
    stage = Stage(side=256, horizon=100.0, light=0.0)
    counts = []
    for index in range(12):
        actors = draw_actors(np.random.default_rng(index), chosen, stage, seed=1, split="train")
        assert [actor.ground for actor in actors] == sorted(actor.ground for actor in actors)
        counts.append(sum(actor.category == "person" for actor in actors))
        for i, one in enumerate(actors):
            assert all(overlap(one.box, other.box) <= 0.15 for other in actors[:i])
    assert min(counts) >= 1
    assert max(counts) == 4


def test_overlap_by_hand():
    assert overlap(np.array([0, 0, 4, 4]), np.array([2, 2, 12, 12])) == pytest.approx(4 / 16)
    assert overlap(np.array([0, 0, 4, 4]), np.array([5, 0, 9, 4])) == 0.0


def test_seeds_and_indices_give_other_scenes():
    first = draw_scene(settings(), seed=1, split="train", index=0).picture
    for other in ({"seed": 2}, {"index": 1}, {"split": "validation"}, {"split": "test"}):
        changed = draw_scene(settings(), **({"seed": 1, "split": "train", "index": 0} | other)).picture
        assert np.mean(first != changed) > 0.5
    np.testing.assert_array_equal(first, draw_scene(settings(), seed=1, split="train", index=0).picture)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"views": {"front": 0.5, "side": 0.4}}, r"views\n.*the shares sum to 0.9"),
        ({"height_range": (0.9, 0.5)}, "height_range"),
        ({"poses": {"flying": 1.0}}, "flying|standing"),
        (
            {"people_per_scene": {4: 1.0}, "identities": {"train": 3, "validation": 5, "test": 5}},
            "identities.train: 3 are too few",
        ),
    ],
)
def test_wrong_settings_are_refused(changes, words):
    with pytest.raises(ValidationError, match=words):
        settings(**changes)


# --- interpolation, and the same bytes whatever the processor can do ---

ROOT = Path(__file__).parents[2]
NO_AVX = "glibc.cpu.hwcaps=-AVX2,-AVX,-FMA,-FMA4,-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD,-ERMS"
OLDER_PROCESSOR = {
    "OPENCV_CPU_DISABLE": "AVX512-SKX,AVX2,FMA3,FP16,AVX,SSE4.2,SSE4.1",
    "OPENCV_IPP": "sse42",
    "NPY_DISABLE_CPU_FEATURES": "AVX512_SPR,AVX512_ICL,X86_V4,X86_V3",
    "OPENBLAS_CORETYPE": "Nehalem",
    "GLIBC_TUNABLES": NO_AVX,
    "JSIMD_FORCENONE": "1",  # libjpeg
}
# Scenes and pairs of which OpenCV's own interpolation made other pictures under one of these variables.
SCENES, PAIRS = (16, 20, 24, 36, 41, 81), (163, 194)
LOOK = {"views": settings().views, "limb_thickness": 1.2, "head_size": 1.2} | {
    "poses": {"standing": 0.25, "walking": 0.25, "waving": 0.2, "sitting": 0.1, "crouching": 0.1, "arms_up": 0.1}
}
PEOPLE = settings(
    **LOOK, image_size=192, jpeg_quality=92, scenes={"train": 1, "validation": 1, "test": 1},
    identities={"train": 600, "validation": 60, "test": 60}, people_per_scene={2: 0.5, 3: 0.5},
    objects_per_scene={1: 1.0}, max_overlap=0.3, cut_share=0.06, crowd_share=0.02, clutter=12,
)  # fmt: skip
CATALOGUE = CatalogueSettings(
    **LOOK, image_size=80, pairs={"train": 1, "validation": 1, "test": 1}, tops=8, bottoms=6, skins=6, hairs=6, shoes=3,
    height_range=(0.8, 0.95),
)  # fmt: skip
HASHES = f"""
import hashlib, json, sys
import cv2, numpy as np
from figura.synthetic.settings import CatalogueSettings, SyntheticSettings
from figura.synthetic.writer import annotations
from figura.synthetic.catalogue import draw_pair
from figura.synthetic.scene import draw_scene

cv2.setNumThreads(1)
people = SyntheticSettings.model_validate_json(sys.argv[1])
pairs = CatalogueSettings.model_validate_json(sys.argv[2])
made = {{}}
for index in {SCENES}:
    scene = draw_scene(people, seed=7, split="train", index=index)
    file = cv2.imencode(".jpg", scene.picture, [cv2.IMWRITE_JPEG_QUALITY, people.jpeg_quality])[1].tobytes()
    made |= {{f"scene {{index}}": scene.picture.tobytes(), f"file {{index}}": file}}
    made[f"annotations {{index}}"] = json.dumps(annotations(scene, index + 1)).encode()
for index in {PAIRS}:
    made[f"pair {{index}}"] = np.hstack(draw_pair(pairs, seed=7, split="train", index=index)).tobytes()
print(json.dumps({{name: hashlib.sha256(content).hexdigest() for name, content in made.items()}}))
"""


def hashes(variables: dict[str, str]) -> dict[str, str]:
    command = [sys.executable, "-c", HASHES, PEOPLE.model_dump_json(), CATALOGUE.model_dump_json()]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables name features of x86-64")
def test_people_and_pairs_are_the_same_bytes_whatever_the_processor_can_do():
    assert hashes(OLDER_PROCESSOR) == hashes({})


@pytest.mark.parametrize(("kernel", "method"), [(linear, cv2.INTER_LINEAR), (cubic, cv2.INTER_CUBIC)])
def test_enlarging_is_what_opencv_does_but_for_rounding(kernel, method):
    grid = np.random.default_rng(0).uniform(0.0, 255.0, (7, 5, 3))
    expected = cv2.resize(grid.astype(np.float32), (83, 41), interpolation=method)
    np.testing.assert_allclose(enlarge(grid, 41, 83, kernel), expected, atol=1e-3)


@pytest.mark.parametrize("height", [1, 9])
def test_sampling_is_what_opencv_does_but_for_rounding(height):
    random = np.random.default_rng(height)
    texture = random.integers(0, 256, (height, 12, 3), dtype=np.uint8)
    mask = random.random((40, 30)) < 0.5
    matrix = np.array([[0.3, -0.4, 5.0], [0.25, 0.3, -2.5]])  # leaves the texture on all sides
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    expected = cv2.warpAffine(texture, matrix, (30, 40), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    difference = sample(texture, matrix, mask).astype(int) - expected[mask]
    assert np.abs(difference).max() <= 1
    assert (difference != 0).mean() < 0.01


# --- the dataset on disk ---

DATASET = settings(
    scenes={"train": 16, "validation": 8, "test": 8},
    identities={"train": 12, "validation": 5, "test": 4},
    people_per_scene={1: 0.3, 2: 0.4, 3: 0.3},
    objects_per_scene={1: 0.5, 2: 0.5},
    cut_share=0.4,
)
SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("synthetic")
    write_synthetic(DATASET, 7, path, False, workers=2)
    return path


@pytest.fixture(scope="module", params=SPLITS)
def coco(folder, request) -> COCO:
    return COCO(folder / f"{request.param}.json")


def labelled_people(coco: COCO) -> list[dict]:
    return [one for one in coco.anns.values() if one["category_id"] == 1 and not one["iscrowd"]]


def test_the_same_seed_gives_the_same_bytes_for_any_number_of_workers(folder, tmp_path):
    """One process draws fewer scenes, and those alike."""
    few = DATASET.model_copy(
        update={"scenes": DATASET.scenes.model_copy(update={"train": 6, "validation": 2, "test": 1})}
    )
    write_synthetic(few, 7, tmp_path, False, workers=1)
    for split, count in (("train", 6), ("validation", 2), ("test", 1)):
        assert len(list((folder / "images" / split).iterdir())) == getattr(DATASET.scenes, split)
        names = [f"images/{split}/{number:06}.jpg" for number in range(1, count + 1)]
        assert [(tmp_path / name).read_bytes() for name in names] == [(folder / name).read_bytes() for name in names]
        mine, whole = (json.loads((root / f"{split}.json").read_text()) for root in (tmp_path, folder))
        assert mine["images"] == whole["images"][:count]
        assert mine["annotations"] == whole["annotations"][: len(mine["annotations"])]


@pytest.mark.parametrize(
    ("write", "drawn"),
    [
        (write_synthetic, settings(scenes={"train": 3, "validation": 2, "test": 2}, people_per_scene={1: 1.0})),
        *((write, CATALOGUE.model_copy(update={"pairs": Counts(train=3, validation=2, test=2)}))
          for write in (write_catalogue, write_day_night)),
    ],
    ids=["people", "pairs", "day and night"],
)  # fmt: skip
def test_a_seed_of_the_test_split_draws_test_anew_and_no_other_byte(write, drawn, tmp_path):
    for name, seed in (("before", None), ("same", 7), ("after", 8)):
        write(drawn.model_copy(update={"test_seed": seed}), 7, tmp_path / name, False, workers=1)
    before, same, after = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("before", "same", "after")
    )
    assert before == same
    assert before.keys() == after.keys()
    assert {path for path in before if before[path] != after[path]} == {path for path in before if "test" in str(path)}


def test_no_person_of_a_new_test_split_is_in_another_one(monkeypatch):
    drawn: dict[tuple, set[str]] = {}

    def recorded(random, **sizes):
        person = draw_identity(random, **sizes)
        drawn.setdefault(case, set()).add(repr(person))
        return person

    monkeypatch.setattr(staging, "draw_identity", recorded)
    for case in (("train", None), ("validation", None), ("test", None), ("test", 8)):
        for index in range(12):
            draw_scene(settings(test_seed=case[1]), seed=7, split=case[0], index=index)
    assert min(map(len, drawn.values())) >= 5
    assert sum(map(len, drawn.values())) == len(set.union(*drawn.values()))


def test_pictures_of_an_earlier_run_are_not_overwritten(folder):
    before = [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))]
    with pytest.raises(FileExistsError, match="train"):
        write_synthetic(DATASET, 8, folder, False, workers=1)
    assert [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))] == before


def test_boxes_and_areas_are_those_of_masks_that_never_overlap(coco):
    kinds = set()
    for image in coco.imgs:
        masks = []
        for one in coco.imgToAnns[image]:
            masks.append(coco.annToMask(one).astype(int))
            rows, columns = np.nonzero(masks[-1])
            assert one["area"] == masks[-1].sum() > 0
            x, y, width, height = one["bbox"]
            assert (x, y, x + width, y + height) == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            kinds.add(one["category_id"])
            if one["iscrowd"]:
                assert one["category_id"] == 1
                assert not one.keys() & {"keypoints", "person_id"}
        assert np.max(np.sum(masks, axis=0)) == 1
    assert kinds == {1, 2, 3, 4, 5}


def test_keypoints_are_consistent(coco):
    values = set()
    for one in labelled_people(coco):
        keypoints = np.array(one["keypoints"]).reshape(17, 3)
        labelled = keypoints[:, 2] > 0
        assert one["num_keypoints"] == labelled.sum()
        assert np.all(keypoints[~labelled] == 0)
        assert np.all((keypoints[labelled, :2] >= 0) & (keypoints[labelled, :2] < 128))
        grown = cv2.dilate(coco.annToMask(one), np.ones((3, 3), np.uint8))
        for x, y, _ in keypoints[keypoints[:, 2] == 2]:
            assert grown[int(y), int(x)]
        values |= set(keypoints[:, 2].tolist())
    assert values == {0, 1, 2}


def test_clothes_lie_inside_their_person(coco):
    both = 0
    for one in labelled_people(coco):
        assert set(one["parts"]) == {"top", "bottom"}
        masks = (one["segmentation"], one["parts"]["top"], one["parts"]["bottom"])
        mask, top, bottom = map(rle.decode, masks)
        assert np.all(top + bottom <= mask)
        both += top.any() and bottom.any()
        assert (one["pose"] in DATASET.poses, one["view"] in DATASET.views) == (True, True)
    assert both > 0.8 * len(labelled_people(coco))


def test_no_identity_is_in_two_splits(folder):
    train, validation, test = (
        {one["person_id"] for one in labelled_people(COCO(folder / f"{split}.json"))} for split in SPLITS
    )
    assert train <= set(range(1, 13))
    assert validation <= set(range(13, 18))
    assert test <= set(range(18, 22))
    assert len(train) >= 10
    assert min(len(validation), len(test)) >= 4


def test_an_identity_keeps_its_clothes(folder):
    """Among plain tops, colours within a person differ less over scenes than between persons."""
    coco = COCO(folder / "train.json")
    colours: dict[int, list[np.ndarray]] = {}
    for one in labelled_people(coco):
        mask = rle.decode(one["parts"]["top"]).astype(bool)
        if mask.sum() < 80:
            continue
        picture = cv2.imread(str(folder / "images" / coco.imgs[one["image_id"]]["file_name"]))
        colour = picture[mask].mean(axis=0)
        colours.setdefault(one["person_id"], []).append(colour / colour.sum())  # without the light's brightness
    repeated = [np.array(found) for found in colours.values() if len(found) >= 2]
    assert len(repeated) >= 6
    within = np.mean([found.std(axis=0).mean() for found in repeated])
    between = np.std([found.mean(axis=0) for found in repeated], axis=0).mean()
    assert within < 0.35 * between

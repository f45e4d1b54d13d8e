"""Scenes of real pictures against the annotation file read and placed here, and back to people by the decoder."""

import json

import cv2
import numpy as np
import pytest
import torch
from decoder_by_hand import fields_of
from real_people import REAL, needs_real

from figura.data.formats.skeletons import COCO
from figura.interfaces import Networks, State
from models.pose.coco_evaluation import Evaluation
from models.pose.decode.decoding import FindPeople
from models.pose.scenes import IMAGENET_MEAN, IMAGENET_STD, Scenes

pytestmark = needs_real

SIDE, STRIDE, CELLS = 321, 8, 41
NEAR = 32  # pixels: hidden joints so near a visible one of the same type are left out
FEW = 4
HEADS = {
    "cif": {"kind": "cif", "stride": STRIDE, "suppress_hidden": float(NEAR)},
    "caf": {"kind": "caf", "stride": STRIDE, "suppress_hidden": float(NEAR)},
    "cifdet": {"kind": "cifdet", "categories": 1, "stride": STRIDE},
}


@pytest.fixture(scope="module")
def raw():
    """The annotation file: image id -> its record and its annotations by id."""
    content = json.loads((REAL / "annotations.json").read_text())
    records = {image["id"]: (image, []) for image in content["images"]}
    for one in sorted(content["annotations"], key=lambda one: one["id"]):
        records[one["image_id"]][1].append(one)
    return records


@pytest.fixture(scope="module")
def scenes(real_people, raw):
    """Each image with few people and a labelled joint: its record, its annotations in cells, and its example."""
    records = raw
    people = {number: [one for one in found if not one["iscrowd"]] for number, (_, found) in records.items()}
    labelled = {number for number, some in people.items() if any(any(one["keypoints"][2::3]) for one in some)}
    found, seen = [], []
    for split in ("train", "validation", "test"):
        dataset = Scenes(root=str(real_people), split=split, side=SIDE, heads=HEADS)
        numbers = dataset.table.image_ids[dataset.rows].tolist()
        seen += numbers
        for place, number in enumerate(numbers):
            if len(people[number]) <= FEW:
                image, annotations = records[number]
                found.append((image, placed(image, annotations), dataset.example(place, np.random.default_rng(0))))
                assert found[-1][2]["image_id"] == number
    assert sorted(seen) == sorted(labelled)
    return found


def placed(image, annotations):
    """Annotations in cells: the longer side becomes SIDE pixels, the picture is centred."""
    old = np.array([image["width"], image["height"]])
    new = (old * SIDE / old.max()).astype(int)
    factor, offset = (new - 1) / (old - 1), (SIDE - new) // 2
    result = []
    for one in annotations:
        joints = np.array(one["keypoints"], float).reshape(17, 3)
        joints[:, :2] = joints[:, :2] * factor + offset
        x, y, width, height = one["bbox"]
        box = np.array([[x, y] * factor + offset, [width, height] * factor])
        result.append({"joints": joints, "box": box / STRIDE, "crowd": bool(one["iscrowd"])})
    people = [one for one in result if not one["crowd"]]
    seen = [one["joints"].copy() for one in people]
    for one in people:  # a hidden joint beside a visible one of the same type is left out
        for k, (x, y, v) in enumerate(one["joints"]):
            if v == 1 and any(j[k, 2] == 2 and np.abs(j[k, :2] - (x, y)).max() <= NEAR for j in seen):
                one["joints"][k, 2] = 0
    for one, before in zip(people, seen, strict=True):
        one["labelled"] = before[:, 2].any()
    for one in result:
        one["joints"][:, :2] /= STRIDE
    return result


def nearest(point):
    """Column and row of the nearest cell, or None where it is beyond the picture."""
    cell = np.round(point).astype(int)
    return cell if ((cell >= 0) & (cell < CELLS)).all() else None


def test_confidence_is_1_at_the_cell_nearest_to_each_joint_and_its_vector_leads_to_a_joint(scenes):
    count = 0
    for _, annotations, example in scenes:
        people = [one for one in annotations if not one["crowd"]]
        for k in range(17):
            field = example["cif_target"][k]
            points = np.array([one["joints"][k, :2] for one in people if one["joints"][k, 2]]).reshape(-1, 2)
            for point in points:
                if (cell := nearest(point)) is None:
                    continue
                count += 1
                x, y = cell
                assert field[0, y, x] == 1
                owner = points[np.linalg.norm(points - cell, axis=1).argmin()]
                np.testing.assert_allclose(cell + field[1:3, y, x], owner, atol=1e-4)
                assert field[3, y, x] == pytest.approx(0.1 / STRIDE)
            full = np.argwhere(field[0] == 1)[:, ::-1]
            assert len(full) <= 16 * len(points)
            for cell in full:  # 4 x 4 cells around a joint
                assert np.abs(points - cell).max(axis=1).min() <= 2 + 1e-4
    assert count > 500


def test_crowds_and_people_without_joints_are_no_background(scenes):
    count = 0
    for _, annotations, example in scenes:
        for one in annotations:
            if one["crowd"] or not one["labelled"]:
                x, y = nearest(one["box"][0] + one["box"][1] / 2)
                found = example["cif_target"][:, 0, y, x]
                assert (np.isnan(found) | (found == 1)).all()
                count += 1
    assert count > 5


def test_pictures_are_the_files(scenes):
    mean, std = np.array(IMAGENET_MEAN)[:, None, None], np.array(IMAGENET_STD)[:, None, None]
    for image, _, example in scenes:
        x, y, width, height = np.round(example["valid_area"]).astype(int)
        shown = ((example["image"] * std + mean) * 255)[:, y : y + height + 1, x : x + width + 1]
        file = cv2.imread(str(REAL / "images" / image["file_name"]))[:, :, ::-1]
        small = cv2.resize(file, (width + 1, height + 1), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
        assert np.abs(shown - small).mean() < 12
        np.testing.assert_allclose(shown.mean(axis=(1, 2)), file.mean(axis=(0, 1)), atol=2)


def in_one_piece(person):
    """Whether connections between its labelled joints lead to all of them."""
    labelled = set(np.flatnonzero(person["keypoints"][2::3]).tolist())
    reached, front = set(), {min(labelled)}
    while front:
        reached |= front
        ways = (way for pair in COCO.connections for way in (pair, pair[::-1]))
        front = {b for a, b in ways if a in front and b in labelled} - reached
    return reached == labelled


def test_people_come_back_from_their_targets(real_people):
    """Targets decoded as if they were predictions: exactly where somebody is alone, and nearly all of the others."""
    heads = {kind: {"kind": kind, "stride": STRIDE} for kind in ("cif", "caf")}
    find = FindPeople("cif", "caf", "people", STRIDE, decoder={"force_complete": True})
    truth, found = {}, {}
    for split in ("train", "validation", "test"):
        data = Scenes(
            root=str(real_people), split=split, side=641, heads=heads, multiple=16, truth=True, keep_empty=True,
            min_keypoint_annotations=0,
        )  # fmt: skip
        for example in data:
            fields = {kind: fields_of(example[f"{kind}_target"], kind, unknown_scale=1.0) for kind in heads}
            state = State({kind: torch.from_numpy(field)[None] for kind, field in fields.items()} | {
                "image_id": torch.tensor([example["image_id"]]),
                "to_original": torch.from_numpy(example["to_original"])[None],
            })  # fmt: skip
            find(state, Networks({}, {}), 0)
            truth[example["image_id"]], found[example["image_id"]] = example["truth"], state["people"][0]

    def values(images):
        people, results = ([one for image in images for one in records[image]] for records in (truth, found))
        return Evaluation(people, results, images, COCO.sigmas).values()

    people = {image: [one for one in some if one["num_keypoints"]] for image, some in truth.items()}
    alone = [image for image, some in people.items() if len(some) == 1 and in_one_piece(some[0])]
    assert (len(truth), sum(map(len, people.values()))) == (97, 210)
    assert len(alone) > 30
    assert values(alone)["AP"] == pytest.approx(1.0)
    assert values(list(truth))["AP50"] > 0.97

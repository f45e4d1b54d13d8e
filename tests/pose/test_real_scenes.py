"""Scenes of real pictures, from annotations to targets, and back to people by the decoder."""

import numpy as np
import pytest
import torch
from decoder_by_hand import fields_of
from real_people import needs_real

from figura.formats.skeletons import COCO
from figura.interfaces import Networks, State
from models.pose.coco_evaluation import Evaluation
from models.pose.decode.decoding import FindPeople
from models.pose.scenes import Scenes

pytestmark = needs_real

STRIDE = 8


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

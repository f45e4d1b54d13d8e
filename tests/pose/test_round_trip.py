"""From annotations of real pictures to targets, and by the decoder back to people."""

from collections import Counter

import numpy as np
from real_people import needs_real
from round_trip import FINE, STRIDE, fields_of, reasons, round_trip

from figura.data.formats.skeletons import COCO
from models.pose.annotations import Annotations
from models.pose.encoders import Caf, Cif


@needs_real
def test_people_that_fields_can_represent_come_back(real_people):
    trip = round_trip(real_people, ["train", "validation"], 641)
    assert len(trip.image_ids) == 97
    assert len(trip.reasons) == 210  # annotations with keypoints; crowd regions have none
    kinds = Counter(trip.reasons.values())
    assert kinds[FINE] > 160
    judged, everybody = (trip.evaluation(represented).values() for represented in (True, False))
    assert judged["AP"] >= 0.97
    assert judged["AR"] >= 0.99
    assert everybody["AP"] < judged["AP"]  # what cannot be represented is lost


def test_what_fields_cannot_represent():
    """A whole person, one in pieces without hips and knees, and one whose hidden nose another's nose suppresses."""
    pose = COCO.standing_pose * (16, -16) + (60, 190)
    keypoints = np.full((4, 17, 3), 2.0, np.float32)
    for place, x in enumerate((0, 130, 260, 400)):
        keypoints[place, :, :2] = pose + np.array([x, 0])
    keypoints[1, 11:15, 2] = 0  # ankles and trunk hang together by nothing
    keypoints[2, 0] = (*(keypoints[3, 0, :2] + 20), 1)  # hidden, and less than 32 px from a visible one
    people = Annotations(
        keypoints=keypoints,
        boxes=np.tile(np.float32([0, 0, 50, 150]), (4, 1)),
        crowd=np.zeros(4, bool),
        categories=np.zeros(4, np.int64),
        ids=np.arange(10, 14),
    )
    area = np.float32([0, 0, 512, 256])
    cif, caf = (
        fields_of(encoder(COCO, STRIDE).encode(people, (257, 513), area), ends)
        for encoder, ends in ((Cif, 1), (Caf, 2))
    )
    found = reasons(people, cif, caf)
    assert found[10] == FINE
    assert found[11] == "its joints are not connected"
    assert found[12] == "a joint has no cell of its own"
    assert found[13] == FINE

"""Encodes annotated people and decodes the targets as if they were predictions: how many people survive?

Nothing is trained: the targets of `cif` and `caf` become fields with confidence 0.9 where the target is 1, and 0
elsewhere. A person is representable if cells point to each of its labelled joints and association cells connect these;
other persons are counted by reason and ignored. Prints COCO's metrics for representable persons and for all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from figura.data.formats.skeletons import COCO
from figura.interfaces import Networks, State
from models.pose.annotations import Annotations
from models.pose.coco_evaluation import Evaluation
from models.pose.decode.decoding import FindPeople
from models.pose.scenes import Scenes

CONFIDENCE = 0.9
UNKNOWN_SCALE = 1.0  # cells; for persons with too few joints to know their scale
STRIDE = 8
COMPLETED = 0.01  # joints of at most this confidence only complete a pose
NEAR = 2.0  # a joint is correct within this many pixels of the file
FINE = "can be represented"
Fields = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RoundTrip:
    """The annotations and the decoded results.

    `truth` are COCO's annotations, `found` COCO's results, `reasons` says of each person with labelled joints, by
    annotation id, whether it can be represented.
    """

    truth: list[dict[str, Any]]
    found: list[dict[str, Any]]
    image_ids: list[int]
    reasons: dict[int, str]

    def evaluation(self, represented: bool) -> Evaluation:
        """Match what was found with all persons, or with those that can be represented.

        The others are then ignored, and so are the pieces that they come back in.
        """
        if not represented:
            return Evaluation(self.truth, self.found, self.image_ids, COCO.sigmas)
        others = [one for one in self.truth if self.reasons.get(one["id"], FINE) != FINE]
        numbers = {one["id"] for one in others}
        truth = [one | {"num_keypoints": 0} if one["id"] in numbers else one for one in self.truth]
        found = [one for one in self.found if not any(_is_piece(one, other) for other in others)]
        return Evaluation(truth, found, self.image_ids, COCO.sigmas)


def round_trip(root: Path, splits: list[str], side: int) -> RoundTrip:
    """Encode and decode every image of some splits, at its own aspect, the longer side of `side` pixels."""
    heads = {kind: {"kind": kind, "stride": STRIDE} for kind in ("cif", "caf")}
    find = FindPeople("cif", "caf", "people", STRIDE, decoder={"force_complete": True})
    trip = RoundTrip([], [], [], {})
    for split in splits:
        data = Scenes(
            root=str(root), split=split, side=side, heads=heads, multiple=16, truth=True, keep_empty=True,
            min_keypoint_annotations=0,
        )  # fmt: skip
        for index in range(len(data)):
            example, view = data[index], data.view(index, np.random.default_rng(0))
            cif, caf = fields_of(example["cif_target"], 1), fields_of(example["caf_target"], 2)
            state = State({
                "cif": torch.from_numpy(cif)[None], "caf": torch.from_numpy(caf)[None],
                "image_id": torch.tensor([example["image_id"]]),
                "to_original": torch.from_numpy(example["to_original"])[None],
            })  # fmt: skip
            find(state, Networks({}, {}), 0)
            trip.found.extend(state["people"][0])
            trip.truth.extend(example["truth"])
            trip.image_ids.append(example["image_id"])
            trip.reasons.update(reasons(view.people, cif, caf))
    return trip


def fields_of(target: Fields, ends: int) -> Fields:
    """Targets (fields, components, rows, columns) with vectors to one or two `ends` as a decoded head's fields."""
    fields = np.zeros((len(target), 2 + 3 * ends, *target.shape[2:]), np.float32)
    fields[:, 1] = np.where(target[:, 0] == 1, CONFIDENCE, 0)
    grid = np.mgrid[: target.shape[2], : target.shape[3]][::-1]
    for end in range(ends):
        fields[:, 2 + 2 * end : 4 + 2 * end] = np.nan_to_num(target[:, 1 + 2 * end : 3 + 2 * end] + grid)
    fields[:, 2 + 2 * ends :] = np.nan_to_num(target[:, 1 + 3 * ends :], nan=UNKNOWN_SCALE)
    return fields


def reasons(people: Annotations, cif: Fields, caf: Fields) -> dict[int, str]:
    """Return, by id of each person with labelled joints, whether the fields contain all of it, or what is missing."""
    verdicts = {}
    for keypoints, crowd, number in zip(people.keypoints, people.crowd, people.ids, strict=True):
        labelled = np.flatnonzero(keypoints[:, 2] > 0)
        if crowd or not len(labelled):
            continue
        places = keypoints[:, :2] / STRIDE
        height, width = cif.shape[2:]
        held = [joint for joint in labelled if _points(cif[joint], places[[joint]]).any()]
        inside = ((places[labelled] >= 0) & (places[labelled] <= (width - 1, height - 1))).all()
        if len(held) < len(labelled):
            verdicts[int(number)] = "a joint has no cell of its own" if inside else "a joint lies outside the image"
        elif not _joined(labelled.tolist(), places, caf):
            verdicts[int(number)] = "its joints are not connected"
        else:
            verdicts[int(number)] = FINE
    return verdicts


def _is_piece(result: dict[str, Any], person: dict[str, Any]) -> bool:
    """Whether every joint that was seen, not completed, is one of a person's."""
    joints, true = (np.array(one["keypoints"]).reshape(-1, 3) for one in (result, person))
    seen = joints[:, 2] > COMPLETED
    near = np.abs(joints[:, :2] - true[:, :2]).max(axis=1) < NEAR
    return result["image_id"] == person["image_id"] and bool((near & (true[:, 2] > 0))[seen].all())


def _points(fields: Fields, places: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which cells of one field (components, rows, columns) point to places (ends, 2), all in cells."""
    near = [
        np.abs(fields[2 + 2 * k : 4 + 2 * k] - one[:, None, None]).max(axis=0) < 1e-3 for k, one in enumerate(places)
    ]
    return np.logical_and.reduce([fields[1] > 0, *near])


def _joined(joints: list[int], places: NDArray[np.floating], caf: Fields) -> bool:
    """Whether association cells lead from the first of some joints to all of them."""
    edges = [
        pair
        for field, pair in zip(caf, COCO.connections, strict=True)
        if set(pair) <= set(joints) and _points(field, places[list(pair)]).any()
    ]
    reached = {joints[0]}
    while more := {b for edge in edges for a, b in (edge, edge[::-1]) if a in reached} - reached:
        reached |= more
    return len(reached) == len(joints)

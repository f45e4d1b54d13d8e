"""Standing people at known places, and scenes of them: what tests of encoders, losses and decoders are made from."""

import numpy as np

from figura.data.formats.skeletons import COCO
from models.pose.annotations import Annotations

SIZE = (193, 193)  # of the picture in which one stands, in pixels


def standing(unit=16.0, centre=96.0, top=16.0, joints=range(17)):
    """The standing pose of COCO's joints (17, 3), `unit` pixels per unit; only `joints` are labelled."""
    keypoints = np.zeros((17, 3), dtype=np.float32)
    for joint in joints:
        x, y = COCO.standing_pose[joint]
        keypoints[joint] = centre + unit * x, top + unit * (9.7 - y), 2
    return keypoints


def scene_of(keypoints, categories=None):
    """People (N, K, 3) in boxes around their labelled joints, with ids from 0."""
    keypoints = np.float32(keypoints)
    labelled = keypoints[:, :, 2:] > 0
    low = np.where(labelled, keypoints[:, :, :2], np.inf).min(axis=1)
    high = np.where(labelled, keypoints[:, :, :2], -np.inf).max(axis=1)
    return Annotations(
        keypoints=keypoints,
        boxes=np.concatenate([low, high - low], axis=1).astype(np.float32),
        crowd=np.zeros(len(keypoints), dtype=bool),
        categories=np.zeros(len(keypoints), dtype=np.int64) if categories is None else np.array(categories),
        ids=np.arange(len(keypoints)),
    )

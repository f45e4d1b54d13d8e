"""Milliseconds to decode the people in the fields of a 385 x 385 image, on one core. `python -m bench.pose_decoder`

The fields are those of drawn people: confidence 0.9 in the encoders' cells, 0.05 elsewhere, with a little noise. Beside
them are the time of OpenPifPaf's compiled decoder for such fields of stride 16, and our time relative to it. The last
row is a new process with machine code cached on disk: milliseconds until modules are imported, and until the first
image is decoded.
"""

import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

from bench.table import seconds, show
from figura.data.formats.skeletons import COCO
from models.pose.annotations import Annotations
from models.pose.decode.cifcaf import CifCafDecoder
from models.pose.encoders import Caf, Cif

SIDE = 385
REFERENCE = {1: 0.83, 5: 2.9, 20: 10.2}  # ms, stride 16
NOISE = 0.01
START = """
import time
begin = time.perf_counter()
from bench.pose_decoder import fields
from models.pose.decode.cifcaf import CifCafDecoder
imported = time.perf_counter()
cif, caf = fields(5, 16)
begin_decoding = time.perf_counter()
CifCafDecoder(stride=16, force_complete=True)(cif, caf)
print(imported - begin, time.perf_counter() - begin_decoding)
"""


def people(count: int) -> Annotations:
    """Return standing persons, a fifth to half as high as the image, all over it."""
    generator = np.random.default_rng(0)
    unit = SIDE * generator.uniform(0.2, 0.5, (count, 1, 1)) / np.ptp(COCO.standing_pose[:, 1])
    joints = (COCO.standing_pose - COCO.standing_pose.mean(axis=0)) * (1, -1) * unit
    joints += generator.uniform(0.15, 0.85, (count, 1, 2)) * SIDE
    corners = joints.min(axis=1)
    return Annotations(
        keypoints=np.concatenate([joints, np.full((*joints.shape[:2], 1), 2.0)], axis=2).astype(np.float32),
        boxes=np.concatenate([corners, joints.max(axis=1) - corners], axis=1).astype(np.float32),
        crowd=np.zeros(count, dtype=bool),
        categories=np.zeros(count, dtype=np.int64),
        ids=np.arange(count),
    )


def decoded(target: NDArray[np.float32], vectors: int, scales: int) -> NDArray[np.float32]:
    """Return a decoder's input fields from a target (F, 1 + 2 `vectors` + `vectors` + `scales`, rows, columns)."""
    generator = np.random.default_rng(1)
    rows, columns = np.indices(target.shape[2:])
    fields = np.zeros((len(target), 2 + 2 * vectors + scales, *target.shape[2:]), dtype=np.float32)
    fields[:, 1] = np.where(target[:, 0] > 0, 0.9, 0.05)
    fields[:, 2 : 2 + 2 * vectors] = np.nan_to_num(target[:, 1 : 1 + 2 * vectors])
    fields[:, 2 : 2 + 2 * vectors : 2] += columns
    fields[:, 3 : 2 + 2 * vectors : 2] += rows
    fields[:, 2 + 2 * vectors :] = np.nan_to_num(target[:, 1 + 3 * vectors :], nan=1.0)
    fields += generator.normal(0, NOISE, fields.shape)
    return fields


def fields(count: int, stride: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the joint and connection fields of several people."""
    scene, area = people(count), (0.0, 0.0, SIDE - 1.0, SIDE - 1.0)
    cif = Cif(COCO, stride, suppress_hidden=None).encode(scene, (SIDE, SIDE), area)
    caf = Caf(COCO, stride, suppress_hidden=None).encode(scene, (SIDE, SIDE), area)
    return decoded(cif, 1, 1), decoded(caf, 2, 2)


def main() -> None:
    """Print the tables."""
    rows: list[list[object]] = [["stride", "people", "complete", "found", "ms", "reference, ms", "ratio"]]
    for stride in (16, 8):
        for count in (1, 5, 20, 50):
            cif, caf = fields(count, stride)
            for complete in (False, True):
                decode = CifCafDecoder(stride=stride, force_complete=complete)
                spent = 1e3 * seconds(lambda: decode(cif, caf), budget=0.5)  # noqa: B023
                reference = REFERENCE.get(count)
                compared = ["-", "-"] if reference is None else [reference, spent / reference]
                rows.append([stride, count, "yes" if complete else "no", len(decode(cif, caf)), spent, *compared])
    show(rows)
    print()
    begin = time.perf_counter()
    printed = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True).stdout
    imported, first = (1e3 * float(text) for text in printed.split())
    show([["import, ms", "first image, ms", "process, ms"], [imported, first, 1e3 * (time.perf_counter() - begin)]])


if __name__ == "__main__":
    main()

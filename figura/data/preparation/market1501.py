"""Market-1501 (Zheng et al., ICCV 2015) as published: identities by file name.

`0002_c1s1_000451_03.jpg` is person 2, seen by camera 1 in its sequence 1, frame 451, third box there. Person -1 is junk
(a detection that slightly overlaps a person), 0000 a distractor (no person).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from figura.base.pictures import picture_files
from figura.data.preparation.outcome import Rejected
from figura.data.preparation.pictures import Picture, Reading

NAME = re.compile(r"(-1|\d+)_c(\d+)s(\d+)_(\d+)_(\d+)\.")
"""Person, camera, sequence, frame, box."""

LEFT_OUT = {-1: "junk (-1)", 0: "distractors (0000)"}


def read_market1501(source: Path, folders: Mapping[str, Sequence[str]]) -> Reading:
    """Return the pictures of `folders` by split, relative to `source`, sorted by name within each folder."""
    reading = Reading()
    for split, names in folders.items():
        for folder in names:
            for name in picture_files(source / folder, reading.left_out):
                file = f"{folder}/{name}"
                parts = NAME.match(Path(name).name)
                if parts is None:
                    detail = "needed: 0002_c1s1_000451_03.jpg"
                    fault = Rejected(folder, "image", name[:80], "name of another form", detail)
                    reading.faults.append((split, fault))
                    continue
                number, camera, sequence, frame, _ = map(int, parts.groups())
                if number in LEFT_OUT:
                    reading.left_out[LEFT_OUT[number]] += 1
                    continue
                person = {"camera": camera, "sequence": sequence, "frame": frame, "person_id": number}
                reading.pictures.append(Picture(file, split, person, group=number))
    return reading

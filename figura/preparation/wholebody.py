"""Annotations with joints in other keys than `keypoints`, which has COCO's 17: COCO-WholeBody's 133, Human-Art's 21.

Sources: https://github.com/jin-s13/COCO-WholeBody/blob/master/data_format.md, README.md of IDEA-Research/HumanArt.
"""

from typing import Any

from figura.formats.keypoint_sets import HUMANART21, WHOLEBODY
from figura.formats.records import Size, real_numbers

PARTS = {
    "keypoints": (17, None),
    "foot_kpts": (6, "foot_valid"),
    "face_kpts": (68, "face_valid"),
    "lefthand_kpts": (21, "lefthand_valid"),
    "righthand_kpts": (21, "righthand_valid"),
}
"""Key -> number of joints, and the key of their validity flag; in the order of the 133 joints."""
_OF_HUMANART = "keypoints_21"


def with_all_joints(record: dict[str, Any], keypoints: tuple[str, ...], size: Size) -> dict[str, Any]:
    """Return an annotation with the joints of all keys in `keypoints`; it stays if the dataset has not so many joints.

    Visibilities of feet, face and hands may be fractions: above 0, the joint is reliable and becomes visible (2).
    Joints of a part that is missing, not valid or of another length, and joints of feet, face and hands outside of an
    image of this `size`, become unlabelled. So do those of COCO's 17 joints alone.
    """
    if keypoints == HUMANART21.keypoints and _OF_HUMANART in record:
        gone = ("keypoints", "num_keypoints", _OF_HUMANART, f"num_{_OF_HUMANART}")
        return {key: value for key, value in record.items() if key not in gone} | {"keypoints": record[_OF_HUMANART]}
    body = record.get("keypoints")
    of_body = isinstance(body, list) and len(body) == 3 * 17
    if keypoints != WHOLEBODY.keypoints or not (of_body or {*list(PARTS)[1:]} & {*record}):
        return record
    joined: list[Any] = []
    for key, (count, valid) in PARTS.items():
        numbers = record.get(key)
        if not isinstance(numbers, list) or len(numbers) != 3 * count:
            joined += [0] * 3 * count
        elif valid is None:
            joined += numbers
        else:
            for x, y, flag in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
                across, down, level = real_numbers([x, y, flag]) or (0, 0, 0)  # of texts, which `normalise` counts
                labelled = level > 0 and 0 <= across <= size.width and 0 <= down <= size.height
                joined += (x, y, flag if level in (1, 2) else 2) if labelled and record.get(valid, True) else (0, 0, 0)
    rest = {key: value for key, value in record.items() if key not in PARTS and key != "num_keypoints"}
    return {**rest, "keypoints": joined}

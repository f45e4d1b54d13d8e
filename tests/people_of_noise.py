"""A small prepared dataset of people, with pictures of noise."""

import json

import cv2
import numpy as np

from figura.formats.coco import KEYPOINTS


def prepared(root, owners):
    """A prepared folder with a person on each picture; `owners` are their `person_id`s, None for no such key."""
    random = np.random.default_rng(0)
    images, annotations = [], []
    for number, owner in enumerate(owners, start=1):
        name = f"{number}.png"
        (root / "images").mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(root / "images" / name), random.integers(0, 256, (80, 60, 3), np.uint8))
        images.append({"id": number, "file_name": name, "height": 80, "width": 60})
        joints = [value for joint in range(17) for value in (10 + 2 * joint, 8 + 4 * joint, 2)]
        known = {} if owner is None else {"person_id": owner}
        annotations.append({
            "id": number, "image_id": number, "category_id": 1, "bbox": [5, 5, 40, 70], "keypoints": joints, **known,
        })  # fmt: skip
    categories = [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}]
    content = json.dumps({"categories": categories, "images": images, "annotations": annotations})
    for split in ("train", "validation", "test"):
        (root / f"{split}.json").write_text(content)
    (root / "manifest.json").write_text('{"sha256": "0"}')
    return root

"""Scenes of different shapes: the sanity check, training and evaluation take together only what may share a batch."""

import json

import cv2
import drawn_scenes
import numpy as np
import pandas as pd
import pytest

from figura.evaluation.trained import write_dump
from figura.training.trainer import Trainer

SIZES = ((65, 33), (33, 65), (65, 65), (65, 33))  # width, height of the first images; by example, in the order of ids


@pytest.mark.parametrize("alone", [False, True], ids=["several shapes", "no two alike"])
def test_pictures_of_several_shapes(tmp_path, alone):
    drawn_scenes.write(tmp_path / "data", 4)
    path = tmp_path / "data/validation.json"
    content = json.loads(path.read_text())
    for image, (width, height) in zip(content["images"], SIZES, strict=True):
        image |= {"width": width, "height": height, "file_name": f"cut_{image['file_name']}"}
        cv2.imwrite(str(tmp_path / "data/images" / image["file_name"]), np.zeros((height, width, 3), np.uint8))
    content["images"] = content["images"][: 3 if alone else 4]
    known = {image["id"] for image in content["images"]}
    content["annotations"] = [one for one in content["annotations"] if one["image_id"] in known]
    path.write_text(json.dumps(content))
    changes = {"data.validation.scenes.joints": False, "data.batch_size": 2}
    trainer = Trainer(drawn_scenes.checked(tmp_path / "data", changes), tmp_path / "run")
    (scenes,) = trainer.loaders.validation_data.values()
    assert [scenes.group(place) for place in range(len(scenes))] == [size[::-1] for size in SIZES[: len(scenes)]]
    trainer.fit()
    write_dump(trainer.recipe, dict(trainer.networks.ema), tmp_path / "dump")
    table = pd.read_csv(tmp_path / "dump/examples.csv")
    assert sorted(table["image_id"]) == sorted(known)
    shapes = {row["index"]: np.load(tmp_path / "dump" / row["file.cif"]).shape[2:] for _, row in table.iterrows()}
    assert shapes == {
        place: (height // 8 + 1, width // 8 + 1) for place, (width, height) in enumerate(SIZES[: len(scenes)])
    }

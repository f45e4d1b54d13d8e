"""People are found from fields that are known exactly, in a process that never imports PyTorch."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from people_by_hand import SKELETON

from figura.base.exit_status import run
from figura.base.yaml12 import parse_yaml, to_yaml
from models.pose.without_torch import main

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
ROOT = Path(__file__).parents[2]

STRIDE, CELLS = 8, 9  # 65 pixels
HEAD, FOOT = (2.0, 2.0), (2.5, 6.0)  # cells


def fields() -> dict[str, np.ndarray]:
    """Return fields of one person and one box: (fields, components, rows, columns), in cells."""
    cif, caf, cifdet = (np.zeros((n, c, CELLS, CELLS), np.float32) for n, c in ((2, 5), (1, 8), (2, 6)))
    for field, (x, y) in enumerate((HEAD, FOOT)):
        block = np.s_[field, :, int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2]
        cif[block] = np.array([0, 0.9, x, y, 1.0])[:, None, None]
    caf[0, :, 3:6, 1:4] = np.array([0, 0.9, *HEAD, *FOOT, 1.0, 1.0])[:, None, None]
    cifdet[1, :, 3:6, 3:6] = np.array([0, 0.8, 4.0, 4.0, 2.0, 3.0])[:, None, None]
    return {"cif": cif[None], "caf": caf[None], "cifdet": cifdet[None]}


@pytest.fixture
def network(tmp_path):
    """A file like an exported pose network, whose outputs do not depend on the picture."""
    helper, made = onnx.helper, fields()
    nodes = [
        helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))
        for name, value in made.items()
    ]
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 3, 65, 65])
    outputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, value.shape) for n, value in made.items()]
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph(nodes, "pose", [image], outputs), opset_imports=opset, ir_version=10)
    people = {
        "type": "pose.FindPeople",
        "cif": "cif",
        "caf": "caf",
        "stride": STRIDE,
        "skeleton": SKELETON,
        "category": 3,
    }
    boxes = {
        "type": "pose.FindObjects",
        "cifdet": "cifdet",
        "stride": STRIDE,
        "categories": [{"id": 5, "name": "a"}, {"id": 7, "name": "b"}],
    }
    recipe = {"evaluate": {"modes": {"poses": {"injectors": {"people": people, "objects": boxes}}}}}
    preprocessing = {
        "type": "pose.Photos",
        "arguments": {"side": 65, "multiple": 16},
        "multiply": [0.01],
        "add": [-1.0],
    }
    known = {"mode": "poses", "recipe": to_yaml(recipe), "preprocessing": json.dumps(preprocessing)}
    onnx.helper.set_model_props(model, known)
    onnx.save(model, tmp_path / "network.onnx")
    return tmp_path / "network.onnx"


def test_people_are_found_and_pytorch_is_not_imported(network, tmp_path):
    photo, output = tmp_path / "photo.png", tmp_path / "people.json"
    cv2.imwrite(str(photo), np.zeros((129, 129, 3), np.uint8))  # twice as large, from the first pixel to the last
    code = (
        "import sys\nfrom models.pose.without_torch import main\n"
        f"main([{str(network)!r}, {str(photo)!r}, '--output', {str(output)!r}])\n"
        "assert 'torch' not in sys.modules and 'onnxruntime' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 people and objects in 1 photos" in done.stdout
    person, box = json.loads(output.read_text())
    joints = np.array(person["keypoints"]).reshape(2, 3)
    np.testing.assert_allclose(joints[:, :2], 2 * STRIDE * np.array([HEAD, FOOT]), atol=0.5)
    assert (joints[:, 2] > 0.3).all()
    assert (person["image_id"], person["category_id"]) == (1, 3)
    assert box["category_id"] == 7
    np.testing.assert_allclose(box["bbox"], 2 * STRIDE * np.array([4 - 1, 4 - 1.5, 2, 3]), atol=0.5)


def changed(network, path, **metadata):
    """Write the file with other metadata; a function is given the value that was there."""
    model = onnx.load(network)
    known = {one.key: one.value for one in model.metadata_props}
    for key, value in metadata.items():
        known[key] = value(known.get(key, "")) if callable(value) else value
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {key: value for key, value in known.items() if value is not None})
    onnx.save(model, path)
    return str(path)


def with_injectors(change):
    """Return what changes the injectors of the metadata's recipe."""

    def new(text):
        recipe = parse_yaml(text, "recipe")
        change(recipe["evaluate"]["modes"]["poses"]["injectors"])
        return to_yaml(recipe)

    return new


def test_fields_have_the_names_of_the_mode(network, tmp_path):
    photo, output = tmp_path / "photo.png", tmp_path / "people.json"
    cv2.imwrite(str(photo), np.zeros((65, 65, 3), np.uint8))
    renamed = with_injectors(lambda them: them["people"].update(cif="joints", caf="bones"))
    other = changed(
        network, tmp_path / "other.onnx", recipe=renamed, outputs=json.dumps({"cif": "joints", "caf": "bones"})
    )
    assert run(main, [other, str(photo), "--output", str(output)]) == 0
    assert [one["category_id"] for one in json.loads(output.read_text())] == [3, 7]


PLACE = "recipe.evaluate.modes.poses.injectors"


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"recipe": None}, "its metadata name no pose network"),
        (
            {"preprocessing": '{"type": "pose.Scenes"}'},
            "preprocessing: found pose.Scenes; pose.Photos is needed: its recipe has no `predict`; add that",
        ),
        (
            {"recipe": with_injectors(lambda them: them["people"].update(decoder={"nonsense": 3}))},
            "its metadata are wrong (TypeError: CifCafDecoder.__init__() got an unexpected keyword argument 'nonsense'",
        ),
        (
            {"recipe": with_injectors(lambda them: them["people"].update(caf="bones"))},
            f"{PLACE}.people.caf: found 'bones'; the network gives caf, cif, cifdet",
        ),
        (
            {"recipe": with_injectors(lambda them: them.update(more=them["people"]))},
            f"{PLACE}: people and more are of type pose.FindPeople; at most one is needed",
        ),
    ],
)
def test_other_metadata_are_told_in_a_line(metadata, said, network, tmp_path, capsys):
    other = changed(network, tmp_path / "other.onnx", **metadata)
    assert run(main, [other, "photo.png", "--output", str(tmp_path / "people.json")]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"error: {other}: {said}")
    assert len(message.splitlines()) == 1


def test_a_photo_of_another_size_than_the_networks(network, tmp_path, capsys):
    photo = tmp_path / "photo.png"
    cv2.imwrite(str(photo), np.zeros((20, 65, 3), np.uint8))
    assert run(main, [str(network), str(photo), "--output", str(tmp_path / "people.json")]) == 1
    said = capsys.readouterr().err
    assert f"{photo}: {network} takes batch x 3 x 65 x 65, the photo becomes 1 x 3 x 33 x 65: " in said
    assert len(said.splitlines()) == 1


def test_what_is_no_exported_pose_network_is_told(network, tmp_path, capsys):
    output = ["--output", str(tmp_path / "people.json")]
    (tmp_path / "torn.onnx").write_bytes(b"no network")
    assert run(main, [str(tmp_path / "torn.onnx"), "photo.png", *output]) == 1
    assert "torn.onnx: onnxruntime cannot read it" in capsys.readouterr().err
    assert run(main, [str(network), str(tmp_path / "nothing.png"), *output]) == 1
    assert "nothing.png: no such file" in capsys.readouterr().err
    assert not (tmp_path / "people.json").exists()

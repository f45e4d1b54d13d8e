"""Results as tables and COCO files, from records by hand; pycocotools is the arbiter of COCO's form."""

import json

import numpy as np
import pytest
from pycocotools.coco import COCO

from figura.base.errors import UserError
from figura.prediction.result import Box, Categories, ImageInfo, Joint, Result
from figura.prediction.results import Results

PERSON = {"image_id": 2, "category_id": 1, "score": 0.75, "bbox": [1.0, 2.0, 30.0, 40.0],
          "keypoints": [5.0, 6.0, 0.5, 0.0, 0.0, 0.0]}  # fmt: skip
BALL = {"image_id": 2, "category_id": 7, "score": 0.25, "bbox": [3.0, 4.0, 5.0, 6.0]}
KINDS = Categories(("head", "foot"), {1: "person", 7: "ball"}, ((0, 1),))


@pytest.fixture
def results(tmp_path):
    images = (
        ImageInfo(1, "a", tmp_path / "a.png", None, (50, 60)),
        ImageInfo(2, "clip-000004", tmp_path / "clip.mp4", 4, (20, 30)),
        ImageInfo(3, "000003", None, None, None),
    )
    filled = Result("clip-000004", images[1], KINDS, {}, {"people": [PERSON], "objects": [BALL]})
    empty = [Result(one.name, one, KINDS, {}, {"people": [], "objects": []}) for one in (images[0], images[2])]
    return Results((empty[0], filled, empty[1]), images, {"people": "records", "objects": "records"}, KINDS)


def test_people_and_objects(results):
    (person,), (ball,) = results[1].people, results[1].objects
    assert (person.score, person.category, person.box) == (0.75, "person", Box(1, 2, 30, 40))
    assert person.joints == (Joint("head", 5, 6, 0.5), Joint("foot", 0, 0, 0))
    assert person.keypoints.tolist() == [[5, 6, 0.5], [0, 0, 0]]
    assert (ball.score, ball.category, ball.box) == (0.25, "ball", Box(3, 4, 5, 6))
    with pytest.raises(AttributeError):
        person.score = 1.0


def test_tables(results, tmp_path):
    table = results.to_pandas()
    assert table.to_dict("records") == [
        {"name": "clip-000004", "file": str(tmp_path / "clip.mp4"), "image_id": 2, "frame": 4, "category": "person",
         "score": 0.75, "x": 1, "y": 2, "width": 30, "height": 40, "head_x": 5, "head_y": 6, "head_score": 0.5,
         "foot_x": 0, "foot_y": 0, "foot_score": 0}
    ]  # fmt: skip
    assert results.to_pandas("objects")["category"].tolist() == ["ball"]
    nobody = Results(results.items[:1], results.images[:1], results.forms, KINDS).to_pandas()
    assert nobody.columns.tolist() == table.columns.tolist()
    with pytest.raises(UserError, match="records 'peple': the recipe saves people, objects"):
        results.to_pandas("peple")


def test_coco_maps_ids_to_files(results, tmp_path):
    coco = results.to_coco()
    assert [(one["id"], one["file_name"]) for one in coco["images"]] == [
        (1, str(tmp_path / "a.png")), (2, str(tmp_path / "clip.mp4")), (3, "000003"),
    ]  # fmt: skip
    assert (coco["images"][0]["height"], coco["images"][0]["width"]) == (50, 60)
    assert coco["images"][1]["frame"] == 4
    assert coco["annotations"] == [{"id": 1, **PERSON}]
    assert coco["categories"] == [
        {"id": 1, "name": "person", "keypoints": ["head", "foot"], "skeleton": [[1, 2]]}, {"id": 7, "name": "ball"},
    ]  # fmt: skip
    truth = COCO()
    truth.dataset = {"images": coco["images"], "annotations": [], "categories": coco["categories"]}
    truth.createIndex()
    found = truth.loadRes(coco["annotations"])
    assert found.getImgIds() == [1, 2, 3]
    (one,) = found.loadAnns(found.getAnnIds(imgIds=[2]))
    assert one["score"] == 0.75


def test_results_of_one_name_are_not_saved(tmp_path):
    image, pixels = ImageInfo(1, "grid", None, None, None), np.zeros((4, 4, 3), np.uint8)
    one = Result("grid", image, KINDS, {"red": pixels, "blue": pixels})
    forms = {"red": "image", "blue": "image"}
    message = "two results would be this file, and 1 more names; save them into two folders"
    with pytest.raises(UserError, match=rf"out/grid\.red: {message}$"):
        Results((one, one), (image,), forms, KINDS).save(tmp_path / "out")
    with pytest.raises(UserError, match=r"out/grid\.blue: two results would be this file; save"):
        Results((one,), (image,), forms, KINDS, {"grid.blue": pixels}).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_saved_records_have_the_size_of_their_picture(results, tmp_path):
    results.save(tmp_path / "out")
    assert json.loads((tmp_path / "out/clip-000004.people.json").read_text()) == [{**PERSON, "width": 30, "height": 20}]
    unknown = Result("000003", results.images[2], KINDS, {}, {"people": [BALL]})  # the recipe reads files itself
    Results((unknown,), results.images, results.forms, KINDS).save(tmp_path / "out")
    assert json.loads((tmp_path / "out/000003.people.json").read_text()) == [BALL]


def test_pictures_lie_side_by_side(tmp_path):
    image = ImageInfo(1, "a", None, None, None)
    red, blue = (np.full((100, 120, 3), one, np.uint8) for one in ((255, 0, 0), (0, 0, 255)))
    assert Result("a", image, KINDS, {"red": red}).draw() is red
    both = Result("a", image, KINDS, {"red": red, "blue": blue}).draw()
    assert (both[-50, 50].tolist(), both[-50, 180].tolist()) == ([255, 0, 0], [0, 0, 255])
    with pytest.raises(UserError, match="saves no picture"):
        Result("a", image, KINDS).draw()
    pictures = Results((), (), {"red": "image"}, KINDS)
    with pytest.raises(UserError, match="records: the recipe saves none, but red"):
        pictures.to_coco()
    assert list(pictures.to_pandas().columns) == ["name", "file", "image_id", "frame"]

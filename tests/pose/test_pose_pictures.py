"""Pictures of annotations and fields: of targets and predictions, of scenes, and those that a dump saves."""

import json

import drawn_scenes
import numpy as np
import pytest
import torch
from people_by_hand import SKELETON
from skeletons_by_hand import STAR

from figura.data.formats.skeletons import COCO
from figura.engine.build import build_datasets
from figura.interfaces import Networks, State
from figura.show.drawing import drawing_of
from models.pose.annotations import Annotations
from models.pose.decode.field_images import (
    BOX,
    COLOURS,
    CROWD,
    WHITE,
    Field,
    annotations_picture,
    confidence_picture,
    predicted_field,
    target_field,
    vectors_picture,
)
from models.pose.decode.injectors import FieldPictures, HeadFields
from models.pose.drawing import IGNORED, SceneDrawing, confidence_drawing, strongest

BLACK = np.zeros((33, 41, 3), dtype=np.uint8)
ZOOM = 4


def canvas(x, y):
    """Row and column of the middle of a pixel on a picture four times as large: the third of 0, 1, 2, 3."""
    return round((y + 0.5) * ZOOM - 0.5), round((x + 0.5) * ZOOM - 0.5)


def scene(keypoints=(), boxes=((4, 4, 20, 20),), crowd=False):
    joints = np.zeros((1, 17, 3), dtype=np.float32)
    for place, *values in keypoints:
        joints[0, place] = values
    return Annotations(
        joints, np.array(boxes, dtype=np.float32), np.array([crowd]), np.zeros(1, dtype=np.int64), np.ones(1, np.int64)
    )


def test_person_of_visible_hidden_and_unlabelled_joints():
    # Shoulder and elbow are visible, the wrist is hidden, the hip not labelled.
    joints = [(5, 10, 10, 2), (7, 30, 10, 2), (9, 30, 28, 1), (11, 10, 28, 0)]
    picture = annotations_picture(BLACK, scene(joints, boxes=((0, 0, 1, 1),)), COCO, ZOOM)
    assert picture.shape == (33 * ZOOM, 41 * ZOOM, 3)
    assert tuple(picture[canvas(10, 10)]) == WHITE
    assert picture[canvas(20, 10)].any()  # the upper arm
    assert picture[canvas(30, 20)].any()  # the forearm
    assert tuple(picture[canvas(30, 28)]) != WHITE  # a circle is empty
    assert not picture[canvas(10, 20)].any()
    assert not picture[canvas(10, 28)].any()
    thick, thin = (np.count_nonzero(line.any(axis=1)) for line in (picture[30:60, 80], picture[80, 100:140]))
    assert thick > thin


def test_boxes_and_dotted_crowd_regions():
    whole = annotations_picture(BLACK, scene(), COCO, ZOOM)
    dotted = annotations_picture(BLACK, scene(crowd=True), COCO, ZOOM)
    for picture, colour in ((whole, BOX), (dotted, CROWD)):
        outline = picture.any(axis=2)
        assert not outline[canvas(14, 14)]
        rows, columns = np.nonzero(outline)
        assert (rows.min(), columns.min()) == pytest.approx(canvas(4, 4), abs=2)
        assert (rows.max(), columns.max()) == pytest.approx(canvas(24, 24), abs=2)
        brightest = picture.reshape(-1, 3)[picture.sum(axis=2).argmax()]
        np.testing.assert_allclose(brightest / brightest.max(), np.array(colour) / max(colour), atol=0.05)
    side = slice(canvas(6, 4)[1], canvas(22, 4)[1])
    row = canvas(4, 4)[0]
    assert whole[row - 1 : row + 2, side].any(axis=(0, 2)).all()
    assert not dotted[row - 1 : row + 2, side].any(axis=(0, 2)).all()


def test_confidence_colours_cells_around_their_pixel():
    confidence = np.zeros((5, 6))
    confidence[1, 2], confidence[3, 4], confidence[4, 0] = 1.0, 0.5, np.nan
    grey = np.full_like(BLACK, 100)
    picture = confidence_picture(grey, Field("caf", confidence, ()), 8, ZOOM)
    full = np.array(COLOURS["caf"][0])
    np.testing.assert_allclose(picture[canvas(16, 8)], 10 + 0.9 * full, atol=1)
    np.testing.assert_allclose(picture[canvas(32, 24)], 55 + 0.45 * full, atol=1)
    np.testing.assert_allclose(picture[canvas(0, 32)], 50 + 127.5, atol=1)
    # The cell at pixel (16, 8) reaches from 12 to 20 and from 4 to 12.
    lit = np.argwhere((picture[: 15 * ZOOM] != 100).any(axis=2))
    np.testing.assert_allclose(lit.min(axis=0), np.array(canvas(12, 4)), atol=2)
    np.testing.assert_allclose(lit.max(axis=0), np.array(canvas(20, 12)), atol=2)
    assert (picture[canvas(5, 16)] == 100).all()


def test_arrows_from_confident_cells_to_where_they_point():
    target = np.full((5, 5, 6), np.nan)
    target[0] = 0
    target[:, 1, 1] = 1, 2.0, 0.0, 0.01, np.nan  # from pixel (8, 8) to (24, 8)
    target[:, 3, 1] = 0, 2.0, 0.0, 0.01, np.nan  # below the threshold
    picture = vectors_picture(BLACK, target_field("cif", target), 8, ZOOM)
    assert not (picture[canvas(16, 8)] == 128).all()
    np.testing.assert_allclose(picture[canvas(30, 8)], 128)
    np.testing.assert_allclose(picture[canvas(16, 24)], 128)  # whitened black
    target[4, 1, 1] = 1.0  # a circle 8 pixels wide around (24, 8)
    with_scale = vectors_picture(BLACK, target_field("cif", target), 8, ZOOM)
    rows, columns = np.nonzero((with_scale != picture).any(axis=2))
    np.testing.assert_allclose([rows.min(), columns.max()], [canvas(24, 4)[0], canvas(28, 8)[1]], atol=2)


def test_target_and_the_same_prediction_look_alike():
    random = np.random.default_rng(3)
    x, y = np.meshgrid(np.arange(6), np.arange(5))
    shape = (2, 5, 6)
    first, second, scales = random.normal(size=shape), random.normal(size=shape), random.uniform(size=shape)
    ones, grid = np.ones((1, 5, 6)), np.stack([x, y])
    layouts = {
        "cif": ([ones, first, ones, scales[:1]], [ones, ones, first + grid, scales[:1]]),
        "caf": ([ones, first, second, ones, ones, scales], [ones, ones, first + grid, second + grid, scales]),
        "cifdet": ([ones, first, 2 + second, ones, ones], [ones, ones, first + grid, 2 + second]),
    }
    for kind, (target, prediction) in layouts.items():
        pictures = [
            vectors_picture(BLACK, field, 8, ZOOM)
            for field in (
                target_field(kind, np.concatenate(target)),
                predicted_field(kind, np.concatenate(prediction)),
            )
        ]
        np.testing.assert_array_equal(*pictures)
        assert (pictures[0] != 128).any()


def test_field_with_the_wrong_components_is_refused():
    with pytest.raises(ValueError, match=r"a caf field of shape \(8, 5, 6\): \(9, rows, columns\) is needed"):
        target_field("caf", np.zeros((8, 5, 6)))
    with pytest.raises(ValueError, match=r"\(6, rows, columns\)"):
        predicted_field("cifdet", np.zeros((7, 5, 6)))


def test_far_points_do_no_harm():
    prediction = np.full((8, 5, 6), 1e9)
    prediction[1] = 0.9
    assert vectors_picture(BLACK, predicted_field("caf", prediction), 8, ZOOM).shape == (132, 164, 3)


# --- drawings of scenes ---

GREY_SCENE = np.full((65, 65, 3), 100, np.uint8)


@pytest.fixture
def scenes(tmp_path):
    drawn_scenes.write(tmp_path)
    return build_datasets(drawn_scenes.checked(tmp_path, {}), "train")["scenes"]


def test_pictures_of_an_example(scenes):
    drawing = drawing_of(scenes, {})
    assert isinstance(drawing, SceneDrawing)
    example = scenes.example(1, np.random.default_rng(0))
    pictures = drawing.pictures(example)
    targets = [f"{head}_target{more}" for head in ("cif", "caf", "cifdet") for more in ("", " vectors")]
    assert list(pictures) == ["image", *targets]
    np.testing.assert_array_equal(pictures["image"], scenes.view(1, np.random.default_rng(0)).picture)
    zoom = 6  # 384 of 65 pixels, in whole multiples
    assert {one.shape for name, one in pictures.items() if name != "image"} == {(65 * zoom, 65 * zoom, 3)}
    assert drawing.annotated(1, np.random.default_rng(0))["annotated"].shape == (65 * zoom, 65 * zoom, 3)


def test_without_the_image_nothing_lies_over_it(scenes):
    example = scenes.example(0, np.random.default_rng(0))
    assert drawing_of(scenes, {}).pictures({"cif_target": example["cif_target"]}) == {}


def cif_target(fields):
    """A cif target of 9 x 9 cells without a joint."""
    values = np.full((fields, 5, 9, 9), np.nan, np.float32)
    values[:, 0] = 0.0
    return values


def test_ignored_cells_are_hatched_in_red_and_others_as_they_were():
    values = cif_target(2)
    values[:, 0, :, 6:] = np.nan  # a crowd at the right, in all fields
    values[1, 0, :4, :3] = np.nan  # a hidden joint, in one field
    drawn = confidence_drawing(GREY_SCENE, values, stride=8, zoom=2).astype(int)
    crowd, hidden, rest = drawn[:, 96:], drawn[:48, :32], drawn[80:, :32]
    assert (rest == 100).all()
    assert (crowd.reshape(-1, 3) == IGNORED).all(axis=1).mean() == pytest.approx(1 / 3, abs=0.02)  # the lines
    redness = [(part[..., 0] - part[..., 1]).mean() for part in (crowd, hidden, rest)]
    assert redness[0] > redness[1] > redness[2] == 0


def test_cells_have_the_colour_of_their_field():
    values = cif_target(3)
    values[0, 0, 1:3, 1:3], values[2, 0, 5:7, 5:7] = 1.0, 1.0
    drawn = confidence_drawing(GREY_SCENE, values, stride=8, zoom=1).astype(int)
    first, last, rest = drawn[16, 16], drawn[48, 48], drawn[32, 16]
    assert (rest == 100).all()
    assert np.abs(first - last).max() > 50


def test_the_strongest_field_of_each_cell():
    values = cif_target(2)
    values[0, :, 2, 3], values[1, :, 2, 3] = [1, 0.5, 0.5, 1, 1], np.nan  # ignored in the other field: it counts
    values[1, :, 4, 4] = [1, -0.5, 0.25, 1, 2]
    values[1, 0, 6, 6] = np.nan
    field = strongest(values)
    np.testing.assert_array_equal(field[:, 2, 3], np.float32([1, 0.5, 0.5, 1, 1]))
    np.testing.assert_array_equal(field[:, 4, 4], np.float32([1, -0.5, 0.25, 1, 2]))
    assert np.isnan(field[0, 6, 6])
    assert field[0, 0, 0] == 0


# --- pictures of fields in a dump ---


def test_field_pictures_show_target_and_prediction():
    target = np.full((1, 1, 5, 6, 7), np.nan, np.float32)
    target[:, :, 0] = 0
    target[0, 0, :, 2, 3] = (1, 0.2, 0.1, 0.01, 1.5)
    prediction = np.zeros((1, 1, 5, 6, 7), np.float32)
    prediction[0, 0, 1, 2, 3] = 0.8
    prediction[0, 0, 2:4] = np.mgrid[:6, :7][::-1]
    state = State(
        {
            "index": torch.tensor([40]),
            "images": torch.tensor([100]),
            "image_id": torch.tensor([7]),
            "image": torch.zeros(1, 3, 41, 49),
            "cif": torch.from_numpy(prediction),
            "cif_target": torch.from_numpy(target),
        }
    )

    def drawn(output, **options):
        heads = {"cif": HeadFields(fields=["head"])}
        FieldPictures("image", heads, output, 8, skeleton=SKELETON, **options)(state, Networks({}, {}), 0)
        (picture,) = state[output]
        return picture

    picture = drawn("picture", zoom=2)
    assert picture.shape == (3, 82, 4 * 98)
    assert picture.abs().max() <= 1
    confidence = picture[:, :, : 2 * 98].unflatten(2, (2, 98))
    blank = confidence[:, 70, :, 5]
    for place in range(2):  # the cell at (24, 16) px is coloured in both, a corner in neither
        assert (confidence[:, 32, place, 48] - blank[:, place]).abs().max() > 0.3
    # 100 examples: of 5 evenly spaced ones, 40 is one; of 3, which are 0, 33 and 66, it is none
    assert torch.equal(drawn("few", count=5), picture)
    assert drawn("fewer", count=3) is None
    assert torch.equal(drawn("asked", count=3, image_ids=(7,)), picture)
    assert drawn("other", image_ids=(8,)) is None
    assert [state[f"{name}_drawn"].item() for name in ("few", "fewer", "asked", "other")] == [1, 0, 1, 0]


def test_fields_of_any_skeleton_are_shown_by_name():
    """Rows for two of three joints, one of two pairs (in either direction), and a category."""
    things = [{"id": 7, "name": "star"}, {"id": 90, "name": "moon"}]

    def shown(**heads):
        settings = {name: HeadFields.model_validate_json(json.dumps(one), strict=True) for name, one in heads.items()}
        injector = FieldPictures("image", settings, "picture", 8, skeleton=STAR, categories=things)
        return [(kind, field, title) for _, kind, field, title in injector.shown]

    assert shown(cif={}, caf={}, cifdet={}) == [
        ("cif", 0, "tip"), ("cif", 1, "left_end"), ("caf", 0, "tip to left_end"), ("cifdet", 0, "star"),
    ]  # fmt: skip
    assert shown(links={"kind": "caf", "fields": [("right_end", "tip")]}) == [("caf", 1, "tip to right_end")]
    assert shown(cifdet={"fields": ["moon"]}) == [("cifdet", 1, "moon")]
    with pytest.raises(ValueError, match=r"heads\.cif\.fields: no field 'left_en' \(did you mean 'left_end'"):
        shown(cif={"fields": ["left_en"]})
    with pytest.raises(ValueError, match=r"heads\.links\.kind 'links'"):
        shown(links={})
    with pytest.raises(ValueError, match="stride: missing, and the training data tell none, or several; write it"):
        FieldPictures("image", {"cif": HeadFields()}, "picture")

import numpy as np
import pytest

from figura.data.formats.skeletons import COCO
from models.pose.annotations import Annotations
from models.pose.decode.field_images import (
    BOX,
    COLOURS,
    CROWD,
    WHITE,
    Field,
    annotations_picture,
    confidence_picture,
    picture_of,
    predicted_field,
    target_field,
    vectors_picture,
)

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


def test_network_input_becomes_the_picture_again():
    picture = np.random.default_rng(0).integers(256, size=(5, 7, 3)).astype(np.uint8)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    image = ((picture / 255 - mean) / std).transpose(2, 0, 1).astype(np.float32)
    np.testing.assert_array_equal(picture_of(image, mean, std), picture)

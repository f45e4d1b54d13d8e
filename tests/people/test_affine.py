import numpy as np
import pytest
from pydantic import ValidationError

from models.pose.affine import (
    MEAN_COLOUR,
    Geometry,
    fitted,
    identity_placement,
    random_padding_colour,
    random_placement,
)

SAME = {"relative": (1.0, 1.0)}
NO_BOXES = np.zeros((0, 4))
EVERYTHING = {
    "horizontal_flip": {"chance": 0.5},
    "rescale": {"relative": (0.5, 2.0), "stretch": (0.75, 1.33)},
    "orientation_invariant": {"chance": 0.2},
    "rotation": {"chance": 0.6, "degrees": (-30.0, 30.0)},
    "crop": {"margin": 5.0},
}


def draws(width, height, side, settings, count, interest=NO_BOXES):
    geometry = Geometry.model_validate(settings)
    return [
        random_placement(width, height, side, interest, geometry, np.random.default_rng(seed)) for seed in range(count)
    ]


def keypoint(x, y):
    return np.array([[[x, y, 2.0]]])


# OpenPifPaf's values for one bright pixel at (7, 2) of an image of 11 x 11
@pytest.mark.parametrize(
    ("side", "settings", "point", "box", "expected", "valid"),
    [
        (11, {"rescale": SAME, "horizontal_flip": {"chance": 1.0}}, (3, 2), (6, 1, 2, 2), (2, 1, 2, 2), (0, 0, 10, 10)),
        (21, {}, (14, 4), (6, 1, 2, 2), (12, 2, 4, 4), (0, 0, 20, 20)),
        (17, {"rescale": SAME}, (10, 5), (6, 1, 2, 2), (9, 4, 2, 2), (3, 3, 10, 10)),
        (
            11,
            {"rescale": SAME, "rotation": {"chance": 1.0, "degrees": (90.0, 90.0)}},
            (2, 3),
            (6, 1, 2, 2),
            (1, 2, 2, 2),
            (0, 0, 10, 10),
        ),
    ],
)
def test_bright_pixel_keypoint_and_box_go_where_openpifpaf_puts_them(side, settings, point, box, expected, valid):
    image = np.zeros((11, 11, 3), dtype=np.uint8)
    image[2, 7] = 200
    (placement,) = draws(11, 11, side, settings, 1)
    picture = placement.picture(image, (0, 0, 0))
    assert picture.shape == (side, side, 3)
    assert np.unravel_index(picture[..., 0].argmax(), (side, side)) == point[::-1]
    assert picture.max() == 200
    np.testing.assert_allclose(placement.keypoints(keypoint(7, 2), (0,))[0, 0], [*point, 2], atol=1e-5)
    np.testing.assert_allclose(placement.boxes(np.array([box]))[0], expected, atol=1e-5)
    np.testing.assert_allclose(placement.valid_area, valid, atol=1e-5)


def test_without_settings_the_longer_side_fits_and_the_rest_is_centred():
    placement = fitted(640, 426, 161)  # 426 * 161 / 640 = 107.2: 107 rows, 27 above them
    np.testing.assert_allclose(placement.valid_area, [0, 27, 160, 106])
    np.testing.assert_allclose(placement.keypoints(keypoint(639, 425), (0,))[0, 0], [160, 133, 2], atol=1e-4)
    np.testing.assert_allclose(placement.keypoints(keypoint(100, 50), (0,))[0, 0, 0], 100 * 160 / 639, atol=1e-4)
    one = fitted(1, 5, 9)
    assert one.picture(np.full((5, 1, 3), 9, np.uint8), (0, 0, 0)).shape == (9, 9, 3)


@pytest.mark.parametrize("shape", [(120, 90), (700, 1000)])
def test_picture_keypoints_and_boxes_move_together(shape):
    height, width = shape
    spread = height / 30
    rows, columns = np.mgrid[:height, :width]
    middle = (0.4 * width, 0.55 * height)
    blob = 250 * np.exp(-((columns - middle[0]) ** 2 + (rows - middle[1]) ** 2) / (2 * spread**2))
    image = np.repeat(np.rint(blob).astype(np.uint8)[..., None], 3, axis=2)
    around = np.array([[middle[0] - 3 * spread, middle[1] - 3 * spread, 6 * spread, 6 * spread]])
    rescale = {"relative": (60 / height, 300 / height), "stretch": (0.75, 1.33)}
    for placement in draws(width, height, 161, EVERYTHING | {"rescale": rescale}, 30, around):
        picture = placement.picture(image, (0, 0, 0)).astype(np.float64)[..., 0]
        x, y = placement.keypoints(keypoint(*middle), (0,))[0, 0, :2]
        found_rows, found_columns = np.mgrid[:161, :161]
        found = np.array([(picture * found_columns).sum(), (picture * found_rows).sum()]) / picture.sum()
        np.testing.assert_allclose(found, [x, y], atol=0.1)
        back = np.linalg.inv(placement.matrix) @ [x, y, 1]
        np.testing.assert_allclose(back[:2], middle, rtol=1e-5)
        left, top, box_width, box_height = placement.boxes(around)[0]
        np.testing.assert_allclose([left + box_width / 2, top + box_height / 2], [x, y], atol=1e-3)


def test_outside_of_the_valid_area_is_padding_and_all_of_the_image_is_inside():
    image = np.full((60, 80, 3), 200, dtype=np.uint8)
    for placement in draws(80, 60, 161, EVERYTHING, 40):
        picture = placement.picture(image, (1, 2, 3))
        x, y, width, height = placement.valid_area
        rows, columns = np.mgrid[:161, :161]
        outside = (columns < x - 1) | (columns > x + width + 1) | (rows < y - 1) | (rows > y + height + 1)
        assert (picture[outside] == (1, 2, 3)).all()
        lit = np.argwhere(picture[..., 0] > 100)
        np.testing.assert_allclose(lit.min(axis=0), [y, x], atol=1.01)
        np.testing.assert_allclose(lit.max(axis=0), [y + height, x + width], atol=1.01)


def test_crop_shows_what_is_of_interest_and_no_padding():
    interest = np.array([[100.0, 60.0, 30.0, 50.0], [150.0, 70.0, 20.0, 20.0]])
    offsets = []
    for placement in draws(400, 300, 161, {"rescale": SAME, "crop": {"margin": 20.0}}, 400, interest):
        x, y = -placement.matrix[:2, 2]
        assert (x, y) == (int(x), int(y))
        np.testing.assert_allclose(placement.valid_area, [0, 0, 160, 160])
        assert x <= 80
        assert x + 160 >= 190
        assert y <= 40
        assert y + 160 >= 130
        offsets.append((x, y))
    # x from 190 - 160 = 30 to 80, y from 0 to 40; a twelfth of all draws lies at each end.
    assert np.min(offsets, axis=0).tolist() == [30, 0]
    assert np.max(offsets, axis=0).tolist() == [80, 40]
    np.testing.assert_allclose(np.mean(offsets, axis=0), [55, 20], atol=2)


def test_reference_crop_keeps_to_the_lowest_tenth():
    settings = {"rescale": SAME, "crop": {"margin": 0.0, "place": "reference"}}
    x = np.array([-one.matrix[0, 2] for one in draws(1160, 100, 161, settings, 400)])
    assert x.max() <= 0.1 * (1160 - 161)
    assert 0.4 < (x == 0).mean() < 0.6


def test_crop_of_what_is_larger_than_the_square_stays_in_it():
    interest = np.array([[50.0, 10.0, 300.0, 40.0]])
    x = [-one.matrix[0, 2] for one in draws(400, 60, 161, {"rescale": SAME, "crop": {"margin": 0.0}}, 200, interest)]
    assert min(x) == 50
    assert max(x) == 190  # 350 - 160


def test_at_most_one_kind_of_rotation_with_the_chances_asked_for():
    settings = {"orientation_invariant": {"chance": 0.2}, "rotation": {"chance": 0.4, "degrees": (10.0, 30.0)}}
    degrees = np.array(
        [np.degrees(np.arctan2(one.matrix[0, 1], one.matrix[0, 0])) % 360 for one in draws(50, 50, 161, settings, 2000)]
    )
    free = (degrees > 9.9) & (degrees < 30.1)
    quarter = np.isclose(degrees[:, None], [90, 180, 270], atol=1e-6)
    still = np.isclose(degrees, 0) | np.isclose(degrees, 360)
    assert (free | quarter.any(axis=1) | still).all()
    np.testing.assert_allclose([free.mean(), *quarter.mean(axis=0)], [0.4, 0.05, 0.05, 0.05], atol=0.035)


def test_quarter_turn_of_an_oblong_image_loses_nothing():
    image = np.random.default_rng(0).integers(256, size=(20, 50, 3)).astype(np.uint8)
    settings = {"rescale": SAME, "rotation": {"chance": 1.0, "degrees": (90.0, 90.0)}}
    (placement,) = draws(50, 20, 51, settings, 1)
    x, y, width, height = placement.valid_area.astype(int)
    assert (width, height) == (19, 49)
    picture = placement.picture(image, (0, 0, 0))[y : y + 50, x : x + 20]
    np.testing.assert_array_equal(picture, np.rot90(image))  # counter-clockwise


def test_sizes_are_uniform_in_the_logarithm():
    factors = np.array(
        [np.diag(one.matrix)[:2] for one in draws(999, 500, 99, {"rescale": {"relative": (0.25, 4.0)}}, 800)]
    )
    np.testing.assert_allclose(factors[:, 0], factors[:, 1], rtol=0.01)
    np.testing.assert_allclose(np.quantile(np.log2(factors[:, 0]), [0, 0.25, 0.5, 0.75, 1]), range(-2, 3), atol=0.2)
    edges = {"rescale": {"absolute": (50, 90), "stretch": (0.8, 1.2)}}
    areas = np.array([one.valid_area for one in draws(400, 200, 161, edges, 200)])
    assert areas[:, 2].min() >= 50 * 0.8 - 2
    assert areas[:, 2].max() <= 90 * 1.2
    assert areas[:, 3].min() >= 25 - 2
    assert areas[:, 3].max() <= 45
    ratio = (areas[:, 2] + 1) / (areas[:, 3] + 1)
    assert 1.5 < ratio.min() < 1.75
    assert 2.25 < ratio.max() < 2.5


def test_shrinking_averages_all_pixels():
    board = (np.indices((400, 400)).sum(axis=0) % 2 * 255).astype(np.uint8)  # reading every 4th pixel gives 0 or 255
    inner = fitted(400, 400, 101).picture(np.repeat(board[..., None], 3, axis=2), (0, 0, 0))[2:-2, 2:-2]
    np.testing.assert_allclose(inner.astype(float), 127.5, atol=15)  # blocks of 3 x 3: 5 of 9 are of one kind


def test_boxes_are_cut_to_what_shows():
    placement = identity_placement(100, 50)
    boxes = np.array([[-10.0, 10.0, 30.0, 10.0], [90.0, 40.0, 40.0, 40.0], [120.0, 0.0, 5.0, 5.0]])
    np.testing.assert_allclose(placement.shown(boxes), [[0, 10, 20, 10], [90, 40, 9, 9], [99, 0, 0, 5]])


def test_padding_is_the_mean_colour_or_a_random_grey():
    assert random_padding_colour(Geometry(), np.random.default_rng(0)) == MEAN_COLOUR
    greys = {random_padding_colour(Geometry(padding=(3, 5)), np.random.default_rng(seed)) for seed in range(50)}
    assert greys == {(level, level, level) for level in (3, 4, 5)}


@pytest.mark.parametrize(
    "settings",
    [
        {"rescale": {}},
        {"rescale": {"relative": (0.5, 1.0), "absolute": (90, 100)}},
        {"rescale": {"relative": (2.0, 1.0)}},
        {"orientation_invariant": {"chance": 0.7}, "rotation": {"chance": 0.4, "degrees": (-5.0, 5.0)}},
        {"rotate": {"chance": 0.4}},
        {"ignore_cut": 75},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValidationError):
        Geometry.model_validate(settings)

"""Augmentation of pairs against NumPy, SciPy, colorsys and scikit-image; geometry is the same for both images."""

import colorsys
import json

import cv2
import numpy as np
import pytest
from pydantic import ValidationError
from scipy import ndimage
from skimage.color import rgb2lab

from models.images import photometry, warps
from models.images.augmentation import PairAugmentation, augment

SHAPE = (40, 50)


def settings(both: dict | None = None, **changes: dict) -> PairAugmentation:
    """Read as a recipe is read: JSON, strictly."""
    return PairAugmentation.model_validate_json(json.dumps({"both": both or {}, "input": changes}), strict=True)


def coordinates(height: int, width: int) -> np.ndarray:
    """An image whose pixels say where they come from: column, row, 77."""
    rows, columns = np.indices((height, width))
    return np.stack([columns, rows, np.full_like(rows, 77)], axis=-1).astype(np.uint8)


def picture(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(height: int, width: int) -> np.ndarray:
    """A picture without steep edges, so that interpolation has little to disagree about."""
    rows, columns = np.indices((height, width), dtype=np.float64)
    waves = [np.sin(columns / 7 + i) + np.cos(rows / (5 + i)) for i in range(3)]
    return np.rint(127.5 + 60 * np.stack(waves, axis=-1)).clip(0, 255).astype(np.uint8)


def vary(x: np.ndarray, given: PairAugmentation, seed: int = 0) -> np.ndarray:
    """What becomes of the input when nothing is cropped; the target must stay as it is."""
    varied, same = augment(x, x, given, x.shape[:2], np.random.default_rng(seed), ())
    np.testing.assert_array_equal(same, x)
    assert varied.dtype == np.uint8
    assert varied.shape == x.shape
    return varied


# geometry


def test_nothing_written_leaves_a_random_crop_of_untouched_pixels():
    x, y = coordinates(*SHAPE), coordinates(*SHAPE)[..., :1]
    corners = set()
    for seed in range(300):
        for given in (None, PairAugmentation()):
            a, b = augment(x, y, given, (38, 49), np.random.default_rng(seed), ())
            left, top = int(a[0, 0, 0]), int(a[0, 0, 1])
            np.testing.assert_array_equal(a, x[top : top + 38, left : left + 49])
            np.testing.assert_array_equal(b, y[top : top + 38, left : left + 49])
        corners.add((top, left))
    assert corners == {(top, left) for top in range(3) for left in range(2)}


def test_what_comes_back_is_not_a_view_of_what_went_in():
    x, y = picture(1, 8, 8, 3), picture(2, 8, 8, 3)
    before = x.copy(), y.copy()
    a, b = augment(x, y, None, (8, 8), np.random.default_rng(0), ())
    a[:], b[:] = 0, 0
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize(("name", "axis"), [("horizontal_flip", 1), ("vertical_flip", 0)])
def test_flips_mirror_both(name, axis):
    x, y = picture(1, *SHAPE, 3), picture(2, *SHAPE, 1)
    a, b = augment(x, y, settings({name: {"chance": 1.0}}), SHAPE, np.random.default_rng(0), ())
    np.testing.assert_array_equal(a, np.flip(x, axis))
    np.testing.assert_array_equal(b, np.flip(y, axis))


def test_quarter_turns_are_equally_likely_and_odd_ones_left_out_where_the_size_would_change():
    x = coordinates(6, 6)
    counts = np.zeros(4)
    given = settings({"rotate90": {"chance": 1.0}})
    for seed in range(400):
        a, b = augment(x, x, given, (6, 6), np.random.default_rng(seed), ())
        np.testing.assert_array_equal(a, b)
        turns = [turn for turn in range(4) if np.array_equal(a, np.rot90(x, turn))]
        counts[turns] += 1
    assert counts.sum() == 400
    assert (abs(counts - 100) < 35).all()  # 4 standard deviations of a binomial
    wide = coordinates(4, 6)
    seen = {augment(wide, wide, given, (4, 6), np.random.default_rng(s), ())[0].tobytes() for s in range(30)}
    assert seen == {wide.tobytes(), wide[::-1, ::-1].tobytes()}


@pytest.mark.parametrize(
    ("section", "name", "more"),
    [
        ("both", "horizontal_flip", {}),
        ("both", "coarse_dropout", {"holes": [1, 1], "height": [0.5, 0.5], "width": [0.5, 0.5]}),
        ("input", "gaussian_noise", {"std": [0.2, 0.3]}),
    ],
)
def test_chances_are_honoured(section, name, more):
    x, random = picture(4, 12, 12, 3), np.random.default_rng(5)
    for chance in (0.0, 0.2):
        given = PairAugmentation.model_validate({section: {name: {"chance": chance, **more}}}, strict=False)
        changed = sum(not np.array_equal(augment(x, x, given, (12, 12), random, ())[0], x) for _ in range(300))
        assert abs(changed - 300 * chance) <= 4 * np.sqrt(300 * chance * (1 - chance))


BENT = {
    "horizontal_flip": {"chance": 0.5},
    "rotate90": {"chance": 0.5},
    "elastic": {"chance": 1.0, "alpha": 120, "sigma": 4},
    "optical_distortion": {"chance": 1.0, "min": -0.3, "max": 0.3, "mode": "fisheye"},
    "coarse_dropout": {"chance": 1.0, "holes": [1, 2], "height": [0.1, 0.2], "width": [0.1, 0.2]},
}


def test_both_images_are_moved_alike():
    x = coordinates(60, 60)
    for seed in range(10):
        a, b = augment(x, x, settings(BENT), (50, 50), np.random.default_rng(seed), ())
        np.testing.assert_array_equal(a, b)
        # x and y may have one channel each and differ in what they hold: still the same places.
        c, d = augment(x[..., :1], x[..., 1:2], settings(BENT), (50, 50), np.random.default_rng(seed), ())
        np.testing.assert_array_equal(np.dstack([c, d]), a[..., :2])


def test_a_label_map_gets_no_new_values_and_lies_where_the_image_does():
    labels = (200 * (smooth(60, 60)[..., :1] > 127)).astype(np.uint8)
    for seed in range(10):
        a, b = augment(labels, labels, settings(BENT), (50, 50), np.random.default_rng(seed), ["y"])
        assert set(np.unique(b)) <= {0, 200}
        assert len(np.unique(a)) > 2
        assert np.abs(a.astype(int) - b).max() <= 155  # the nearest pixel has at least a quarter of the weight


def test_elastic_is_interpolated_as_scipy_does():
    image = smooth(*SHAPE)
    given = settings({"elastic": {"chance": 1.0, "alpha": 80, "sigma": 5}})
    a, _ = augment(image, image, given, SHAPE, np.random.default_rng(9), ())
    random = np.random.default_rng(9)
    random.integers(0, endpoint=True), random.integers(0, endpoint=True), random.random()
    noise = random.standard_normal((*SHAPE, 2), dtype=np.float32).astype(np.float64)
    noise /= np.abs(noise).max()
    dx, dy = (80 * ndimage.gaussian_filter(noise[..., i], 5, mode="nearest", truncate=4) for i in range(2))
    assert 1.0 < np.abs(dx).max() < 20.0
    rows, columns = np.indices(SHAPE)
    expected = read(image, rows + dy, columns + dx)
    assert np.abs(a - expected).max() <= 2.0  # OpenCV may count in 1/32 of a pixel


def read(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Bilinear reading with zeros around the image, float64."""
    padded = np.pad(image.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    places = [rows + 1, columns + 1]
    channels = [ndimage.map_coordinates(padded[..., i], places, order=1, cval=0) for i in range(image.shape[2])]
    return np.stack(channels, axis=-1)


def lens(u: float, v: float, height: int, width: int, k: float, mode: str) -> tuple[float, float]:
    """The formulas, one pixel at a time."""
    if mode == "camera":
        a, b = (u - (width - 1) / 2) / width, (v - (height - 1) / 2) / height
        factor = 1 + k * (a * a + b * b) + k * (a * a + b * b) ** 2
        return width * a * factor + width / 2, height * b * factor + height / 2
    x, y = u - width / 2, v - height / 2
    share = (x * x + y * y) / (width**2 / 4 + height**2 / 4)
    return width / 2 + x * (1 + k * share), height / 2 + y * (1 + k * share)


@pytest.mark.parametrize("mode", ["camera", "fisheye"])
@pytest.mark.parametrize("k", [-0.4, 0.0, 0.3])
def test_lens_maps_follow_their_formulas(mode, k):
    found = warps.lens_map(*SHAPE, k=k, mode=mode)
    expected = [[lens(u, v, *SHAPE, k, mode) for u in range(SHAPE[1])] for v in range(SHAPE[0])]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_elastic_before_lens_is_one_reading_at_the_composed_place():
    image = smooth(*SHAPE)
    places = warps.lens_map(*SHAPE, k=0.2, mode="camera")
    field = warps.elastic_field(np.random.default_rng(1), *SHAPE, alpha=60.0, sigma=4.0)
    found = warps.sampled(image, warps.displaced(places, field), nearest=False)
    v, u = places[..., 1].astype(np.float64), places[..., 0].astype(np.float64)
    dx, dy = (
        ndimage.map_coordinates(field[..., i].astype(np.float64), [v, u], order=1, mode="nearest") for i in (0, 1)
    )
    rows, columns = v + dy, u + dx
    inside = (rows >= 0) & (rows <= SHAPE[0] - 1) & (columns >= 0) & (columns <= SHAPE[1] - 1)
    off = np.abs(found - read(image, rows, columns)).max(axis=2)
    assert 0.5 < inside.mean() < 1.0
    assert off[inside].max() <= 2.0
    assert off.max() <= 8.0  # the step to 0 at the border is steep


def test_dropout_makes_the_stated_holes_in_both():
    x, y = np.full((100, 60, 3), 9, np.uint8), np.full((100, 60, 1), 8, np.uint8)
    given = settings({"coarse_dropout": {"chance": 1, "holes": [1, 1], "height": [0.1, 0.3], "width": [0.5, 0.5]}})
    heights = []
    for seed in range(200):
        a, b = augment(x, y, given, (100, 60), np.random.default_rng(seed), ())
        hole = a[..., 0] == 0
        np.testing.assert_array_equal(hole, b[..., 0] == 0)
        rows, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
        assert hole[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        assert len(columns) == 30
        heights.append(len(rows))
    assert min(heights) >= 10
    assert max(heights) <= 30
    assert np.mean(heights) == pytest.approx(20, abs=2)  # uniform: standard error 0.4
    holes = warps.random_holes(np.random.default_rng(0), 50, 50, (2, 4), (0.1, 0.1), (0.0, 0.0))
    assert 2 <= len(holes) <= 4
    assert all(rows.stop - rows.start == 5 and columns.stop - columns.start == 1 for rows, columns in holes)


# tone


def test_jitter_follows_its_formulas():
    x = picture(8, 9, 11, 3)
    value = x.astype(np.float64)
    luma = value @ [0.299, 0.587, 0.114]
    expected = {
        ("brightness", 1.3): value * 1.3,
        ("contrast", 0.6): 0.6 * value + 0.4 * luma.mean(),
        ("saturation", 1.7): 1.7 * value - 0.7 * luma[..., None],
    }
    for change, wanted in expected.items():
        assert np.abs(photometry.jittered(x, [change]) - wanted.clip(0, 255)).max() <= 0.51
    turned = photometry.jittered(x, [("hue", -0.2)])
    for before, after in zip(x.reshape(-1, 3) / 255.0, turned.reshape(-1, 3), strict=True):
        hue, saturation, brightness = colorsys.rgb_to_hsv(*before)
        wanted = colorsys.hsv_to_rgb((hue - 0.2) % 1.0, saturation, brightness)
        assert np.abs(after - 255.0 * np.array(wanted)).max() <= 0.6


def test_jitter_applies_only_what_is_written_in_random_order():
    x = picture(9, 9, 11, 3)
    np.testing.assert_array_equal(vary(x, settings(colour_jitter={"chance": 1.0})), x)
    brighter = vary(x, settings(colour_jitter={"chance": 1.0, "brightness": [1.2, 1.2]}))
    assert np.abs(brighter - (1.2 * x.astype(np.float64)).clip(0, 255)).max() <= 0.51
    pair = settings(colour_jitter={"chance": 1.0, "brightness": [1.8, 1.8], "contrast": [0.5, 0.5]})
    first = photometry.jittered(x, [("brightness", 1.8), ("contrast", 0.5)])
    second = photometry.jittered(x, [("contrast", 0.5), ("brightness", 1.8)])
    counts = [sum(np.array_equal(vary(x, pair, seed), one) for seed in range(100)) for one in (first, second)]
    assert sum(counts) == 100
    assert 30 <= counts[0] <= 70


def test_a_grey_image_has_brightness_and_contrast_alone():
    x = picture(10, 9, 11, 1)
    np.testing.assert_array_equal(photometry.jittered(x, [("hue", 0.3), ("saturation", 3.0)]), x)
    wanted = 0.5 * x.astype(np.float64) + 0.5 * x.mean()
    assert np.abs(photometry.jittered(x, [("contrast", 0.5)]) - wanted).max() <= 0.51
    for method in ("average", "pca", "from_lab"):
        np.testing.assert_array_equal(photometry.greyscale(x, method), x)


def test_noise_has_the_stated_spread_everywhere_independently():
    x = np.full((120, 130, 3), 128, np.uint8)
    noise = vary(x, settings(gaussian_noise={"chance": 1, "std": [0.1, 0.1]})).astype(np.float64) - 128
    assert noise.mean() == pytest.approx(0, abs=0.5)  # standard error 0.12
    assert noise.std() == pytest.approx(25.5, rel=0.02)
    assert np.abs(np.corrcoef(noise.reshape(-1, 3).T) - np.eye(3)).max() < 0.04
    assert abs(np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]) < 0.02
    assert vary(np.full((50, 50, 1), 250, np.uint8), settings(gaussian_noise={"chance": 1, "std": [1, 1]})).max() == 255


@pytest.mark.parametrize("size", [3, 9])
def test_motion_kernels_are_normalised_lines(size):
    middle = size // 2
    level = photometry.motion_kernel(size, angle=0.0, bias=0.0, shift=(0.0, 0.0))
    expected = np.zeros((size, size))
    expected[middle] = 1 / size
    np.testing.assert_allclose(level, expected, atol=1e-6)
    np.testing.assert_allclose(
        photometry.motion_kernel(size, angle=90.0, bias=0.0, shift=(0.0, 0.0)), expected.T, atol=1e-6
    )
    ahead = photometry.motion_kernel(size, angle=0.0, bias=1.0, shift=(0.0, 0.0))
    np.testing.assert_allclose(ahead[middle], np.where(np.arange(size) >= middle, 1 / (middle + 1), 0), atol=1e-6)


def test_motion_blur_correlates_with_a_kernel_no_larger_than_the_limit():
    dot = np.zeros((31, 31, 1), np.uint8)
    dot[15, 15] = 255
    sizes = set()
    for seed in range(60):
        spread = vary(dot, settings(motion_blur={"chance": 1, "limit": 8}), seed)[..., 0]
        rows, columns = np.nonzero(spread)
        sizes.add(int(max(np.abs(rows - 15).max(), np.abs(columns - 15).max())))
        assert int(spread.sum()) == pytest.approx(255, abs=8)  # rounding of up to 15 pixels
    assert sizes <= {0, 1, 2, 3}
    assert 3 in sizes
    image, kernel = picture(11, 12, 13, 3), photometry.motion_kernel(5, angle=30.0, bias=0.4, shift=(0.5, -0.3))
    wanted = np.stack(
        [
            ndimage.correlate(image[..., i].astype(np.float64), kernel.astype(np.float64), mode="mirror")
            for i in range(3)
        ],
        axis=-1,
    )
    assert np.abs(photometry.blurred(image, kernel) - wanted).max() <= 0.51


def test_gamma_is_a_power_of_the_fraction_of_full_scale():
    x = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    darker = vary(x, settings(gamma={"chance": 1, "range": [2.2, 2.2]}))
    assert np.abs(darker - 255 * (x / 255.0) ** 2.2).max() <= 0.51
    np.testing.assert_array_equal(vary(x, settings(gamma={"chance": 1, "range": [1, 1]})), x)


@pytest.mark.parametrize(
    ("method", "grey"),
    [
        ("weighted_average", lambda v: v @ [0.299, 0.587, 0.114]),
        ("desaturation", lambda v: (v.max(axis=2) + v.min(axis=2)) / 2),
        ("average", lambda v: v.mean(axis=2)),
        ("max", lambda v: v.max(axis=2)),
        ("from_lab", lambda v: rgb2lab(v / 255)[..., 0] * 2.55),
    ],
)
def test_greyscale_methods(method, grey):
    x = picture(12, 20, 21, 3)
    found = vary(x, settings(greyscale={"chance": 1, "method": method}))
    assert (found == found[..., :1]).all()
    assert np.abs(found[..., 0] - grey(x.astype(np.float64))).max() <= 1.0


def test_greyscale_by_principal_component():
    x = (np.arange(60).reshape(6, 10, 1) * [1, 2, 4]).astype(np.uint8)  # colours on one line: ranked along it
    found = photometry.greyscale(x, "pca")[..., 0]
    assert np.abs(found - 255 * np.arange(60).reshape(6, 10) / 59).max() <= 0.51
    y = picture(13, 20, 21, 3)
    left = np.linalg.svd(y.reshape(-1, 3) - y.reshape(-1, 3).mean(axis=0), full_matrices=False)
    scores = left[0][:, 0] * np.sign(left[2][0].sum())
    wanted = 255 * (scores - scores.min()) / np.ptp(scores)
    assert np.abs(photometry.greyscale(y, "pca")[..., 0].ravel() - wanted).max() <= 0.51
    flat = np.full((4, 4, 3), (30, 60, 90), np.uint8)
    np.testing.assert_array_equal(photometry.greyscale(flat, "pca"), np.full((4, 4, 3), 60))


@pytest.mark.parametrize("codec", ["jpeg", "webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_compression_is_a_round_trip(codec, channels):
    x = smooth(40, 48)[..., :channels]
    setting = {"jpeg": cv2.IMWRITE_JPEG_QUALITY, "webp": cv2.IMWRITE_WEBP_QUALITY}[codec]
    data = cv2.imencode(f".{codec}", cv2.cvtColor(x, cv2.COLOR_RGB2BGR) if channels == 3 else x, [setting, 30])[1]
    if channels == 3:
        wanted = cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    else:
        wanted = cv2.imdecode(data, cv2.IMREAD_GRAYSCALE)[..., None]
    found = vary(x, settings(compression={"chance": 1, "type": codec, "quality": [30, 30]}))
    np.testing.assert_array_equal(found, wanted)
    assert not np.array_equal(found, x)
    assert np.abs(found.astype(int) - x).mean() < 12  # colours are not swapped


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"input": {"gamma": {"chance": 1, "range": [1.2, 0.8]}}}, "the lowest, 1.2, is above the highest, 0.8"),
        (
            {"both": {"optical_distortion": {"chance": 1, "min": 0.2, "max": 0.1, "mode": "camera"}}},
            "the lowest, 0.2, is above",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(text, message):
    with pytest.raises(ValidationError, match=message):
        PairAugmentation.model_validate_json(json.dumps(text), strict=True)

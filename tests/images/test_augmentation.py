"""Augmentation of pairs against NumPy, SciPy and colorsys; geometry is the same for both images."""

import colorsys
import json

import cv2
import numpy as np
import pytest

from models.images import photometry
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
        a[:], b[:] = 0, 0  # no views of what went in
    assert corners == {(top, left) for top in range(3) for left in range(2)}
    np.testing.assert_array_equal(x, coordinates(*SHAPE))


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
    ("section", "name", "more"), [("both", "horizontal_flip", {}), ("input", "gaussian_noise", {"std": [0.2, 0.3]})]
)
def test_chances_are_honoured(section, name, more):
    x, random = picture(4, 12, 12, 3), np.random.default_rng(5)
    for chance in (0.0, 0.2):
        given = PairAugmentation.model_validate({section: {name: {"chance": chance, **more}}}, strict=False)
        changed = sum(not np.array_equal(augment(x, x, given, (12, 12), random, ())[0], x) for _ in range(300))
        assert abs(changed - 300 * chance) <= 4 * np.sqrt(300 * chance * (1 - chance))


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


@pytest.mark.parametrize("hue", [-0.5, -0.2, -0.0, 0.0, 0.3, 0.5])
def test_jitter_has_the_bits_of_the_plain_formulas(hue):
    x, zero = picture(8, 97, 61, 3), np.float32(0)
    changes = [("contrast", 0.6), ("hue", hue), ("saturation", 1.7), ("brightness", 1.3)]
    value = x.astype(np.float32)
    value = (0.6 * value + 0.4 * float((value @ photometry.LUMA).mean(dtype=np.float64))).clip(zero, 255)
    hsv = cv2.cvtColor(value / 255, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = np.mod(hsv[..., 0] + 360 * hue, 360)
    value = (cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB) * 255).clip(zero, 255)
    value = (1.7 * value + (1 - 1.7) * (value @ photometry.LUMA)[..., None]).clip(zero, 255)
    wanted = np.rint((value * 1.3).clip(zero, 255)).astype(np.uint8)
    np.testing.assert_array_equal(photometry.jittered(x, changes), wanted)


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
    np.testing.assert_array_equal(photometry.greyscale(x), x)


def test_greyscale_is_the_luma():
    x = picture(12, 20, 21, 3)
    found = vary(x, settings(greyscale={"chance": 1}))
    assert (found == found[..., :1]).all()
    assert np.abs(found[..., 0] - x @ [0.299, 0.587, 0.114]).max() <= 0.51


def test_noise_has_the_stated_spread_everywhere_independently():
    x = np.full((120, 130, 3), 128, np.uint8)
    noise = vary(x, settings(gaussian_noise={"chance": 1, "std": [0.1, 0.1]})).astype(np.float64) - 128
    assert noise.mean() == pytest.approx(0, abs=0.5)  # standard error 0.12
    assert noise.std() == pytest.approx(25.5, rel=0.02)
    assert np.abs(np.corrcoef(noise.reshape(-1, 3).T) - np.eye(3)).max() < 0.04
    assert abs(np.corrcoef(noise[:, :-1].ravel(), noise[:, 1:].ravel())[0, 1]) < 0.02
    assert vary(np.full((50, 50, 1), 250, np.uint8), settings(gaussian_noise={"chance": 1, "std": [1, 1]})).max() == 255


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

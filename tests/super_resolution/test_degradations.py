import math
from fractions import Fraction

import cv2
import numpy as np
import pytest
from pictures_by_hand import noise
from scipy.ndimage import gaussian_filter

from models.images import photometry
from models.super_resolution.degradation_settings import Degradation
from models.super_resolution.degradations import degraded, gaussian_kernel, with_shot_noise
from models.super_resolution.resampling import resample


def settings(**entries):
    return Degradation.model_validate(entries, by_name=True)


def cubic(distance):
    """Keys' kernel with a = -1/2."""
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2
    return np.where(distance < 1, near, np.where(distance < 2, far, 0))


KERNELS = {
    "area": lambda d: d < 0.5,
    "bilinear": lambda d: np.maximum(1 - d, 0),
    "bicubic": cubic,
    "lanczos": lambda d: np.where(d < 3, np.sinc(d) * np.sinc(d / 3), 0),
}


def weights_by_hand(kernel, inputs, outputs):
    """(outputs, inputs), each row's sum 1."""
    factor = inputs / outputs
    distances = np.arange(inputs) + 0.5 - factor * (np.arange(outputs)[:, None] + 0.5)
    weights = KERNELS[kernel](np.abs(distances) / max(factor, 1)).astype(float)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("size", [(32, 24), (16, 144), (21, 16), (45, 80)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_resampling_agrees_with_the_formula(kernel, size):
    """At factors where no centre lies on the border of two areas."""
    image = noise(64, 48)
    rows, columns = (weights_by_hand(kernel, *sides) for sides in ((64, size[0]), (48, size[1])))
    expected = np.einsum("yi,ijc,xj->yxc", rows, image, columns).clip(0, 255)
    resized = resample(image, size, kernel)
    assert resized.dtype == np.uint8
    assert resized.flags.c_contiguous
    assert np.abs(resized - expected).max() <= 0.5 + 1e-3


def test_area_and_nearest():
    image = noise(8, 12)
    blocks = image.reshape(4, 2, 6, 2, 3).astype(float).mean(axis=(1, 3))
    assert np.abs(resample(image, (4, 6), "area") - blocks).max() <= 0.5 + 1e-3
    assert (resample(image, (4, 6), "nearest") == image[1::2, 1::2]).all()
    assert (resample(image, (16, 24), "nearest") == image.repeat(2, 0).repeat(2, 1)).all()


@pytest.mark.parametrize("size", [(7, 7), (13, 3), (10, 29)])
def test_nearest_is_the_pixel_that_a_centre_lies_in(size):
    """At 10 to 7, that of output pixel 3 lies at 5 exactly, which sums of floats miss."""
    image = noise(10, 10)
    rows, columns = ([math.floor(Fraction(2 * i + 1, 2) * Fraction(10, n)) for i in range(n)] for n in size)
    assert (resample(image, size, "nearest") == image[rows][:, columns]).all()


def test_on_the_border_of_two_areas_a_pixel_counts_for_the_first():
    image = np.array([[[0], [90], [200]]], np.uint8)
    assert resample(image, (1, 2), "area").ravel().tolist() == [45, 200]


def test_gaussian_kernels():
    kernel = gaussian_kernel((1.5, 1.5), 0.0)
    impulse = np.zeros((21, 21))
    impulse[10, 10] = 1
    expected = gaussian_filter(impulse, 1.5, radius=5)
    assert kernel.shape == (11, 11)
    np.testing.assert_allclose(kernel, expected[5:16, 5:16], atol=1e-6)
    turned = gaussian_kernel((3.0, 1.0), math.radians(30)).astype(float)
    assert turned.sum() == pytest.approx(1.0, abs=1e-6)
    y, x = np.mgrid[-9:10, -9:10]
    moments = np.array([[(turned * p * q).sum() for q in (x, y)] for p in (x, y)])
    c, s = math.cos(math.radians(30)), math.sin(math.radians(30))
    rotation = np.array([[c, -s], [s, c]])
    np.testing.assert_allclose(moments, rotation @ np.diag([9.0, 1.0]) @ rotation.T, rtol=0.05)


def test_shot_noise_has_poissons_variance():
    image = np.full((200, 200, 3), 100, np.uint8)
    noisy = with_shot_noise(image, np.random.default_rng(0), photons=500.0).astype(float)
    assert noisy.mean() == pytest.approx(100, abs=0.2)
    assert noisy.var() == pytest.approx(255 * 100 / 500 + 1 / 12, rel=0.03)  # and rounding


def test_the_order(monkeypatch):
    """Blur, reduction, shot noise, Gaussian noise, compression, each with what is between its limits."""
    image, calls = noise(16, 16), []

    def watched(name, function):
        def call(*arguments, **named):
            calls.append((name, arguments[0].shape, arguments[1:]))
            return function(*arguments, **named)

        return call

    for name in ("blurred", "noisy", "compressed"):
        monkeypatch.setattr(photometry, name, watched(name, getattr(photometry, name)))
    module = "models.super_resolution.degradations"
    monkeypatch.setattr(f"{module}.resample", watched("resample", resample))
    monkeypatch.setattr(f"{module}.with_shot_noise", watched("shot", with_shot_noise))
    everything = settings(
        kernels={"area": 1.0, "bicubic": 0.0}, blur={"chance": 1.0, "sigma": (0.5, 1.0), "anisotropic": 1.0},
        shot_noise={"chance": 1.0, "photons": (100.0, 200.0)}, gaussian_noise={"chance": 1.0, "std": (0.01, 0.02)},
        compression={"chance": 1.0, "type": "jpeg", "quality": (50, 60)},
    )  # fmt: skip
    found = degraded(image, everything, 4, np.random.default_rng(3))
    assert found.shape == (4, 4, 3)
    assert [name for name, _, _ in calls] == ["blurred", "resample", "shot", "noisy", "compressed"]
    assert [shape[0] for _, shape, _ in calls] == [16, 16, 4, 4, 4]
    arguments = [rest for _, _, rest in calls]
    assert arguments[1][1] == "area"
    assert 100 <= arguments[2][1] <= 200
    assert 0.01 <= arguments[3][1] <= 0.02
    assert arguments[4][0] == "jpeg"
    assert 50 <= arguments[4][1] <= 60
    assert (degraded(image, everything, 4, np.random.default_rng(3)) == found).all()


def test_chances_and_shares():
    image, random = cv2.GaussianBlur(noise(16, 16), (0, 0), 2.0), np.random.default_rng(0)
    half = settings(kernels={"area": 0.75, "bicubic": 0.25}, gaussian_noise={"chance": 0.5, "std": (0.1, 0.1)})
    clean = {kernel: resample(image, (8, 8), kernel).tobytes() for kernel in ("area", "bicubic")}
    found = [degraded(image, half, 2, random).tobytes() for _ in range(400)]
    counts = {kernel: found.count(content) / 400 for kernel, content in clean.items()}
    assert counts["area"] == pytest.approx(0.375, abs=0.08)
    assert counts["bicubic"] == pytest.approx(0.125, abs=0.06)


@pytest.mark.parametrize("kernel", ["area", "bilinear", "bicubic", "lanczos"])
def test_a_linear_slope_stays_where_it_is(kernel):
    """No kernel but nearest moves the picture."""
    slope = np.tile((np.arange(40) * 4 + 20).astype(np.uint8)[None, :, None], (6, 1, 1))
    half = resample(slope, (3, 20), kernel).astype(float)
    expected = (np.arange(20) * 2 + 0.5) * 4 + 20
    np.testing.assert_allclose(half[1, 4:-4, 0], expected[4:-4], atol=0.51)

import math
from fractions import Fraction

import cv2
import numpy as np
import pytest
from pictures_by_hand import noise
from scipy.ndimage import gaussian_filter
from scipy.special import j1

from models.images import photometry
from models.super_resolution import degradations
from models.super_resolution.degradation_settings import Degradation, Sharpening
from models.super_resolution.degradations import blur_kernel, degraded, sharpened, sinc_kernel, with_shot_noise
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
    """(outputs, inputs), each row's sum 1; what lies beyond a border counts for the pixel it mirrors."""
    factor = inputs / outputs
    beyond = np.arange(-inputs, 2 * inputs)
    distances = beyond + 0.5 - factor * (np.arange(outputs)[:, None] + 0.5)
    weights = KERNELS[kernel](np.abs(distances) / max(factor, 1)).astype(float)
    left, inside, right = np.split(weights, 3, axis=1)
    weights = inside + left[:, ::-1] + right[:, ::-1]
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("size", [(16, 144), (21, 16)])
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


@pytest.mark.parametrize("size", [(5, 5), (7, 7), (13, 3), (10, 29)])
def test_nearest_is_the_pixel_that_a_centre_lies_in(size):
    """At 10 to 7, that of output pixel 3 lies at 5 exactly, which sums of floats miss."""
    image = noise(10, 10)
    rows, columns = ([math.floor(Fraction(2 * i + 1, 2) * Fraction(10, n)) for i in range(n)] for n in size)
    assert (resample(image, size, "nearest") == image[rows][:, columns]).all()


def test_on_the_border_of_two_areas_a_pixel_counts_for_the_first():
    image = np.array([[[0], [90], [200]]], np.uint8)
    assert resample(image, (1, 2), "area").ravel().tolist() == [45, 200]


def test_gaussian_kernels():
    kernel = blur_kernel((1.5, 1.5), 0.0)
    impulse = np.zeros((21, 21))
    impulse[10, 10] = 1
    expected = gaussian_filter(impulse, 1.5, radius=5)
    assert kernel.shape == (11, 11)
    np.testing.assert_allclose(kernel, expected[5:16, 5:16], atol=1e-6)
    turned = blur_kernel((3.0, 1.0), math.radians(30)).astype(float)
    assert turned.sum() == pytest.approx(1.0, abs=1e-6)
    y, x = np.mgrid[-9:10, -9:10]
    moments = np.array([[(turned * p * q).sum() for q in (x, y)] for p in (x, y)])
    c, s = math.cos(math.radians(30)), math.sin(math.radians(30))
    rotation = np.array([[c, -s], [s, c]])
    np.testing.assert_allclose(moments, rotation @ np.diag([9.0, 1.0]) @ rotation.T, rtol=0.05)


@pytest.mark.parametrize(("shape", "exponent"), [("generalised", 0.7), ("generalised", 3.0), ("plateau", 1.5)])
def test_other_shapes(shape, exponent):
    kernel = blur_kernel((2.0, 1.0), 0.0, shape, exponent)
    assert kernel.shape == (13, 13)

    def weight(x, y):
        q = (x / 2.0) ** 2 + (y / 1.0) ** 2
        return 1 / (1 + q**exponent) if shape == "plateau" else math.exp(-(q**exponent) / 2)

    total = sum(weight(x, y) for x in range(-6, 7) for y in range(-6, 7))
    for x, y in [(0, 0), (3, 0), (0, 2), (-4, 5)]:
        assert kernel[6 + y, 6 + x] == pytest.approx(weight(x, y) / total, rel=1e-5)


def test_sinc_filters_end_at_their_cutoff():
    kernel = sinc_kernel(0.4).astype(float)
    y, x = np.mgrid[-10:11, -10:11]
    r, w = np.hypot(x, y), 0.4 * np.pi
    with np.errstate(invalid="ignore"):
        expected = np.where(r == 0, w**2 / (4 * np.pi), w * j1(w * r) / (2 * np.pi * r))
    np.testing.assert_allclose(kernel, expected / expected.sum(), atol=1e-7)
    assert kernel.min() < -0.003  # the lobes that ring
    gain = np.abs(np.fft.fft2(np.fft.ifftshift(np.pad(kernel, 11)), norm="backward"))[0]
    highest = len(gain) // 2
    assert gain[: int(0.3 * highest)].min() > 0.85
    assert gain[int(0.5 * highest) : highest].max() < 0.15


def test_sharpening():
    """`v + mask (clip(v + amount (v - blurred)) - v)`, the mask blurred; below the threshold nothing changes."""
    image = noise(40, 30)
    found = sharpened(image, Sharpening(amount=0.5, sigma=3.0, threshold=60.0))
    values = image.astype(np.float64)

    def blurred(a):
        return gaussian_filter(a, 3.0, axes=(0, 1), mode="mirror", radius=12)

    residual = values - blurred(values)
    mask = blurred((np.abs(residual) > 60).astype(float))
    expected = values + mask * (np.clip(values + 0.5 * residual, 0, 255) - values)
    assert np.abs(found - expected).max() <= 0.5 + 0.01
    assert (sharpened(image, Sharpening(amount=0.5, sigma=3.0, threshold=255.0)) == image).all()


def test_shot_noise_has_poissons_variance():
    image = np.full((200, 200, 3), 100, np.uint8)
    noisy = with_shot_noise(image, np.random.default_rng(0), photons=500.0).astype(float)
    assert noisy.mean() == pytest.approx(100, abs=0.2)
    assert noisy.var() == pytest.approx(255 * 100 / 500 + 1 / 12, rel=0.03)  # and rounding


@pytest.fixture
def calls(monkeypatch):
    """What a degradation calls, in order: the name, the images before and after, and the other arguments."""
    found = []

    def watch(module, name):
        function = getattr(module, name)

        def call(image, *arguments):
            result = function(image, *arguments)
            found.append((name, image, result, arguments))
            return result

        monkeypatch.setattr(module, name, call)

    for name in ("blurred", "noisy", "compressed"):
        watch(photometry, name)
    for name in ("resample", "with_shot_noise"):
        watch(degradations, name)
    return found


def test_the_order(calls):
    """Blur, reduction, shot noise, Gaussian noise, compression, each with what is between its limits."""
    image = noise(16, 16)
    everything = settings(
        kernels={"area": 1.0, "bicubic": 0.0}, blur={"chance": 1.0, "sigma": (0.5, 1.0), "anisotropic": 1.0},
        shot_noise={"chance": 1.0, "photons": (100.0, 200.0)}, gaussian_noise={"chance": 1.0, "std": (0.01, 0.02)},
        compression={"chance": 1.0, "type": "jpeg", "quality": (50, 60)},
    )  # fmt: skip
    found = degraded(image, everything, 4, np.random.default_rng(3))
    assert found.shape == (4, 4, 3)
    names = [name for name, *_ in calls]
    assert names == ["blurred", "resample", "with_shot_noise", "noisy", "compressed"]
    assert [before.shape[0] for _, before, _, _ in calls] == [16, 16, 4, 4, 4]
    _, (_, kernel), (_, photons), (_, std), (codec, quality) = (arguments for *_, arguments in calls)
    assert (kernel, codec) == ("area", "jpeg")
    assert 100 <= photons <= 200
    assert 0.01 <= std <= 0.02
    assert 50 <= quality <= 60
    assert (degraded(image, everything, 4, np.random.default_rng(3)) == found).all()


def test_second_order(calls):
    """Two rounds, of which the second sizes by the small image; the final filter before or after the compression."""
    image = noise(32, 32)
    blur = {"chance": 1.0, "sigma": (0.5, 1.0), "shapes": {"gaussian": 0.5, "generalised": 0.25, "plateau": 0.25}}
    jpeg = {"chance": 1.0, "type": "jpeg", "quality": (50, 60)}

    def resize(of, smaller):
        return {"chance": 1.0, "of": of, "smaller": smaller, "factor": (0.5, 1.5), "kernels": {"area": 1.0}}

    noisy = {"chance": 1.0, "std": (0.01, 0.02)}
    second = settings(
        rounds=[
            {"blur": blur, "resize": resize("large", 1.0), "gaussian_noise": noisy, "compression": jpeg},
            {"blur": blur, "sinc": {"chance": 1.0, "cutoff": (0.3, 1.0)}, "resize": resize("small", 0.0)},
        ],
        kernels={"area": 1.0}, sinc={"chance": 1.0, "cutoff": (0.3, 1.0)}, compression=jpeg,
    )  # fmt: skip
    orders = set()
    for seed in range(8):
        calls.clear()
        found = degraded(image, second, 4, np.random.default_rng(seed))
        assert found.shape == (8, 8, 3)
        names, sizes = [name for name, *_ in calls], [after.shape[0] for _, _, after, _ in calls]
        first = ["blurred", "resample", "noisy", "compressed", "blurred", "resample", "resample"]
        assert names[:7] == first
        orders.add(tuple(names[7:]))
        assert 16 <= sizes[1] < 32
        assert 8 <= sizes[5] <= 12
        assert sizes[6] == 8
        assert calls[4][3][0].shape == (21, 21)  # the sinc filter in place of the blur
        assert (degraded(image, second, 4, np.random.default_rng(seed)) == found).all()
    assert orders == {("blurred", "compressed"), ("compressed", "blurred")}


def test_chances_and_shares():
    image, random = cv2.GaussianBlur(noise(16, 16), (0, 0), 2.0), np.random.default_rng(0)
    half = settings(kernels={"area": 0.75, "bicubic": 0.25}, gaussian_noise={"chance": 0.5, "std": (0.1, 0.1)})
    clean = {kernel: resample(image, (8, 8), kernel).tobytes() for kernel in ("area", "bicubic")}
    found = [degraded(image, half, 2, random).tobytes() for _ in range(400)]
    counts = {kernel: found.count(content) / 400 for kernel, content in clean.items()}
    assert counts["area"] == pytest.approx(0.375, abs=0.08)
    assert counts["bicubic"] == pytest.approx(0.125, abs=0.06)

"""Size, window, orientation and colours of pictures, and their augmentation, against NumPy."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.injectors.color import Augment, Grey, Normalise
from figura.injectors.spatial import Crop, Orient, Pad, Resize
from figura.interfaces import Networks, State
from figura.recipe.types import INJECTOR, construct

RANDOM = np.random.default_rng(0)


def pictures(*shape):
    return RANDOM.uniform(-1, 1, shape)


def places(count, height, width):
    """Pictures (count, 1, height, width) of which each pixel says where it is: 1000 row + column."""
    one = 1000.0 * np.arange(height)[:, None] + np.arange(width)
    return np.broadcast_to(one, (count, 1, height, width)).copy()


def run(injector, **batch):
    state = State({name: torch.as_tensor(value) for name, value in batch.items()})
    injector(state, Networks({}, {}), 0)
    return [state[name].detach().numpy() for name in injector.adds]


# size


def triangle(x):
    return np.maximum(0, 1 - np.abs(x))


def cubic(x, a=-0.75):  # Keys 1981, with PyTorch's a
    x = np.abs(x)
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def sampling(old, new, kernel, widened=1.0):
    """The matrix (new, old) that samples a line at pixel centres; beyond its ends it goes on as it ends."""
    reach = int(np.ceil(2 * widened)) + 1
    matrix = np.zeros((new, old))
    for row in range(new):
        centre = (row + 0.5) * old / new - 0.5
        for place in range(int(np.floor(centre)) - reach, int(np.floor(centre)) + reach + 1):
            inside = 0 <= place < old
            if inside or widened == 1:  # a widened kernel is cut at the ends, and its weights sum to 1
                matrix[row, min(max(place, 0), old - 1)] += kernel((place - centre) / widened)
    return matrix / matrix.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("mode", "kernel"), [("bilinear", triangle), ("bicubic", cubic)])
@pytest.mark.parametrize("size", [(12, 20), (5, 3)])
def test_resize_samples_at_pixel_centres(mode, kernel, size):
    x = pictures(2, 3, 6, 10)
    rows, columns = sampling(6, size[0], kernel), sampling(10, size[1], kernel)
    (found,) = run(Resize({"x": "y"}, size=size, mode=mode), x=x)
    np.testing.assert_allclose(found, rows @ x @ columns.T, atol=1e-6)


def test_resize_with_antialias_widens_the_kernel():
    x = pictures(1, 1, 12, 9)
    rows, columns = sampling(12, 4, triangle, widened=3.0), sampling(9, 3, triangle, widened=3.0)
    (found,) = run(Resize({"x": "y"}, factor=1 / 3, antialias=True), x=x)
    np.testing.assert_allclose(found, rows @ x @ columns.T, atol=1e-6)


def test_resize_by_whole_factors():
    x = pictures(2, 3, 4, 6)
    up, same = run(Resize({"x": "up", "z": "same"}, like="big", mode="nearest"), x=x, z=x, big=pictures(1, 1, 8, 12))
    np.testing.assert_array_equal(up, x.repeat(2, axis=2).repeat(2, axis=3))
    np.testing.assert_array_equal(same, up)
    (down,) = run(Resize({"x": "y"}, factor=0.5, mode="area"), x=x)
    np.testing.assert_allclose(down, x.reshape(2, 3, 2, 2, 3, 2).mean(axis=(3, 5)), atol=1e-12)


def test_pad_to_a_multiple_and_back():
    x = pictures(2, 3, 5, 8)
    (padded,) = run(Pad({"x": "y"}, 4), x=x)
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 0), (0, 0), (0, 3), (0, 0)), mode="reflect"))
    np.testing.assert_array_equal(run(Pad({"x": "y"}, 1), x=x)[0], x)
    (back,) = run(Crop({"y": "z"}, like="x", at="top_left"), y=padded, x=x)
    np.testing.assert_array_equal(back, x)


# windows


@pytest.mark.parametrize(
    ("arguments", "rows", "columns"),
    [
        ({"size": 4}, slice(3, 7), slice(1, 5)),
        ({"size": (3, 2)}, slice(3, 6), slice(2, 4)),
        ({"margin": 2}, slice(2, 8), slice(2, 4)),
        ({"size": 4, "at": "top_left"}, slice(0, 4), slice(0, 4)),
        ({"size": 4, "at": "top_right"}, slice(0, 4), slice(2, 6)),
        ({"size": 4, "at": "bottom_left"}, slice(6, 10), slice(0, 4)),
        ({"size": 4, "at": "bottom_right"}, slice(6, 10), slice(2, 6)),
    ],
)
def test_fixed_windows(arguments, rows, columns):
    x = pictures(2, 3, 10, 6)
    np.testing.assert_array_equal(run(Crop({"x": "y"}, **arguments), x=x)[0], x[:, :, rows, columns])


def test_random_windows_are_one_an_instance_and_the_same_for_all_names():
    small, large = places(300, 6, 7), places(300, 12, 14)
    cut, other, enlarged = run(
        Crop({"lq": "a", "mask": "b", "hq": "c"}, size=(4, 5), at="random"), lq=small, mask=small, hq=large
    )
    np.testing.assert_array_equal(cut, other)
    corners = {(int(one[0, 0, 0]) // 1000, int(one[0, 0, 0]) % 1000) for one in cut}
    assert corners == {(top, left) for top in range(3) for left in range(3)}
    for window, twice in zip(cut, enlarged, strict=True):
        top, left = int(window[0, 0, 0]) // 1000, int(window[0, 0, 0]) % 1000
        np.testing.assert_array_equal(window, small[0, :, top : top + 4, left : left + 5])
        np.testing.assert_array_equal(twice, large[0, :, 2 * top : 2 * top + 8, 2 * left : 2 * left + 10])


def test_a_margin_is_the_largest_shift():
    cut = run(Crop({"x": "y"}, margin=1, at="random"), x=places(200, 6, 6))[0]
    assert cut.shape == (200, 1, 4, 4)
    assert {int(one[0, 0, 0]) for one in cut} == {1000 * top + left for top in range(3) for left in range(3)}


@pytest.mark.parametrize(
    ("injector", "message"),
    [
        (Crop({"x": "y"}, size=9), "Crop of 'x' (2, 3, 8, 8): a window of 9 x 9 does not fit into 8 x 8"),
        (Crop({"x": "y"}, margin=4), "a window of 0 x 0"),
        (Crop({"x": "y", "flat": "z"}, size=2), "pictures (N, C, H, W) are needed"),
        (Crop({"x": "y", "wide": "z"}, size=2), "8 x 8 pixels, or a whole multiple"),
        (Grey({"one": "y"}), "3 channels are needed"),
        (Normalise({"one": "y"}), "3 channels are needed"),
        (Augment({"x": "y", "few": "z"}), "equal numbers of examples"),
    ],
)
def test_pictures_that_do_not_fit(injector, message):
    batch = {"x": (2, 3, 8, 8), "flat": (2, 3), "wide": (2, 3, 8, 16), "one": (2, 1, 8, 8), "few": (1, 3, 8, 8)}
    with pytest.raises(UserError, match=re.escape(message)):
        run(injector, **{name: pictures(*batch[name]) for name in injector.reads})


# orientation


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize(("flip", "axis"), [("horizontal", 3), ("vertical", 2)])
def test_a_flip_and_quarter_turns(flip, axis, turns):
    x = pictures(2, 3, 4, 5)
    (found,) = run(Orient({"x": "y"}, flip=flip, turns=turns), x=x)
    np.testing.assert_array_equal(found, np.rot90(np.flip(x, axis), turns, (2, 3)))


@pytest.mark.parametrize(("width", "count"), [(4, 8), (5, 4)])
def test_random_orientations(width, count):
    x = np.broadcast_to(pictures(1, 3, 4, width), (300, 3, 4, width)).copy()
    found, other = run(Orient({"x": "a", "z": "b"}, random=True), x=x, z=x)
    np.testing.assert_array_equal(found, other)
    turned = [np.rot90(x[0], turns, (1, 2)) for turns in range(4)]
    allowed = {one.tobytes() for y in turned for one in (y, np.flip(y, 2)) if one.shape == x[0].shape}
    assert len(allowed) == count
    assert {one.tobytes() for one in found} == allowed


# colours


def test_normalise_makes_what_imagenet_networks_read():
    x = pictures(2, 3, 4, 4)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    (found,) = run(Normalise({"x": "y"}), x=x)
    expected = ((x + 1) / 2 - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(run(Normalise({"y": "z"}, inverse=True), y=found)[0], x, atol=1e-12)
    np.testing.assert_allclose(run(Normalise({"x": "y"}, mean=(-1.0,), std=(2.0,)), x=x)[0], (x + 1) / 2, atol=1e-12)


def test_grey():
    x = pictures(2, 3, 4, 4)
    luma = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    np.testing.assert_allclose(run(Grey({"x": "y"}), x=x)[0], luma.repeat(3, axis=1), atol=1e-12)
    mean = run(Grey({"x": "y"}, weights=(0.5, 0.25, 0.25), channels=1), x=x)[0]
    np.testing.assert_allclose(mean, np.tensordot(x, [0.5, 0.25, 0.25], (1, 0))[:, None], atol=1e-12)


# augmentation: Zhao et al. 2020, section 3.3, an instance at a time


def shifted(picture, down, right):
    """The picture moved, 0 where nothing comes from."""
    channels, height, width = picture.shape
    frame = np.zeros((channels, 3 * height, 3 * width))
    frame[:, height + down : 2 * height + down, width + right : 2 * width + right] = picture
    return frame[:, height : 2 * height, width : 2 * width]


@pytest.mark.parametrize("size", [(16, 16), (9, 14)])
def test_augmentation_does_what_the_paper_says(size):
    count = 200
    x = pictures(count, 3, *size)
    augment = Augment({"x": "a", "z": "b"})
    torch.manual_seed(5)
    found, other = run(augment, x=x, z=x)
    np.testing.assert_array_equal(found, other)
    torch.manual_seed(5)
    draws = torch.rand(count, 7).double().numpy()
    moves, holes = set(), []
    for one, made, (b, s, c, down, right, row, column) in zip(x, found, draws, strict=True):
        one = one + (b - 0.5)
        one = (one - one.mean(axis=0)) * (2 * s) + one.mean(axis=0)
        one = (one - one.mean()) * (c + 0.5) + one.mean()
        reach = [round(side / 8) for side in size]
        move = tuple(int(np.floor(d * (2 * r + 1))) - r for d, r in zip((down, right), reach, strict=True))
        moves.add(move)
        one = shifted(one, *move)
        for y in range(size[0]):
            for z in range(size[1]):
                inside = []
                for place, side, drawn in ((y, size[0], row), (z, size[1], column)):
                    length = round(side / 2)
                    first = int(np.floor(drawn * (side + 1 - length % 2))) - length // 2
                    inside.append(first <= place < first + length)
                if all(inside):
                    one[:, y, z] = 0
        holes.append((made == 0).all(axis=0).sum())
        np.testing.assert_allclose(made, one, atol=1e-6)  # the draws of colours are float32
    assert moves == {(d, r) for d in range(-reach[0], reach[0] + 1) for r in range(-reach[1], reach[1] + 1)}
    assert max(holes) >= round(size[0] / 2) * round(size[1] / 2)


def test_policies_can_be_chosen_and_draw_the_same():
    x = pictures(8, 3, 16, 16)
    made = []
    for arguments in ({"translation": 0.0, "cutout": 0.0}, {"colour": False, "cutout": 0.0}, {"cutout": 0.0}):
        torch.manual_seed(1)
        made.append(run(Augment({"x": "y"}, **arguments), x=x)[0])
    colour, translation, both = made
    np.testing.assert_allclose(colour.mean(axis=(1, 2, 3)) - x.mean(axis=(1, 2, 3)), 0, atol=0.5)
    for one, there, all_of_it in zip(x, translation, both, strict=True):
        kept = (there != 0).all(axis=0)
        assert kept.sum() >= 14 * 14
        assert ((all_of_it != 0).all(axis=0) == kept).all()
        assert np.isin(there[:, kept], one).all()  # moved, not changed
    assert not np.isin(colour, x).any()


def test_gradients_pass_through_an_augmentation():
    x = torch.rand(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)

    def augmented(x):
        torch.manual_seed(2)
        state = State({"x": x})
        Augment({"x": "y"}, translation=0.3)(state, Networks({}, {}), 0)
        return state["y"]

    assert torch.autograd.gradcheck(augmented, (x,))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Resize", {}, "write one of size, factor, like"),
        ("Resize", {"size": 4, "factor": 2.0}, "write one of size, factor, like"),
        ("Resize", {"size": [4, 0]}, "size (4, 0): 1 or more"),
        ("Resize", {"factor": 0.0}, "factor 0.0: a number above 0"),
        ("Resize", {"size": 4, "mode": "area", "antialias": True}, "antialias with mode area"),
        ("Resize", {"size": 4, "mode": "lanczos"}, "expected 'nearest', 'bilinear', 'bicubic' or 'area'"),
        ("Crop", {"size": 4, "margin": 2}, "write one of size, margin, like"),
        ("Crop", {"margin": -1}, "margin -1: 0 or more"),
        ("Crop", {"size": 4, "at": "middle"}, "found 'middle'"),
        ("Pad", {"multiple": 0}, "multiple 0: 1 or more"),
        ("Orient", {}, "write random, or flip or turns"),
        ("Orient", {"random": True, "turns": 1}, "write random, or flip or turns"),
        ("Orient", {"turns": 4}, "turns 4: 0 to 3"),
        ("Normalise", {"mean": [0.5], "std": [0.0]}, "mean [0.5], std [0.0]"),
        ("Normalise", {"mean": [0.5]}, "as many of each"),
        ("Grey", {"channels": 0}, "channels 0"),
        ("Augment", {"colour": False, "translation": 0.0, "cutout": 0.0}, "all are off"),
        ("Augment", {"cutout": 2.0}, "cutout 2.0: shares of a side"),
    ],
)
def test_wrong_arguments(name, arguments, message):
    errors = ErrorCollector(Path("recipe"))
    assert construct(name, {"names": {"x": "y"}, **arguments}, INJECTOR, "steps.G.injectors.x", errors) is None
    assert len(errors.lines) == 1
    assert errors.lines[0].startswith("recipe: steps.G.injectors.x")
    assert message in errors.lines[0]

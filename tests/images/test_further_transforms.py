"""Transforms of albumentations in `augmentation`: from the example's own numbers, alike for both images."""

import json
import sys

import numpy as np
import pytest
from pretended_albumentations import BasicTransform, ImageOnlyTransform, pretended
from pydantic import ValidationError

from figura.base.errors import UserError
from models.images.augmentation import PairAugmentation, augment


class Shift(BasicTransform):
    """Moves pixels, and blends neighbours except in masks."""

    def change(self, image, numbers, is_mask):
        moved = np.roll(image, numbers.integers(1, 8), axis=1)
        return moved if is_mask else (image // 2 + moved // 2).astype(np.uint8)


class Noise(ImageOnlyTransform):
    def change(self, image, numbers, is_mask):
        return image if is_mask else image ^ numbers.integers(0, 8, image.shape, dtype=np.uint8)


class Half(BasicTransform):
    def change(self, image, numbers, is_mask):
        return image[::2, ::2]


class Compose:
    def __init__(self, transforms, additional_targets):
        self.transforms, self.targets = transforms, additional_targets

    def set_random_seed(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, image, **others):
        named = {"image": image, **others}
        for transform in self.transforms:
            if self.random.random() < transform.p:
                seed = self.random.integers(1 << 32)
                named = {
                    name: transform.change(one, np.random.default_rng(seed), self.targets.get(name) == "mask")
                    for name, one in named.items()
                }
        return named


@pytest.fixture(autouse=True)
def albumentations(monkeypatch):
    with pretended(monkeypatch, Shift, Noise, Half, Compose):
        yield


def settings(section, *entries) -> PairAugmentation:
    further = {f"t{index}": {"type": f"albumentations.{name}", **more} for index, (name, more) in enumerate(entries)}
    return PairAugmentation.model_validate_json(json.dumps({section: {"further": further}}), strict=True)


def picture(seed=0):
    return np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)


def made(given, seed, label_maps=(), x=None, y=None):
    x, y = picture(0) if x is None else x, picture(1) if y is None else y
    return augment(x, y, given, (12, 10), np.random.default_rng(seed), label_maps)


def test_an_example_depends_on_its_own_numbers_alone():
    given = settings("both", ("Shift", {}), ("Noise", {"p": 1.0}))
    first = [made(given, seed) for seed in range(20)]
    again = [made(given, seed) for seed in reversed(range(20))][::-1]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len({x.tobytes() for x, _ in first}) == 20


def test_both_images_are_changed_alike_or_the_input_alone():
    given = settings("both", ("Shift", {"p": 1.0}), ("Noise", {"p": 1.0}))
    x, y = made(given, 3, y=picture(0))
    np.testing.assert_array_equal(x, y)
    assert not np.array_equal(x, picture(0))
    x, y = made(settings("input", ("Noise", {"p": 1.0})), 3)
    assert not np.array_equal(x, picture(0))
    np.testing.assert_array_equal(y, picture(1))


@pytest.mark.parametrize("label_maps", [("y",), ("x",), ("x", "y")])
def test_label_maps_move_with_the_image_and_get_no_new_colours(label_maps):
    labels = (picture(2) // 128 * 255).astype(np.uint8)
    given = settings("both", ("Shift", {"p": 1.0}), ("Noise", {"p": 1.0}))
    results = dict(zip("xy", made(given, 3, label_maps, x=labels, y=labels), strict=True))
    shift = next(s for s in range(1, 8) if np.array_equal(results[label_maps[0]], np.roll(labels, s, axis=1)))
    for name, result in results.items():
        assert (set(np.unique(result)) <= {0, 255}) == (name in label_maps)
        if name in label_maps:
            np.testing.assert_array_equal(result, np.roll(labels, shift, axis=1))


def test_without_further_transforms_no_number_is_drawn():
    random, same = np.random.default_rng(3), np.random.default_rng(3)
    augment(picture(), picture(), PairAugmentation(), (12, 10), random, ())
    augment(picture(), picture(), None, (12, 10), same, ())
    assert random.random() == same.random()


@pytest.mark.parametrize(
    ("section", "entry", "said"),
    [
        ("both", ("Shfit", {}), "t0.type: unknown transform 'albumentations.Shfit' (did you mean"),
        ("both", ("Shift", {"q": 1.0}), "t0.q: unknown argument of Shift 'q'"),
        ("both", ("Shift", {"p": "1"}), "t0.p: found '1'; expected a number"),
        ("both", ("Shift", {"p": 2.0}), "t0: albumentations.Shift: p; Input should be at most 1"),
        ("both", ("Compose", {}), "'albumentations.Compose' is no transform (it is no BasicTransform)"),
        ("input", ("Shift", {}), "'albumentations.Shift' is no transform of one image (it is no ImageOnlyTransform)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_the_first_example(section, entry, said):
    with pytest.raises(ValidationError) as told:
        settings(section, entry)
    (fault,) = told.value.errors()
    assert fault["loc"] == (section, "further")
    assert said in fault["msg"]


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with pytest.raises(ValidationError, match="the package albumentations is not installed; `pip install albume"):
        settings("both", ("Shift", {}))


def test_a_transform_that_changes_the_size_is_refused():
    with pytest.raises(
        UserError, match=r"x of shape \(12, 10, 3\) became \(6, 5, 3\) of uint8; a transform keeps them"
    ):
        made(settings("both", ("Half", {"p": 1.0})), 3)

"""Two sets of pictures: which pictures an example has, that both are drawn independently, and wrong use."""

import re

import numpy as np
import pytest
from pictures_by_hand import noise, write
from scipy import stats

from figura.base.errors import UserError
from models.images.augmentation_settings import GeometricTransforms
from models.images.unpaired import UnpairedImages


def sets(root, **arguments):
    return UnpairedImages(**{"root": str(root), "split": "train", "crop_size": (6, 8)} | arguments)


def example(dataset, index=0, seed=0):
    return dataset.example(index, np.random.default_rng(seed))


def as_read(image):
    return image.transpose(2, 0, 1) / 127.5 - 1


@pytest.fixture
def folder(tmp_path):
    """Three pictures of A and five of B; those of A have a truth."""
    for number in range(3):
        write(tmp_path / f"train/a/{number}.png", noise(6, 8, number))
        write(tmp_path / f"train/truth/{number}.bmp", noise(6, 8, 20 + number))
    for number in range(5):
        write(tmp_path / f"train/b/deep/{number}.png", noise(6, 8, 10 + number))
    return tmp_path


def test_an_example(folder):
    dataset = sets(folder, order="listed", truth=True)
    assert len(dataset) == 5
    for index in range(5):
        one = example(dataset, index)
        assert (one["index"], one["name"]) == (index, str(index % 3))
        for key, number in (("x", index % 3), ("truth", 20 + index % 3), ("y", 10 + index)):
            assert one[key].dtype == np.float32
            np.testing.assert_allclose(one[key], as_read(noise(6, 8, number)), atol=1e-7)
    assert UnpairedImages.provides({"truth": True}) == ("x", "y", "index", "name", "truth") == tuple(one)
    assert dataset.row(4) == {"name": "1", "file": "a/1.png"}
    back = example(sets(folder, order="listed", direction="b_to_a"), 4)
    assert back["name"] == "deep/4"
    np.testing.assert_allclose(back["y"], as_read(noise(6, 8, 1)), atol=1e-7)


def test_pictures_of_one_name_in_several_subfolders_have_truths_of_their_own(folder):
    for number, place in enumerate(("left", "right")):
        write(folder / f"train/a/{place}/0.png", noise(6, 8, 30 + number))
        write(folder / f"train/truth/{place}/0.png", noise(6, 8, 40 + number))
    dataset = sets(folder, order="listed", truth=True)
    for index, (name, truth) in enumerate({"0": 20, "1": 21, "2": 22, "left/0": 40, "right/0": 41}.items()):
        one = example(dataset, index)
        assert one["name"] == name
        np.testing.assert_allclose(one["truth"], as_read(noise(6, 8, truth)), atol=1e-7)


def test_y_is_drawn_independently_of_x(folder):
    """Of 5 pictures each is drawn equally often beside every x: Pearson's chi square of the table, at 0.1 %."""
    dataset, counts = sets(folder), np.zeros((3, 5))
    known = [as_read(noise(6, 8, 10 + number)) for number in range(5)]
    for index in range(3):
        for seed in range(200):
            y = example(dataset, index, seed=(index, seed))["y"]
            counts[index] += [np.abs(y - one).max() < 1e-6 for one in known]
    assert counts.sum() == 600
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3
    assert stats.chi2_contingency(counts).pvalue > 1e-3
    assert all((example(dataset, 1, 3)[key] == example(dataset, 1, 3)[key]).all() for key in ("x", "y"))


def test_crops_and_flips_are_of_x_and_truth_together_and_of_y_alone(folder):
    for number in range(3):
        write(folder / f"train/truth/{number}.bmp", 255 - noise(6, 8, number))
    flips = GeometricTransforms(horizontal_flip={"chance": 0.5})
    dataset = sets(folder, load_size=(6, 8), crop_size=(4, 4), augmentation=flips, truth=True, order="listed")
    y, both = as_read(noise(6, 8, 10)), set()
    for seed in range(60):
        one = example(dataset, 0, seed)
        np.testing.assert_allclose(one["x"], -one["truth"], atol=1e-6)
        places = [
            {(top, left, flipped) for top in range(3) for left in range(5) for flipped in (1, -1)
             if np.allclose(whole[:, top : top + 4, left : left + 4][..., ::flipped], one[key], atol=1e-6)}
            for key, whole in (("x", as_read(noise(6, 8, 0))), ("y", y))
        ]  # fmt: skip
        both.add(tuple(place for found in places for place in found))
    assert len(both) > 40  # of 15 x 2 x 15 x 2 that are possible


def test_wrong_use_in_one_line(folder, tmp_path):
    wrong = [
        ({"load_size": (6, 7)}, ValueError, r"crop_size (6, 8): at most load_size, (6, 7), is needed"),
        ({"truth": True, "direction": "b_to_a"}, ValueError, "truth: it is known of A's pictures alone"),
        ({"split": "test"}, UserError, f"{tmp_path}/test/a: no such folder"),
    ]
    for arguments, kind, said in wrong:
        with pytest.raises(kind, match=re.escape(said)):
            sets(folder, **arguments)
    (folder / "train/truth/1.bmp").unlink()
    with pytest.raises(UserError, match=r"truth: has no picture '1'; `truth: false` needs none"):
        sets(folder, truth=True)
    (folder / "train/b/deep/0.png").write_text("text")
    with pytest.raises(UserError, match=r"b/deep/0.png: .*remove it"):
        example(sets(folder, order="listed"))
    for path in (folder / "train/b/deep").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="train/b: has no images"):
        sets(folder)

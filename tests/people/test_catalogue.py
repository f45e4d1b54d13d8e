"""The drawn catalogue pairs: labels are exact, and what the photo shows follows from them."""

from itertools import combinations

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from figura.synthetic.catalogue import WALL, draw_pair, write_catalogue
from figura.synthetic.settings import CatalogueSettings
from figura.synthetic.wardrobe import RESERVED, Wardrobe, draw_wardrobe, label_colours

SIDE = 64
VALUES = {
    "image_size": SIDE,
    "pairs": {"train": 11, "validation": 9, "test": 2},
    "tops": 8,
    "bottoms": 6,
    "skins": 6,
    "hairs": 6,
    "shoes": 3,
    "height_range": (0.8, 1.0),
    "views": {"front": 0.6, "back": 0.2, "side": 0.2},
    "poses": {"standing": 0.3, "walking": 0.2, "waving": 0.1, "sitting": 0.1, "crouching": 0.1, "arms_up": 0.2},
    "limb_thickness": 1.3,
    "head_size": 1.2,
}
SETTINGS = CatalogueSettings.model_validate(VALUES)
SEED = 7


@pytest.fixture(scope="module")
def pairs() -> list[tuple[np.ndarray, np.ndarray]]:
    return [draw_pair(SETTINGS, seed=SEED, split="train", index=index) for index in range(60)]


@pytest.fixture(scope="module")
def wardrobe() -> Wardrobe:
    return draw_wardrobe(SETTINGS.items, seed=SEED, backdrop=WALL)


def inside(labels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Pixels of a label that nothing else touches."""
    return cv2.erode((labels == colour).all(axis=2).astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)


def test_processes_write_the_pairs_that_are_drawn_here(tmp_path, pairs):
    write_catalogue(SETTINGS, SEED, tmp_path, False, workers=2)
    assert (
        len(list(tmp_path.rglob("*.png")))
        == len([path for path in tmp_path.rglob("*") if path.is_file()])
        == 11 + 9 + 2
    )
    for index in range(11):
        picture = cv2.imread(str(tmp_path / f"train/{index + 1:06}.png"))
        np.testing.assert_array_equal(picture, np.hstack(pairs[index]))
    validation = draw_pair(SETTINGS, seed=SEED, split="validation", index=3)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "validation/000004.png")), np.hstack(validation))


def test_files_of_an_earlier_run_are_not_overwritten(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "000001.png").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="train"):
        write_catalogue(SETTINGS, SEED, tmp_path, False, workers=1)
    assert (tmp_path / "train" / "000001.png").read_bytes() == b"mine"


def test_splits_and_seeds_show_other_people():
    shown = [
        draw_pair(SETTINGS, seed=seed, split=split, index=index)[1].tobytes()
        for seed in (SEED, SEED + 1)
        for split in ("train", "validation", "test")
        for index in range(2)
    ]
    assert len(set(shown)) == len(shown)


def test_label_maps_hold_known_colours_and_one_item_of_each_kind(pairs, wardrobe):
    ends = np.cumsum(SETTINGS.items)
    kinds = [set(part) for part in (wardrobe.labels[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True))]
    worn = set()
    for labels, _ in pairs:
        seen = {tuple(colour) for colour in np.unique(labels.reshape(-1, 3), axis=0).tolist()}
        assert seen <= set(wardrobe.labels) | set(RESERVED)
        assert all(len(kind & seen) <= 1 for kind in kinds)
        assert kinds[0] & seen
        assert kinds[2] & seen
        worn |= seen
    assert set(wardrobe.labels) <= worn  # 60 people wear everything at some time


def test_an_item_of_one_colour_has_that_colour_in_every_photo(pairs, wardrobe):
    colours = [
        *(top.garment.colours[0] if top.garment.pattern == "plain" else None for top in wardrobe.tops),
        *(bottom.garment.colours[0] if bottom.garment.pattern == "plain" else None for bottom in wardrobe.bottoms),
        *wardrobe.skins,
        *(hair.colour for hair in wardrobe.hairs),
        *wardrobe.shoes,
    ]
    brightness = np.linspace(0.2, 1.6, 281)[:, None]  # darker at the edges, brighter near the lamp
    off: dict[tuple[int, int, int], list[float]] = {}
    for labels, photo in pairs:
        for label, colour in zip(wardrobe.labels, colours, strict=True):
            if colour is not None:
                pixels = photo[inside(labels, label)]
                shades = np.minimum(brightness * colour, 255.0)
                off.setdefault(label, []).extend(np.abs(pixels[:, None] - shades).max(axis=2).min(axis=1))
    assert len(off) >= 15
    for label, distances in off.items():
        assert len(distances) > 4
        # The rest is finer than the label map's samples: a lip, an ear, the gap between two limbs.
        assert np.quantile(distances, 0.8) <= 1.5, label


def test_label_colours_are_well_separated():
    count, apart = 84, 50.0
    taken = np.array([*RESERVED[:3], *label_colours(count)], dtype=np.float64)
    assert len({tuple(colour) for colour in taken.tolist()}) == 3 + count
    assert min(np.linalg.norm(a - b) for a, b in combinations(taken, 2)) >= apart


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("views", {"front": 0.5, "back": 0.2}, "the shares sum to 0.7, not to 1"),
        ("height_range", (0.9, 0.8), r"height_range: found \[0.9, 0.8\]"),
    ],
)
def test_settings_that_cannot_be_are_refused(key, value, message):
    with pytest.raises(ValidationError, match=message):
        CatalogueSettings.model_validate({**VALUES, key: value})

from pathlib import Path

import numpy as np
import pytest
import torch
from dumps_by_hand import dump_of

from figura.dump import Dump
from figura.report.interfaces import Bootstrap, NotApplicableError
from models.vunet.scores import ClothesColour, correlation, mean_colour


def test_correlation_is_numpys_averaged_over_channels() -> None:
    random = np.random.default_rng(0)
    shown = random.uniform(-1, 1, (40, 3))
    made = 0.6 * shown + 0.4 * random.uniform(-1, 1, (40, 3))
    expected = np.mean([np.corrcoef(made[:, c], shown[:, c])[0, 1] for c in range(3)])
    assert correlation(np.concatenate([made, shown], axis=1)) == pytest.approx(expected, abs=1e-12)


def test_mean_colour_needs_enough_cloth() -> None:
    image = np.zeros((3, 8, 8), np.float32)
    image[1, :4] = 0.5
    mask = np.zeros((1, 8, 8), np.float32)
    mask[0, :2] = 1  # 16 pixels
    assert mean_colour(image, mask) == pytest.approx([0, 0.5, 0])
    mask[0, 1] = 0  # 8 pixels
    assert mean_colour(image, mask) is None


def dump_of_clothes(folder: Path, made: np.ndarray, shown: np.ndarray) -> Dump:
    """One row a person: clothes of constant colour, tops in the upper half, bottoms in the lower."""
    count = len(made)
    upper = torch.zeros(count, 1, 8, 8)
    upper[:, :, :4] = 1
    image, appearance = (torch.from_numpy(c).float()[:, :, None, None].expand(count, 3, 8, 8) for c in (made, shown))
    masks = {"top": upper, "bottom": 1 - upper, "appearance_top": upper, "appearance_bottom": 1 - upper}
    people = {"person_id": range(count)}
    return dump_of(folder, mode="transfer", columns=people, image=image, appearance=appearance, **masks)


@pytest.mark.parametrize(("faithful", "bounds"), [(True, (0.999, 1.0001)), (False, (-0.6, 0.6))])
def test_clothes_that_follow_the_appearance_correlate(
    tmp_path: Path, faithful: bool, bounds: tuple[float, float]
) -> None:
    random = np.random.default_rng(1)
    shown = random.uniform(-1, 1, (12, 3))
    made = 0.5 * shown if faithful else random.uniform(-1, 1, (12, 3))
    score = ClothesColour(mode="transfer", image="image", appearance="appearance", person="person_id")
    found = score(dump_of_clothes(tmp_path, made, shown), Bootstrap(20, 0.9, seed=0))
    assert found["top_identities"] == found["bottom_identities"] == 12
    assert bounds[0] <= found["top_r"]["value"] <= bounds[1]


def test_equal_ids_of_two_datasets_are_two_people(tmp_path: Path) -> None:
    shown = np.random.default_rng(1).uniform(-1, 1, (12, 3))
    dump = dump_of_clothes(tmp_path, shown, shown)
    dump.table["person_id"] = [*range(6), *range(6)]
    score = ClothesColour(mode="transfer", image="image", appearance="appearance", person="person_id")
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 6
    dump.table["dataset"] = ["mine"] * 6 + ["yours"] * 6
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 12


def test_without_clothes_there_is_no_score(tmp_path: Path) -> None:
    shown = np.random.default_rng(1).uniform(-1, 1, (12, 3))
    dump = dump_of_clothes(tmp_path, shown, shown)
    score = ClothesColour(mode="transfer", image="image", appearance="appearance", person="person_id", where="few")
    dump.table["few"] = [1, 1] + [0] * 10
    said = "clothes of 3 identities are needed, in both pictures; mode 'transfer' has 2 with a top and 2 with a bottom"
    with pytest.raises(NotApplicableError, match=said):
        score(dump, Bootstrap(20, 0.9, seed=0))
    dump.table["few"] = [1] * 5 + [0] * 7
    assert score(dump, Bootstrap(20, 0.9, seed=0))["top_identities"] == 5

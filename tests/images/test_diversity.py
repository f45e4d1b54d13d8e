"""The diversity of draws, against numbers by hand."""

import pytest
import torch
from dumps_by_hand import dump_of

from figura.report.interfaces import Bootstrap, NotApplicableError
from models.images.diversity import Diversity


def test_draws_by_hand(tmp_path):
    """Draws of 0, 0.3 and 0.9 differ by 0.3, 0.9 and 0.6, on average 0.6; from 0.5 by 0.5, 0.2 and 0.4."""
    image = torch.tensor([0.0, 0.3, 0.9, 0.1, 0.1, 0.1]).reshape(6, 1, 1, 1).repeat(1, 3, 2, 2)
    target = torch.full((2, 3, 2, 2), 0.5)
    image[..., 1] += 5 * torch.arange(6)[:, None, None]  # where the mask is 0
    mask = torch.tensor([1.0, 0.0]).expand(2, 1, 2, 2)
    dump = dump_of(tmp_path, repeat=3, image=image, target=target, mask=mask, columns={"who": [1] * 6})
    score = Diversity(mode="m", image="image", target="target", mask="mask", groups="who")
    found = score(dump, Bootstrap(20, 0.9, seed=0))
    assert found["examples"] == 2
    assert found["draws"]["value"] == pytest.approx((0.6 + 0) / 2)
    assert found["to_target"]["value"] == pytest.approx((1.1 / 3 + 0.4) / 2)
    whole = Diversity(mode="m", image="image", target="target")(dump, Bootstrap(20, 0.9, seed=0))
    assert whole["draws"]["value"] > 3


def test_one_draw_is_not_judged(tmp_path):
    image = torch.zeros(2, 3, 2, 2)
    dump = dump_of(tmp_path, image=image, target=image)
    with pytest.raises(NotApplicableError, match="draws every example once"):
        Diversity(mode="m", image="image", target="target")(dump, Bootstrap(20, 0.9, seed=0))

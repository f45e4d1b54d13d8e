"""The mean of eight orientations, beside NumPy's turns."""

import numpy as np
import torch
import torch.nn.functional as F

from figura.injectors.self_ensemble import SelfEnsemble
from figura.interfaces import Networks, State


class Upright(torch.nn.Module):
    """Doubles a picture and adds a ramp down its rows, so that an answer tells the orientation of its question."""

    def forward(self, x):
        large = F.interpolate(x, scale_factor=2)
        return large + torch.arange(large.shape[-2], dtype=x.dtype)[:, None]


def test_a_self_ensemble_is_the_mean_of_eight_answers_turned_back():
    x = np.random.default_rng(0).random((3, 4))
    answers = []
    for turns in range(4):
        for mirrored in (False, True):
            asked = np.rot90(x[::-1] if mirrored else x, turns).repeat(2, 0).repeat(2, 1)
            back = np.rot90(asked + np.arange(len(asked))[:, None], -turns)
            answers.append(back[::-1] if mirrored else back)
    state, networks = State({"lq": torch.from_numpy(x)[None, None]}), Networks({"net": Upright()}, {})
    SelfEnsemble("net", {"x": "lq"}, {"output": "sr"})(state, networks, 0)
    np.testing.assert_allclose(state["sr"][0, 0].numpy(), np.mean(answers, 0), atol=1e-12)
    # a ramp up and down is 5 / 2 everywhere in 6 rows, and 7 / 2 in 8 columns
    np.testing.assert_allclose(state["sr"][0, 0].numpy() - x.repeat(2, 0).repeat(2, 1), (5 / 2 + 7 / 2) / 2, atol=1e-12)

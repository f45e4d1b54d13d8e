import random

import numpy as np
import torch

from figura.base.seeding import derive, generator, seed_here


def test_places_are_independent_and_repeatable():
    places = [(1,), (2,), (1, "a"), (1, "b"), (1, "a", 0), (1, "a", 1), (1, 0, "a"), (2, "a")]
    seeds = [derive(*place) for place in places]
    assert len(set(seeds)) == len(places)
    assert seeds == [derive(*place) for place in places]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert generator(1, "a").random() == generator(1, "a").random() != generator(1, "b").random()


def test_every_global_generator_is_seeded():
    def draw():
        return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()

    seed_here(5, "here", 3)
    first = draw()
    rest = draw()
    seed_here(5, "here", 3)
    assert draw() == first != rest

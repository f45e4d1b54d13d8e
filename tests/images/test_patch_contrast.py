"""Contrast of patches: the loss and the projection against NumPy in float64, gradients, places, wrong use."""

import re

import numpy as np
import pytest
import torch
from scipy import special

from figura.base.errors import UserError
from models.images.patch_contrast import PatchNCE, PatchProjection
from models.images.resnet_generator import ResNetGenerator


def vectors(*shape, seed):
    drawn = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_loss_in_numpy(temperature):
    sets = [{"first": vectors(2, 5, 4, seed=s), "second": vectors(2, 3, 4, seed=10 + s)} for s in (1, 2)]
    queries, keys = sets
    expected = []
    for n in range(2):
        layers = []
        for name in queries:
            q, k = (one[name][n].numpy() for one in (queries, keys))
            values = [
                special.logsumexp([q[i] @ k[j] / temperature for j in range(len(k))]) - q[i] @ k[i] / temperature
                for i in range(len(q))
            ]
            layers.append(np.mean(values))
        expected.append(np.mean(layers))
    found = PatchNCE(temperature=temperature)(queries=queries, keys=keys)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_projection_in_numpy_at_the_same_places():
    torch.manual_seed(0)
    network = PatchProjection(channels=[3, 2], patches=5, size=16).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    queries = {"a": torch.randn(2, 3, 4, 4, dtype=torch.float64), "b": torch.randn(2, 2, 2, 2, dtype=torch.float64)}
    found = network(queries=queries, keys=queries)
    for layer, (name, count) in zip(network.projections, {"a": 5, "b": 4}.items(), strict=True):
        weights = [one.detach().numpy() for one in (layer[0].weight, layer[0].bias, layer[2].weight, layer[2].bias)]
        for n in range(2):
            pixels = queries[name][n].flatten(1).numpy().T
            hidden = np.maximum(pixels @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3]
            every = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
            own = found["queries"][name][n].detach().numpy()
            distances = np.abs(own[:, None] - every[None]).max(axis=2)
            assert distances.min(axis=1).max() < 1e-12
            assert len({*distances.argmin(axis=1)}) == count == len(own)  # without replacement
            np.testing.assert_allclose(found["keys"][name][n].numpy(), own, atol=1e-12)


def test_keys_carry_no_gradient():
    network = PatchProjection(channels=[3])
    queries, keys = (torch.randn(1, 3, 4, 4, requires_grad=True) for _ in range(2))
    found = network(queries={"a": queries}, keys={"a": keys})
    PatchNCE()(**found).sum().backward()
    assert queries.grad.abs().sum() > 0
    assert network.projections[0][0].weight.grad.abs().sum() > 0
    assert keys.grad is None


def test_a_generator_that_ends_early_gives_the_same_features():
    torch.manual_seed(1)
    network, seen = ResNetGenerator(features=4, blocks=3, initialisation="default"), []
    for name in ("pixels", "downs.0.convolution", "blocks.1"):
        network.get_submodule(name).register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    x = torch.rand(1, 3, 16, 16)
    assert network(x, depth=2) == {}
    assert network(x)["image"].shape == x.shape
    assert torch.equal(seen[0], x)
    assert len(seen) == 6
    assert all(map(torch.equal, seen[:3], seen[3:]))


def test_wrong_use_in_one_line():
    one = {"a": torch.zeros(1, 3, 2, 2)}
    said = "features for PatchProjection: found channels a 3; `channels` says [4]"
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        PatchProjection(channels=[4])(queries=one, keys=one)

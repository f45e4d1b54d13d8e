import numpy as np
import pytest
import torch
from torch import nn

from figura.optimizers import Muon, orthogonalised


@pytest.mark.parametrize("shape", [(3, 12, 20), (2, 20, 12), (1, 16, 16)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(0)
    matrices = torch.randn(shape, generator=random, dtype=torch.float64)
    found = orthogonalised(matrices)
    for before, after in zip(matrices.numpy(), found.numpy(), strict=True):
        u, _, v = np.linalg.svd(before, full_matrices=False)
        inside = u.T @ after @ v.T  # in the basis of the singular vectors the result is diagonal
        assert np.abs(inside - np.diag(np.diag(inside))).max() < 1e-9
        assert (np.diag(inside) > 0.5).all()
        assert (np.diag(inside) < 1.3).all()


def test_one_step_against_numpy() -> None:
    torch.manual_seed(1)
    layer = nn.Conv2d(4, 32, 3).double()  # as a matrix 32 x 36
    weight, bias = layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()
    optimizer = Muon(layer.parameters(), lr=0.1, rest_lr=0.01, momentum=0.9)
    layer.weight.grad = torch.randn_like(layer.weight)
    layer.bias.grad = torch.randn_like(layer.bias)
    gradient = layer.weight.grad.numpy().reshape(32, 36)
    optimizer.step()
    nesterov = gradient + 0.9 * (0.1 * gradient - gradient)
    x = nesterov / np.linalg.norm(nesterov)
    for _ in range(5):
        s = x @ x.T
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
    np.testing.assert_allclose(
        layer.weight.detach().numpy().reshape(32, 36), weight.reshape(32, 36) - 0.1 * x, rtol=0, atol=1e-6
    )
    step = 0.01 * np.sign(layer.bias.grad.numpy())  # Adam's first step is the rate, whatever the gradient
    np.testing.assert_allclose(layer.bias.detach().numpy(), bias - step, atol=1e-6)


def test_tall_matrices_take_longer_steps_and_thin_ones_go_to_adam() -> None:
    torch.manual_seed(2)
    tall, thin = nn.Parameter(torch.zeros(64, 16)), nn.Parameter(torch.zeros(3, 64))
    optimizer = Muon([tall, thin], lr=0.1, rest_lr=0.01)
    tall.grad, thin.grad = torch.randn(64, 16), torch.randn(3, 64)
    optimizer.step()
    singular = np.linalg.svd(tall.detach().numpy(), compute_uv=False)
    assert ((singular > 0.1 * 2 * 0.5) & (singular < 0.1 * 2 * 1.3)).all()  # sqrt(64 / 16) = 2
    np.testing.assert_allclose(thin.detach().abs().numpy(), 0.01, rtol=1e-4)


def test_weights_of_one_shape_do_not_mix_and_a_missing_gradient_is_left_alone() -> None:
    torch.manual_seed(3)
    start = [torch.randn(16, 16) for _ in range(3)]
    gradients = [torch.randn(16, 16) for _ in range(3)]

    def after(chosen: list[int]) -> list[torch.Tensor]:
        parameters = [nn.Parameter(tensor.clone()) for tensor in start]
        optimizer = Muon(parameters, lr=0.1, rest_lr=0.1)
        for place in chosen:
            parameters[place].grad = gradients[place].clone()
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    everything, two = after([0, 1, 2]), after([0, 2])
    torch.testing.assert_close(everything[0], two[0])
    torch.testing.assert_close(everything[2], two[2])
    assert torch.equal(two[1], start[1])


def test_its_state_goes_on_exactly() -> None:
    def run(reload_at: int | None) -> list[torch.Tensor]:
        torch.manual_seed(4)
        network = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 3, 1))
        optimizer = Muon(network.parameters(), lr=0.01, rest_lr=0.01)
        for step in range(6):
            if step == reload_at:
                state = optimizer.state_dict()
                optimizer = Muon(network.parameters(), lr=0.01, rest_lr=0.01)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            network(torch.randn(2, 8, 9, 9)).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in network.parameters()]

    for a, b in zip(run(None), run(3), strict=True):
        assert torch.equal(a, b)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="rates > 0"):
        Muon([nn.Parameter(torch.zeros(8, 8))], lr=0.0, rest_lr=0.1)

"""What several ranks compute over a batch that they share, draw for it, and agree on when one is asked to stop."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from two_processes import run_in_two

from figura.base.distributed import current_shard, sharded
from figura.base.errors import Interrupted
from figura.engine.batch_norm import SharedBatchNorm, share_batch_norms
from figura.engine.rank_invariant_rng import rank_invariant_noise
from figura.engine.signals import StopRequest
from models.images.adversarial_losses import Adversarial


def network():
    torch.manual_seed(1)
    kinds = [nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6, momentum=0.3), nn.ReLU(), nn.Conv2d(6, 4, 3)]
    built = nn.Sequential(*kinds, nn.BatchNorm2d(4, affine=False, momentum=None)).double()
    nn.init.uniform_(built[1].weight)
    return built


def images():
    return torch.randn(8, 3, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 3 + 1


LOSSES = {
    "norm": lambda net, x: net(x).square().flatten(1).mean(dim=1),
    "relativistic": lambda net, x: Adversarial(kind="relativistic_average", role="generator", target="real")(
        logits=net(x)[:, :1], opposite=net(x.flip(-1))[:, :1]
    ),
    "penalty": lambda net, x: slope(net, x),  # differentiated twice, through the shared statistics
}


def slope(net, x):
    points = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(points).square().mean(dim=(1, 2, 3)).sum(), points, create_graph=True)
    return gradient.flatten(1).norm(dim=1)


def outcome(name, share=slice(None)):
    """Return loss values, gradients of their mean, buffers after two passes."""
    net = network()
    if share != slice(None):
        share_batch_norms(net)
    for _ in range(2):
        net.zero_grad()
        values = LOSSES[name](net, images()[share])
        values.mean().backward()
    gradients = {f"gradient.{key}": value.grad for key, value in net.named_parameters()}
    return {"values": values, **gradients, **{f"buffer.{key}": value.double() for key, value in net.named_buffers()}}


def write_shares(folder):
    """Compute, in a rank, each loss over its share of the batch."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with sharded(rank, 2):
        for name in LOSSES:
            values = {key: value.detach().contiguous() for key, value in outcome(name, slice(rank, None, 2)).items()}
            save_file(values, folder / f"{name}-{rank}.safetensors")


@pytest.fixture(scope="module")
def shares(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    run_in_two(lambda: write_shares(folder))
    return folder


@pytest.mark.parametrize("name", LOSSES)
def test_two_shares_make_the_whole(name, shares):
    ranks = [load_file(shares / f"{name}-{rank}.safetensors") for rank in range(2)]
    for key, whole in outcome(name).items():
        own = [rank[key] for rank in ranks]
        # what a step does with gradients: their mean over ranks; buffers are alike
        joined = torch.stack(own, dim=1).flatten() if key == "values" else torch.stack(own).mean(dim=0)
        torch.testing.assert_close(
            joined, whole.detach(), rtol=1e-9, atol=1e-12, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_alone_it_is_the_usual_batch_norm():
    plain, shared = network(), network()
    share_batch_norms(shared)
    assert type(shared[1]) is SharedBatchNorm
    assert plain.state_dict().keys() == shared.state_dict().keys()
    assert torch.equal(plain(images()), shared(images()))
    alone = torch.nn.BatchNorm2d(3)
    share_batch_norms(alone)
    assert type(alone) is SharedBatchNorm
    with sharded(0, 2):  # evaluation meets nobody
        assert torch.equal(plain.eval()(images()), shared.eval()(images()))


def test_alone_on_a_cpu_gradients_are_those_of_float64():
    """PyTorch's own adds up channels last in float32, one value after the other."""
    generator = torch.Generator().manual_seed(3)
    x, slopes = (torch.randn(8, 16, 81, 81, generator=generator) * 3 + 1 for _ in range(2))
    outcomes = {}
    for kind in ("true", "plain", "shared"):
        net = nn.Sequential(nn.BatchNorm2d(16))
        if kind == "shared":
            share_batch_norms(net)
        dtype = torch.float64 if kind == "true" else torch.float32
        batch = x.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
        net.to(dtype)(batch).backward(slopes.to(dtype).contiguous(memory_format=torch.channels_last))
        outcomes[kind] = [batch.grad, net[0].weight.grad, net[0].bias.grad, net[0].running_mean, net[0].running_var]
    errors = {
        kind: max(float((a - b).norm() / b.norm()) for a, b in zip(outcomes[kind], outcomes["true"], strict=True))
        for kind in ("plain", "shared")
    }
    assert errors["shared"] < 1e-5 < errors["plain"]


WHOLE, SEED = 8, 5


def joined(draw, processes, instances=WHOLE):
    """Return what `processes` processes draw of a batch, in the order of the batch."""
    own = instances // processes
    parts = []
    for process in range(processes):
        torch.manual_seed(100 + process)  # each process' own generator, which must not matter
        with sharded(process, processes), rank_invariant_noise(SEED, {own}):
            parts.append(draw(own))
    return torch.stack(parts, dim=1).flatten(0, 1)


def alone(draw):
    torch.manual_seed(SEED)
    return draw(WHOLE)


DRAWS = {
    "randn": lambda n: torch.randn(n, 3, 5),
    "randn_like": lambda n: torch.randn_like(torch.empty(n, 33)),
    "rand with a list": lambda n: torch.rand([n, 1, 1, 1]),
    "rand_like": lambda n: torch.rand_like(torch.zeros(n, 2, dtype=torch.float64)),
    "randint": lambda n: torch.randint(7, (n,)),
    "randint from": lambda n: torch.randint(3, 9, (n, 4)),
    "randint keywords": lambda n: torch.randint(low=3, high=9, size=(n, 4)),
    "randint_like": lambda n: torch.randint_like(torch.zeros(n, 4), 2, 10),
    "in place": lambda n: torch.empty(n, 17).normal_(1.0, 2.0),
    "uniform in place": lambda n: torch.empty(n, 17).uniform_(-1, 1),
    "bernoulli in place": lambda n: torch.empty(n, 17).bernoulli_(0.3),
    "dropout": lambda n: F.dropout(torch.ones(n, 4, 6, 6), 0.25),
    "dropout of maps": lambda n: torch.nn.Dropout2d(0.5)(torch.ones(n, 4, 6, 6)),
    "channels last": lambda n: torch.randn_like(torch.empty(n, 4, 6, 6).to(memory_format=torch.channels_last)),
    # a discriminator that judges real and fake in one call: 2 n instances, of which the first n are real
    "both halves": lambda n: torch.randn(2 * n, 3).unflatten(0, (2, n)).transpose(0, 1),
    "one after another": lambda n: torch.cat([torch.randn(n, 3), torch.rand(n, 2), torch.randn(n, 1)], dim=1),
}  # fmt: skip


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("name", DRAWS)
def test_processes_together_draw_what_one_draws(name, processes):
    torch.testing.assert_close(joined(DRAWS[name], processes), alone(DRAWS[name]), rtol=0, atol=0)


def test_dropout_keeps_the_mean_and_passes_gradients_through_its_mask():
    x = torch.ones(2000, 10, requires_grad=True)
    with sharded(1, 2), rank_invariant_noise(SEED, {2000}):
        y = F.dropout(x, 0.2)
    y.sum().backward()
    assert set(y.unique().tolist()) == {0.0, 1.25}
    assert torch.equal(x.grad, y.detach())
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)  # 4 standard errors are 0.014


def test_what_is_no_batch_is_drawn_once_for_all():
    draws = []
    for process in range(2):
        with sharded(process, 2), rank_invariant_noise(SEED, {4}):
            draws.append((torch.rand(3), torch.rand(()), torch.randint(100, (1,))))
    for first, second in zip(*draws, strict=True):
        assert torch.equal(first, second)


def test_a_generator_of_ones_own_is_left_alone():
    own = torch.Generator().manual_seed(3)
    with sharded(1, 2), rank_invariant_noise(SEED, {4}):
        found = torch.randn(4, 2, generator=own)
    assert torch.equal(found, torch.randn(4, 2, generator=torch.Generator().manual_seed(3)))


def test_outside_nothing_is_shared():
    with sharded(0, 1):
        assert current_shard() is None
        torch.manual_seed(SEED)
        with rank_invariant_noise(SEED, {4}):
            found = torch.randn(4)
    assert torch.equal(found, alone(lambda n: torch.randn(4)))
    assert current_shard() is None


@pytest.fixture(autouse=True)
def _handlers():
    before = {one: signal.getsignal(one) for one in Interrupted.signals}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def two_ranks(asked_elsewhere: float) -> SimpleNamespace:
    """Return the first of two ranks; the other one adds `asked_elsewhere` to a sum."""
    return SimpleNamespace(
        num_processes=2, device=torch.device("cpu"), reduce=lambda asked, how: asked + asked_elsewhere
    )


def test_who_stops_for_another_rank_lives_until_it_has_told_so() -> None:
    request = StopRequest()
    with request.by_signals():
        assert request.agreed(two_ranks(1))
    os.kill(os.getpid(), signal.SIGTERM)  # a default handler would end this process
    assert request.asked_by == "another rank"


def test_handlers_come_back_where_nobody_asked() -> None:
    before, request = signal.getsignal(signal.SIGTERM), StopRequest()
    with request.by_signals():
        assert not request.agreed(two_ranks(0))
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before

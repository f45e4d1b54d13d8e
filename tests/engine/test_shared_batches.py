"""What two ranks compute over a batch that they share, against the same over the whole batch in one process."""

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from two_processes import run_in_two

from figura.base.distributed import sharded
from figura.engine.batch_norm import SharedBatchNorm, share_batch_norms
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

"""Gradients averaged over two ranks in buckets, against means computed by NumPy."""

from datetime import timedelta
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from two_processes import run_in_two

from figura.engine.averaging import GradientAverage, buckets_of

WIDTHS = (3, 5, 2, 4)


class Chain(nn.Module):
    """Linear layers; what each gives is also summed over ranks, as in batch norms."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip((2, *WIDTHS), WIDTHS, strict=False))

    def forward(self, values, layers):
        for place in layers:
            values = self.layers[place](values)
            values = values + Summed.apply(values) / 2
        return values.sum()


class Summed(torch.autograd.Function):
    """A sum over ranks, whose backward communicates too, in the default group."""

    @staticmethod
    def forward(ctx, values):
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx, gradient):
        return Summed.forward(ctx, gradient)


def join():
    dist.init_process_group("gloo")
    return dist.new_group(timeout=timedelta(seconds=60)), dist.get_rank()


def gathered(values):
    """Return the values of all ranks."""
    every = [None, None]
    dist.all_gather_object(every, values)
    return every


def means_of(parameters):
    """Return the mean over ranks of each gradient, None where no rank has one, by NumPy."""
    own = [None if one.grad is None else one.grad.numpy().astype(np.float64) for one in parameters]
    means = []
    for parts in zip(*gathered(own), strict=True):
        there = [part for part in parts if part is not None]
        means.append(sum(there) / 2 if there else None)
    return means


def backward(chain, average, rank, parts):
    """Go backward through the parts; the last one in the block that may send."""
    for part in parts:
        loss = chain(torch.full((2, 2), 1.0 + rank + part), range(4))
        if part == parts[-1] and average is not None:
            with average.last_backward():
                loss.backward()
        else:
            loss.backward()


@pytest.mark.parametrize(
    ("early", "size", "parts"), [(True, 1, (0, 1)), (True, 64, (0,)), (True, 10**6, (0, 1)), (False, 64, (0, 1))]
)
def test_the_mean_over_ranks(early, size, parts):
    def job():
        group, rank = join()
        plain, chain = Chain(), Chain()
        backward(plain, None, rank, parts)
        expected = means_of(list(plain.parameters()))
        average = GradientAverage(list(chain.parameters()), group, early, size)
        for _ in range(2):
            chain.zero_grad()
            backward(chain, average, rank, parts)
            average.finish()
            for parameter, mean in zip(chain.parameters(), expected, strict=True):
                np.testing.assert_allclose(parameter.grad.numpy(), mean, rtol=1e-6)

    run_in_two(job)


@pytest.mark.parametrize("size", [1, 10**6])
def test_gradients_that_a_rank_or_all_lack(size):
    """Rank 0 lacks the second layer's weight, rank 1 the third's bias, and both all of the last layer."""

    def job():
        group, rank = join()
        networks = Chain(), Chain()
        for network in networks:
            first, second, third, _ = network.layers
            values = second(first(torch.ones(2, 2) + rank)) if rank else first(torch.ones(2, 2)) @ torch.ones(3, 5)
            values = nn.functional.linear(values, third.weight, third.bias if rank == 0 else None)
            network.loss = values.sum() + (second.bias.sum() if rank == 0 else 0)
        plain, chain = networks
        plain.loss.backward()
        expected = means_of(list(plain.parameters()))
        average = GradientAverage(list(chain.parameters()), group, size=size)
        with average.last_backward():
            chain.loss.backward()
        average.finish()
        assert [mean is None for mean in expected] == [False] * 6 + [True] * 2
        for parameter, mean in zip(chain.parameters(), expected, strict=True):
            if mean is None:
                assert parameter.grad is None
            else:
                np.testing.assert_allclose(parameter.grad.numpy(), mean, rtol=1e-6)

    run_in_two(job)


def test_buckets_are_sent_during_the_last_backward_pass_and_in_one_order():
    def job():
        group, rank = join()
        chain = Chain()
        average = GradientAverage(list(chain.parameters()), group, size=1)
        sent, send = [], dist.all_reduce

        def recorded(values, **keywords):
            if "group" in keywords:
                sent.append((len(values), average._left is not None))
            return send(values, **keywords)

        with patch.object(dist, "all_reduce", recorded):
            backward(chain, average, rank, (0, 1))
            before = len(sent)
            average.finish()
        assert before == len(sent) == 8
        assert all(during for _, during in sent)
        assert [length for length, _ in sent] == [one.numel() + 1 for one in reversed(list(chain.parameters()))]

    run_in_two(job)


def test_buckets_have_one_dtype_and_a_size():
    parameters = [nn.Parameter(torch.zeros(length)) for length in (2, 3, 4, 100, 1)]
    parameters[2] = nn.Parameter(parameters[2].to(torch.float64))
    assert [[one.numel() for one in bucket] for bucket in buckets_of(parameters, 404)] == [[1, 100], [4], [3, 2]]
    assert [len(bucket) for bucket in buckets_of(parameters, 400)] == [1, 1, 1, 2]
    assert buckets_of([]) == []
    assert buckets_of([*parameters[:2], parameters[0]]) == [[parameters[1], parameters[0]]]

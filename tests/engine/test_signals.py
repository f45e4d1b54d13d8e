"""A training that another rank asked to stop, while the launcher's SIGTERM arrives."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch

from figura.base.errors import Interrupted
from figura.engine.signals import StopRequest


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

import errno
import gc
import math
import multiprocessing.util
import os
import signal
import sys
import tempfile
from itertools import islice
from pathlib import Path

import pytest
import toy

from figura.base.errors import UserError
from figura.base.exit_status import refusal
from figura.engine.data import Mixture, TrainBatches, ValidationBatches, load_batches
from figura.schedules import Step


@pytest.fixture(autouse=True)
def polled_often(monkeypatch):
    """PyTorch looks every 5 s whether a worker lives; a loader that is left may wait for its worker as long."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    yield
    gc.collect()


def sampler(lengths, weights=None, size=4, seed=1, **rest):
    return TrainBatches(lengths, weights or dict.fromkeys(lengths, 1.0), size, seed, **rest)


def test_an_epoch_is_a_permutation_and_each_epoch_another():
    batches = sampler({"a": 24})
    assert batches.batches_per_epoch == 6
    epochs = [[key for batch in islice(batches, 6 * n, 6 * n + 6) for key in batch] for n in range(3)]
    assert epochs[0] != [key for batch in islice(sampler({"a": 24}, seed=2), 6) for key in batch]
    for number, epoch in enumerate(epochs):
        assert sorted(epoch) == [("a", number, index) for index in range(24)]
    orders = [[index for _, _, index in epoch] for epoch in epochs]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert orders[0] != list(range(24))


def test_batches_come_in_proportion_to_the_weights():
    batches = sampler({"a": 10_000, "b": 10_000, "c": 10_000}, {"a": 3.0, "b": 1.0, "c": 0.5}, size=10)
    names = [batch[0][0] for batch in islice(batches, 900)]
    assert {name: names.count(name) for name in "abc"} == {"a": 600, "b": 200, "c": 100}
    for count in (9, 45, 450):  # at any time within one batch of the exact share
        for name, share in (("a", 6 / 9), ("b", 2 / 9), ("c", 1 / 9)):
            assert abs(names[:count].count(name) - share * count) <= 1
    assert all(len({name for name, _, _ in batch}) == 1 for batch in islice(batches, 50))


def test_an_epoch_ends_with_the_first_dataset_that_runs_out():
    batches = sampler({"a": 100, "b": 9}, {"a": 1.0, "b": 1.0})
    names = [name for name, _ in batches.plan]
    assert names.count("b") == 2  # 9 examples make two batches of 4
    assert names.count("a") in (2, 3)
    epochs = [batch[0][1] for batch in islice(batches, 2 * len(names))]
    assert epochs == [0] * len(names) + [1] * len(names)


def later(lengths, **rest):
    """Batches of which b come from iteration 4 on, first as many as of a, from 10 on three times as many."""
    return sampler(lengths, schedules={"b": Step([4, 10], [0.0, 1.0, 3.0])}, **rest)


def test_a_schedule_multiplies_a_weight():
    batches = later({"a": 16, "b": 9})
    names = "".join(batch[0][0] for batch in islice(batches, 22))
    # from 10 on, before each choice a lacks 1/4, 1/2, -1/4, 0, and b 3/4, 1/2, 5/4, 1; a comes first if both are equal
    assert names == "aaaa" + "ab" * 3 + "babb" * 3
    assert batches.batches_per_epoch == 6
    of_b = [key for batch in islice(batches, 22) for key in batch if key[0] == "b"]
    for epoch in range(len(of_b) // 8):  # two batches of nine examples each
        indices = {index for _, number, index in of_b if number == epoch}
        assert len(indices) == 8
    assert of_b[:8] != [(name, 0, index) for name, _, index in of_b[8:16]]
    of_a = [key for batch in islice(later({"a": 16, "b": 8}), 4) for key in batch]
    assert sorted(of_a) == [("a", 0, index) for index in range(16)]


@pytest.mark.parametrize("make", [sampler, later])
@pytest.mark.parametrize("start", [0, 1, 4, 6, 21])
def test_a_later_start_gives_the_tail_and_processes_partition_each_batch(make, start):
    lengths = {"a": 22, "b": 9}
    whole = list(islice(make(lengths), 30))
    assert list(islice(make(lengths, start=start), 30 - start)) == whole[start:]
    shares = [list(islice(make(lengths, shard=slice(n, None, 2)), 30)) for n in range(2)]
    assert [len(one) for one in shares[0]] == [2] * 30
    assert [sorted(one + other) for one, other in zip(*shares, strict=True)] == [sorted(batch) for batch in whole]


def test_weights_and_sizes_that_make_no_batches_are_refused():
    for value in (-1.0, math.nan, math.inf):
        batches = iter(sampler({"a": 9, "b": 9}, schedules={"b": Step([2], [1.0, value])}))
        assert len(list(islice(batches, 2))) == 2
        with pytest.raises(UserError, match=rf"data\.train: at iteration 2, weights are .*'b': {value}}}; numbers"):
            next(batches)
    with pytest.raises(UserError, match=r"data\.train\.small: 3 examples are fewer than one batch \(.*: 4\)"):
        sampler({"large": 50, "small": 3})


class Sized(toy.Ramps):
    def group(self, index):
        return "wide" if index in (1, 4, 5) else "tall"


def test_validation_is_everything_once_in_order_and_a_batch_has_one_group():
    batches = ValidationBatches({"b": toy.Ramps(7), "a": toy.Ramps(3)}, 3)
    assert [len(batch) for batch in batches] == [3, 3, 1, 3]
    every = [("b", 0, i) for i in range(7)] + [("a", 0, i) for i in range(3)]
    assert [key for batch in batches for key in batch] == every
    grouped = ValidationBatches({"a": Sized(8)}, 2)
    assert [[index for *_, index in batch] for batch in grouped] == [[0, 2], [1, 4], [3, 6], [5], [7]]


class Failing(toy.Ramps):
    """Ramps of which a worker process gets an error, or is killed."""

    def __init__(self, failure):
        super().__init__(4)
        self.failure = failure

    def example(self, index, random):
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            os.kill(os.getpid(), self.failure)
        return super().example(index, random)


def first_of(failure, workers=1):
    return next(iter(load_batches(Mixture({"a": Failing(failure)}, seed=1), sampler({"a": 4}), workers)))


@pytest.mark.parametrize("workers", [0, 1])
def test_bad_input_and_refusals_arrive_as_they_were(workers):
    with pytest.raises(UserError) as caught:
        first_of(UserError("a.json: record 3"), workers)
    assert str(caught.value) == "a.json: record 3"
    with pytest.raises(FileNotFoundError) as caught:
        first_of(FileNotFoundError(errno.ENOENT, "No such file or directory", "a.png"), workers)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "a.png")
    for bug in (KeyError("x"), OSError("of a library"), RuntimeError("y")):
        with pytest.raises(type(bug), match="test_batches" if workers else None):  # with the traceback of the worker
            first_of(bug, workers)


def test_a_full_shared_memory_says_what_to_do():
    full = RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)")
    with pytest.raises(UserError, match=r"No space left on device \(28\); make /dev/shm larger .*workers: 0` needs"):
        first_of(full, workers=0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_a_worker_that_is_killed_is_one_line(number):
    with pytest.raises(RuntimeError) as caught:
        first_of(number)
    assert refusal(caught.value).startswith("a worker process was killed or ended unexpectedly")


def folder_of(path: Path, size: int) -> Path:
    """Make a folder below a path, whose own path has so many bytes."""
    while (rest := size - len(os.fsencode(path))) > 0:
        path /= "x" * (min(rest, 101) - 1)
    path.mkdir(parents=True)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere paths of sockets are shorter")
def test_sockets_with_too_long_a_path_are_refused_before_workers_start(monkeypatch):
    """75 bytes, `/pymp-` and 8 more, `/listener-` and 8 more are the 107 bytes that Linux allows."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s-") as short:
        fits, long = (folder_of(Path(short) / str(size), size) for size in (75, 76))
        monkeypatch.setattr(tempfile, "tempdir", str(fits))
        assert first_of(None)["x"].shape == (4, 1, 4, 4)
        monkeypatch.setattr(tempfile, "tempdir", str(long))
        with pytest.raises(UserError, match=f"^TMPDIR: {long} has 76 bytes; at most 75 are allowed, .*workers: 0`$"):
            load_batches(Mixture({}, seed=1), sampler({"a": 4}), workers=1)
        assert first_of(None, workers=0)["x"].shape == (4, 1, 4, 4)


class NoSockets(toy.Ramps):
    """Ramps that leave their worker process without a folder for sockets, however the process was started."""

    def example(self, index, random):
        multiprocessing.util.get_temp_dir = lambda: "/nowhere"
        return super().example(index, random)


def test_a_batch_that_cannot_be_sent_is_an_error():
    with pytest.raises(UserError, match=r"a data loader worker cannot send a batch: .*No such file or directory; "):
        next(iter(load_batches(Mixture({"a": NoSockets(4)}, seed=1), sampler({"a": 4}), 1)))

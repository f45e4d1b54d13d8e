import threading

import numpy as np
import pytest
import torch

from figura.injectors.tensors import Interpolate
from figura.prediction.runner import converted, needed
from figura.prediction.streaming import batch_by_shape, prefetch


def of_size(size, number):
    return {"x": np.zeros((1, size, size), np.float32), "name": str(number)}


def numbers(batches):
    return [[int(example["name"]) for example in batch] for batch in batches]


def test_batches_have_one_shape_and_come_as_soon_as_they_are_full():
    sizes = [4, 5, 4, 4, 5, 5, 4]
    batches = batch_by_shape((of_size(size, index) for index, size in enumerate(sizes)), 3)
    assert numbers(batches) == [[0, 2, 3], [1, 4, 5], [6]]


def test_rare_shapes_do_not_pile_up():
    taken = 0

    def examples():
        nonlocal taken
        for taken, size in enumerate([7, 7, *range(8, 50)], 1):
            yield of_size(size, taken)

    given = 0
    for batch in batch_by_shape(examples(), 4):
        given += len(batch)
        assert taken - given < 8
        assert len({example["x"].shape for example in batch}) == 1
        if given == len(batch):
            assert numbers([batch]) == [[1, 2]]  # the largest group first
    assert given == 44


@pytest.mark.parametrize("workers", [0, 2])
def test_reading_ahead_keeps_the_order_and_a_limit(workers):
    asked, threads = [], set()

    def photos():
        for number in range(20):
            asked.append(number)
            yield number

    def read(number):
        threads.add(threading.current_thread())
        return number * number

    for index, found in enumerate(prefetch(photos(), read, workers)):
        assert found == index * index
        assert len(asked) - index <= 2 * workers + 1
    assert (threading.main_thread() in threads) == (workers == 0)


def test_only_injectors_that_lead_to_what_is_wanted():
    chain = {
        "first": Interpolate(a="x", b="y", output="u"),
        "aside": Interpolate(a="target", b="u", output="v"),
        "second": Interpolate(a="u", b="z", output="w"),
    }
    chosen, names = needed(chain, ["w"])
    assert list(chosen) == ["first", "second"]
    assert names == {"x", "y", "z", "name"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8])
def test_a_mask_of_any_type_is_black_and_white(dtype):
    pixels = converted("mask", torch.tensor([[[0, 1]]]).to(dtype), "mask")
    assert pixels.dtype == np.uint8
    assert pixels.tolist() == [[[0] * 3, [255] * 3]]


def test_a_mask_in_half_precision_has_the_levels_of_a_dump():
    """0.10009765625 of 255 is level 25.52; minus 1 in bfloat16, twice of it would be -0.80078125, level 25.40."""
    assert converted("mask", torch.tensor([[[0.1]]], dtype=torch.bfloat16), "mask")[0, 0, 0] == 26


def test_a_picture_of_pixels_stays_as_it_is():
    pixels = converted("image", torch.tensor([[[0, 1, 255]]], dtype=torch.uint8), "image")
    assert pixels.tolist() == [[[0] * 3, [1] * 3, [255] * 3]]

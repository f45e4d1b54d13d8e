"""Streams examples of any shape: threads prefetch them, and examples of the same shape are batched."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from figura.engine.data import collated
from figura.interfaces import Example
from figura.prediction.inputs import Photo

T = TypeVar("T")


def prefetch(photos: Iterable[Photo], read: Callable[[Photo], T], workers: int) -> Iterator[T]:
    """Yield `read(photo)` in order; `workers` threads read up to `2 * workers` photos ahead."""
    if not workers:
        yield from map(read, photos)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[T]] = deque()
        for photo in photos:
            waiting.append(pool.submit(read, photo))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def batch_by_shape(examples: Iterable[Example], size: int) -> Iterator[list[Example]]:
    """Yield all examples in batches of at most `size`, each of one shape.

    When `2 * size` examples are waiting, the largest group is yielded, even if it is smaller than `size`.
    """
    waiting: dict[Any, list[Example]] = {}
    for example in examples:
        arrays = {name: one for name, one in example.items() if isinstance(one, (np.ndarray, Tensor))}
        shapes = tuple(sorted((name, tuple(one.shape)) for name, one in arrays.items()))
        group = waiting.setdefault(shapes, [])
        group.append(example)
        if len(group) == size:
            yield waiting.pop(shapes)
        elif sum(map(len, waiting.values())) >= 2 * size:
            yield waiting.pop(max(waiting, key=lambda shapes: len(waiting[shapes])))
    yield from waiting.values()


def collated_with_photos(examples: list[Example]) -> dict[str, Any]:
    """Collate examples; values of type `Photo` become a list."""
    photos = {name for name, value in examples[0].items() if isinstance(value, Photo)}
    batch = collated([{name: one[name] for name in one.keys() - photos} for one in examples])
    return {**batch, **{name: [one[name] for one in examples] for name in photos}}

"""Worker processes for drawing, one per core; they end with their parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from typing import TypeVar

import cv2
from tqdm import tqdm

from figura.synthetic.randomness import SPLITS, Split
from figura.synthetic.settings import Counts

Result = TypeVar("Result")

CHUNK = 8  # pictures handed to a process at a time
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}


def in_processes(
    draw: Callable[[Split, int], Result], counts: Counts, progress: bool, workers: int | None
) -> Iterator[tuple[Split, Iterator[Result]]]:
    """Yield each split and its results of `draw(split, index)`, in order; for `workers`, see `processes`."""
    numbers = counts.model_dump()
    with processes(workers, max(numbers.values())) as pool:
        for split in SPLITS:
            results = pool.map(partial(draw, split), range(numbers[split]), chunksize=CHUNK)
            yield split, iter(tqdm(results, f"draw {split}", numbers[split], disable=not progress))


@contextmanager
def processes(workers: int | None, pictures: int) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of `workers` processes (default: one per core), or one per chunk; drops pending work at the end."""
    # Forking a process that has threads may hang.
    context = multiprocessing.get_context("spawn")
    count = min(workers or os.cpu_count() or 1, -(-pictures // CHUNK))
    # A process that is still starting prints a traceback on a signal; so does one whose parent is interrupted while
    # starting it. `_prepare_worker` unblocks them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        resource_tracker.ensure_running()  # cleans up semaphores; must survive signals to all processes
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # Python has just unblocked two
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_prepare_worker)
        for _ in range(count):
            pool.submit(int)  # starts a process
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Use one core; ignore Ctrl-C, which the parent handles, and unblock other signals; end with the parent."""
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    # otherwise, a worker would wait for work forever after its parent was killed
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)

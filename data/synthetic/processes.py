"""Processes that draw, one a core, and that end when they are no longer wanted."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import cv2

CHUNK = 8  # pictures handed to a process at a time


@contextmanager
def processes(workers: int | None) -> Iterator[ProcessPoolExecutor]:
    """A pool of `workers` processes, as many as there are cores unless given; what is pending at the end is dropped."""
    # Forking a process that has threads may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context, initializer=_prepare_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """One core a process; an interrupt is the parent's to handle, its death ends the worker."""
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    # A worker would wait for work for ever after its parent was killed.
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)

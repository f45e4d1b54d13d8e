"""Worker processes for drawing, one per core; they end with their parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker

import cv2

CHUNK = 8  # pictures handed to a process at a time


@contextmanager
def processes(workers: int | None) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of `workers` processes (default: one per core); drops pending work at the end."""
    # Forking a process that has threads may hang.
    context = multiprocessing.get_context("spawn")
    _start_tracker()
    pool = ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context, initializer=_prepare_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _start_tracker() -> None:
    """Start the process that removes semaphores so that it outlives a SIGUSR1 to all, as it does other signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker() -> None:
    """Use one core; ignore interrupts, which the parent handles; end when the parent ends."""
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    # otherwise a worker would wait for work forever after its parent was killed
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)

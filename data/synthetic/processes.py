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
STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}


@contextmanager
def processes(workers: int | None) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of `workers` processes (default: one per core); drops pending work at the end."""
    # Forking a process that has threads may hang.
    context = multiprocessing.get_context("spawn")
    count = workers or os.cpu_count() or 1
    # What is just starting would complain of a signal, also of its parent's: `_prepare_worker` listens again.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        resource_tracker.ensure_running()  # removes semaphores; a signal to all must not end it
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)  # Python has just unblocked two
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_prepare_worker)
        for _ in range(count):
            pool.submit(int)  # starts a process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    """Use one core; ignore interrupts, which the parent handles; end when the parent ends."""
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    # otherwise a worker would wait for work forever after its parent was killed
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)

"""Load of this machine's cores by other processes, and how threads should wait for each other."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

STATISTICS = Path("/proc/stat")
SECONDS = 0.1
SPIN = {"GOMP_SPINCOUNT": "10000"}
SLEEP = {"OMP_WAIT_POLICY": "passive"}
MIN_BUSY_CORES, MIN_BUSY_FRACTION = 0.5, 0.1
"""If other processes keep this many cores busy, sleeping while waiting is faster than spinning."""


def waiting(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variable for the wait policy of libgomp's threads, and remarks; empty if set by the caller.

    On an idle machine they spin for a short time; beside other work they sleep at once.
    """
    if environment.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        return {}, []
    cores = available_cores()
    if (others := busy_cores(STATISTICS, SECONDS)) < max(MIN_BUSY_CORES, MIN_BUSY_FRACTION * len(cores)):
        return SPIN, []
    return SLEEP, [f"{others:.1f} of {len(cores)} cores are busy with other work"]


def busy_cores(statistics: Path, seconds: float) -> float:
    """Return how many of this process's cores are at work while it sleeps for some seconds; 0 if unknown."""
    try:
        before = ticks(statistics.read_text())
        time.sleep(seconds)
        after = ticks(statistics.read_text())
    except (OSError, ValueError):
        return 0.0
    spent = [(after[core][0] - before[core][0], after[core][1] - before[core][1]) for core in after.keys() & before]
    return sum(busy / max(busy + idle, 1) for busy, idle in spent)


def ticks(statistics: str) -> dict[int, tuple[int, int]]:
    """Return the busy and idle ticks of each core of this process since boot; source: proc_stat(5).

    The columns are user, nice, system, idle, iowait, irq, softirq and steal; guest time is included in user.
    """
    own, counts = available_cores(), dict[int, tuple[int, int]]()
    for line in statistics.splitlines():
        name, *columns = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in own:
            numbers = [int(column) for column in columns[:8]]
            idle = sum(numbers[3:5])
            counts[int(name[3:])] = (sum(numbers) - idle, idle)
    return counts


def available_cores() -> set[int]:
    """Return the cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))

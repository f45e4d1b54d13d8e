"""Times functions, tells the memory of this process, and prints rows as a table."""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def seconds(function: Callable[[], object], budget: float, at_least: int = 1) -> float:
    """Return the median time of as many calls as fit into `budget` seconds."""
    times: list[float] = []
    while len(times) < at_least or sum(times) < budget:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def most_resident() -> float:
    """Return the largest resident size so far, or since `clear_refs`, MiB; `getrusage` would count a parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def show(rows: Sequence[Sequence[object]]) -> None:
    """Print rows, the first of them the head, in aligned columns."""
    texts = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    for index, row in enumerate(texts):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)
        if index == 0:
            print("  ".join("-" * width for width in widths))

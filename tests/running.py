"""What runs in a folder right now, for tests that stop or kill parts of it (Linux)."""

from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """What a process was started with."""

    arguments: list[str]
    environment: dict[str, str]


def processes_in(folder: Path) -> dict[int, Process]:
    """Return the processes whose working directory a folder is, by number."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve() == folder.resolve():
                variables = (one.split("=", 1) for one in (entry / "environ").read_text().split("\0") if "=" in one)
                processes[int(entry.name)] = Process((entry / "cmdline").read_text().split("\0"), dict(variables))
        except OSError:  # it has ended
            continue
    return processes


def workers(folder: Path) -> dict[int, int]:
    """Return the process number of each rank of a training in a folder."""
    return {int(p.environment["RANK"]): number for number, p in processes_in(folder).items() if "RANK" in p.environment}

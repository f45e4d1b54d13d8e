"""Start a stage on the hardware at hand, one machine or several: `python -m figura.launch STAGE [ARGUMENT ...]`.

The command is the same everywhere, so a change of hardware changes nothing that is tracked.

- The stage runs as one process for each visible GPU of the machine, or as one process without a GPU. A training takes
  fewer where the batch does not divide evenly. `FIGURA_PROCESSES` sets the number of processes on each machine, also on
  CPUs. PyTorch's own launcher starts several processes (figura/launch/processes.py). One process is this one: a second
  start of Python would cost as much as the first.
- With `FIGURA_DEVICES` or `FIGURA_CORES`, it takes as many GPUs or cores that no other run has
  (figura/launch/devices.py).
- Inside a Slurm allocation, one launcher runs on each machine (figura/launch/slurm.py).
- A training step frees and allocates the same tensors thousands of times. glibc returns large blocks to the system at
  each free and page-faults them in again at the next use. Larger thresholds keep the blocks; tcmalloc is faster still
  and is preloaded, into a new process, where it is installed (`2646a9a:bench/before_after.py`).
- Threads of a CPU wait for each other many times a step. With libgomp's default they spin for milliseconds before they
  sleep, and beside other busy processes take the time in which the thread that they wait for could run. They spin for
  less here, unless the caller has set a wait policy (docs/speed.md).

Environment variables that the caller has set stay as they are.

SIGTERM and SIGUSR1 are blocked while a stage starts, and delivered once it can handle them.
"""

import ctypes
import ctypes.util
import importlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from figura.base import exit_status as command
from figura.base.errors import Interrupted, UserError
from figura.launch import slurm
from figura.launch.devices import CORES, DEVICES, requested, take, visible

STAGES = "stages"
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
MALLOPT = {"MALLOC_MMAP_THRESHOLD_": -3, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2}  # from <malloc.h>
SPIN = {"GOMP_SPINCOUNT": "1000"}
PROCESSES, ANYWAY = "FIGURA_PROCESSES", "FIGURA_RESUME_ANYWAY"
MOST = 256  # processes on a machine
DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA (two), NVIDIA in WSL, AMD


def main(arguments: list[str]) -> int:
    """Run the stage in this process, in one that replaces it, or in several; return the exit status."""
    if not arguments:
        raise UserError(
            "python -m figura.launch: expected a stage and its arguments, such as `train params.yaml runs/first`"
        )
    if (text := os.environ.get(ANYWAY, "")) not in ("", "0", "1"):
        raise UserError(f"{ANYWAY}: found {text!r}; expected 1")
    signal.pthread_sigmask(signal.SIG_BLOCK, Interrupted.signals)
    if slurm.allocated(os.environ) and slurm.can_start(os.environ):
        step, environment, message = slurm.step(os.environ, arguments)
        _say(message)
        return slurm.run_step(step, environment)
    try:
        with ExitStack() as held:
            return start_here(arguments, held)
    except (Interrupted, KeyboardInterrupt) as error:  # before the stage began
        return command.interrupted(error)


def start_here(arguments: list[str], held: ExitStack) -> int:
    """Run the stage on this machine, with the locks of its GPUs and cores in `held`; return the exit status."""
    stage, *rest = arguments
    meeting = os.environ.get("FIGURA_RENDEZVOUS")
    cores = take_cores(held)
    if not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        os.environ |= SPIN  # before PyTorch is imported, in `gpus` at the earliest
    available = gpus(os.environ)
    wanted = requested(os.environ, DEVICES, available, "the number of visible GPUs")
    devices = take("gpu", visible(os.environ, available), wanted, held)
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        available = len(devices)
    count = process_count(os.environ, available)
    why = ""
    if stage == "train" and rest and count > 1 and not os.environ.get(PROCESSES):
        machines = 1 if meeting is None else slurm.place(os.environ)[1]
        count, why = fitting_count(count, machines, Path(rest[0]))
    chosen = allocator() | threads(count, cores)
    chosen = {name: value for name, value in chosen.items() if name not in os.environ}
    several = [f"{count} processes{why}"] if count > 1 or why else []
    several += [f"GPU {device}" for device in devices]
    if several:
        _say(", ".join(several))
    python = [sys.executable, "-m", f"{STAGES}.{stage}", *rest]
    if count == 1 and meeting is None:
        # CUDA, if `gpus` has started it, keeps the GPUs that were visible then
        if devices or "LD_PRELOAD" in chosen or not set_allocator(chosen):
            os.execve(sys.executable, python, os.environ | chosen)
        os.environ |= chosen
        return run_here(stage, rest)
    from figura.launch.processes import start  # slow import of PyTorch

    os.environ |= chosen
    return start(python, count, meeting)


def run_here(stage: str, arguments: list[str]) -> int:
    """Run a stage in this process and return its exit status. Raises UserError if there is no such stage."""
    try:
        page = importlib.import_module(f"{STAGES}.{stage}")
    except ModuleNotFoundError as error:
        if error.name != f"{STAGES}.{stage}":
            raise
        raise UserError(f"python -m figura.launch: there is no stage {stage!r}") from None
    return command.run(page.main, arguments)


def gpus(environment: Mapping[str, str]) -> int:
    """Return the number of GPUs visible to PyTorch."""
    if not (shutil.which("nvidia-smi") or any(Path(path).exists() for path in DRIVERS)):
        return 0
    import torch  # slow import

    count = torch.accelerator.device_count()
    if count == 0 and "CUDA_VISIBLE_DEVICES" not in environment:
        _say("found a GPU driver, but this PyTorch sees no GPU: is it a CPU build, or is the driver too old for it?")
    return count


def process_count(environment: Mapping[str, str], available: int) -> int:
    """Return the number of processes to start on this machine with `available` GPUs.

    Raises:
        UserError: `FIGURA_PROCESSES` is not an integer from 1 to `MOST`, or exceeds the number of GPUs.
    """
    count = requested(environment, PROCESSES, MOST, "processes a machine")
    if 0 < available < count:
        raise UserError(
            f"{PROCESSES}: found {count}; expected at most {available}, one for each GPU; CUDA_VISIBLE_DEVICES= "
            "(empty) takes the CPU instead"
        )
    return count or max(1, available)


def fitting_count(most: int, machines: int, recipe: Path) -> tuple[int, str]:
    """Return the largest number of processes per machine, at most `most`, that divides the batch, and a remark.

    Returns `most` if no number divides it or the recipe is not readable; the stage itself reports this better.
    """
    from figura.recipe.expansion import read_recipe  # rarely needed

    try:
        size = read_recipe(recipe)["data"]["batch_size"]
        fitting = [count for count in range(most, 0, -1) if size % (count * machines) == 0]
    except (UserError, OSError, LookupError, TypeError):
        return most, ""
    if not fitting or fitting[0] == most:
        return most, ""
    return fitting[0], f" (not {most}, which cannot share data.batch_size {size} evenly)"


def allocator() -> dict[str, str]:
    """Return the environment variables that make the allocator keep large blocks."""
    preloaded = ctypes.util.find_library("tcmalloc_minimal") if sys.platform == "linux" else None
    return ALLOCATOR | ({"LD_PRELOAD": preloaded} if preloaded else {})


def set_allocator(variables: Mapping[str, str]) -> bool:
    """Set the thresholds in `variables` for this process; return whether its C library supports them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    thresholds = [(MALLOPT[name], int(value)) for name, value in variables.items() if name in MALLOPT]
    return mallopt is not None and all(mallopt(*one) == 1 for one in thresholds)


def available_cores() -> set[int]:
    """Return the cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def take_cores(held: ExitStack) -> int:
    """Keep this process and its children on cores of their own; return how many, 0 if none were asked for."""
    free = available_cores()
    count = requested(os.environ, CORES, len(free), "the number of cores")
    cores = take("core", [str(core) for core in sorted(free)], count, held)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, map(int, cores))
    return len(cores)


def threads(count: int, cores: int) -> dict[str, str]:
    """Divide `cores`, or else this machine's, among `count` processes; for one with all of them, PyTorch decides."""
    if count == 1 and not cores:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, (cores or len(available_cores())) // count))}


def _say(text: str) -> None:
    if os.environ.get("SLURM_NODEID", "0") == "0":  # once, not on every machine
        print(f"launch: {text}", flush=True)

"""Start a stage on what is there, one machine or several: `python -m stages.launch STAGE [ARGUMENT ...]`.

The command is the same everywhere, so that hardware changes nothing that DVC tracks.

- One process for each visible GPU of the machine, else one. A training takes fewer where they cannot share a batch evenly.
  `FIGURA_PROCESSES` is another number of processes a machine, also on CPU. Several are started by PyTorch's own launcher
  (stages/launch/processes.py).
- Inside an allocation of Slurm, one such launcher on each of its machines (stages/launch/slurm.py).
- glibc gives large blocks back to the system at each free and faults them in again at the next use; a training step frees
  and takes the same tensors thousands of times. Larger thresholds keep them; tcmalloc does better and is preloaded where it
  is installed (`python -m bench.allocator`).
- cuBLAS gives the same results twice with a workspace of fixed size only.

What the caller has set stays.

SIGTERM and SIGUSR1 that come while a stage is being started wait until it can answer them.
"""

import ctypes.util
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from models.base.errors import Interrupted, UserError
from stages.launch import slurm

ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # of NVIDIA's documentation, "Results reproducibility"
PROCESSES = "FIGURA_PROCESSES"
DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, its for WSL, AMD's


def main(arguments: list[str]) -> int:
    """Replace this process by the stage, or start several and return the exit status."""
    if not arguments:
        raise UserError(
            "python -m stages.launch: expected a stage and its arguments, such as `train params.yaml runs/vunet`"
        )
    signal.pthread_sigmask(signal.SIG_BLOCK, Interrupted.signals)
    if slurm.allocated(os.environ) and slurm.can_start(os.environ):
        command, environment, said = slurm.step(os.environ, arguments)
        _say(said)
        return slurm.run_step(command, environment)
    stage, *rest = arguments
    meeting = os.environ.get("FIGURA_RENDEZVOUS")
    available = gpus(os.environ)
    count = processes(os.environ, available)
    why = ""
    if stage == "train" and rest and count > 1 and not os.environ.get(PROCESSES):
        machines = 1 if meeting is None else slurm.place(os.environ)[1]
        count, why = sharing(count, machines, Path(rest[0]))
    chosen = allocator() | threads(count) | (CUBLAS if available else {})
    chosen = {name: value for name, value in chosen.items() if name not in os.environ}
    several = [f"{count} processes{why}"] if count > 1 or why else []
    if several or chosen:
        _say(" ".join([*several, *(f"{name}={value}" for name, value in chosen.items())]))
    command = [sys.executable, "-m", f"stages.{stage}", *rest]
    if count == 1 and meeting is None:
        os.execve(sys.executable, command, os.environ | chosen)
    from stages.launch.processes import start  # PyTorch takes seconds to load

    os.environ |= chosen
    return start(command, count, meeting)


def gpus(environment: Mapping[str, str]) -> int:
    """Return how many GPUs PyTorch sees."""
    if not (shutil.which("nvidia-smi") or any(Path(path).exists() for path in DRIVERS)):
        return 0
    import torch  # takes seconds to load

    count = torch.accelerator.device_count()
    if count == 0 and "CUDA_VISIBLE_DEVICES" not in environment:
        _say("there is the driver of a GPU, but this PyTorch sees none: a build for CPUs, or a driver too old for it?")
    return count


def processes(environment: Mapping[str, str], available: int) -> int:
    """Return how many processes this machine, with so many GPUs, shall run.

    Raises:
        UserError: `FIGURA_PROCESSES` is no number of processes, or larger than that of GPUs, each of which takes one.
    """
    asked = environment.get(PROCESSES, "")
    if not asked:
        return max(1, available)
    if not asked.isdecimal() or int(asked) < 1:
        raise UserError(f"{PROCESSES}: found {asked!r}; expected a number of processes a machine, 1 or more")
    if 0 < available < int(asked):
        raise UserError(
            f"{PROCESSES}: found {asked}; expected at most {available}, one for each GPU; CUDA_VISIBLE_DEVICES= (empty) "
            "takes the CPU instead"
        )
    return int(asked)


def sharing(most: int, machines: int, recipe: Path) -> tuple[int, str]:
    """Return how many processes a machine, at most `most`, can share a recipe's batch evenly, and what to say of it.

    `most` where none can or the recipe is not readable: the stage says more of that.
    """
    from models.base.yaml12 import read_yaml  # as all that not every start needs

    try:
        size = read_yaml(recipe)["data"]["batch_size"]
        fitting = [count for count in range(most, 0, -1) if size % (count * machines) == 0]
    except (UserError, OSError, LookupError, TypeError):
        return most, ""
    if not fitting or fitting[0] == most:
        return most, ""
    return fitting[0], f" (not {most}, which cannot share data.batch_size {size} evenly)"


def allocator() -> dict[str, str]:
    """Return the variables by which a process keeps the memory that it takes again and again."""
    preloaded = ctypes.util.find_library("tcmalloc_minimal") if sys.platform == "linux" else None
    return ALLOCATOR | ({"LD_PRELOAD": preloaded} if preloaded else {})


def threads(count: int) -> dict[str, str]:
    """Return the share of this machine's cores that each of several processes gets; alone, PyTorch chooses."""
    return {} if count == 1 else {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // count))}


def _say(text: str) -> None:
    if os.environ.get("SLURM_NODEID", "0") == "0":  # each machine would say the same
        print(f"launch: {text}", flush=True)

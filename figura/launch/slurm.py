"""Inside a Slurm allocation: `srun` starts one launcher per machine, and passes the rendezvous address.

The rendezvous is on the first machine, at the address that Slurm itself uses (`NodeAddr`; the names of nodes need not
resolve). The port is below the system's ephemeral ports, so that no connection takes it between choice and use. The
launchers read `address:port` from the environment variable `FIGURA_RENDEZVOUS`, which is not set for a single machine.

`srun` exits with the highest status of all machines. A failure on one machine interrupts the others, whose status 75
would hide the failure's lower one. Launchers of several machines therefore add `FAILED` to statuses below 75.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

from figura.base.errors import Interrupted, UserError
from figura.base.exit_status import MARKER, ignore_signals, note_interruption

FIRST_OWN_STEP_OF_SLURM = 0xFFFFFFF0  # from here on, steps are Slurm's: interactive, batch, extern
FAILED = 180  # above 128 + any usual signal, and below 256 after adding 75
PORTS = range(15000, 32000)
TASK_VARIABLES = (  # a job's settings for its tasks; a launcher is one task with all resources of its machine
    "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK",
    "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET", "SLURM_EXACT", "SLURM_DISTRIBUTION", "SLURM_ARBITRARY_NODELIST",
    "SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURM_THREADS_PER_CORE", "SLURM_HINT",
)  # fmt: skip


def allocated(environment: Mapping[str, str]) -> bool:
    """Whether this process runs inside an allocation, but not yet inside a step of it (started by `srun`)."""
    step = environment.get("SLURM_STEP_ID", "")
    inside = step.isdecimal() and int(step) < FIRST_OWN_STEP_OF_SLURM
    return "SLURM_JOB_ID" in environment and not inside


def can_start(environment: Mapping[str, str]) -> bool:
    """Whether `srun` is installed. Raises UserError if it is missing and the allocation has several machines."""
    if shutil.which("srun"):
        return True
    if (count := environment.get("SLURM_JOB_NUM_NODES", "1")) != "1":
        raise UserError(
            f"job {environment['SLURM_JOB_ID']} has {count} machines, and there is no `srun` here (in a container?) to "
            "start on them; ask for one machine, or start outside"
        )
    return False


def step(environment: Mapping[str, str], arguments: list[str]) -> tuple[list[str], dict[str, str], str]:
    """Return the command that runs the launcher on every machine of the allocation, its environment, and a message."""
    count = environment.get("SLURM_JOB_NUM_NODES", "1")
    message = f"{count} machine{'s' if count != '1' else ''} of job {environment['SLURM_JOB_ID']}"
    variables = {name: value for name, value in environment.items() if name not in (*TASK_VARIABLES, MARKER)}
    if count != "1":
        variables["FIGURA_RENDEZVOUS"] = f"{first_address(environment['SLURM_JOB_NODELIST'])}:{free_port()}"
        message += f", which meet at {variables['FIGURA_RENDEZVOUS']}"
    srun = [
        "srun", "--nodes", count, "--ntasks", count, "--ntasks-per-node", "1",
        "--kill-on-bad-exit=1",  # one failing launcher ends the others
        "--export=ALL", "--input=none", "--cpu-bind=quiet,none",
    ]  # fmt: skip
    return [*srun, sys.executable, "-m", str(__package__), *arguments], variables, message


def run_step(command: list[str], environment: Mapping[str, str]) -> int:
    """Run `srun`, pass SIGTERM and SIGUSR1 on to the stage, and return the stage's exit status."""
    with subprocess.Popen(command, env=environment) as srun:
        for one in Interrupted.signals:
            # SIGTERM would make srun kill its tasks
            signal.signal(one, lambda number, frame: srun.send_signal(signal.SIGUSR1))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # srun handles Ctrl-C in the same terminal
        signal.pthread_sigmask(signal.SIG_UNBLOCK, Interrupted.signals)
        status = srun.wait()
    ignore_signals()
    if status == Interrupted.code:
        note_interruption(os.environ)
    return status - FAILED if FAILED < status < FAILED + Interrupted.code else status


def raised(status: int) -> int:
    """Return the exit status reported to `srun` by one of several launchers."""
    return status + FAILED if 0 < status < Interrupted.code else status


def first_address(nodes: str) -> str:
    """Return the address of the first machine of a list such as `n[1-4]`. Raises UserError if Slurm has none."""
    first = _scontrol("show", "hostnames", nodes).split()[0]
    address = re.search(r"NodeAddr=(\S+)", _scontrol("show", "node", first, "--oneliner"))
    if address is None:
        raise UserError(f"scontrol show node {first}: says no NodeAddr")
    return address[1]


def free_port() -> int:
    """Return a random free port of this machine: batch scripts run on the first machine of their allocation."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise UserError(f"no free port in {PORTS.start} to {PORTS.stop - 1}")


def _scontrol(*arguments: str) -> str:
    command = ["scontrol", *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", None) or str(error)
        raise UserError(f"{' '.join(command)}: {message.strip()}") from None


def place(environment: Mapping[str, str]) -> tuple[int, int, str]:
    """Return, inside a step: the index of this machine (from 0), the number of machines, and the step's name."""
    return (
        int(environment["SLURM_NODEID"]),
        int(environment["SLURM_STEP_NUM_NODES"]),
        f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}",
    )

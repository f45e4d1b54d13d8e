"""Inside an allocation of Slurm: `srun` starts one launcher on each machine, and says where they meet.

The launchers meet on the first machine, at the address that Slurm itself uses (`NodeAddr`: names of nodes need not resolve), at a
port below those that the system hands out, so that no connection takes it between choice and use. The machines get the
environment variable `FIGURA_RENDEZVOUS`, as `address:port`; with one machine there is none.

`srun` ends with the highest exit status of all machines. So that a failure is not taken for an interruption, which it
brings to the other machines, launchers of several machines add `FAILED` to statuses below that.
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

from models.base.errors import Interrupted, UserError
from stages.command import MARKER, ignore_signals, note_interruption

FIRST_OWN_STEP_OF_SLURM = 0xFFFFFFF0  # higher numbers are Slurm's own steps: interactive, batch, extern
FAILED = 180  # above 128 + any usual signal, and with 75 below 256
PORTS = range(15000, 32000)
OF_TASKS = (  # what a job says of its tasks; a launcher is one task with all that the job has on its machine
    "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK",
    "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET", "SLURM_EXACT", "SLURM_DISTRIBUTION", "SLURM_ARBITRARY_NODELIST",
    "SLURM_GPU_BIND", "SLURM_TRES_BIND", "SLURM_THREADS_PER_CORE", "SLURM_HINT",
)  # fmt: skip


def allocated(environment: Mapping[str, str]) -> bool:
    """Whether this process has an allocation and is not inside a step of it already (someone called `srun`)."""
    step = environment.get("SLURM_STEP_ID", "")
    inside = step.isdecimal() and int(step) < FIRST_OWN_STEP_OF_SLURM
    return "SLURM_JOB_ID" in environment and not inside


def can_start(environment: Mapping[str, str]) -> bool:
    """Whether there is `srun`. Raises UserError where there is none and the allocation has several machines."""
    if shutil.which("srun"):
        return True
    if (count := environment.get("SLURM_JOB_NUM_NODES", "1")) != "1":
        raise UserError(
            f"job {environment['SLURM_JOB_ID']} has {count} machines, and there is no `srun` here (in a container?) to start on them; "
            "ask for one machine, or start outside"
        )
    return False


def step(environment: Mapping[str, str], arguments: list[str]) -> tuple[list[str], dict[str, str], str]:
    """Return the command that runs the launcher on every machine of the allocation, its environment, and what to say."""
    count = environment.get("SLURM_JOB_NUM_NODES", "1")
    said = f"{count} machine{'s' if count != '1' else ''} of job {environment['SLURM_JOB_ID']}"
    wanted = {name: value for name, value in environment.items() if name not in (*OF_TASKS, MARKER)}
    if count != "1":
        wanted["FIGURA_RENDEZVOUS"] = f"{first_address(environment['SLURM_JOB_NODELIST'])}:{free_port()}"
        said += f", which meet at {wanted['FIGURA_RENDEZVOUS']}"
    srun = [
        "srun", "--nodes", count, "--ntasks", count, "--ntasks-per-node", "1",
        "--kill-on-bad-exit=1",  # one launcher that fails ends the others
        "--export=ALL", "--input=none", "--cpu-bind=quiet,none",
    ]  # fmt: skip
    return [*srun, sys.executable, "-m", "stages.launch", *arguments], wanted, said


def run_step(command: list[str], environment: Mapping[str, str]) -> int:
    """Run `srun`, pass on the signals that a stage hears, and return the exit status of the stage."""
    with subprocess.Popen(command, env=environment) as srun:
        for one in Interrupted.signals:
            # SIGTERM would make srun kill its tasks
            signal.signal(one, lambda number, frame: srun.send_signal(signal.SIGUSR1))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # srun, in the same terminal, asks for a second one
        signal.pthread_sigmask(signal.SIG_UNBLOCK, Interrupted.signals)
        status = srun.wait()
    ignore_signals()
    if status == Interrupted.code:
        note_interruption(os.environ)
    return status - FAILED if FAILED < status < FAILED + Interrupted.code else status


def raised(status: int) -> int:
    """Return the exit status of a launcher among several machines."""
    return status + FAILED if 0 < status < Interrupted.code else status


def first_address(nodes: str) -> str:
    """Return the address of the first machine of a list such as `n[1-4]`. Raises UserError where Slurm does not say."""
    first = _scontrol("show", "hostnames", nodes).split()[0]
    found = re.search(r"NodeAddr=(\S+)", _scontrol("show", "node", first, "--oneliner"))
    if found is None:
        raise UserError(f"scontrol show node {first}: says no NodeAddr")
    return found[1]


def free_port() -> int:
    """Return a port, at random, that nobody listens on here: on the first machine, where a batch script runs."""
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
        said = getattr(error, "stderr", None) or str(error)
        raise UserError(f"{' '.join(command)}: {said.strip()}") from None


def place(environment: Mapping[str, str]) -> tuple[int, int, str]:
    """Return, inside a step: which machine this is (0 is the first), of how many, and a name of the step."""
    return (
        int(environment["SLURM_NODEID"]),
        int(environment["SLURM_STEP_NUM_NODES"]),
        f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}",
    )

"""Several processes of a stage, by PyTorch's own launcher (`torchrun` is its command line), and how they end.

A process that fails ends the others, and this launcher's death ends them all. Nothing is started a second time: a training
goes on from its resume point when it is run again.
"""

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from models.base.errors import Interrupted
from stages.command import MARKER, hear_nothing, ignore_signals, note_interruption
from stages.launch import slurm

PATIENCE = 300  # seconds in which processes may finish an iteration and write a resume point after SIGTERM
AT_ONCE = 20  # seconds in which they may end after Ctrl-C
TOGETHER = 5  # seconds in which failures have one cause
HEARD = (*Interrupted.signals, signal.SIGINT, signal.SIGHUP)
ASKED = (Interrupted.code, *(-one for one in Interrupted.signals))  # how a process ends that was asked to


def start(command: list[str], count: int, meeting: str | None) -> int:
    """Run a command in `count` processes here, joined with those of other machines at `meeting`; return the exit status.

    0: all have ended well; 75 or 130: interrupted; the stage's own where it is 1 or higher.
    """
    for one in HEARD:
        # what the caller ignores stays so (SIGHUP after `nohup`), but that DVC ignores what asks its stage to stop
        if one in Interrupted.signals or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, _stop)
    if "LOGLEVEL" not in os.environ:
        logging.disable(logging.ERROR)  # says in its own words, on many lines, what stands below
    if torch.cuda.is_available():
        from accelerate.utils import check_cuda_p2p_ib_support

        if not check_cuda_p2p_ib_support():  # as `accelerate launch`, for GPUs that cannot what their driver says
            os.environ.setdefault("NCCL_P2P_DISABLE", "1")
            os.environ.setdefault("NCCL_IB_DISABLE", "1")
    marker = {MARKER: os.environ.pop(MARKER, "")}
    os.environ["FIGURA_LAUNCHER"] = str(os.getpid())
    status = _run(command, count, meeting)
    if status == Interrupted.code:
        note_interruption(marker)
    return status if meeting is None else slurm.raised(status)


def _run(command: list[str], count: int, meeting: str | None) -> int:
    with tempfile.TemporaryDirectory(prefix="figura-launch-") as folder:
        try:
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, Interrupted.signals)
                elastic_launch(_configuration(count, meeting, folder), command[0])(*command[1:])
            finally:
                ignore_signals()
        except ChildFailedError as error:
            return _ended(error.failures)
        except SignalException as error:
            return Interrupted.code if error.sigval in Interrupted.signals else 128 + error.sigval
        except DistError as error:
            print(f"launch: the machines did not find each other at {meeting}: {error}", file=sys.stderr)
            return 1
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    """Make PyTorch's launcher pass a signal on and wait; a second one would end it, and the processes with it."""
    for one in HEARD:
        signal.signal(one, hear_nothing)
    if number not in Interrupted.signals:  # a process that waits for another inside NCCL does not hear it
        end = threading.Timer(AT_ONCE, os._exit, [128 + number])  # its processes do not outlive this one
        end.daemon = True
        end.start()
    raise SignalException(signal.Signals(number).name, signal.Signals(number))


def _configuration(count: int, meeting: str | None, folder: str) -> LaunchConfig:
    common: dict[str, Any] = {
        "nproc_per_node": count, "max_restarts": 0, "shutdown_timeout": PATIENCE, "logs_specs": DefaultLogsSpecs(folder),
        "signals_to_handle": "SIGQUIT",  # `_stop` handles the others
    }  # fmt: skip
    if meeting is None:  # port 0: the system gives a free one, and there is no time in which another could take it
        return LaunchConfig(
            min_nodes=1, max_nodes=1, run_id=uuid.uuid4().hex, local_addr="127.0.0.1",
            rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", **common,
        )  # fmt: skip
    machine, machines, step = slurm.place(os.environ)
    # static: who meets is known, and process 0 is on the first machine in every run
    return LaunchConfig(
        min_nodes=machines, max_nodes=machines, run_id=step,
        rdzv_backend="static", rdzv_endpoint=meeting, rdzv_configs={"rank": machine, "timeout": 600}, **common,
    )  # fmt: skip


def _ended(failures: Mapping[int, ProcessFailure]) -> int:
    """Say, once, why processes failed; return the exit status."""
    if all(failure.exitcode in ASKED for failure in failures.values()):
        return Interrupted.code
    rank, cause = first_cause(failures)
    told = [told_by(failure) for failure in failures.values()]
    bad_input = dict.fromkeys(one["message"] for one in told if one and not one["fault"])
    if bad_input:
        print(*(f"error: {message}" for message in bad_input), sep="\n", file=sys.stderr)
    elif cause.exitcode != 130:
        print(f"launch: {explained(rank, cause)}", file=sys.stderr)
    return cause.exitcode if cause.exitcode > 0 else 1


def first_cause(failures: Mapping[int, ProcessFailure]) -> tuple[int, ProcessFailure]:
    """Return the failure, with its rank, that the others follow from.

    The first ones are looked at. A process killed by a signal comes before one that ended by itself, which may have
    missed the other, and both before one that was asked to end; of several, the first.
    """
    times = {rank: told_by(one).get("time", one.timestamp) for rank, one in failures.items()}
    early = [rank for rank in failures if times[rank] <= min(times.values()) + TOGETHER]
    first = min(early, key=lambda rank: (failures[rank].exitcode in ASKED, failures[rank].exitcode > 0, times[rank]))
    return first, failures[first]


def told_by(failure: ProcessFailure) -> dict[str, Any]:
    """Return what a process has left to its launcher (`stages.command`), nothing where it had no time to."""
    message = failure.error_file_data["message"]
    return message if isinstance(message, dict) else {}


def explained(rank: int, failure: ProcessFailure) -> str:
    """Return in words how a process ended, and what to do."""
    who = f"process {rank} (number {failure.pid} on {socket.gethostname()})"
    if failure.exitcode > 0:
        how = f"ended with exit status {failure.exitcode}; its error stands above. The others were ended too"
    else:
        memory = ", as the system does where memory runs out" if failure.exitcode == -signal.SIGKILL else ""
        how = f"was killed by {failure.signal_name()}{memory}. The others were ended too"
    return f"{who} {how}. `dvc repro` runs the stage again; a training goes on from its last resume point."

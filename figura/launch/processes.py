"""Start several processes of a stage with PyTorch's launcher (behind `torchrun`) and report how they end.

If one process fails, the launcher ends the others; if the launcher dies, they all die. Nothing is restarted: run the
training again, and it resumes.
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
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, PContext, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from figura.base.errors import REPRO, Interrupted
from figura.base.exit_status import MARKER, ignore_signals, noop_handler, note_interruption
from figura.launch import slurm

PATIENCE = 300  # seconds after SIGTERM to finish an iteration and write a resume point
AT_ONCE = 20  # the same after Ctrl-C
TOGETHER = 5  # failures within this many seconds have one cause
HANDLED = (*Interrupted.signals, signal.SIGINT, signal.SIGHUP)
INTERRUPTED = (130, -signal.SIGINT)  # exit codes after Ctrl-C: of a stage, and during Python's shutdown
STOPPED = (Interrupted.code, *(-one for one in Interrupted.signals))  # exit codes of a process asked to stop


def start(command: list[str], count: int, meeting: str | None) -> int:
    """Run a command in `count` processes on this machine and return the exit status.

    `meeting` is the rendezvous `address:port` with other machines, None without any. The status is 0 if all processes
    succeeded, 75 or 130 if interrupted, and otherwise the stage's own, 1 or higher.
    """
    for one in HANDLED:
        # Keep what the caller ignores (SIGHUP after `nohup`), but not SIGTERM and SIGUSR1, which the pipeline ignores.
        if one in Interrupted.signals or signal.getsignal(one) != signal.SIG_IGN:
            signal.signal(one, _stop)
    if "LOGLEVEL" not in os.environ:
        logging.disable(logging.ERROR)  # PyTorch's launcher logs at length what `_ended` reports in one line
    if torch.cuda.is_available():
        from accelerate.utils import check_cuda_p2p_ib_support

        if not check_cuda_p2p_ib_support():  # as in `accelerate launch`: some GPUs lack what their driver claims
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
    """Make PyTorch's launcher pass the signal on and wait. A second signal would kill it and the processes."""
    for one in HANDLED:
        signal.signal(one, noop_handler)
    if number not in Interrupted.signals:  # a process waiting inside NCCL does not see SIGINT
        end = threading.Timer(AT_ONCE, os._exit, [128 + number])  # the processes die with this launcher
        end.daemon = True
        end.start()
    raise SignalException(signal.Signals(number).name, signal.Signals(number))


def _configuration(count: int, meeting: str | None, folder: str) -> LaunchConfig:
    common: dict[str, Any] = {
        "nproc_per_node": count, "max_restarts": 0,
        "logs_specs": DefaultLogsSpecs(folder),
        "signals_to_handle": "SIGQUIT",  # `_stop` handles the others
    }  # fmt: skip
    if hasattr(LaunchConfig, "shutdown_timeout"):
        common["shutdown_timeout"] = PATIENCE
    else:  # PyTorch 2.11 and older: the agent calls it without a timeout, and it would be 30 s
        PContext.close.__defaults__ = (None, PATIENCE)
    if meeting is None:  # port 0: the system picks a free port, without a race
        return LaunchConfig(
            min_nodes=1, max_nodes=1, run_id=uuid.uuid4().hex, local_addr="127.0.0.1",
            rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0",
            # Alone, it needs no heartbeat, whose thread prints a traceback where the launcher ends during a beat.
            rdzv_configs={"keep_alive_interval": 365 * 24 * 3600}, **common,
        )  # fmt: skip
    machine, machines, step = slurm.place(os.environ)
    # static: the machines are known in advance, and rank 0 is on the first machine in every run
    return LaunchConfig(
        min_nodes=machines, max_nodes=machines, run_id=step,
        rdzv_backend="static", rdzv_endpoint=meeting, rdzv_configs={"rank": machine, "timeout": 600}, **common,
    )  # fmt: skip


def _ended(failures: Mapping[int, ProcessFailure]) -> int:
    """Print, once, why the processes failed; return the exit status.

    Processes that only lost their peer are not reported.
    """
    failures = {rank: one for rank, one in failures.items() if not report_of(one).get("lost")} or failures
    if all(failure.exitcode in STOPPED for failure in failures.values()):
        return Interrupted.code
    rank, cause = first_cause(failures)
    reports = [report_of(failure) for failure in failures.values()]
    bad_input = dict.fromkeys(report["message"] for report in reports if report and not report["fault"])
    if bad_input:
        print(*(f"error: {message}" for message in bad_input), sep="\n", file=sys.stderr)
    elif cause.exitcode not in INTERRUPTED:
        print(f"launch: {explained(rank, cause)}", file=sys.stderr)
    if cause.exitcode in INTERRUPTED:
        return INTERRUPTED[0]
    return cause.exitcode if cause.exitcode > 0 else 1


def first_cause(failures: Mapping[int, ProcessFailure]) -> tuple[int, ProcessFailure]:
    """Return the rank and the failure that caused the others.

    Only the earliest failures count. Among these, a process killed by a signal comes first; next, one that ended by
    itself, perhaps because it lost its peer; last, one that was asked to stop. Ties go to the earliest.
    """
    times = {rank: report_of(one).get("time", one.timestamp) for rank, one in failures.items()}
    early = [rank for rank in failures if times[rank] <= min(times.values()) + TOGETHER]
    first = min(early, key=lambda rank: (failures[rank].exitcode in STOPPED, failures[rank].exitcode > 0, times[rank]))
    return first, failures[first]


def report_of(failure: ProcessFailure) -> dict[str, Any]:
    """Return the error report that a process wrote for its launcher (figura.base.exit_status); {} if it wrote none."""
    message = failure.error_file_data["message"]
    return message if isinstance(message, dict) else {}


def explained(rank: int, failure: ProcessFailure) -> str:
    """Return a sentence on how a process ended, and what to do."""
    who = f"process {rank} (number {failure.pid} on {socket.gethostname()})"
    if failure.exitcode > 0:
        how = f"ended with exit status {failure.exitcode}; its error stands above. The others were ended too"
    else:
        memory = ", as the system does where memory runs out" if failure.exitcode == -signal.SIGKILL else ""
        how = f"was killed by {failure.signal_name()}{memory}. The others were ended too"
    return f"{who} {how}. `{REPRO}` runs the stage again; a training goes on from its last resume point."

"""Stopping the training of a run, and letting it go on."""

import os
import platform
import signal
import subprocess
import threading
from datetime import datetime

from figura.base.errors import REPRO, UserError
from figura.base.lock import Holder
from figura.commands.explore.runs import Run, lock_holder, locking_process, read_run
from figura.pipeline.calls import COMMAND


def stop(run: Run) -> Holder:
    """Ask the training of a run to stop, after a resume point; return whom it was that held the lock.

    Raises:
        UserError: nobody is at work there, or a process of another machine, or it cannot be told which.
    """
    holder = lock_holder(run.folder)
    if holder is None:
        raise UserError(f"{run.name}: no process is at work there, so nothing is to be stopped")
    if holder.process and holder.host != platform.node():
        raise UserError(f"{run.name}: {holder} trains; this is {platform.node()}: `kill {holder.process}` there")
    if not hasattr(os, "pidfd_open"):
        raise UserError(f"{run.name}: only Linux can be asked safely; `kill {holder.process}` asks it to stop")
    try:
        process = os.pidfd_open(holder.process)  # stays that process, even if its number is used again
    except (OSError, ValueError):
        raise UserError(f"{run.name}: which process is at work there cannot be told; try again") from None
    try:
        if locking_process(run.folder) != holder.process:
            raise UserError(f"{run.name}: process {holder.process} does not hold the lock that names it; try again")
        signal.pidfd_send_signal(process, signal.SIGTERM)
    except OSError as error:
        raise UserError(f"{run.name}: process {holder.process} cannot be stopped: {error.strerror}") from None
    finally:
        os.close(process)
    return holder


_starting = threading.Lock()  # two people may ask at once
_started: dict[str, subprocess.Popen[bytes]] = {}  # one that does not train yet holds no lock


def resume(recipe: str) -> int:
    """Let the pipeline train a recipe, or go on; it survives this process. Return its number.

    Raises:
        UserError: a process is at work there.
    """
    with _starting:
        run, before = read_run(recipe), _started.get(recipe)
        if run.holder is not None:
            raise UserError(f"{recipe}: {run.holder} is at work there; wait for it, or stop it")
        if before is not None and before.poll() is None:
            raise UserError(f"{recipe}: `{REPRO}` is at work for it already, process {before.pid}; wait for it")
        run.output.parent.mkdir(parents=True, exist_ok=True)
        with run.output.open("ab") as file:
            now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
            file.write(f"{now}: {REPRO} train@{recipe}\n".encode())
            file.flush()
            command = [*COMMAND, "repro", f"train@{recipe}"]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        _started[recipe] = process
        return process.pid


def launch_status(run: Run) -> str:
    """Return what became of `resume`: that it is at work, or how it failed; nothing if there is nothing to tell."""
    process = _started.get(run.name)
    if process is None or run.holder is not None:
        return ""
    status = process.poll()
    if status is None:
        return f"{REPRO} train@{run.name} is at work, process {process.pid}"
    return f"{REPRO} train@{run.name} ended with status {status}; see its output" if status else ""

"""A real Slurm on this machine: one controller and two nodes, all of it in one folder and gone afterwards."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

PROGRAMS = {
    name: shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin") or ""
    for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
}
NODES = ("n1", "n2")


def why_not() -> str | None:
    """Return why a Slurm cannot be started here, None where it can."""
    missing = [name for name, path in PROGRAMS.items() if not path]
    if missing:
        return f"needs slurm-wlm and munge; not installed: {', '.join(missing)}"
    return None if os.geteuid() == 0 else "slurmd starts jobs only for root"


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def configuration(folder: Path) -> str:
    """Return slurm.conf: node names stand for addresses, as they resolve nowhere."""
    controller, *nodes = free_ports(1 + len(NODES))
    declared = "\n".join(
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=8000"
        for name, port in zip(NODES, nodes, strict=True)
    )
    # cred_expire: how long a requeued job waits before it may start again, two minutes where nothing is said
    return f"""
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0,sched_min_interval=0
KillWait=20
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{declared}
PartitionName=DEFAULT Nodes={",".join(NODES)} MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=all Default=YES PriorityTier=1
PartitionName=notice PriorityTier=1 GraceTime=40
PartitionName=urgent PriorityTier=2
"""


class Cluster:
    """The daemons, and what a user of the cluster calls. `environment` is what the user's commands run in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state", *(f"spool.{node}" for node in NODES)):
            (folder / name).mkdir()
        (folder / "slurm.conf").write_text(configuration(folder))
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))},
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self.daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons and wait until both nodes are idle."""
        folder = self.folder
        (folder / "munge.key").write_bytes(os.urandom(64))
        (folder / "munge.key").chmod(0o600)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._daemon("munged", "--foreground", "--force", *(f"--{k}={folder}/munge.{v}" for k, v in files.items()))
        until("munged listens", (folder / "munge.socket").exists, 20)
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        until("both nodes are idle", lambda: self.call("sinfo", "-h", "-o", "%T %D", code=None).strip() == "idle 2", 60)

    def stop(self) -> None:
        """Cancel every job, then end the daemons, those that start jobs first."""
        if len(self.daemons) > 1:
            self.call("scancel", "--state=RUNNING,PENDING,SUSPENDED", "--user=root", code=None)
            until("no job is left", lambda: not self.call("squeue", "-h", code=None).strip(), 60)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def call(self, *command: str, code: int | None = 0, **options: Path) -> str:
        """Run a command of a user; return what it printed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=300, check=False, **options
        )  # fmt: skip
        assert code is None or done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, *command: str, folder: Path, variables: Mapping[str, str] | None = None) -> str:
        """Call `sbatch --parsable`; return the id of the job."""
        done = subprocess.run(
            ["sbatch", "--parsable", *command], env={**self.environment, **(variables or {})}, cwd=folder,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job: str) -> dict[str, str]:
        """Return what `scontrol show job` says of a job."""
        words = self.call("scontrol", "-o", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, seconds: float) -> dict[str, str]:
        """Wait for a job's end; return what is known of it."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(f"job {job} has ended", lambda: self.job(job)["JobState"] in ended, seconds, self.story)
        return self.job(job)

    def story(self) -> str:
        """Return what explains a failure: the jobs, the end of what they printed and of what the daemons logged."""
        told = [self.call("scontrol", "show", "job", code=None)]
        outputs = dict.fromkeys(Path(name) for name in re.findall(r"StdOut=(\S+)", told[0]))
        for path in (*outputs, *sorted(self.folder.glob("slurm*.log"))):
            lines = path.read_text(errors="replace").splitlines() if path.exists() else ["(there is none)"]
            told += [f"--- {path}", *lines[-80:]]
        return "\n".join(told)

    def _daemon(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.{len(self.daemons)}.out").open("wb") as out:
            daemon = subprocess.Popen(
                [PROGRAMS[name], *arguments], env=self.environment, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.daemons.append(daemon)


def until(what: str, reached: Callable[[], object], seconds: float, story: Callable[[], str] = str) -> None:
    """Wait for something, and say so; `story` is asked for what led to it not being so."""
    print(f"waiting until {what} (at most {seconds:g} s)", flush=True)
    start = time.monotonic()
    while not reached():
        assert time.monotonic() - start < seconds, f"{what}: not so after {seconds:g} s\n{story()}"
        time.sleep(0.2)
    print(f"  {what} after {time.monotonic() - start:.1f} s", flush=True)

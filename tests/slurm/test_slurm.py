"""The pipeline as a job of a real Slurm on two nodes: the same result, however it is interrupted."""

import csv
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT, Project
from running import processes_in, workers

from slurm.cluster import Cluster, until

pytestmark = pytest.mark.slow
STEPS = 90
VARIABLES = {
    **{key: value for key, value in ENVIRONMENT.items() if key.startswith(("GIT_", "DVC_", "OMP_"))},
    "PATH": ENVIRONMENT["PATH"], "FIGURA_ENVIRONMENT": str(Path(sys.executable).parents[1]), "FIGURA_PROCESSES": "1",
    "SHELL": "/bin/sh",  # which DVC calls: some stay between DVC and the launcher, as Debian's does
    "SLURM_STEP_ID": "0",  # who submits sits in a step of an interactive job
}  # fmt: skip
JOB = ["--nodes=2", "--output=job.out", "machines/slurm/repro.sbatch", "repro"]


def submit(cluster: Cluster, project: Project, *options: str, target: str = "train@vunet") -> str:
    """Submit the pipeline with one process a machine."""
    return cluster.submit(*options, *JOB, target, folder=project.folder, variables=VARIABLES)


def trained(project: Project) -> dict[str, str]:
    """Return the hashes of what a training leaves; what other stages make of equal bytes needs no other jobs."""
    outputs = project.outputs()
    return {path: outputs[path] for path in ("runs/vunet/model", "runs/vunet/history")}


def preempt(cluster: Cluster, project: Project) -> None:
    """Let a job of higher priority take both machines, and wait for its end."""
    wants_all = ["--partition=urgent", "--nodes=2", "--ntasks-per-node=2", "--output=urgent.out", "--wrap=sleep 2"]
    urgent = cluster.submit(*wants_all, folder=project.folder)
    assert cluster.wait(urgent, 300)["JobState"] == "COMPLETED"


def printed(project: Project) -> str:
    """Return what the jobs of a project printed."""
    return (project.folder / "job.out").read_text()


def training(project: Project) -> None:
    """Wait until a training has written a resume point other than it started from."""
    before = points(project)
    until("there is a new resume point", lambda: points(project) - before, 120)


def points(project: Project) -> set[str]:
    return {path.name for path in (project.folder / "runs/vunet/resume").glob("[0-9]*")}


def launcher(project: Project) -> int:
    """Return the process that has started the training on all machines."""
    (number,) = (
        number
        for number, (arguments, variables) in processes_in(project.folder).items()
        # the shell that DVC calls, and srun, have the same words further back
        if arguments[1:3] == ["-m", "figura.launch"] and "SLURM_STEP_ID" not in variables
    )
    return number


@pytest.fixture(scope="module")
def project(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The finished tiny project, in which a training of some length is next."""
    project = finished.copy(tmp_path_factory.mktemp("slurm") / "figura")
    project.set("params.yaml", {"train.steps": STEPS, "train.evaluate_every": 45})
    return project


@pytest.fixture(scope="module")
def whole(cluster: Cluster, project: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hashes of what a job leaves that nothing interrupts; it dumps, too."""
    whole = project.copy(tmp_path_factory.mktemp("slurm") / "whole")
    ended = cluster.wait(submit(cluster, whole, target="eval-dump@vunet"), 600)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0"), printed(whole)
    assert "launch: 2 machines of job" in printed(whole)
    assert '"processes": 2' in (whole.folder / "runs/vunet/live/log.jsonl").read_text()
    return trained(whole)


def test_interrupted_jobs_give_the_same_hashes(cluster: Cluster, project: Project, whole, tmp_path) -> None:
    project = project.copy(tmp_path / "interrupted")
    # a process that is killed ends the job, which stays ended
    job = submit(cluster, project)
    training(project)
    os.kill(workers(project.folder)[1], signal.SIGKILL)
    assert cluster.wait(job, 300)["JobState"] == "FAILED"
    assert "was killed by SIGKILL" in printed(project)
    assert "queued again" not in printed(project)
    assert workers(project.folder) == {}

    # so does a job that is cancelled
    job = submit(cluster, project)
    training(project)
    cluster.call("scancel", job)
    ended = cluster.wait(job, 300)
    assert (ended["JobState"], ended["Restarts"]) == ("CANCELLED", "0")

    # a job that is warned, by the batch script or on its machine, or preempted goes back into the queue
    before = printed(project)
    job = submit(cluster, project)
    for restarts, how in enumerate(("the batch script", "a machine", "a job of higher priority"), start=1):
        training(project)
        if how == "the batch script":
            cluster.call("scancel", "--signal=USR1", "--batch", job)
        elif how == "a machine":
            os.kill(launcher(project), signal.SIGTERM)
        else:
            preempt(cluster, project)
        again = f"start {restarts + 1}: dvc"
        until(f"it has started again ({restarts})", lambda a=again: a in printed(project), 90, cluster.story)
    ended = cluster.wait(job, 600)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "3"), cluster.story()
    said = printed(project).removeprefix(before)
    assert "submit the job once more" not in said
    reached, resumed = stops(said)
    assert len(resumed) == 4, said  # once a start, not once a machine
    # Slurm ends srun, too, when it preempts a job; srun may be gone before it passes the training's last line on
    assert reached in (resumed[1:], resumed[1:3]), said
    assert trained(project) == whole


def stops(said: str) -> tuple[list[str], list[str]]:
    """Return after which iterations trainings were interrupted, and after which they went on."""
    reached = re.findall(r"interrupted: SIG\w+; stopped after iteration (\d+) of", said)
    return reached, re.findall(r"resumed after iteration (\d+)", said)


def test_a_job_that_is_preempted_with_a_notice_goes_on(cluster: Cluster, project: Project, whole, tmp_path) -> None:
    project = project.copy(tmp_path / "preempted")
    job = submit(cluster, project, "--partition=notice")
    training(project)
    preempt(cluster, project)
    ended = cluster.wait(job, 600)
    # Slurm 24.11 queues a job that was preempted with a notice another time, once it has ended well
    assert (ended["JobState"], ended["Restarts"] in ("1", "2")) == ("COMPLETED", True), cluster.story()
    reached, resumed = stops(printed(project))
    assert len(resumed) == 1, printed(project)
    assert reached == resumed, printed(project)
    assert trained(project) == whole


def test_an_array_of_jobs_works_at_the_queue_of_dvc(cluster: Cluster, project: Project, tmp_path) -> None:
    queue = project.copy(tmp_path / "queue")
    queue.run("git", "add", "-A")
    queue.run("git", "commit", "-qm", "longer")
    override = "data/params.yaml:datasets.pairs.seed=1,2"
    done = queue.run("dvc", "exp", "run", "--queue", "-S", override, "prepare@pairs")
    names = re.findall(r"Queued experiment '(\S+)'", done.stdout)
    output = ["--output=job-%a.out", "machines/slurm/queue.sbatch"]
    job = cluster.submit("--array=1-2", *output, folder=queue.folder, variables=VARIABLES)
    until("the queue is done", lambda: not cluster.call("squeue", "-h", "-j", job, code=None).strip(), 120)
    said = "".join((queue.folder / f"job-{task}.out").read_text() for task in (1, 2))
    shown = csv.DictReader(queue.run("dvc", "exp", "show", "--csv").stdout.splitlines())
    states = {row["Experiment"]: row["State"] for row in shown}
    assert [states.get(name) for name in names] == ["Success", "Success"], said

"""Calls of DVC. Commands run as processes: importing its interface would take longer than most of them."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError, one_line

COMMAND = (sys.executable, "-m", "dvc")
PREFIX = "DVC_"  # of the environment variables by which DVC tells a stage what it runs
BACK = {
    "deleted": "`dvc checkout` brings back what the cache has",
    "not in cache": "`dvc pull` fetches it, or `dvc checkout` after `dvc cache dir --local CACHE`, another clone's",
}
"""How an output is missing -> what brings it without a run."""


def output(*arguments: str) -> str:
    """Return what a command of DVC prints. Raises UserError if it fails."""
    import dvc  # noqa: F401  # where it is not installed, this says so

    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        words = " ".join(word for word in arguments[:2] if word.isalpha())
        raise UserError(f"dvc {words}: {one_line(' '.join(done.stderr.split()))}")
    return done.stdout


def check_repository() -> None:
    """Raise UserError if there is no repository of DVC here, since some of its commands would make an empty one."""
    import dvc  # noqa: F401  # as in `output`

    if not any((folder / ".dvc").is_dir() for folder in (Path.cwd(), *Path.cwd().parents)):
        raise UserError("no repository of DVC here: `git restore .dvc`, or `dvc init` for a new one")


def status(stages: Sequence[str]) -> dict[str, list[Any]]:
    """Return what `dvc status` says of each of these stages, or of all. Raises UserError if DVC fails."""
    found: dict[str, list[Any]] = json.loads(output("status", "--json", *stages) or "{}")
    return found


def skipped(stale: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """Yield a line for each stage that would run and has a form that `dag.instances` skips.

    Those of other files, `a/dvc.yaml:b` and `a.dvc`, do not run.
    """
    for name in stale:
        if name not in known and ":" not in name and not name.endswith(".dvc"):
            yield f"{name} would run: `dvc status {name}` says why"


def commit(stage: str) -> None:
    """Record the dependencies of a stage as they are, without running it. Raises UserError if DVC fails."""
    output("commit", "--force", stage)


def experiments() -> Any:
    """Return the parsed output of `dvc exp show --json`. Raises UserError if DVC fails."""
    return json.loads(output("exp", "show", "--json"))


def stage() -> str | None:
    """Return the stage that DVC runs in this process, such as `train@vunet`; None outside of DVC.

    DVC adds the path of `dvc.yaml` if it was started below its folder: `../dvc.yaml:train@vunet`.
    """
    name = os.environ.get(f"{PREFIX}STAGE")
    return name and name.rpartition("dvc.yaml:")[2]


def experiment() -> str | None:
    """Return the name of the experiment that DVC runs in this process; None outside of one."""
    return os.environ.get(f"{PREFIX}EXP_NAME")


def project() -> str | None:
    """Return the project of the stage that DVC runs in this process, of an experiment's copy the one copied."""
    return os.environ.get(f"{PREFIX}ROOT")


def outputs_in(folder: Path) -> set[str]:
    """Return the paths of the stages' outputs in a folder. Raises UserError if DVC cannot tell."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            return {str(out) for one in repo.index.stages for out in one.outs if Path(str(out)).parent == folder}
    except (DvcException, sqlite3.Error) as error:  # the latter on a full disk
        raise UserError(f"which metrics the pipeline makes: {error}") from None


def changed_params(first: str, other: str) -> dict[str, Any]:
    """Return the params that differ between two revisions: `diff` by file and key, `errors` by revision.

    Raises:
        UserError: DVC cannot compare them.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            found: dict[str, Any] = repo.params.diff(a_rev=first, b_rev=other)
            return found
    except DvcException as error:
        raise UserError(str(error)) from None


def crossed(overrides: Sequence[str]) -> list[dict[str, list[str]]]:
    """Return the settings of a grid in the grammar of `dvc exp run -S`: overrides by file, for each setting.

    Raises:
        UserError: an override is not readable.
    """
    from dvc.exceptions import DvcException
    from dvc.utils.cli_parse import to_path_overrides
    from dvc.utils.hydra import get_hydra_sweeps
    from hydra.errors import HydraException

    try:
        return list(get_hydra_sweeps(to_path_overrides(overrides)))
    except (HydraException, DvcException) as error:
        raise UserError(f"-S: {one_line(str(error))}") from None

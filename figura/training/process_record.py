"""How a process was started, for the log of its training."""

import platform
import sys
from importlib.metadata import version
from typing import Any

from figura.base.errors import DISTRIBUTION
from figura.base.files import git
from figura.pipeline.closure import is_own
from figura.pipeline.lock import LOCK
from figura.training.provenance import arithmetic_variables, package_versions


def process_record() -> dict[str, Any]:
    """Return how this process was started.

    The record has command, host, package versions, variables that change arithmetic, commit, and files that differ from
    it, except the lock file, `code/` and `metrics/`, which stages write.

    `commit` is None outside a git repository. figura's version is included if figura is installed; in figura's
    repository, the commit identifies it.
    """
    packages = package_versions() | ({} if is_own("figura") else {"figura": version(DISTRIBUTION)})
    commit = (git("rev-parse", "HEAD") or "").strip() or None
    paths = (":/", f":!*{LOCK}", ":!code", ":!metrics")
    changed = (git("status", "--porcelain", "--untracked-files=no", "--", *paths) or "").splitlines()
    return {
        "command": [sys.executable, *sys.orig_argv[1:]], "host": platform.node(), "packages": packages,
        "environment": arithmetic_variables(), "commit": commit, "changed_files": [line[3:] for line in changed],
    }  # fmt: skip


def dirty(process: dict[str, Any]) -> list[str]:
    """Return a warning if files differ from the commit in `process_record`, or none exists yet, else nothing."""
    changed, commit = process["changed_files"], process["commit"]
    listed = ", ".join(changed[:5]) + (", ..." if len(changed) > 5 else "")
    if not changed:
        return []
    if commit is None:
        return ["nothing is committed yet, so no commit says what made this result"]
    return [f"changed since commit {commit[:12]}: {listed}"]

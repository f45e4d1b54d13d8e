"""What an experiment in a copy of the workspace lacks: raw data that changed after `dvc add`, modules not in git.

`dvc exp run --temp` and `--queue` take what `dvc add` recorded; `dvc repro` in the workspace notices changes itself.
"""

import os
import subprocess
from pathlib import Path

from figura.base.errors import UserError

COPIES = Path(".dvc/tmp/exps")  # where DVC keeps the copies, below the workspace
RAW = Path("data/raw")


def refuse_changed_raw_data(folder: Path) -> None:
    """Raise UserError if `folder` is an experiment's copy, and raw data in its workspace differ from `dvc add`'s."""
    workspace = _workspace(folder)
    if workspace is None:
        return
    added = sorted(str(path.relative_to(workspace)) for path in (workspace / RAW).rglob("*.dvc") if path.is_file())
    if not added:
        return
    from dvc.repo import Repo

    repo = Repo(str(workspace))  # its `status` would wait for the lock that the experiments' worker holds
    outs = [out for file in added for stage in repo.stage.load_all(str(workspace / file)) for out in stage.outs]
    changed = [os.path.relpath(out.fs_path, workspace) for out in outs if out.changed_checksum()]
    if changed:
        folders = " ".join(changed)
        raise UserError(
            f"{folders}: changed after `dvc add`, so this copy would train on the old data; run `dvc add {folders}` "
            "and start it again"
        )


def modules_not_in_git(folder: Path) -> list[str]:
    """Return the modules of the workspace that its copy `folder` lacks; [] if that is none."""
    if (workspace := _workspace(folder)) is None:
        return []
    command = ["git", "ls-files", "--others", "--exclude-standard", "--", "*.py"]
    return subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False).stdout.splitlines()


def _workspace(folder: Path) -> Path | None:
    """Return the workspace of which a folder is an experiment's copy."""
    return next((one for one in folder.resolve().parents if folder.resolve().is_relative_to(one / COPIES)), None)

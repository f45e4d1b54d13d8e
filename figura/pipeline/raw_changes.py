"""Raw data that changed after `dvc add`: an experiment in a copy of the workspace would train on the old ones.

`dvc exp run --temp` and `--queue` take what `dvc add` recorded; `dvc repro` in the workspace notices changes itself.
"""

import os
from pathlib import Path

from figura.base.errors import UserError

COPIES = Path(".dvc/tmp/exps")
"""Where DVC keeps the copies, below the workspace."""
RAW = Path("data/raw")


def refuse_changed_raw_data(folder: Path) -> None:
    """Raise UserError if `folder` is an experiment's copy, and raw data in its workspace differ from `dvc add`'s."""
    workspace = next((one for one in folder.resolve().parents if folder.resolve().is_relative_to(one / COPIES)), None)
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

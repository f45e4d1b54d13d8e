"""Outputs of a finished training, kept until the lock file records them.

`model/` and `history/` are removed before the stage runs again. If the training were killed between its last iteration
and the update of the lock file, it would be lost.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from figura.base.checksums import damage, write_sums
from figura.base.errors import UserError
from figura.base.files import replacing_folder, write_text
from figura.base.yaml12 import read_yaml
from figura.pipeline.calls import stage
from figura.pipeline.lock import LOCK, folder_md5

OUTPUTS = ("model", "history")
PROVENANCE = "provenance.json"


class UnrecordedOutputs:
    """The folder `<run>/finished`: hard links to the outputs, which take no space, and their provenance.

    Args:
        folder: `<run>/finished`.
        run: where the outputs are.
        provenance: provenance of the training.
    """

    def __init__(self, folder: Path, run: Path, provenance: Mapping[str, str]) -> None:
        self.folder, self.run, self.provenance = folder, run, json.dumps(dict(provenance))
        self.stage = stage()

    def stash(self) -> None:
        """Hard-link the outputs into the folder if the pipeline runs this training."""
        if self.stage is None:
            return
        with replacing_folder(self.folder) as hidden:
            for name in OUTPUTS:
                shutil.copytree(self.run / name, hidden / name, copy_function=link_or_copy)
            write_text(hidden / PROVENANCE, self.provenance)
            write_sums(hidden)

    def restore(self) -> bool:
        """Copy the outputs back if they are from this training and not recorded yet.

        Otherwise remove the folder. Return whether anything was restored.
        """
        if not self._was_lost():
            shutil.rmtree(self.folder, ignore_errors=True)
            return False
        for name in OUTPUTS:
            with replacing_folder(self.run / name) as hidden:  # no links: the cache may share the files
                shutil.copytree(self.folder / name, hidden, copy_function=shutil.copyfile, dirs_exist_ok=True)
        return True

    def _was_lost(self) -> bool:
        if self.stage is None or not self.folder.is_dir() or damage(self.folder) is not None:
            return False
        same = (self.folder / PROVENANCE).read_text(encoding="utf-8") == self.provenance
        return same and not self._recorded(self.stage)

    def _recorded(self, stage: str) -> bool:
        """Whether a newer lock file has these outputs: then the stage was rerun on purpose.

        An older one with equal outputs is from an earlier training.
        """
        try:
            if LOCK.stat().st_mtime_ns < (self.folder / PROVENANCE).stat().st_mtime_ns:
                return False
            outs = read_yaml(LOCK)["stages"][stage]["outs"]
            sums = {out["path"]: out["md5"] for out in outs}
        except (OSError, UserError, LookupError, TypeError):
            return False
        return all(sums.get((self.run / name).as_posix()) == folder_md5(self.folder / name) for name in OUTPUTS)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Make a hard link, or a copy on another disk or a file system without hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

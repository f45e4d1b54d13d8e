"""Stages whose code changed and which were not run again, because `figura accept` showed that nothing else changes.

`code/accepted.jsonl`, which is in git, has a line for each: no output names it, so no stage runs because of it. A line
holds until the stage runs again on other code.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from figura.base.errors import UserError
from figura.base.files import read_text, write_text
from figura.pipeline.manifests import FOLDER

ACCEPTED = FOLDER / "accepted.jsonl"


@dataclass(frozen=True)
class Acceptance:
    """Of a stage: what was compared, at which commit, and the commit whose code made its outputs.

    `code` and `made` are the MD5 of its manifest as `dvc.lock` has it, and of the manifest of the code that ran.
    """

    stage: str
    code: str
    made: str
    made_by: str
    at: str
    replayed: str

    def __str__(self) -> str:
        return f"accepted by replay of {self.replayed} at commit {self.at}, made by code of commit {self.made_by}"


def acceptances(lock: Mapping[str, Any], text: str | None = None) -> dict[str, Acceptance]:
    """Return those that hold, by stage, given the stages in `dvc.lock` and the text of the file, by default this one's.

    Raises:
        UserError: a line is no acceptance.
    """
    if text is None:
        text = read_text(ACCEPTED) if ACCEPTED.is_file() else ""
    try:
        written = [Acceptance(**json.loads(line)) for line in text.splitlines() if line]
    except (ValueError, TypeError) as error:
        raise UserError(f"{ACCEPTED}: a line is no acceptance: {error}; restore the file from git") from None
    return {one.stage: one for one in written if one.code in manifests_in(lock, one.stage).values()}


def manifests_in(lock: Mapping[str, Any], stage: str) -> dict[str, str]:
    """Return the MD5 of each manifest that a stage depends on, by path, from the stages in `dvc.lock`."""
    deps = (lock.get(stage) or {}).get("deps") or ()
    return {one["path"]: str(one.get("md5")) for one in deps if one["path"].startswith(f"{FOLDER}/")}


def write(holding: Mapping[str, Acceptance]) -> None:
    """Write the acceptances that hold."""
    lines = [json.dumps(asdict(holding[stage])) + "\n" for stage in sorted(holding)]
    write_text(ACCEPTED, "".join(lines))

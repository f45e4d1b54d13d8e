"""`dvc.lock`: what each stage read and wrote at its last run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.files import md5
from figura.base.yaml12 import parse_yaml, refuse_conflicts

LOCK = Path("dvc.lock")
Lock = Mapping[str, Mapping[str, Any]]


def read_lock() -> Lock:
    """Return the stages in `dvc.lock`, by name; empty if the file is missing or unreadable.

    Raises:
        UserError: it has conflicts of a merge.
    """
    from ruamel.yaml import YAML  # lazy, because DVC alone needs it: trainings run where it is not installed
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe").load(LOCK.read_bytes()).get("stages") or {}  # like DVC
    except YAMLError:
        refuse_conflicts(LOCK.read_text("utf-8", "replace"), str(LOCK))
        return {}
    except (OSError, AttributeError):
        return {}


def outputs(lock: str, where: str, prefix: str = "") -> dict[str, str]:
    """Return the output hashes, by path, of the stages whose names begin with `prefix`."""
    content = parse_yaml(lock, f"{LOCK}{where}")
    try:
        stages = content["stages"]
        outs = [out for name, stage in stages.items() if name.startswith(prefix) for out in stage.get("outs") or ()]
        hashes = {out["path"]: out[out.get("hash", "md5")] for out in outs}
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{LOCK}{where}: not what DVC writes: {error!r}") from None
    for path, value in hashes.items():
        if not isinstance(path, str) or not isinstance(value, str):
            raise UserError(f"{LOCK}{where}: not what DVC writes: the hash of {path!r:.80} is {value!r:.80}")
    return hashes


def folder_md5(folder: Path) -> str:
    """Return the `md5` of a folder as in `dvc.lock`."""
    paths = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file())
    files = [{"md5": md5(path.read_bytes()), "relpath": name} for name, path in paths]
    return md5(json.dumps(files, sort_keys=True).encode()) + ".dir"

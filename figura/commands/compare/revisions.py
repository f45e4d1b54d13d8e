"""Revisions: the dump of each in DVC's cache, and from `dvc.lock` what made it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError
from figura.base.files import read_text
from figura.base.yaml12 import parse_yaml
from figura.recipe.dotted_keys import leaves

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

WORKSPACE = "workspace"
LOCK = "dvc.lock"
ABSENT = "-"
SEED = "seed"


@dataclass(frozen=True)
class Revision:
    """A revision or experiment.

    Attributes:
        name: as the command line has it.
        dump: the folder of its dump.
        seed: of its training.
        params: all others that made the dump, by dotted key.
        sources: hashes of the code and data that made it, by path.
    """

    name: str
    dump: Path
    seed: int
    params: Mapping[str, Any]
    sources: Mapping[str, str]

    def differs_in_seed_alone(self, other: "Revision") -> bool:
        """Whether the same recipe, code and data made both dumps."""
        return self.params == other.params and self.sources == other.sources


def read_revision(name: str, recipe: str, scratch: Path) -> Revision:
    """Return a revision, or the workspace; files of a dump in DVC's cache appear as links below `scratch`.

    Raises:
        UserError: git and DVC know no such revision, it has no dump of this recipe or that of a try, or not all of the
            dump's files are in the cache or on a remote.
    """
    dump = f"runs/{recipe}/dump"
    if name == WORKSPACE:
        if not Path(LOCK).exists():
            raise UserError(f"{LOCK}: no such file; run `dvc repro metrics@{recipe}` first")
        return _revision(name, recipe, read_text(Path(LOCK)), Path(dump))

    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException
    from dvc_data.index import DataIndexDirError

    try:
        files = DVCFileSystem(rev=name)
        lock = files.read_text(LOCK)
    except FileNotFoundError:
        raise UserError(f"{name}: it has no {LOCK}; run `dvc repro metrics@{recipe}` there and commit it") from None
    except (DvcException, UnicodeDecodeError) as error:
        raise UserError(f"{name}: not readable as a revision or experiment: {error}") from None
    revision = _revision(name, recipe, lock, scratch / name.replace("/", "_"))
    try:
        _link(files, dump, revision.dump)
    except (DataIndexDirError, DvcException, OSError) as error:
        raise UserError(
            f"{name}: {dump} is neither whole in DVC's cache nor on a remote ({error}); run `dvc fetch --all-commits "
            f"eval-dump@{recipe}` if a remote has it, or run it again"
        ) from None
    return revision


def _link(files: "DVCFileSystem", dump: str, folder: Path) -> None:
    """Fill `folder` with links to the files of the cache; copy from a remote what the cache lacks."""
    listed = files.find(dump, detail=True)
    if not listed:
        raise FileNotFoundError("its list of files is missing")
    for path, info in listed.items():
        target = folder / Path(path).relative_to(dump)
        target.parent.mkdir(parents=True, exist_ok=True)
        cached = Path(files.repo.cache.local.oid_to_path(info["md5"])) if info.get("md5") else None
        if cached is not None and cached.is_file():
            target.symlink_to(cached)
        else:
            files.get_file(path, str(target))


def _revision(name: str, recipe: str, lock: str, dump: Path) -> Revision:
    """Read `dvc.lock`: parameters, and hashes of what train and eval-dump depend on."""
    try:
        return _read_lock(name, recipe, lock, dump)
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{LOCK} of {name}: not what DVC writes: {error!r}") from None


def _read_lock(name: str, recipe: str, lock: str, dump: Path) -> Revision:
    stages = parse_yaml(lock, f"{LOCK} of {name}").get("stages", {})
    params: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for stage in (f"train@{recipe}", f"eval-dump@{recipe}"):
        if stage not in stages:
            raise UserError(f"{name}: {LOCK} has no {stage}; run `dvc repro metrics@{recipe}` there first")
        entry = stages[stage]
        for content in entry.get("params", {}).values():
            params |= dict(leaves(content))
        sources |= {
            one["path"]: one.get("md5", "") for one in entry["deps"] if not one["path"].startswith(f"runs/{recipe}/")
        }
    if params.get("train.try"):
        raise UserError(f"{name}: {recipe} is a try there (train.try), no result to compare")
    return Revision(name, dump, params.pop(SEED), params, sources)


def settings_of(revisions: Sequence[Revision]) -> list[list[Revision]]:
    """Group the revisions that differ in their seed alone; those of a seed that came before are left out."""
    settings: list[list[Revision]] = []
    for one in revisions:
        known = next((setting for setting in settings if one.differs_in_seed_alone(setting[0])), None)
        if known is None:
            settings.append([one])
        elif one.seed not in {other.seed for other in known}:
            known.append(one)
    return settings


def changes(first: Revision, second: Revision) -> list[str]:
    """Return what differs but for the seed: `losses.KL.weight 1 -> 2`, then the paths of code and data."""
    keys = [key for key in {**first.params, **second.params} if _shown(first, key) != _shown(second, key)]
    paths = {**first.sources, **second.sources}
    return [
        *(f"{key} {_shown(first, key)} -> {_shown(second, key)}" for key in keys),
        *(path for path in paths if first.sources.get(path) != second.sources.get(path)),
    ]


def _shown(revision: Revision, key: str) -> str:
    return json.dumps(revision.params[key]) if key in revision.params else ABSENT

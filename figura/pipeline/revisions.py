"""Revisions: the dump of each in DVC's cache, and from `dvc.lock` what made it."""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from figura.base.dotted_keys import leaves
from figura.base.errors import UserError
from figura.base.files import git, read_bytes
from figura.base.yaml12 import parse_yaml
from figura.pipeline.accepted import ACCEPTED, acceptances, manifests_in
from figura.pipeline.lock import LOCK

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem

WORKSPACE = "workspace"
ABSENT = "-"
SEED = "seed"
DATABASES = "the databases of DVC, in .dvc/tmp or at core.site_cache_dir"


@dataclass(frozen=True)
class Revision:
    """A revision or experiment.

    Attributes:
        name: as the command line has it.
        dump: the folder of its dump.
        seed: of its training.
        params: all others that made the dump, by dotted key.
        sources: hashes of the code and data that made it, by path.
        accepted: stages that did not run on the code that `dvc.lock` names, as text.
    """

    name: str
    dump: Path
    seed: int
    params: Mapping[str, Any]
    sources: Mapping[str, str]
    accepted: Sequence[str] = ()


def with_workspace(names: Sequence[str]) -> list[str]:
    """Return the names, each once; the workspace is compared with a revision that is named alone."""
    distinct = list(dict.fromkeys(names))
    return [*distinct, WORKSPACE] if len(distinct) == 1 and distinct != [WORKSPACE] else distinct


class Files:
    """The files of a revision or experiment, or of the workspace; nothing is checked out.

    Raises:
        UserError: git and DVC know no such revision; from each method, if a file, or the list of those in a folder, is
            neither in DVC's cache nor on a remote.
    """

    def __init__(self, name: str) -> None:
        from dvc.exceptions import DvcException

        self.name = name
        try:
            self.system = None if name == WORKSPACE else _system(name)
            _ = self.system and self.system.repo  # opened at its first use
        except DvcException as error:
            raise UserError(f"{name}: not readable as a revision or experiment: {error}") from None
        except sqlite3.Error as error:  # on a full disk; DVC lets it pass
            raise UserError(f"{DATABASES}: {error}") from None

    def find(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder; none if there is no such folder."""
        if self.system is None:
            return sorted(path.as_posix() for path in Path(folder).rglob("*") if path.is_file())
        return sorted(self.hashes(folder))

    def find_made(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder that a stage makes; none if it has not been made."""
        if self.system is None:
            return self.find(folder)
        made = re.findall(r"^ *- path: (.+)$", self.read_text(LOCK.as_posix()) or "", re.MULTILINE)
        return self.find(folder) if any(PurePosixPath(folder).is_relative_to(path) for path in made) else []

    def hashes(self, folder: str) -> dict[str, str | None]:
        """Return the MD5 by path of all files in a folder of a revision; None for those in git."""
        assert self.system is not None, "a revision"
        with self.known(folder):
            listed = self.system.find(folder, detail=True)
            if not listed and self.system.exists(folder):
                raise FileNotFoundError("its list of files is missing")
            return {path: info.get("md5") for path, info in listed.items()}

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""
        if self.system is None:
            return read_bytes(Path(path)) if Path(path).exists() else None
        with self.known(path):
            return bytes(self.system.read_bytes(path)) if self.system.exists(path) else None

    def read_text(self, path: str) -> str | None:
        """Return the text of a file; None if there is no such file. Raises UserError if it is no text."""
        content = self.read(path)
        try:
            return None if content is None else content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{path} of {self.name}: byte {error.start} is no UTF-8") from None

    @contextmanager
    def known(self, path: str) -> Iterator[None]:
        """Turn what DVC raises where it cannot read a path into a UserError."""
        from dvc.exceptions import DvcException
        from dvc_data.index import DataIndexDirError

        try:
            yield
        except sqlite3.Error as error:
            raise UserError(f"{DATABASES}: {error}") from None
        except (DataIndexDirError, DvcException, OSError) as error:
            raise UserError(
                f"{self.name}: {path} is neither whole in DVC's cache nor on a remote ({error}); run `dvc fetch "
                "--all-commits` if a remote has it, or make it again there by `dvc repro`"
            ) from None


def _system(revision: str) -> "DVCFileSystem":
    """Open a revision; below the folder of git, too (`dvc init --subdir`), where DVC would open git's folder."""
    from dvc.api import DVCFileSystem

    if not (below := (git("rev-parse", "--show-prefix") or "").strip()):
        return DVCFileSystem(rev=revision)
    from dvc.fs import GitFileSystem
    from dvc.repo import Repo

    here = Repo()
    cache, files = {"cache": {"dir": here.cache.local_cache_dir}}, GitFileSystem(scm=here.scm, rev=revision)
    return DVCFileSystem(repo=Repo(f"/{below.rstrip('/')}", fs=files, scm=here.scm, config=cache))


def read_revision(files: Files, recipe: str, scratch: Path) -> Revision:
    """Return a revision, or the workspace; files of a dump in DVC's cache appear as links below `scratch`.

    Raises:
        UserError: the revision has no dump of this recipe or that of a try, or not all of the dump's files are in the
            cache or on a remote.
    """
    name, dump = files.name, f"runs/{recipe}/dump"
    lock = files.read_text(LOCK.as_posix())
    if lock is None:
        raise UserError(f"{name}: it has no {LOCK}; run `dvc repro metrics@{recipe}` there and commit it")
    accepted = files.read_text(ACCEPTED.as_posix()) or ""
    if files.system is None:
        return _revision(name, recipe, lock, accepted, Path(dump))
    revision = _revision(name, recipe, lock, accepted, scratch / name.replace("/", ":"))  # which no name has
    with files.known(dump):
        _link(files, dump, revision.dump)
    return revision


def _link(files: Files, dump: str, folder: Path) -> None:
    """Fill `folder` with links to the files of the cache; copy from a remote what the cache lacks."""
    assert files.system is not None, "a revision"
    if not (found := files.hashes(dump)):
        raise FileNotFoundError("there are no files")
    for path, md5 in found.items():
        target = folder / Path(path).relative_to(dump)
        target.parent.mkdir(parents=True, exist_ok=True)
        cached = Path(files.system.repo.cache.local.oid_to_path(md5)) if md5 else None
        if cached is not None and cached.is_file():
            target.symlink_to(cached)
        else:
            files.system.get_file(path, str(target))


def _revision(name: str, recipe: str, lock: str, accepted: str, dump: Path) -> Revision:
    """Read `dvc.lock`: parameters, and hashes of what train and eval-dump depend on."""
    params: dict[str, Any] = {}
    sources: dict[str, str] = {}
    lines: list[str] = []
    try:
        stages = parse_yaml(lock, f"{LOCK} of {name}").get("stages", {})
        holding = acceptances(stages, accepted)
        for stage in (f"train@{recipe}", f"eval-dump@{recipe}"):
            if stage not in stages:
                raise UserError(f"{name}: {LOCK} has no {stage}; run `dvc repro metrics@{recipe}` there first")
            for content in stages[stage].get("params", {}).values():
                params |= dict(leaves(content))
            read = [one for one in stages[stage]["deps"] if not one["path"].startswith(f"runs/{recipe}/")]
            sources |= {one["path"]: one.get("md5", "") for one in read}
            if stage in holding:
                sources |= dict.fromkeys(manifests_in(stages, stage), holding[stage].made)
                lines.append(f"{name}: {stage} {holding[stage]}")
        if params.get("train.try"):
            raise UserError(f"{name}: {recipe} is a try there (train.try), no result to compare")
        return Revision(name, dump, params.pop(SEED), params, sources, lines)
    except (TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{LOCK} of {name}: not what DVC writes: {error!r}") from None


def settings_of(revisions: Sequence[Revision]) -> list[list[Revision]]:
    """Group the revisions that differ in their seed alone; those of a seed that came before are left out."""
    settings: list[list[Revision]] = []
    for one in revisions:
        alike = (other for other in settings if (other[0].params, other[0].sources) == (one.params, one.sources))
        known = next(alike, None)
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

"""A temporary clone of the project with tiny settings, driven by the real `dvc`."""

import fcntl
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from figura.pipeline import closure
from pipeline.dag import ROOT
from pipeline.preloaded import preloaded
from pipeline.tiny_settings import tiny
from stages import code as manifests

ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "DVC_NO_ANALYTICS": "1",
    "GIT_AUTHOR_NAME": "tester",
    "GIT_AUTHOR_EMAIL": "tester@example.org",
    "GIT_COMMITTER_NAME": "tester",
    "GIT_COMMITTER_EMAIL": "tester@example.org",
    "OMP_NUM_THREADS": "1",
    # Background maintenance would make and remove locks in `.git/objects` while `Project.copy` reads the folder.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
}
NEVER_CHANGED = (".dvc/cache/files", ".git/objects")  # by content; made anew, never written to


class Project:
    """A git repository with the project's files; commands run in it as a person would run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copy(self, folder: Path) -> "Project":
        """Copy everything, caches and outputs included; files that nobody changes in place are hard links."""
        fixed = tuple(f"{self.folder / one}{os.sep}" for one in NEVER_CHANGED)

        def copied(source: str, target: str) -> None:
            if source.startswith(fixed):
                os.link(source, target)
            else:
                shutil.copy2(source, target)

        shutil.copytree(self.folder, folder, symlinks=True, copy_function=copied)
        return Project(folder)

    def run(self, *command: str, code: int | None = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command; `code` is the exit status it must have, None for any; `variables` join the environment."""
        if "PATH" not in variables:
            variables["PATH"] = f"{preloaded()}{os.pathsep}{ENVIRONMENT['PATH']}"
        done = subprocess.run(
            command, cwd=self.folder, env=ENVIRONMENT | variables, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, (
            f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def write_manifests(self) -> None:
        """Write those of the code as it is, as `dvc repro` does, in a fork of this process, for speed."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.chdir(self.folder)
                sys.path[:] = [str(self.folder), *(one for one in sys.path if Path(one).resolve() != ROOT)]
                closure.PROJECT = self.folder
                manifests.main([])
                status = 0
            except BaseException:  # noqa: BLE001, this process ends here
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0, "what is wrong with the code stands above"

    def set(self, file: str, values: dict[str, Any]) -> None:
        """Set dotted keys of a params file, comments kept; a value of `...` removes the key."""
        yaml = YAML()
        content = yaml.load(self.folder / file)
        for dotted, value in values.items():
            *path, last = dotted.split(".")
            place = content
            for key in path:
                place = place.setdefault(key, {})
            if value is ...:
                place.pop(last, None)
            else:
                place[last] = value
        yaml.dump(content, self.folder / file)

    def commit(self, message: str) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", message)

    def lock(self) -> dict[str, Any]:
        return dict(YAML(typ="safe").load(self.folder / "dvc.lock")["stages"])

    def outputs(self) -> dict[str, str]:
        return {out["path"]: out["md5"] for stage in self.lock().values() for out in stage["outs"]}


def clone(folder: Path) -> Project:
    """Make a project of what git knows or would add, with tiny settings, and commit it."""
    project = source_tree(folder)
    for file, values in tiny(folder).items():
        project.set(file, values)
    project.run("git", "init", "-q", "-b", "main")
    project.commit("tiny")
    return project


def source_tree(folder: Path) -> Project:
    """Copy what git knows or would add, but for lock files, into a folder that is made; and what numba has compiled."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    compiled = [str(path.relative_to(ROOT)) for path in (ROOT / "models").rglob("__pycache__/*.nb[ic]")]
    for name in filter(None, listed + compiled):
        if Path(name).name != "dvc.lock" and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return Project(folder)


def made_once(folder: Path, make: Callable[[Path], object]) -> Project:
    """Return the project in `folder`, made by whichever of several processes comes first; the others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    complete = folder.with_name(f"{folder.name}.complete")
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # somebody failed to make it
            make(folder)
            complete.touch()
    return Project(folder)


def shared_by_workers(folder: Path) -> Path:
    """Return the base folder of all workers of a run of pytest; `folder` is that of this process."""
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

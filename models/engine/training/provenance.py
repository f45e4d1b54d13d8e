"""What made a result: code, packages, data. Text that is equal exactly where the inputs are."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from platform import node, python_version
from typing import Any

from models.engine.errors import UserError

PACKAGES = ("accelerate", "numba", "numpy", "opencv-python-headless", "pillow", "pycocotools", "torch")
MODELS = Path(__file__).parents[2]


def code_version() -> str:
    """Return the SHA-256 over the names and contents of all Python files of `models`."""
    total = hashlib.sha256()
    for path in sorted(MODELS.rglob("*.py")):
        total.update(path.relative_to(MODELS).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result."""
    return {"python": python_version()} | {package: version(package) for package in PACKAGES}


def process_record() -> dict[str, Any]:
    """Return what started this process: the command, its host, versions of packages, the commit and whether files differ.

    `commit` is None outside a git repository.
    """
    commit = _git("rev-parse", "HEAD")
    changed = (_git("status", "--porcelain", "--untracked-files=no") or "").splitlines()
    return {
        "command": [sys.executable, *sys.orig_argv[1:]], "host": node(), "packages": package_versions(),
        "commit": commit, "changed_files": [line[3:] for line in changed],
    }  # fmt: skip


def dirty(process: dict[str, Any]) -> list[str]:
    """Return a warning where files differ from the commit that `process_record` names."""
    changed = process["changed_files"]
    listed = ", ".join(changed[:5]) + (", ..." if len(changed) > 5 else "")
    return [f"{len(changed)} files differ from commit {process['commit'][:12]}: {listed}"] if changed else []


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip("\n")


def file_versions(paths: Iterable[str]) -> str:
    """Return the SHA-256 of each file that exists, by path, as text."""
    found = {}
    for path in sorted(paths):
        if Path(path).is_file():
            with Path(path).open("rb") as file:
                found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return json.dumps(found)


def data_version(roots: Iterable[str]) -> str:
    """Return the content hashes of prepared datasets, by root, from their manifests.

    A folder that nobody prepared is known by the names, sizes and times of change of its files.

    Raises:
        UserError: a dataset that is not there.
    """
    versions = {}
    for root in sorted(set(roots)):
        manifest = Path(root, "manifest.json")
        if manifest.is_file():
            versions[root] = json.loads(manifest.read_text(encoding="utf-8"))["sha256"]
        elif Path(root).is_dir():
            versions[root] = _files_version(Path(root))
        else:
            raise UserError(f"{manifest}: no such file; run `dvc repro prepare@{Path(root).name}` first")
    return json.dumps(versions)


def _files_version(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        found = path.stat()
        total.update(
            f"{path.relative_to(root)}\0{found.st_size}\0{found.st_mtime_ns}\n".encode(errors="surrogateescape")
        )
    return total.hexdigest()

"""Write a project of one's own: `figura init [FOLDER]` in an empty folder or a git repository, then `dvc repro`.

It has a pipeline, a recipe that works on drawn data, a loss of its own (models/variation.py), a test and a README.
Files that exist stay: if one of them is in the way, nothing is written. Makes the folder a repository of git and DVC
unless it is one.
"""

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from figura.project import CONFTEST, REQUIREMENTS, project_files, recipe_names
from models.base.errors import UserError, one_line, printable
from models.base.files import write_text

SHARED = ("README.md", REQUIREMENTS, CONFTEST, ".gitignore", ".dvcignore", "models/__init__.py")
"""Files that repositories have already, and that the pipeline can do without figura's text in."""
IN_THE_WAY = ("models.py", "data.dvc")
"""Files beside which the folders `models` and `data` would break something: a module of this name, DVC's data."""


def main(arguments: list[str]) -> None:
    """Write the project."""
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="figura init", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="default: the current one")
    parser.add_argument(
        "--recipe", action="append", metavar="NAME",
        help=f"of {', '.join(recipe_names())}; several times for several; default: {recipe_names()[0]}",
    )  # fmt: skip
    args = parser.parse_args(arguments)
    if find_spec("figura.stages") is None:
        raise UserError(
            "this figura is a clone, whose code a project cannot import; `pip wheel --no-deps .` in the clone makes a "
            "wheel to install elsewhere (docs/own_project.md)"
        )
    recipes = list(dict.fromkeys(args.recipe or recipe_names()[:1]))
    for line in write_project(args.folder, recipes):
        print(printable(line))


def write_project(root: Path, recipes: list[str]) -> list[str]:
    """Write a project with these recipes into a folder; return what was done, and what to do next, in lines.

    Raises:
        UserError: figura has no such recipe, or a file is in the way.
    """
    files = project_files(recipes)
    taken = [path for path in files if path not in SHARED and os.path.lexists(root / path)]
    taken += [name for name in IN_THE_WAY if os.path.lexists(root / name)]
    taken += [name for name in _folders(files) if os.path.lexists(root / name) and not (root / name).is_dir()]
    if taken:
        raise UserError(
            f"{root}: {', '.join(taken)} {'is' if len(taken) == 1 else 'are'} there already, and nothing was written; "
            "choose another folder, or move them"
        )
    root.mkdir(parents=True, exist_ok=True)
    stay = [path for path in SHARED if os.path.lexists(root / path)]
    lines = _repository(root)
    for path, text in files.items():
        if path not in stay:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_text(root / path, text)
    written = [path for path in files if path not in stay and not path.endswith(".gitkeep")]
    lines.append(f"wrote {', '.join(written)}")
    if stay:
        lines.append(f"left as they are: {', '.join(stay)}")
    if REQUIREMENTS in stay:
        lines.append(
            f"next: add {files[REQUIREMENTS].splitlines()[-1]!r} to {REQUIREMENTS}, on which the stages depend"
        )
    if hidden := _ignored(root, files):
        lines.append(f"next: .gitignore hides {', '.join(hidden)} from git and DVC; allow them")
    if ".dvcignore" in stay and "__pycache__" not in (root / ".dvcignore").read_text(errors="replace").split():
        lines.append(
            "next: add '__pycache__' to .dvcignore, or each run of Python makes the folder models look changed"
        )
    if root.resolve() != Path.cwd():
        lines.append(f"next: cd {shlex.quote(str(root))}")
    lines.append("next: git add these files, and git commit: experiments start from a commit")
    return [*lines, "next: dvc repro (draws data and trains on them: minutes)"]


def _folders(files: Iterable[str]) -> list[str]:
    """Return the folders that files need, below the root, each once."""
    return sorted({str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."})


def _ignored(root: Path, files: Iterable[str]) -> list[str]:
    """Return the files that the repository's `.gitignore` hides from git and DVC."""
    done = subprocess.run(
        ["git", "check-ignore", "--stdin"],
        cwd=root,
        input="\n".join(files),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def _repository(root: Path) -> list[str]:
    """Make the folder a repository of git and of DVC; return what was done.

    Raises:
        UserError: git or DVC refuses.
    """
    lines = []
    if _run(["git", "rev-parse", "--git-dir"], root).returncode:
        _done(["git", "init", "--quiet"], root)
        lines.append("git init")
    if not (root / ".dvc").is_dir():
        below = _done(["git", "rev-parse", "--show-prefix"], root).strip()
        dvc = [sys.executable, "-m", "dvc"]
        _done([*dvc, "init", *(["--subdir"] if below else [])], root)
        _done([*dvc, "config", "core.autostage", "true"], root)
        _done([*dvc, "config", "core.analytics", "false"], root)
        lines.append("dvc init")
    return lines


def _run(command: list[str], root: Path) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed; DVC needs it") from None


def _done(command: list[str], root: Path) -> str:
    """Return what a command prints. Raises UserError with its message if it fails."""
    done = _run(command, root)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.lower().startswith(("error", "fatal"))]
        raise UserError(f"{' '.join(command)}: {one_line(' '.join(errors) or done.stderr).strip()}")
    return done.stdout

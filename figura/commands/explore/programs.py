"""Programs of figura and DVC, which run beside the page: what they load and print stays theirs."""

import subprocess
import sys
import tempfile
from pathlib import Path

from figura.base.errors import UserError
from figura.commands.explore.project import Project
from figura.commands.report.pictures import Picture, picture_of

SECONDS = 300
"""After which a program that draws or fetches is given up."""


def run_program(arguments: list[str], root: Path) -> None:
    """Run a module of Python in a folder. Raises UserError with its last line if it fails or takes too long."""
    name = " ".join(arguments[:2])
    try:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=root, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"{name}: not done after {SECONDS} s") from None
    if done.returncode:
        lines = ["it says nothing", *done.stderr.strip().splitlines()]
        errors = [line for line in lines if line.lower().startswith("error: ")] or lines
        raise UserError(f"{name}: {errors[-1].removeprefix('error: ').removeprefix('ERROR: ')}")


def flow_picture(project: Project, recipe: str) -> Picture:
    """Return the picture of what an iteration of a recipe does; it takes as long as PyTorch takes to start.

    The params file says it: the resolved recipe beside a model has no `evaluate`, without which no recipe is whole.

    Raises:
        UserError: `dvc.yaml` has no such recipe, or it cannot be described.
    """
    project.refuse_unknown(recipe)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flow.png"
        # as a program: it prints, and what prints in a thread prints for all of them
        run_program(["figura", "describe", str(project.params(recipe)), "--output", str(file)], project.root)
        return picture_of(file, "flow of an iteration", "Flow of tensors: data, injectors, networks, losses.", 2000)

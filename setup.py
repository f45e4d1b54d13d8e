"""Builds the wheel: the repository's packages become `figura.models`, `figura.stages`, `figura.data`, `figura.tools`.

In the repository these packages are at the top level. Installed as they are, `models` and `data` would stand in the
way of everybody else's. The build moves them below `figura`, and changes their names wherever code imports them or a
message names them (`python -m stages.train`). An editable installation keeps the repository's own files and names.
"""

import ast
import re
import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.install_lib import install_lib

MOVED = ("data", "models", "stages", "tools")
COMMAND = re.compile(r"python -m ((?:stages|tools)(?:\.\w+)+)")
PROJECT = (
    "dvc.yaml", "params.yaml", "data/params.yaml", "recipes", ".dvc/plots",
    "data/raw/README.md", "data/raw/.gitignore", "weights/README.md", "weights/.gitignore", ".dvcignore",
)  # fmt: skip
"""What `figura init` makes a project of."""
TOOLS = {
    tool.module.removesuffix(".__main__"): f"figura {name}"
    for group in runpy.run_path("figura/command.py", run_name="command")["TOOLS"].values()
    for name, tool in group.items()
}
"""The command for each tool that has one."""
TEXTS = {".py", ".html", ".j2", ".css", ".js", ".yaml", ".md"}


def renamed(source: str) -> str:
    """Return Python source in which all imports of the moved packages name those below `figura`.

    Raises:
        ValueError: a statement `import models` or `import models.x`, whose use cannot be renamed with it.
    """
    lines = source.encode().splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in MOVED for alias in node.names):
            raise ValueError(f"line {node.lineno}: write `from package import module`, which can be renamed")
        if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).partition(".")[0] in MOVED:
            line = lines[node.lineno - 1]
            start = node.col_offset + len("from ")
            lines[node.lineno - 1] = line[:start] + b"figura." + line[start:]
    return with_commands(b"".join(lines).decode())


def with_commands(text: str) -> str:
    """Return a text that names commands as they are where figura is installed."""
    return COMMAND.sub(lambda match: TOOLS.get(match[1], f"python -m figura.{match[1]}"), text)


def move(root: Path) -> None:
    """Move the packages in the folder of a build below its `figura`, under their new names."""
    for package in MOVED:
        place = root / "figura" / package
        shutil.rmtree(place, ignore_errors=True)  # of an earlier build
        shutil.move(root / package, place)
        for path in place.rglob("*"):
            if path.suffix in TEXTS:
                rewrite(path)
    for path in (root / "figura").glob("*.py"):
        rewrite(path)
    template = root / "figura/template"
    shutil.rmtree(template, ignore_errors=True)
    for name in PROJECT:
        (template / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if Path(name).is_dir() else shutil.copy
        copy(name, template / name)
    for path in template.rglob("*.*"):
        if path.suffix in TEXTS and path.name != "dvc.yaml":  # `figura.project` makes that one
            rewrite(path)


def rewrite(path: Path) -> None:
    """Write the new names into a file."""
    text = path.read_text(encoding="utf-8")
    path.write_text(renamed(text) if path.suffix == ".py" else with_commands(text), encoding="utf-8")


class BuildWheel(build_py):
    """Copies the packages, then moves them below `figura`."""

    def run(self) -> None:
        """Build into `build_lib`."""
        super().run()
        if not self.editable_mode:
            move(Path(self.build_lib))


class TopLevel(egg_info):
    """Says that the wheel brings the package `figura` alone."""

    def run(self) -> None:
        """Write the metadata."""
        super().run()
        Path(self.egg_info, "top_level.txt").write_text("figura\n")


class InstallWheel(install_lib):
    """Compiles nothing: the list of outputs is that before the move."""

    def byte_compile(self, files: list[str]) -> None:
        """Leave compilation to pip."""


setup(cmdclass={"build_py": BuildWheel, "egg_info": TopLevel, "install_lib": InstallWheel})

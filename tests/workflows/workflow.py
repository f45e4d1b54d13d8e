"""The workflows of `.github`, as they are written."""

from pathlib import Path
from typing import Any

from pipeline.project import ROOT
from ruamel.yaml import YAML

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(path: Path) -> dict[str, Any]:
    """Read a file of YAML 1.2 (in which `on` is text)."""
    return dict(YAML(typ="safe").load(path))


def named(stem: str) -> dict[str, Any]:
    return load(ROOT / f".github/workflows/{stem}.yml")


def stand_in(program: Path, script: str) -> None:
    """Write a shell script that stands in for a program."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)

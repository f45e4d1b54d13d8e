"""Which stages one comment line makes stale: `python -m bench.stale_stages [FILE ...]` prints a table in Markdown.

In a temporary clone of the current folder's commit, with a lock that fits it: outputs are stand-ins, as only what they
depend on is looked at. A stage counts where DVC says that its own dependencies changed; those after it run where its
outputs change.
"""

import argparse
import contextlib
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dvc.repo import Repo

FILES = (
    "tools/describe/diagram.py",
    "tools/sweeps.py",
    "tools/predict.py",
    "ci/check_reproduction.py",
    "models/live/samples.py",
    "models/report/sheets.py",
    "models/images/report/scores.py",
    "models/pose/report/plots.py",
    "models/pose/decode/cifcaf.py",
    "models/pose/train/encoders.py",
    "models/vunet/train/blocks.py",
    "models/images/losses/pixel.py",
    "models/training/trainer.py",
    "stages/metrics.py",
)
COMMENT = "\n# nothing but a comment\n"


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.stale_stages", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=FILES, help="files of the project; left out: some of each kind")
    files = parser.parse_args(argv).files
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _run("git", "clone", "--quiet", str(Path.cwd()), str(clone), folder=Path.cwd())
        lock(clone)
        print("| one comment line in | makes stale |\n| --- | --- |")
        for file, stages in stale_stages(clone, files).items():
            print(f"| {file} | {', '.join(stages) or 'nothing'} |", flush=True)


def lock(project: Path) -> None:
    """Write a dvc.lock that fits code and params; outputs that are not there get stand-ins."""
    for out in (project / str(out) for stage in Repo(project).index.stages for out in stage.outs):
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text("{}")
    _run("dvc", "commit", "--force", folder=project)


def stale_stages(project: Path, files: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each file, the stages that are stale while it has one more comment; the project's lock fits."""
    stale = {}
    for file in files:
        path = project / file
        before = path.read_bytes()
        path.write_bytes(before + COMMENT.encode())
        stale[file] = stages_with_changes(project)
        path.write_bytes(before)
    return stale


def stages_with_changes(project: Path) -> list[str]:
    """Return the stages of which `dvc status` says that something they read changed, in the order of the DAG."""
    with contextlib.chdir(project), Repo() as repo:  # names are those of stages in the current folder
        return list(repo.status())


def _run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    main()

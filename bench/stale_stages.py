"""Which stages an edit makes stale: `python -m bench.stale_stages [FILE ...]` prints a table in Markdown.

In a temporary clone of the current folder's commit, with a lock that fits it: outputs are stand-ins, as only what they
depend on is looked at. A stage counts where DVC says that its own dependencies changed; those after it run where its
outputs change. The manifests in code/ are brought up to date before DVC is asked, as `dvc repro` does.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from dvc.repo import Repo

HISTORY = (
    "figura/training/warnings.py",
    "models/pose/decode/grow_poses.py",
    "models/pose/decode/cifcaf.py",
    "models/pose/consistency.py",
    "figura/commands/import_weights/tensor_files.py",
    "figura/training/run_folder.py",
    "models/pose/timm_backbone.py",
    "stages/metrics.py",
    "models/pose/plots.py",
    "figura/report/metrics.py",
    "figura/base/exit_status.py",
    "figura/commands/schema.py",
    "models/pose/drawing.py",
    "models/pix2pix/translate_junyanz.py",
    "figura/commands/compare/comparison.py",
    "figura/preparation/datasets.py",
    "models/pose/scene_table.py",
    "figura/synthetic/settings.py",
    "figura/launch/devices.py",
    "figura/recipe/name_check.py",
)
"""Twenty edits of the history.

`git log -300 --reverse --name-only 1d8db129` names the files of the last 300 commits; those of figura, models and
stages that end in .py and are still there are 789 edits of 338 files. At each place i * 789 // 20 stands the edit
taken, or the first after it of a file that is not taken yet.
"""
WITHOUT_EFFECT = ("figura/training/trainer.py", "models/images/pixel_losses.py")
"""Files that also get a comment, and then another docstring."""
FILES = (*HISTORY, "figura/recipe/other_systems.py", *WITHOUT_EFFECT)  # a hint, a loop, a loss
EDITS: dict[str, Callable[[str], str]] = {
    "a comment": "{}\n# nothing but a comment\n".format,
    "a docstring": lambda text: text.replace('"""', '"""Changed: ', 1),
    "a line": "{}\nCHANGED = 1\n".format,
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stale_stages", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=FILES, help="files of the project; default: 20 edits, and some")
    files = parser.parse_args(argv).files
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _run("git", "clone", "--quiet", str(Path.cwd()), str(clone), folder=Path.cwd())
        lock(clone)
        print("| edit | file | makes stale |\n| --- | --- | --- |")
        for file in files:
            for edit in EDITS if file in WITHOUT_EFFECT else ["a line"]:
                stale = stale_stages(clone, edit, file)
                print(f"| {edit} | {file} | {', '.join(stale) or 'nothing'} |", flush=True)


def lock(project: Path) -> None:
    """Write a dvc.lock that fits code and params; outputs that are not there get stand-ins."""
    _run(sys.executable, "-m", "stages.code", folder=project)
    for out in (project / str(out) for stage in Repo(project).index.stages for out in stage.outs):
        if not out.exists():
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text("{}")
    _run("dvc", "commit", "--force", folder=project)


def stale_stages(project: Path, edit: str, file: str) -> list[str]:
    """Return the stages that are stale while a file is edited; the project's lock fits."""
    path = project / file
    before = path.read_text()
    path.write_text(EDITS[edit](before))
    _run(sys.executable, "-m", "stages.code", folder=project)
    stale = stages_with_changes(project)
    path.write_text(before)
    return stale


def stages_with_changes(project: Path) -> list[str]:
    """Return the stages of which `dvc status` says that something they read changed, in the order of the DAG."""
    with contextlib.chdir(project), Repo() as repo:  # names are those of stages in the current folder
        return [name for name in repo.status() if name != "stages/dvc.yaml:code"]  # that one always runs


def _run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    main()

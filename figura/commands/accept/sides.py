"""Two sides: today's code, and the code that made what the lock file records, in a worktree of its commit."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.errors import UserError, one_line
from figura.base.files import git, md5, write_text
from figura.pipeline.calls import PREFIX
from figura.pipeline.causes import commits_with
from figura.pipeline.lock import LOCK
from figura.training.state_store import SWITCH

PROBE = Path(__file__).with_name("probe.py")
SEVERAL = "import sys; from figura.launch.processes import start; sys.exit(start(sys.argv[1:], {count}, None))"


@dataclass(frozen=True)
class Side:
    """Code to run: the project's folder or a worktree, an interpreter, and what messages call it."""

    root: Path
    python: str
    title: str

    def run(self, stage: str, calls: list[dict[str, Any]], folder: Path, processes: int = 1, **job: Any) -> None:
        """Run calls of a stage (probe.py). Raises UserError with the error of one that fails."""
        from figura.engine.build import CUBLAS  # imports PyTorch; earlier code had it from the launcher

        path = os.pathsep.join(filter(None, [str(self.root), os.environ.get("PYTHONPATH")]))
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        environment = CUBLAS | inherited | {"PYTHONPATH": path, "FIGURA_RESUME_ANYWAY": "1", SWITCH: "off"}
        groups = [calls] if processes == 1 else [[one] for one in calls]  # a process group starts once
        for number, group in enumerate(groups):
            file = folder / f"job-{number}.json"
            write_text(file, json.dumps({"stage": stage, "calls": group, **job}))
            command = [self.python, "-P", str(PROBE), str(file)]
            if processes > 1:
                command = [sys.executable, "-c", SEVERAL.format(count=processes), *command]
            with (folder / "output.txt").open("ab") as log:
                done = subprocess.run(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
                )
            if done.returncode:
                texts = [path.read_text(encoding="utf-8") for path in folder.rglob("error.txt")]
                last = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
                raise UserError(f"{self.title} ends with: {one_line([*texts, *last, str(done.returncode)][0])}")


class Worktrees(ExitStack):
    """Checks out earlier commits below a folder, each once; they are removed at the end."""

    def __init__(self, folder: Path, python: str) -> None:
        super().__init__()
        self.folder, self.python = folder, python
        self.errors: dict[Path, str] = {}  # with which the code of a worktree ends as it lists its files

    def code_of(self, manifest: Path, digests: Sequence[str]) -> tuple[Side, str]:
        """Return the code whose manifest has one of these MD5, the first if possible, and its commit.

        Raises:
            UserError: no commit has this manifest and the code that it lists.
        """
        why = f"no commit of this clone has it as {LOCK} names it; commit code/ and {LOCK} together with the code"
        for digest, commit in [(one, commit) for one in digests for commit in commits_with(manifest, one)]:
            root = self.folder / commit[:12] / (git("rev-parse", "--show-prefix") or "").strip()
            if root not in self.errors:
                self.errors[root] = self._check_out(root, commit)
            if (root / manifest).is_file() and md5((root / manifest).read_bytes()) == digest:
                return Side(root, self.python, f"the code of {commit[:12]}"), commit[:12]
            why = (
                f"commit {commit[:12]} has it as {LOCK} names it, but its code gives another one here"
                f"{self.errors[root]}; if packages have changed, name an interpreter of the earlier ones by --python"
            )
        raise UserError(f"{manifest}: {why}")

    def _check_out(self, root: Path, commit: str) -> str:
        """Check out a commit, and bring its manifests up to date; return an error, after a colon, or nothing."""
        folder = self.folder / commit[:12]
        self.callback(_worktree, "remove", "--force", str(folder))
        if error := _worktree("add", "--detach", "--force", str(folder), commit):
            return error
        return _run([self.python, "-m", "stages.code"], root)


def _worktree(*arguments: str) -> str:
    return _run(["git", "-c", f"core.hooksPath={os.devnull}", "worktree", *arguments])  # a hook checks out data


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return f": {one_line(done.stderr.strip())}" if done.returncode else ""

"""A script run by two processes that meet over gloo, for tests of what they do together."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_in_two(script: str, folder: Path) -> None:
    """Run a script, whose argument is `folder`, in two processes; it may import the modules of tests/ and tests/engine."""
    (folder / "two.py").write_text(script)
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/engine")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*command, str(folder / "two.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]

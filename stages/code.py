"""Note which code each stage runs: `python -m stages.code` writes code/STAGE-RECIPE.json where that has changed.

DVC runs this at each `dvc repro`, and skips a stage whose manifest stays the same. So nothing slow is imported here.
"""

import os
import re
import sys
from pathlib import Path

from figura.base.exit_status import run
from figura.pipeline.manifests import refresh


def main(arguments: list[str]) -> None:
    """Write the manifests that changed, and print their paths."""
    if "exps" in Path.cwd().parts:
        from figura.pipeline.raw_changes import modules_not_in_git, refuse_changed_raw_data

        refuse_changed_raw_data(Path.cwd())
        if modules := " ".join(modules_not_in_git(Path.cwd())):
            print(f"warning: git lacks {modules}, and so does this copy; `git add` what it needs", file=sys.stderr)
    for path in refresh():
        print(f"{path}: written")
    may_be_meant = "DVC_EXP_NAME" in os.environ and Path("params.yaml").exists()
    if may_be_meant and not re.search(r"(?<!/)\bparams\.yaml", Path("dvc.yaml").read_text("utf-8")):
        line = "params.yaml: no stage reads it; without a file's name, -S goes there: -S recipes/NAME.yaml:KEY=VALUE"
        print(f"warning: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run(main))

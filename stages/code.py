"""Note which code each stage runs: `python -m stages.code` writes code/STAGE-RECIPE.json where that has changed.

DVC runs this at each `dvc repro`, and skips a stage whose manifest stays the same. So nothing slow is imported here.
"""

import sys
from pathlib import Path

from figura.base.exit_status import run
from figura.pipeline.manifests import refresh


def main(arguments: list[str]) -> None:
    """Write the manifests that changed, and print their paths."""
    if "exps" in Path.cwd().parts:
        from figura.pipeline.raw_changes import refuse_changed_raw_data

        refuse_changed_raw_data(Path.cwd())
    for path in refresh():
        print(f"{path}: written")


if __name__ == "__main__":
    sys.exit(run(main))

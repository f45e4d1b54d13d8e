"""Peak memory of each stage for 100 to 10,000 scenes, which must not grow with their number. Takes some minutes.

Each stage runs as a new process in a temporary folder, with few training steps. `python -m bench.memory`
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from bench.table import show

ROOT = Path(__file__).parents[1]
SCENES = (100, 1000, 10000)
STAGES = (
    ("prepare", ["people"]),
    ("train", ["params.yaml", "runs/vunet"]),
    ("eval_dump", ["params.yaml", "runs/vunet"]),
    ("metrics", ["params.yaml", "runs/vunet", "metrics/vunet.json", "plots/vunet"]),
)


def peak_mebibytes(stage: str, arguments: list[str], folder: Path) -> float:
    """Run a stage; return the largest resident size of any of its processes."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    command = [sys.executable, "-c", code, sys.executable, "-m", f"stages.{stage}", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def tiny(folder: Path, scenes: int) -> None:
    """Write params for `scenes` training scenes, a tenth as many for validation, and 30 training steps."""
    yaml = YAML()
    data = yaml.load(ROOT / "data/params.yaml")
    data["datasets"]["people"]["source"] = str(ROOT / "figura/synthetic")
    data["datasets"]["people"]["synthetic"]["scenes"] = {"train": scenes, "validation": max(20, scenes // 10)}
    recipe = yaml.load(ROOT / "params.yaml")
    recipe["train"] |= {"steps": 30, "evaluate_every": 30}
    recipe["runtime"] |= {"progress": False, "trackers": []}
    (folder / "data").mkdir()
    yaml.dump(data, folder / "data/params.yaml")
    yaml.dump(recipe, folder / "params.yaml")


def main() -> None:
    """Print peak MiB by stage and number of scenes."""
    rows: list[list[object]] = [["stage", *(f"{n} scenes, MiB" for n in SCENES), "last / first"]]
    found: dict[str, list[float]] = {stage: [] for stage, _ in STAGES}
    for scenes in SCENES:
        folder = Path(tempfile.mkdtemp())
        tiny(folder, scenes)
        for stage, arguments in STAGES:
            found[stage].append(peak_mebibytes(stage, arguments, folder))
        shutil.rmtree(folder)
    rows += [[stage, *values, values[-1] / values[0]] for stage, values in found.items()]
    show(rows)


if __name__ == "__main__":
    main()

"""How soon commands answer: seconds, and the modules that they import. `python -m bench.start_up [--rounds 5]`

Rows are `--help` of each command, a recipe with a misspelt key, the first line of a training of `params.yaml`, which
needs `dvc repro prepare@people` and is stopped after it, and `dvc repro` where every result is up to date. Seconds are
the least of `--rounds`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from bench.table import show
from figura.command import COMMANDS

ROOT = Path(__file__).parents[1]
SLOW = ("torch", "accelerate", "pandas", "matplotlib", "pycocotools", "numba", "dvc")
"""Packages that are named, beside the number of all modules."""


def commands() -> list[list[str]]:
    """Return what runs each stage and each command, behind `python -m`."""
    stages = [file.stem for file in sorted((ROOT / "stages").glob("*.py")) if "ArgumentParser(" in file.read_text()]
    return [[f"stages.{name}"] for name in stages] + [["figura", name] for part in COMMANDS.values() for name in part]


def seconds(arguments: Sequence[str], first_line: bool) -> float:
    """Return how long `python -m` with arguments takes, to its end or to its first line."""
    start = perf_counter()
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout is not None
        if first_line:
            child.stdout.readline()
        else:
            child.communicate()
        spent = perf_counter() - start
        child.kill()
    return spent


def imported(arguments: Sequence[str]) -> list[str]:
    """Return the names of the modules that `python -m` with arguments imports; those of a second Python count too."""
    command, timed = [sys.executable, "-m", *arguments], os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, cwd=ROOT, env=timed, capture_output=True, text=True, check=False)
    return [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]


def is_up_to_date() -> bool:
    """Whether `dvc repro` would run no stage but `code`, which always runs."""
    command = [sys.executable, "-m", "dvc", "repro", "--dry"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return "Running stage" not in done.stdout.replace("Running stage 'stages/dvc.yaml:code'", "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start_up", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    rows: list[list[object]] = [["command", "s", "modules", "of these"]]
    with tempfile.TemporaryDirectory() as scratch:
        wrong, run = f"{scratch}/wrong.yaml", f"{scratch}/run"
        Path(wrong).write_text((ROOT / "params.yaml").read_text().replace("\ntrain:", "\ntrain:\n  stepz: 3", 1))
        asked = [[*command, "--help"] for command in commands()]
        asked += [["figura.launch", "train", wrong, run], ["figura", "describe", wrong]]
        training = ["stages.train", "params.yaml", run]
        if is_up_to_date():
            asked.append(["dvc", "repro"])
        else:
            print("dvc repro is left out: it would run stages", file=sys.stderr)
        for arguments in (*asked, training):
            least = min(seconds(arguments, arguments is training) for _ in range(rounds))
            modules = [] if arguments is training else imported(arguments)
            name = " ".join("wrong.yaml" if word == wrong else word for word in arguments if word != run)
            rows.append([name, least, len(modules) or "", ", ".join(one for one in SLOW if one in modules)])
    show(rows)


if __name__ == "__main__":
    main()

"""How soon commands answer: seconds, and the modules that they import. `python -m bench.start_up [--beside FOLDER]`

Rows are `--help` of each command, a recipe with a misspelt key, the first line of a training of `params.yaml`, which
needs `dvc repro prepare@people` and is stopped after it, and `dvc repro` where every result is up to date. Seconds are
the least of `--rounds`. With `--beside`, another checkout answers the same in turn, and the ratio is this one's time to
the other's.
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


def commands(root: Path) -> list[list[str]]:
    """Return what runs each stage of a checkout, and each command of this one, behind `python -m`."""
    stages = [file.stem for file in sorted((root / "stages").glob("*.py")) if "ArgumentParser(" in file.read_text()]
    return [[f"stages.{name}"] for name in stages] + [["figura", name] for part in COMMANDS.values() for name in part]


def seconds(arguments: Sequence[str], root: Path, first_line: bool = False) -> float:
    """Return how long `python -m` with arguments takes in a checkout, to its end or to its first line."""
    start = perf_counter()
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout is not None
        if first_line:
            child.stdout.readline()
        else:
            child.communicate()
        spent = perf_counter() - start
        child.kill()
    return spent


def imported(arguments: Sequence[str], root: Path) -> list[str]:
    """Return the names of the modules that `python -m` with arguments imports; those of a second Python count too."""
    command, timed = [sys.executable, "-m", *arguments], os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, cwd=root, env=timed, capture_output=True, text=True, check=False)
    return [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]


def is_up_to_date(root: Path) -> bool:
    """Whether `dvc repro` would run no stage but `code`, which always runs."""
    command = [sys.executable, "-m", "dvc", "repro", "--dry"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return "Running stage" not in done.stdout.replace("Running stage 'code'", "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.start_up", description=__doc__)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    roots = [ROOT] + ([args.beside.resolve()] if args.beside else [])
    head: list[object] = ["command", "s", "modules", "of these"]
    rows = [head + (["s beside", "modules", "ratio"] if args.beside else [])]
    with tempfile.TemporaryDirectory() as scratch:
        wrong, run = Path(scratch, "wrong.yaml"), str(Path(scratch, "run"))
        wrong.write_text((ROOT / "params.yaml").read_text().replace("\ntrain:", "\ntrain:\n  stepz: 3", 1))
        asked = [([*command, "--help"], False) for command in commands(ROOT)]
        asked += [
            (["figura.launch", "train", str(wrong), run], False),
            (["figura", "describe", str(wrong)], False),
        ]
        asked += [(["stages.train", "params.yaml", run], True)]
        if all(map(is_up_to_date, roots)):
            asked += [(["dvc", "repro"], False)]
        else:
            print("dvc repro is left out: it would run stages", file=sys.stderr)
        for arguments, first_line in asked:
            times: list[list[float]] = [[] for _ in roots]
            for _ in range(args.rounds):  # in turn, as machines get slower and faster within a minute
                for root, spent in zip(roots, times, strict=True):
                    spent.append(seconds(arguments, root, first_line))
            least = [min(spent) for spent in times]
            modules = [[] if first_line else imported(arguments, root) for root in roots]
            slow = ", ".join(name for name in SLOW if name in modules[0]) or "none"
            name = " ".join("wrong.yaml" if word == str(wrong) else word for word in arguments if word != run)
            row = [name, least[0], len(modules[0]) or "", "" if first_line else slow]
            rows.append(row + ([least[1], len(modules[1]) or "", least[0] / least[1]] if args.beside else []))
    show(rows)


if __name__ == "__main__":
    main()

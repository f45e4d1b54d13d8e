"""The time of `dvc repro` when nothing has changed, and where it goes: `python -m bench.noop_repro [--beside FOLDER]`.

The budget is 1.5 s. With `--beside`, another checkout whose results are complete takes turns with this one. The parts
are measured inside one more run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.table import show

BUDGET = 1.5
PARTS = """
import collections, json, sys, time
spent, inside, files = collections.Counter(), set(), 0
start = time.perf_counter()

def timed(owner, name, part):
    call = getattr(owner, name)
    def wrapped(*arguments, **keywords):
        if part in inside:
            return call(*arguments, **keywords)
        inside.add(part)
        before = time.perf_counter()
        try:
            return call(*arguments, **keywords)
        finally:
            inside.discard(part)
            spent[part] += time.perf_counter() - before
    setattr(owner, name, wrapped)

import dvc.commands.repro, dvc.dvcfile, dvc.output, dvc.repo.reproduce, dvc_data.hashfile.build, ruamel.yaml
from dvc.cli import main
spent["imports"] = time.perf_counter() - start
timed(ruamel.yaml.YAML, "load", "YAML: dvc.yaml, dvc.lock, params")
timed(dvc_data.hashfile.build, "_build_tree", "states of files in folders")
timed(dvc.output.Output, "changed_cache", "cache of outputs")
one = dvc_data.hashfile.build._get_hashes

def counted(*arguments, **keywords):
    global files
    hashes = one(*arguments, **keywords)
    files += len(hashes)
    return hashes

dvc_data.hashfile.build._get_hashes = counted
status = main(["repro"])
spent["all"] = time.perf_counter() - start
print(json.dumps({"spent": spent, "files": files}), file=sys.stderr)
"""


def seconds(folder: Path) -> float:
    """Return how long `dvc repro` takes in a checkout."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dvc", "repro"], cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.noop_repro")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    folders = [Path(), *([args.beside] if args.beside else [])]
    for folder in folders:
        command = [sys.executable, "-m", "dvc", "repro", "--dry"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        if "Running stage" in done.stdout.replace("Running stage 'code'", ""):
            sys.exit(f"error: {folder.absolute()}: dvc repro would run stages; run it first")
    times = [[seconds(folder) for folder in folders] for _ in range(args.rounds)]  # in turn, as machines' speeds vary
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    head = ["dvc repro", f"s (median of {args.rounds})", f"share of the budget ({BUDGET} s)", "to this one"]
    rows = zip(("here", "beside"), medians, strict=False)
    show([head, *([name, middle, middle / BUDGET, middle / medians[0]] for name, middle in rows)])
    done = subprocess.run([sys.executable, "-c", PARTS], check=True, capture_output=True, text=True)
    profile = json.loads(done.stderr.splitlines()[-1])
    spent = profile["spent"]
    total = spent.pop("all")
    print(f"\nFiles in folders, counted each time that a stage depends on them: {profile['files']}")
    parts = [*spent.items(), ("everything else", total - sum(spent.values()))]
    show([["part", "s", "share"], *([part, time, time / total] for part, time in parts)])


if __name__ == "__main__":
    main()

"""The time of `dvc repro` when nothing has changed, and where it goes: `python -m bench.noop_repro`.

The budget is 1.5 s.

"pure Python" is the same command without the C parser of YAML (`ruamel.yaml.clib`), which DVC uses where it is
installed. The parts are measured inside one more run, with the C parser.
"""

import json
import subprocess
import sys
import time

from bench.table import show

BUDGET = 1.5
WITHOUT_PARSER = "import sys; sys.modules['_ruamel_yaml'] = None; "
RUN = "from dvc.cli import main; sys.exit(main(['repro']))"
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


def main() -> None:
    """Print the tables."""
    done = subprocess.run(["dvc", "repro", "--dry"], check=True, capture_output=True, text=True)
    if "up to date" not in done.stdout:
        sys.exit("error: dvc repro would run stages; run it first")
    pure = [sys.executable, "-c", WITHOUT_PARSER + RUN]
    own = [sys.executable, "-c", "import sys; " + RUN]
    slow, fast = [], []
    for _ in range(5):  # in turn, as machines get slower and faster within a minute
        slow.append(_once(pure))
        fast.append(_once(own))
    show(
        [
            ["dvc repro", "s (least of 5)", f"share of the budget ({BUDGET} s)", "ratio"],
            ["pure Python", min(slow), min(slow) / BUDGET, 1.0],
            ["C parser", min(fast), min(fast) / BUDGET, min(fast) / min(slow)],
        ]
    )
    done = subprocess.run([sys.executable, "-c", PARTS], check=True, capture_output=True, text=True)
    profile = json.loads(done.stderr.splitlines()[-1])
    spent = profile["spent"]
    total = spent.pop("all")
    print(f"\nFiles in folders, counted each time that a stage depends on them: {profile['files']}")
    rows = [*spent.items(), ("everything else", total - sum(spent.values()))]
    show([["part", "s", "share"], *([part, time, time / total] for part, time in rows)])


def _once(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

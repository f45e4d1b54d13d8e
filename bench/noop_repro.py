"""The time of `dvc repro` when nothing has changed; the budget is 2 s. `python -m bench.noop_repro`"""

import subprocess

from bench.table import seconds, show


def main() -> None:
    """Print the table."""
    command = ["dvc", "repro"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    if "up to date" not in done.stdout:
        print("note: something ran the first time; the times below are of the runs after it")
    found = seconds(lambda: subprocess.run(command, check=True, capture_output=True), at_least=5)
    show([["command", "s", "share of the budget (2 s)"], ["dvc repro", found, found / 2.0]])


if __name__ == "__main__":
    main()

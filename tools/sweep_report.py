"""Say what a sweep gave, as a table and a picture.

Usage: python -m tools.sweep_report --metric FILE:KEY [--metric ...] [--rev HEAD] [--only PATTERN] [--json FILE] --output FOLDER

A metric is named by its file and key, metrics/vunet.json:reconstruction.l1.value; `low` and `high` beside `value` are its
interval. Writes FOLDER/sweep.csv (a row an experiment, the baseline first) and FOLDER/sweep.png. Experiments that failed,
run, or wait are listed as such. Not part of the DAG; docs/sweeps.md says how to make a sweep.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from models.base.errors import UserError
from models.base.files import write_text
from stages.command import run
from tools.sweep_plots import draw_sweep
from tools.sweeps import Sweep, check_metrics, labels_of, read_sweep, said, table_of


def main(arguments: list[str]) -> None:
    """Report the experiments that started from a commit."""
    parser = argparse.ArgumentParser(prog="python -m tools.sweep_report", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--metric",
        action="append",
        required=True,
        help="such as metrics/vunet.json:reconstruction.l1.value; repeatable",
    )
    parser.add_argument("--rev", default="HEAD", help="the commit that the experiments started from; default: HEAD")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names of the experiments, such as 'kl-*'")
    parser.add_argument(
        "--json", metavar="FILE", help="what `dvc exp show --json` printed, - for stdin; default: it is asked now"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    given = parser.parse_args(arguments)
    metrics = list(dict.fromkeys(given.metric))
    sweep = read_sweep(shown(given.json, given.rev), given.rev if given.json else "HEAD", given.only)
    check_metrics(sweep, metrics)
    table = table_of(sweep, metrics)
    write_text(given.output / "sweep.csv", table.to_csv(index=False, lineterminator="\n"))
    print(printed(table, sweep, metrics))
    if sweep.done:
        draw_sweep(sweep, metrics, given.output / "sweep.png")
    print(
        f"wrote {given.output / 'sweep.csv'} and {given.output / 'sweep.png' if sweep.done else 'no picture: none is done'}"
    )


def shown(source: str | None, rev: str) -> Any:
    """Return what `dvc exp show --json` says, parsed: from a file, from stdin (`-`), or (None) by asking it for a commit."""
    if source is None:
        command = [sys.executable, "-m", "dvc", "exp", "show", "--json", "--rev", rev]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"dvc exp show --rev {rev}: {done.stderr.strip()}")
        text = done.stdout
    else:
        try:
            text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--json {source}: not readable: {error}") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--json {source or 'of dvc'}: not the output of `dvc exp show --json`: {error}") from None


def printed(table: pd.DataFrame, sweep: Sweep, metrics: list[str]) -> str:
    """Return the table for people, intervals in brackets, with the extremes of each metric and what went wrong."""
    shown, lines = table.copy(), []
    for metric, label in labels_of(metrics).items():
        estimates = [one.estimate(metric) for one in (sweep.baseline, *sweep.experiments)]
        shown = shown.drop(columns=[f"{label}.low", f"{label}.high"], errors="ignore")
        shown[label] = ["" if one is None else str(one) for one in estimates]
        shown[f"{label}.change"] = ["" if pd.isna(value) else f"{value:+.3g}" for value in shown[f"{label}.change"]]
        found = sorted((e.value, one.name) for one in sweep.experiments if (e := one.estimate(metric)))
        if found:
            (low, first), (high, last) = found[0], found[-1]
            lines.append(f"{label}: lowest {low:.4g} ({first}), highest {high:.4g} ({last})")
    lines += [f"{e.name} failed: {e.error} (dvc queue logs {e.name})" for e in sweep.experiments if e.error]
    return "\n".join([shown.map(said).to_string(index=False), *lines])


if __name__ == "__main__":
    sys.exit(run(main))

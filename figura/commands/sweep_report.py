"""Report the results of a sweep as a table and a plot.

Usage: figura sweep --metric FILE:KEY [--metric ...] [--rev HEAD] [--only PATTERN] --output FOLDER

A metric is named by file and key: one that DVC shows, such as metrics/vunet.json:l1_person.value, or any in a JSON file
that is in Git, such as metrics/full/vunet.json:transfer.psnr.value. The keys `low` and `high` beside `value` are its
interval. Writes FOLDER/sweep.csv (one row for each experiment, the baseline first) and
FOLDER/sweep.png. The table also lists failed, running and queued experiments. Not part of the DAG; docs/sweeps.md
explains sweeps.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import write_text


def main(arguments: list[str]) -> None:
    """Report the experiments that started from a commit."""
    parser = argparse.ArgumentParser(prog="figura sweep", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--metric",
        action="append",
        required=True,
        help="file and key, such as metrics/vunet.json:l1_person.value; repeatable",
    )
    parser.add_argument("--rev", default="HEAD", help="the commit that the experiments started from; default: HEAD")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names of the experiments, such as 'kl-*'")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args(arguments)
    metrics = list(dict.fromkeys(args.metric))
    shown = exp_show(args.rev)

    from figura.commands.sweep_plots import draw_sweep
    from figura.commands.sweeps import check_metrics, printed, read_sweep, table_of, with_files

    sweep = read_sweep(shown, only=args.only)
    known = {key.partition(":")[0] for one in (sweep.baseline, *sweep.experiments) for key in one.metrics}
    sweep = with_files(sweep, {metric.partition(":")[0] for metric in metrics} - known, committed)
    check_metrics(sweep, metrics)
    table = table_of(sweep, metrics)
    write_text(args.output / "sweep.csv", table.to_csv(index=False, lineterminator="\n"))
    print(printed(table, sweep, metrics))
    if sweep.done:
        draw_sweep(sweep, metrics, args.output / "sweep.png")
    plot = args.output / "sweep.png" if sweep.done else "no picture: none is done"
    print(f"wrote {args.output / 'sweep.csv'} and {plot}")


def exp_show(rev: str) -> Any:
    """Return the parsed output of `dvc exp show --json` for a commit. Raises UserError if DVC fails."""
    command = [sys.executable, "-m", "dvc", "exp", "show", "--json", "--rev", rev]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"dvc exp show --rev {rev}: {done.stderr.strip()}")
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise UserError(f"dvc exp show --rev {rev}: not JSON: {error}") from None


def committed(rev: str, path: str) -> str | None:
    """Return the text of a file of a commit; None if Git has no such file."""
    done = subprocess.run(["git", "show", f"{rev}:{path}"], capture_output=True, text=True, check=False)
    return None if done.returncode else done.stdout


if __name__ == "__main__":
    sys.exit(run(main))

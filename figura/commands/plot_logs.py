"""Plot the logs of several runs together, and print the command that trained each.

RUN is a folder such as runs/pose with history/train.csv and history/validation.csv; live/log.jsonl adds speed and the
command. Writes FOLDER/losses.png (one row for each head, one column for each component) and FOLDER/training.png (total
loss, learning rates, gradient norms, speed). `figura report REVISION` draws the same of revisions. Not part of the DAG.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError
from figura.commands import parser_of
from figura.recipe.trial import is_try

if TYPE_CHECKING:
    import pandas as pd

    from figura.commands.log_plots import Log


def main(arguments: list[str]) -> None:
    """Plot the runs in shared figures; print the command and the last records of each."""
    parser = parser_of("logs", __doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, such as runs/pose")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args(arguments)
    labels = labels_of(args.runs)

    from figura.commands.log_plots import draw_logs, read_log

    logs = dict(zip(labels, map(read_log, args.runs), strict=True))
    for (label, log), folder in zip(logs.items(), args.runs, strict=True):
        print(described(label, folder, log))
    losses, training = draw_logs(logs, args.output)
    print(f"wrote {losses} and {training}")


def labels_of(runs: Sequence[Path]) -> list[str]:
    """Return a label for each run: the folders' names, or their paths if two names are equal. That of a try says so.

    Raises:
        UserError: a run is named twice.
    """
    if len(set(runs)) < len(runs):
        raise UserError(f"RUN: {', '.join(map(str, runs))}: name each run once")
    names = [path.resolve().name for path in runs]
    labels = names if len(set(names)) == len(names) else map(str, runs)
    return [f"{label} (TRY)" if is_try(run / "model") else label for label, run in zip(labels, runs, strict=True)]


def described(label: str, folder: Path, log: "Log") -> str:
    """Return a summary to print: the command, its commit, and the last records of training and validation."""
    lines = [f"{label} ({folder})"]
    if process := log.process:
        changed = len(process.get("changed_files", ()))
        lines.append(f"  command     {shlex.join(process['command'])}")
        lines.append(f"  commit      {process['commit'] or 'none'}, {changed} files changed; on {process['host']}")
    else:
        lines.append("  command     not known: not in live/log.jsonl")
    for split, table in (("training", log.train), ("validation", log.validation)):
        if len(table):
            lines.append(f"  {split:<11} {last_record(table)}")
    return "\n".join(lines)


def last_record(table: "pd.DataFrame") -> str:
    """Return the last row of a history, losses unweighted: `step 1100: cif -1569.9, network.lr 4.56e-08`."""
    row = table.iloc[-1].drop("step").dropna()
    shown = {str(name): value for name, value in row.items() if not str(name).endswith((".weight", ".weighted"))}
    values = ", ".join(f"{name.removesuffix('.raw')} {value:.5g}" for name, value in shown.items())
    return f"step {table['step'].iloc[-1]:.0f}: {values}"

"""Plot the logs of several runs together, and print the command that trained each.

Usage: figura logs RUN [RUN ...] [--label LABEL ...] [--epochs] --output FOLDER

RUN is a folder such as runs/pose with history/train.csv and history/validation.csv; live/log.jsonl adds speed and the
command. Writes FOLDER/losses.png (one row for each head, one column for each component) and FOLDER/training.png (total
loss, learning rates, gradient norms, speed). Not part of the DAG.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.recipe.trial import is_try

if TYPE_CHECKING:
    import pandas as pd

    from figura.commands.log_plots import Log


def main(arguments: list[str]) -> None:
    """Plot the runs in shared figures; print the command and the last records of each."""
    parser = argparse.ArgumentParser(prog="figura logs", description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, such as runs/pose")
    parser.add_argument(
        "--label", action="append", help="a run's label; repeat it for each run, in order; default: the folder's name"
    )
    parser.add_argument("--epochs", action="store_true", help="count epochs instead of steps")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args(arguments)
    labels = labels_of(args.runs, args.label)

    from figura.commands.log_plots import draw_training, read_log
    from figura.report.curves import draw_losses

    logs = dict(zip(labels, map(read_log, args.runs), strict=True))
    for (label, log), folder in zip(logs.items(), args.runs, strict=True):
        print(described(label, folder, log))
    if args.epochs:
        for folder, log in zip(args.runs, logs.values(), strict=True):
            if not log.batches_per_epoch:
                path = folder / "live" / "log.jsonl"
                raise UserError(f"{path}: does not say how many batches an epoch has; leave out --epochs")
        logs = {label: log.in_epochs() for label, log in logs.items()}
    x = "epoch" if args.epochs else "step"
    draw_losses({label: (log.train, log.validation) for label, log in logs.items()}, args.output / "losses.png", x)
    draw_training(logs, args.output / "training.png", x)
    print(f"wrote {args.output / 'losses.png'} and {args.output / 'training.png'}")


def labels_of(runs: Sequence[Path], asked: Sequence[str] | None) -> list[str]:
    """Return a label for each run: `asked`, by default the folders' names, or their paths if two names are equal.

    That of a try says so.

    Raises:
        UserError: the number of labels differs from that of the runs, or two labels are equal.
    """
    labels = asked or [path.resolve().name for path in runs]
    if not asked and len(set(labels)) < len(labels):
        labels = [str(path) for path in runs]
    if len(labels) != len(runs):
        raise UserError(f"--label: {len(labels)} for {len(runs)} runs; give one for each, or none")
    if len(set(labels)) < len(labels):
        raise UserError(f"runs {', '.join(labels)}: each needs another name; give --label once for each")
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


if __name__ == "__main__":
    sys.exit(run(main))

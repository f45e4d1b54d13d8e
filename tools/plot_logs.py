"""Draw the logs of saved runs together, and say what made them.

Usage: python -m tools.plot_logs RUN [RUN ...] [--label LABEL ...] [--epochs] --output FOLDER

RUN is a folder such as runs/pose with history/train.csv and history/validation.csv; live/log.jsonl adds speed and the
command. Writes FOLDER/losses.png (a row a head, a column a component) and FOLDER/training.png (total, learning rates,
gradients, speed). Not part of the DAG.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from models.base.errors import UserError
from models.report.curves import draw_losses
from stages.command import run
from tools.log_plots import Log, draw_training, read_log


def main(arguments: list[str]) -> None:
    """Draw runs in shared figures; print of each the command that trained it and its last records."""
    parser = argparse.ArgumentParser(prog="python -m tools.plot_logs", description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, such as runs/pose")
    parser.add_argument(
        "--label", action="append", help="a run's name, once for each in their order; else its folder's"
    )
    parser.add_argument("--epochs", action="store_true", help="count epochs instead of steps")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    given = parser.parse_args(arguments)
    logs = dict(zip(labels_of(given.runs, given.label), map(read_log, given.runs), strict=True))
    for (label, log), folder in zip(logs.items(), given.runs, strict=True):
        print(described(label, folder, log))
    if given.epochs:
        for folder, log in zip(given.runs, logs.values(), strict=True):
            if not log.batches_per_epoch:
                path = folder / "live" / "log.jsonl"
                raise UserError(f"{path}: does not say how many batches an epoch has; leave out --epochs")
        logs = {label: log.in_epochs() for label, log in logs.items()}
    x = "epoch" if given.epochs else "step"
    draw_losses({label: (log.train, log.validation) for label, log in logs.items()}, given.output / "losses.png", x)
    draw_training(logs, given.output / "training.png", x)
    print(f"wrote {given.output / 'losses.png'} and {given.output / 'training.png'}")


def labels_of(runs: Sequence[Path], given: Sequence[str] | None) -> list[str]:
    """Return a label for each run: those given, else the folders' names, else (where two are the same) their paths.

    Raises:
        UserError: for labels that are not as many as the runs, or not different.
    """
    labels = given or [path.resolve().name for path in runs]
    if not given and len(set(labels)) < len(labels):
        labels = [str(path) for path in runs]
    if len(labels) != len(runs):
        raise UserError(f"--label: {len(labels)} for {len(runs)} runs; give one for each, or none")
    if len(set(labels)) < len(labels):
        raise UserError(f"runs {', '.join(labels)}: each needs another name; give --label once for each")
    return list(labels)


def described(label: str, folder: Path, log: Log) -> str:
    """Return lines for people: the command, the commit it ran from, the last records of training and validation."""
    lines = [f"{label} ({folder})"]
    if process := log.process:
        changed = len(process.get("changed_files", ()))
        lines.append(f"  command     {shlex.join(process['command'])}")
        lines.append(f"  commit      {process['commit'] or 'none'}, {changed} files changed; on {process['host']}")
    else:
        lines.append("  command     not known: no live/log.jsonl that says it")
    for split, table in (("training", log.train), ("validation", log.validation)):
        if len(table):
            lines.append(f"  {split:<11} {last_record(table)}")
    return "\n".join(lines)


def last_record(table: pd.DataFrame) -> str:
    """Return the last row of a history as text, losses unweighted: `step 1100: cif -1569.9, network.lr 4.56e-08`."""
    row = table.iloc[-1].drop("step").dropna()
    shown = {str(name): value for name, value in row.items() if not str(name).endswith((".weight", ".weighted"))}
    values = ", ".join(f"{name.removesuffix('.raw')} {value:.5g}" for name, value in shown.items())
    return f"step {table['step'].iloc[-1]:.0f}: {values}"


if __name__ == "__main__":
    sys.exit(run(main))

"""Plot the logs of several runs together.

RUN is a folder such as runs/pose with history/train.csv and history/validation.csv; live/log.jsonl adds the
speed. Writes FOLDER/losses.png (one row for each head, one column for each component) and FOLDER/training.png (total
loss, learning rates, gradient norms, speed). `figura report REVISION` draws the same of revisions. Not part of the DAG.
"""

from collections.abc import Sequence
from pathlib import Path

from figura.base.errors import UserError
from figura.commands import parser_of
from figura.recipe.trial import is_try


def main(arguments: list[str]) -> None:
    parser = parser_of("logs", __doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, such as runs/pose")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args(arguments)
    labels = labels_of(args.runs)

    from figura.commands.log_plots import draw_logs, read_log

    logs = dict(zip(labels, map(read_log, args.runs), strict=True))
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

"""Curves of runs, from the live log and the history."""

from pathlib import Path

from figura.commands.explore.cache import Cache
from figura.commands.explore.runs import INTERRUPTED, TRAINING, Run
from figura.commands.live_log import Points, log_curves, thin

KINDS = {"raw": "train", "weighted": "weighted", "weight": "weight", "lr": "lr", "grad_norm": "grad_norm"}
"""What a history tells, by the ends of its columns."""
CURVES = Cache()  # of its own: networks that load, which take seconds, keep no curve waiting


def history_curves(folder: Path) -> dict[str, Points]:
    """Return the curves in `history/` of a run folder, means over windows. Raises UserError if it is damaged."""
    from figura.commands.log_plots import total_loss
    from figura.report.curves import read_histories

    train, validation = (table.astype("float64") for table in read_histories(folder))
    totals, curves = total_loss(train, validation), {}
    for table, total, kinds in ((train, totals[0], KINDS), (validation, totals[1], {"raw": "validation"})):
        columns = {f"{kinds['raw']}.total": total}
        for column in table:
            head, _, kind = str(column).rpartition(".")
            if kind in kinds:
                columns[f"{kinds[kind]}.{head}"] = table[column]
        for name, values in columns.items():
            if (present := values.notna()).any():
                curves[name] = thin(table["step"][present].tolist(), values[present].tolist())
    return curves


def curves_of(run: Run) -> dict[str, Points]:
    """Return the curves by name, sorted: `train.total`, `validation.total`, then the others.

    They come from the live log, and for a run that has ended from its history, too, which takes precedence. They are
    read again when these files have changed.

    Raises:
        UserError: the history is damaged.
    """
    log, history = run.live / "log.jsonl", run.folder / "history" / "train.csv"
    ended = run.state not in (TRAINING, INTERRUPTED) and history.is_file()

    def read() -> dict[str, Points]:
        curves = log_curves(log) | (history_curves(run.folder) if ended else {})
        first = [name for name in ("train.total", "validation.total") if name in curves]
        return {name: curves[name] for name in [*first, *sorted(curves.keys() - set(first))]}

    return CURVES.get((str(log), str(ended)), [log, history], read)

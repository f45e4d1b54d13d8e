"""Compare the metrics of a rerun with the committed ones.

Usage: figura gate [--revision HEAD] [--tolerances metrics/tolerances.yaml] [--markdown FILE]

Every metric that the pipeline writes to `metrics/full/*.json` must be within its tolerance of the revision's value;
tolerances.py describes the file of tolerances. Of a metric with a bootstrap interval only `value` is compared: the
bounds follow from the same examples, and the interval's width can scale the tolerance. Outputs of the data stages
(`prepare@...`) must have the same hash in `dvc.lock`. Exits with 1 if a metric is out of tolerance or missing, or if a
hash differs. Metrics in a file that the pipeline no longer writes count as missing: the file may be the committed one.
Below the table are the examples of the dumps, and the files of the data, that differ most behind what failed.
"""

import argparse
import sqlite3
import sys
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import read_text, write_text
from figura.commands.ci.reproduction import FAILING, Results, Row, compare, outputs, read_results
from figura.commands.ci.tolerances import read_tolerances

METRICS = Path("metrics/full")
TOLERANCES = Path("metrics/tolerances.yaml")
LOCK = Path("dvc.lock")
OTHERS = ("vanished", "identical", "within", "better", "new", "ignored")
COLUMNS = [field.name for field in fields(Row)]


def main(arguments: list[str]) -> None:
    """Compare, print, and fail if anything is not reproduced."""
    parser = argparse.ArgumentParser(prog="figura gate", description=__doc__.splitlines()[0])
    parser.add_argument("--revision", default="HEAD", help="commit, branch or tag to compare with; default: HEAD")
    parser.add_argument("--tolerances", type=Path, default=TOLERANCES, help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to FILE, as Markdown")
    args = parser.parse_args(arguments)
    try:
        written = metric_files()
        rows = compare(committed(args.revision, written), reproduced(written), read_tolerances(args.tolerances))
    except sqlite3.Error as error:  # on a full disk; DVC lets it pass
        raise UserError(f"the databases of DVC, in .dvc/tmp or at core.site_cache_dir: {error}") from None
    failing = [row.metric for row in rows if row.verdict in FAILING]
    instances = differing_instances([row.metric for row in rows if row.verdict == "violated"], args.revision)
    print("\n".join([*as_text(rows), summary(rows, args.revision), *instances]))
    if args.markdown:
        write_text(args.markdown, as_markdown(rows, args.revision, instances))
    if failing:
        raise UserError(f"not reproduced: {', '.join(failing[:10])}{', ...' if len(failing) > 10 else ''}")


def metric_files() -> set[str]:
    """Return the paths of the metrics files that the pipeline writes. Raises UserError if DVC cannot tell."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            return {str(out) for stage in repo.index.stages for out in stage.outs if Path(str(out)).parent == METRICS}
    except DvcException as error:
        raise UserError(f"which metrics the pipeline makes: {error}") from None


def committed(revision: str, written: Container[str]) -> Results:
    """Read a revision's metrics and data hashes. Raises UserError if it is unknown, or if any are missing."""
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException

    try:
        files = DVCFileSystem(rev=revision)
        metrics = {path: files.read_text(path) for path in sorted(files.glob(f"{METRICS}/*.json"))}
        lock = files.read_text(str(LOCK)) if files.exists(str(LOCK)) else None
    except (DvcException, UnicodeDecodeError) as error:
        raise UserError(f"--revision {revision}: {error}") from None
    if not metrics or lock is None:
        raise UserError(f"--revision {revision}: it has no {LOCK if metrics else f'{METRICS}/*.json'}")
    if lost := [path for path in outputs(lock, f" of {revision}") if path in written and path not in metrics]:
        raise UserError(f"--revision {revision}: {LOCK} names {', '.join(lost)}, and the commit has no such file")
    return read_results(metrics, lock, f" of {revision}")


def reproduced(written: Container[str]) -> Results:
    """Read the working tree's metrics and data hashes. Raises UserError if nothing has run."""
    files = [path for path in sorted(METRICS.glob("*.json")) if str(path) in written]
    metrics = {str(path): read_text(path, "`dvc repro` writes it") for path in files}
    return read_results(metrics, read_text(LOCK, "`dvc repro` writes it"), "")


def differing_instances(violated: Sequence[str], revision: str) -> list[str]:
    """Return lines that name the instances behind violated rows: metrics by dotted name, or paths of data."""
    if not violated:
        return []

    from dvc.api import DVCFileSystem

    from figura.commands.ci.instances import differing_examples, differing_files

    files = DVCFileSystem(rev=revision)
    outs = outputs(files.read_text(str(LOCK)), f" of {revision}")
    lines = [line for path in violated if path in outs for line in differing_files(files, path)]
    scores: dict[str, list[str]] = {}
    for recipe, score, *_ in (f"{name}.".split(".") for name in violated if name not in outs):
        scores.setdefault(recipe, []).append(score)
    for recipe, names in scores.items():
        if f"runs/{recipe}/dump" in outs:
            lines += differing_examples(files, recipe, names)
    return lines


def summary(rows: Sequence[Row], revision: str) -> str:
    """Return one line: how many values were compared, and how many have each verdict."""
    counts = Counter(row.verdict for row in rows)
    compared = len(rows) - counts["new"] - counts["ignored"]
    failed = [f"{counts['violated']} violated"]
    others = [f"{counts[verdict]} {verdict}" for verdict in OTHERS if counts[verdict]]
    return f"{compared} compared with {revision}: {', '.join([*failed, *others])}"


def as_text(rows: Sequence[Row]) -> list[str]:
    """Return the table as lines for a terminal; failing rows begin with `!`."""
    cells = [tuple(COLUMNS), *(astuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    marks = [" ", *("!" if row.verdict in FAILING else " " for row in rows)]
    return [
        f"{mark} {line[0]:<{widths[0]}}  "
        + "  ".join(f"{text:>{width}}" for text, width in zip(line[1:-1], widths[1:-1], strict=True))
        + f"  {line[-1]}"
        for mark, line in zip(marks, cells, strict=True)
    ]


def as_markdown(rows: Sequence[Row], revision: str, instances: Sequence[str] = ()) -> str:
    """Return the summary and the tables: failing rows and what differs behind them in sight, the rest folded."""
    failing = [row for row in rows if row.verdict in FAILING]
    rest = [row for row in rows if row.verdict not in FAILING]
    parts = [f"**Reproduction: {'failed' if failing else 'passed'}**, {summary(rows, revision)}"]
    if failing:
        parts.append(_table(failing))
    if instances:
        parts.append("\n".join(["```", *instances, "```"]))
    if rest:
        parts.append(f"<details><summary>{len(rest)} other rows</summary>\n\n{_table(rest)}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row]) -> str:
    lines = [
        COLUMNS,
        ["---", *["---:"] * (len(COLUMNS) - 2), "---"],
        *([f"`{r.metric}`", *astuple(r)[1:]] for r in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(run(main))

"""Compare the metrics of a rerun with those that were committed.

Usage: python -m ci.check_reproduction [--revision HEAD] [--tolerances metrics/tolerances.yaml] [--markdown FILE]

Each metric that the pipeline writes to `metrics/*.json` may be as far from that of the revision as the file of tolerances allows;
ci/tolerances.py says how that is written. Where a metric has a bootstrap interval, its `value` is compared: the bounds
follow from the same instances, and their distance is a scale for the tolerance. What the data stages (`prepare@...`) wrote
must have the same hash in `dvc.lock`. Exit code 1 where a metric is too far or gone, or a hash is another. A file that the
pipeline no longer makes counts as gone: it may be the committed one.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from dvc.api import DVCFileSystem  # type: ignore[import-untyped]
from dvc.exceptions import DvcException  # type: ignore[import-untyped]
from dvc.repo import Repo  # type: ignore[import-untyped]

from ci.reproduction import FAILING, Results, Row, compare, outputs, read_results
from ci.tolerances import read_tolerances
from models.base.errors import UserError
from models.base.files import write_text
from stages.command import run

METRICS = Path("metrics")
LOCK = Path("dvc.lock")
OTHERS = ("vanished", "identical", "within", "better", "new", "ignored")
COLUMNS = [field.name for field in fields(Row)]


def main(arguments: list[str]) -> None:
    """Compare, print, and fail where something is not reproduced."""
    parser = argparse.ArgumentParser(prog="python -m ci.check_reproduction", description=__doc__.splitlines()[0])
    parser.add_argument("--revision", default="HEAD", help="commit, branch or tag to compare with; default: HEAD")
    parser.add_argument("--tolerances", type=Path, default=METRICS / "tolerances.yaml", help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too, as Markdown")
    given = parser.parse_args(arguments)
    made = made_now()
    rows = compare(committed(given.revision, made), reproduced(made), read_tolerances(given.tolerances))
    print("\n".join([*as_text(rows), summary(rows, given.revision)]))
    if given.markdown:
        write_text(given.markdown, as_markdown(rows, given.revision))
    failing = [row.metric for row in rows if row.verdict in FAILING]
    if failing:
        raise UserError(f"not reproduced: {', '.join(failing[:10])}{', ...' if len(failing) > 10 else ''}")


def made_now() -> set[str]:
    """Return the paths of the metrics files that the pipeline makes; UserError where DVC cannot tell."""
    try:
        with Repo() as repo:
            return {str(out) for stage in repo.index.stages for out in stage.outs if out.metric}
    except DvcException as error:
        raise UserError(f"which metrics the pipeline makes: {error}") from None


def committed(revision: str, made: Container[str]) -> Results:
    """Read metrics and data hashes of a revision; UserError where it is unknown, has none, or not all of them."""
    try:
        files = DVCFileSystem(rev=revision)
        metrics = {path: files.read_text(path) for path in sorted(files.glob(f"{METRICS}/*.json"))}
        lock = files.read_text(str(LOCK)) if files.exists(str(LOCK)) else None
    except DvcException as error:
        raise UserError(f"--revision {revision}: {error}") from None
    if not metrics or lock is None:
        raise UserError(f"--revision {revision}: it has no {LOCK if metrics else f'{METRICS}/*.json'}")
    if lost := [path for path in outputs(lock, f" of {revision}") if path in made and path not in metrics]:
        raise UserError(f"--revision {revision}: {LOCK} names {', '.join(lost)}, and the commit has no such file")
    return read_results(metrics, lock, f" of {revision}")


def reproduced(made: Container[str]) -> Results:
    """Read metrics and data hashes of the working tree; UserError where nothing has run."""
    try:
        found = [path for path in sorted(METRICS.glob("*.json")) if str(path) in made]
        metrics = {str(path): path.read_text(encoding="utf-8") for path in found}
        return read_results(metrics, LOCK.read_text(encoding="utf-8"), "")
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: no such file; `dvc repro` writes it") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{METRICS}/*.json, {LOCK}: not UTF-8 text: {error}") from None


def summary(rows: Sequence[Row], revision: str) -> str:
    """Return one line: how many were compared with what, and what came out."""
    counts = Counter(row.verdict for row in rows)
    compared = len(rows) - counts["new"] - counts["ignored"]
    failed = [f"{counts['violated']} violated"]
    others = [f"{counts[verdict]} {verdict}" for verdict in OTHERS if counts[verdict]]
    return f"{compared} compared with {revision}: {', '.join([*failed, *others])}"


def as_text(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table for a terminal; failing rows begin with `!`."""
    cells = [tuple(COLUMNS), *(astuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    marks = [" ", *("!" if row.verdict in FAILING else " " for row in rows)]
    return [
        f"{mark} {line[0]:<{widths[0]}}  "
        + "  ".join(f"{text:>{width}}" for text, width in zip(line[1:-1], widths[1:-1], strict=True))
        + f"  {line[-1]}"
        for mark, line in zip(marks, cells, strict=True)
    ]


def as_markdown(rows: Sequence[Row], revision: str) -> str:
    """Return the summary and the tables: what failed in sight, the rest folded."""
    failing = [row for row in rows if row.verdict in FAILING]
    rest = [row for row in rows if row.verdict not in FAILING]
    parts = [f"**Reproduction: {'failed' if failing else 'passed'}**, {summary(rows, revision)}"]
    if failing:
        parts.append(_table(failing))
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

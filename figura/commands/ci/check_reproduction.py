"""Compare the metrics of a rerun with the committed ones.

Every metric that the pipeline writes to `metrics/full/*.json` must be within its tolerance of the revision's value. The
file of tolerances maps patterns of names, such as "pix2pix.*.psnr", to `exact`, `ignore` or a map: `interval` counts
half-widths of the metric's interval, `relative` and `absolute` are other widths, of which the widest applies; with
`direction: higher_is_better`, or `lower_is_better`, only a change for the worse counts. Of a metric with a bootstrap
interval only `value` is compared, as the bounds follow from the same examples. Outputs of the data stages
(`prepare@...`) must have the same hash in the lock file. Exits with 1 if a metric is out of tolerance or missing, or if
a hash differs. Metrics in a file that the pipeline no longer writes count as missing: the file may be the committed
one. Behind what failed: `figura report REVISION` has the examples that changed most.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

from figura.base.errors import REPRO, UserError
from figura.base.files import write_text
from figura.base.tables import as_markdown, as_text
from figura.commands import parser_of
from figura.commands.ci.reproduction import FAILING, Results, Row, compare, outputs, read_results
from figura.commands.ci.tolerances import read_tolerances
from figura.pipeline.calls import outputs_in
from figura.pipeline.lock import LOCK
from figura.pipeline.revisions import WORKSPACE, Files

METRICS = Path("metrics/full")
TOLERANCES = Path("metrics/tolerances.yaml")
OTHERS = ("vanished", "identical", "within", "better", "new", "ignored")
COLUMNS = [field.name for field in fields(Row)]


def main(arguments: list[str]) -> None:
    parser = parser_of("gate", __doc__)
    parser.add_argument("--revision", default="HEAD", help="commit, branch or tag to compare with; default: HEAD")
    parser.add_argument("--tolerances", type=Path, default=TOLERANCES, help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to FILE, as Markdown")
    args = parser.parse_args(arguments)
    if args.revision == WORKSPACE:
        raise UserError(f"--revision {WORKSPACE}: the gate compares the workspace with a commit; name that one")
    if not args.tolerances.exists():
        raise UserError(
            f'{args.tolerances}: no such file; write one, such as "*": {{interval: 0.5, relative: 0.01}}, '
            "which lets each metric move by half of its interval's half-width, or by 1 %"
        )
    files, written = Files(args.revision), outputs_in(METRICS)
    rows = compare(committed(files, written), reproduced(written), read_tolerances(args.tolerances))
    failing = [row.metric for row in rows if row.verdict in FAILING]
    marked = [("! " if row.verdict in FAILING else "  ", astuple(row)) for row in rows]
    table = [(f"  {COLUMNS[0]}", *COLUMNS[1:]), *((f"{mark}{first}", *rest) for mark, (first, *rest) in marked)]
    print(f"{as_text(table)}\n{summary(rows, args.revision)}")
    if args.markdown:
        write_text(args.markdown, markdown(rows, args.revision))
    if failing:
        raise UserError(f"not reproduced: {', '.join(failing[:10])}{', ...' if len(failing) > 10 else ''}")


def committed(files: Files, written: set[str]) -> Results:
    """Read a revision's metrics and data hashes. Raises UserError if any are missing."""
    where = f" of {files.name}"
    metrics, lock = _metrics(files), files.read_text(LOCK.as_posix())
    if not metrics or lock is None:
        raise UserError(f"--revision {files.name}: it has no {LOCK if metrics else f'{METRICS}/*.json'}")
    if lost := [path for path in outputs(lock, where) if path in written and path not in metrics]:
        raise UserError(f"--revision {files.name}: {LOCK} names {', '.join(lost)}, and the commit has no such file")
    return read_results(metrics, lock, where)


def reproduced(written: set[str]) -> Results:
    """Read the working tree's metrics and data hashes. Raises UserError if nothing has run."""
    files = Files(WORKSPACE)
    if (lock := files.read_text(LOCK.as_posix())) is None:
        raise UserError(f"{LOCK}: no such file; `{REPRO}` writes it")
    return read_results({path: text for path, text in _metrics(files).items() if path in written}, lock, "")


def _metrics(files: Files) -> dict[str, str]:
    paths = [path for path in files.find(METRICS.as_posix()) if path.endswith(".json")]
    return {path: files.read_text(path) or "" for path in paths}


def summary(rows: Sequence[Row], revision: str) -> str:
    """Return one line: how many values were compared, and how many have each verdict."""
    counts = Counter(row.verdict for row in rows)
    compared = len(rows) - counts["new"] - counts["ignored"]
    failed = [f"{counts['violated']} violated"]
    others = [f"{counts[verdict]} {verdict}" for verdict in OTHERS if counts[verdict]]
    return f"{compared} compared with {revision}: {', '.join([*failed, *others])}"


def markdown(rows: Sequence[Row], revision: str) -> str:
    """Return the summary and the tables: failing rows in sight, the rest folded."""
    failing = [astuple(row) for row in rows if row.verdict in FAILING]
    rest = [astuple(row) for row in rows if row.verdict not in FAILING]
    parts = [f"**Reproduction: {'failed' if failing else 'passed'}**, {summary(rows, revision)}"]
    if failing:
        parts.append(as_markdown([COLUMNS, *failing]))
    if rest:
        table = as_markdown([COLUMNS, *rest])
        parts.append(f"<details><summary>{len(rest)} other rows</summary>\n\n{table}\n\n</details>")
    return "\n\n".join(parts) + "\n"

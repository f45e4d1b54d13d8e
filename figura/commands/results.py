"""Print the headline figures in metrics/ and where to look next: `python -m figura.commands.results`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from figura.base.errors import EXPERIMENT
from figura.base.exit_status import run
from figura.base.files import read_json
from figura.report.verdicts import verdicts

NEXT = (
    "pictures: plots/*/pictures/\n"
    "next: source .venv/bin/activate, then `figura report` (one page of everything) or "
    f"`{EXPERIMENT} -S losses.KL.weight=2`"
)


def main(_: list[str]) -> None:
    for path in sorted(Path("metrics").glob("*.json")):
        full = path.parent / "full" / path.name
        said = verdicts(read_json(full)) if full.exists() else {}
        print(f"{path.stem + ':':<27}{', '.join(figures(read_json(path), said))}")
    print(NEXT)


def figures(metrics: Mapping[str, Any], said: Mapping[str, str]) -> Iterator[str]:
    """Yield each figure with its interval, baseline and verdict, if it has them: `AP 0.736 [0.704, 0.761]`."""
    for name, one in metrics.items():
        if "value" in one:  # else of a try
            interval = f" [{one['low']:.3g}, {one['high']:.3g}]" if "low" in one else ""
            baseline = f" (baseline {one['baseline']:.3g})" if "baseline" in one else ""
            verdict = f": {said[name]}" if name in said else ""
            yield f"{name} {one['value']:.3g}{interval}{baseline}{verdict}"


if __name__ == "__main__":
    sys.exit(run(main))

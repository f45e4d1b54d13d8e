"""Report what the working tree changed against a commit, as one Markdown file with pictures.

Usage: python -m ci.change_report [--base HEAD] [--gate FILE] --output FOLDER

Writes FOLDER/report.md with the table of the reproduction gate (FILE is the Markdown of ci.check_reproduction; the
report says so if it is missing), the changes of params and metrics (`dvc params diff`, `dvc metrics diff`) and, from
`dvc plots diff`, the new curves over those of the base and the new pictures beside those of the base. Unchanged plots
are only counted. CI posts the report as a comment. Not part of the DAG.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from ci.change_pictures import Curve, beside, draw_curves
from models.base.errors import UserError
from models.base.files import write_text
from stages.command import run

LIMITS = {"gate": 25_000, "params": 8_000, "metrics": 20_000}  # characters; a comment on GitHub holds 65536
WORKSPACE = "workspace"  # DVC's name for the working tree
SIDES = {  # captions by (the base has the picture, the rerun has it)
    (True, True): "left: base, right: rerun",
    (True, False): "of the base alone",
    (False, True): "of the rerun alone",
}


def main(arguments: list[str]) -> None:
    """Write the report into a folder; earlier pictures in it are removed."""
    parser = argparse.ArgumentParser(prog="python -m ci.change_report", description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="commit, branch or tag to compare with; default: HEAD")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="Markdown of ci.check_reproduction")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    args = parser.parse_args(arguments)
    base, head = commit(args.base), commit("HEAD")
    parts = [f"# Rerun of {head}\n\nCompared with {'what it committed' if base == head else base}."]
    if args.gate:
        parts.append(f"## Reproduction gate\n\n{gate(args.gate)}")
    for kind, title in (("params", "Parameters"), ("metrics", "Metrics")):
        parts.append(f"## {title}\n\n{difference(kind, base)}")
    parts.append(f"## Plots\n\n{plots(base, args.output)}")
    write_text(args.output / "report.md", "\n\n".join(parts) + "\n")
    print(f"wrote {args.output / 'report.md'}")


def commit(revision: str) -> str:
    """Return the short hash of a revision. Raises UserError if git does not know it."""
    done = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--short=10", f"{revision}^{{commit}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(f"--base {revision}: git knows no such commit")
    return done.stdout.strip()


def gate(path: Path) -> str:
    """Return the gate's table, or a sentence that it did not run."""
    if not path.is_file():
        return "**It did not run**: the rerun ended before it. The log of the job says why."
    return shortened(path.read_text(encoding="utf-8").strip(), LIMITS["gate"])


def difference(kind: str, base: str) -> str:
    """Return the table of `dvc params diff` or `dvc metrics diff`, folded if it is long."""
    done = dvc(kind, "diff", "--md", base)
    if done.returncode:
        return failure(done)
    table = done.stdout.strip()
    rows = max(len(table.splitlines()) - 2, 0)
    if not rows:
        return "None changed."
    table = shortened(table, LIMITS[kind])
    return table if rows <= 10 else folded(f"{rows} changed", table)


def plots(base: str, folder: Path) -> str:
    """Empty `folder` and write pictures of all differences into it; return Markdown that shows them, by recipe."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        done = dvc("plots", "diff", base, "--json", "--out", scratch)
        if done.returncode:
            return failure(done)
        curves, pictures = read(json.loads(done.stdout)["data"])
        changed = {name: curve for name, curve in curves.items() if curve.differs()}
        shown: dict[str, list[str]] = defaultdict(list)
        for recipe in sorted({recipe_of(name) for name in changed}):
            its_curves = {Path(name).stem: curve for name, curve in changed.items() if recipe_of(name) == recipe}
            draw_curves(its_curves, folder / f"{recipe}_curves.png")
            shown[recipe].append(picture(recipe, "curves", "gray: base, blue: rerun"))
        differing = 0
        for name, (before, after) in sorted(pictures.items()):
            recipe, stem = recipe_of(name), Path(name).stem
            if beside(before, after, folder / f"{recipe}_{stem}.png"):
                differing += 1
                shown[recipe].append(picture(recipe, stem, SIDES[before is not None, after is not None]))
    same = f"{len(curves) - len(changed)} curves and {len(pictures) - differing} pictures are the same."
    return "\n\n".join([*(folded(recipe, "\n\n".join(lines)) for recipe, lines in sorted(shown.items())), same])


def recipe_of(name: str) -> str:
    """Return `vunet` for plots/vunet/pictures/worst.png."""
    return Path(name).parts[1]


def picture(recipe: str, name: str, caption: str) -> str:
    """Return Markdown for one picture below its caption."""
    return f"`{name}`, {caption}\n\n![{recipe} {name}](./{recipe}_{name}.png)"


def folded(title: str, text: str) -> str:
    """Return Markdown that folds `text` under `title`."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def read(data: dict[str, list[dict[str, Any]]]) -> tuple[dict[str, Curve], dict[str, tuple[Path | None, Path | None]]]:
    """Split the output of `dvc plots diff --json`: curves by path, and pictures (base, rerun; None if missing)."""
    curves, pictures = {}, {}
    for name, entries in data.items():
        if entries[0]["type"] == "image":
            paths = {WORKSPACE in entry["revisions"]: Path(entry["url"]) for entry in entries}
            pictures[name] = (paths.get(False), paths.get(True))
        else:
            points = [point for entry in entries for point in entry["content"]["data"]["values"]]
            curves[name] = Curve(
                base=[point for point in points if point["rev"] != WORKSPACE],
                rerun=[point for point in points if point["rev"] == WORKSPACE],
            )
    return curves, pictures


def dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of DVC."""
    return subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True, check=False)


def failure(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last error line of a failed DVC command: a report with a gap is better than none."""
    last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return f"`dvc {' '.join(done.args[3:5])}` failed: `{last[0]}`"


def shortened(text: str, limit: int) -> str:
    """Cut a text to whole lines of at most `limit` characters, close open folds, and say how many lines are missing."""
    if len(text) <= limit:
        return text
    head = text[:limit].rpartition("\n")[0]
    missing = len(text.splitlines()) - len(head.splitlines())
    folds = head.count("<details>") - head.count("</details>")
    return "\n\n".join([head, *["</details>"] * folds, f"... and {missing} more lines."])


if __name__ == "__main__":
    sys.exit(run(main))

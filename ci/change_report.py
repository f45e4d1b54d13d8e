"""Say what the working tree changed against a commit, as one Markdown file with pictures.

Usage: python -m ci.change_report [--base HEAD] [--gate FILE] --output FOLDER

Writes FOLDER/report.md: the table of the reproduction gate (FILE, Markdown, as ci.check_reproduction writes it; said to be
missing where it is), what changed among params and metrics (`dvc params diff`, `dvc metrics diff`), and, of `dvc plots diff`,
the curves drawn over those of the base and the pictures beside those of the base. What is the same is only counted. Continuous
integration posts the report as a comment. Not part of the DAG.
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

LIMITS = {"gate": 25_000, "params": 8_000, "metrics": 20_000}  # characters; GitHub takes 65536 in a comment
WORKSPACE = "workspace"  # what DVC calls the working tree
SIDES = {  # by whether the base has the picture, and whether the rerun has
    (True, True): "left: base, right: rerun",
    (True, False): "of the base alone",
    (False, True): "of the rerun alone",
}


def main(arguments: list[str]) -> None:
    """Write the report into a folder that is made anew."""
    parser = argparse.ArgumentParser(prog="python -m ci.change_report", description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="commit, branch or tag to compare with; default: HEAD")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="Markdown of ci.check_reproduction")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    given = parser.parse_args(arguments)
    base, head = commit(given.base), commit("HEAD")
    parts = [f"# Rerun of {head}\n\nCompared with {'what it committed' if base == head else base}."]
    if given.gate:
        parts.append(f"## Reproduction gate\n\n{gate(given.gate)}")
    for kind, title in (("params", "Parameters"), ("metrics", "Metrics")):
        parts.append(f"## {title}\n\n{difference(kind, base)}")
    parts.append(f"## Plots\n\n{plots(base, given.output)}")
    write_text(given.output / "report.md", "\n\n".join(parts) + "\n")
    print(f"wrote {given.output / 'report.md'}")


def commit(revision: str) -> str:
    """Return the short hash of a revision; UserError where git does not know it."""
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
    """Return the table of the gate, or that there is none."""
    if not path.is_file():
        return "**It did not run**: the rerun ended before it. The log of the job says why."
    return shortened(path.read_text(encoding="utf-8").strip(), LIMITS["gate"])


def difference(kind: str, base: str) -> str:
    """Return the table of `dvc params diff` or `dvc metrics diff`, folded where it is long."""
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
    """Write the pictures of what differs into `folder`, emptied before; return the Markdown that shows them, by recipe."""
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
    """Return the Markdown of one picture below its caption."""
    return f"`{name}`, {caption}\n\n![{recipe} {name}](./{recipe}_{name}.png)"


def folded(title: str, text: str) -> str:
    """Return text that a click unfolds."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def read(data: dict[str, list[dict[str, Any]]]) -> tuple[dict[str, Curve], dict[str, tuple[Path | None, Path | None]]]:
    """Sort what `dvc plots diff --json` gave: curves by path, and pictures (of the base, of the rerun; None: it has none)."""
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
    """Say what a command of DVC that failed said last; a report with a gap is better than none."""
    last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return f"`dvc {' '.join(done.args[3:5])}` failed: `{last[0]}`"


def shortened(text: str, limit: int) -> str:
    """Return the first whole lines of at most `limit` characters, open folds closed, and how many lines were left out."""
    if len(text) <= limit:
        return text
    kept = text[:limit].rpartition("\n")[0]
    left_out = len(text.splitlines()) - len(kept.splitlines())
    folds = kept.count("<details>") - kept.count("</details>")
    return "\n\n".join([kept, *["</details>"] * folds, f"... and {left_out} more lines."])


if __name__ == "__main__":
    sys.exit(run(main))

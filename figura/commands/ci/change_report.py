"""Report what the working tree changed against a commit, as one Markdown file with pictures.

Usage: figura changes [--base HEAD] [--gate FILE] --output FOLDER

Writes FOLDER/report.md with the table of the reproduction gate (FILE is the Markdown of `figura gate`; the report says
so if it is missing), the changes of params and metrics (`dvc params diff`, `dvc metrics diff`: the summary, and folded
below it all figures of `metrics/full/`), for each recipe whose figures differ whether that is more than noise (`figura
compare`) and, from `dvc plots diff`, the new curves over those of the base and the new pictures beside those of the
base. Unchanged plots are only counted. What DVC could not read is listed: its tables then lack rows. CI
posts the report as a comment. Not part of the DAG.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import read_json, read_text, write_text
from figura.commands.ci.check_reproduction import METRICS
from figura.recipe import pipeline
from figura.recipe.trial import KEY

if TYPE_CHECKING:
    from figura.commands.ci.change_pictures import Curve

LIMITS = {"gate": 25_000, "params": 8_000, "metrics": 20_000}  # characters; a comment on GitHub holds 65536
WORKSPACE = "workspace"  # DVC's name for the working tree
SIDES = {  # captions by (the base has the picture, the rerun has it)
    (True, True): "left: base, right: rerun",
    (True, False): "of the base alone",
    (False, True): "of the rerun alone",
}


def main(arguments: list[str]) -> None:
    """Write the report into a folder; earlier pictures in it are removed."""
    parser = argparse.ArgumentParser(prog="figura changes", description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="commit, branch or tag to compare with; default: HEAD")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="Markdown of `figura gate`")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    args = parser.parse_args(arguments)
    base, head = commit(args.base), commit("HEAD")
    parts = [f"# Rerun of {head}\n\nCompared with {'what it committed' if base == head else base}."]
    if marked := tries():
        parts.append(f"**A try (`train.try`), so its figures are no result: {', '.join(marked)}.**")
    if args.gate:
        parts.append(f"## Reproduction gate\n\n{gate(args.gate)}")
    for kind, title in (("params", "Parameters"), ("metrics", "Metrics")):
        parts.append(f"## {title}\n\n{difference(kind, base)}")
    full = [str(path) for path in sorted(METRICS.glob("*.json"))]
    if full:
        parts.append(folded("all figures", difference("metrics", base, "--targets", *full)))
    parts += [comparison(recipe, base) for recipe in changed_recipes(base)]
    parts.append(f"## Plots\n\n{plots(base, args.output)}")
    write_text(args.output / "report.md", "\n\n".join(parts) + "\n")
    print(f"wrote {args.output / 'report.md'}")


def commit(revision: str) -> str:
    """Return the short hash of a revision. Raises UserError if git does not know it."""
    done = git("rev-parse", "--verify", "--quiet", "--short=10", f"{revision}^{{commit}}")
    if done.returncode:
        raise UserError(f"--base {revision}: git knows no such commit")
    return done.stdout.strip()


def gate(path: Path) -> str:
    """Return the gate's table, or a sentence that it did not run."""
    if not path.exists():
        return "**It did not run**: the rerun ended before it. The log of the job says why."
    return shortened(read_text(path).strip(), LIMITS["gate"])


def difference(kind: str, base: str, *options: str) -> str:
    """Return the table of `dvc params diff` or `dvc metrics diff`, folded if it is long, below what was not read."""
    done = dvc(kind, "diff", "--md", base, *options)
    if done.returncode:
        return failure(done)
    parts = [unread(done, unread_files(kind, base))] if done.stderr.strip() else []
    table = done.stdout.strip()
    rows = max(len(table.splitlines()) - 2, 0)
    if rows:
        table = shortened(table, LIMITS[kind])
        parts.append(table if rows <= 10 else folded(f"{rows} changed", table))
    return "\n\n".join(parts) or "None changed."


def changed_recipes(base: str) -> list[str]:
    """Return the recipes that have figures in the base and other ones in the working tree."""
    done = git("diff", "--name-only", "--diff-filter=M", base, "--", str(METRICS))
    recipes = pipeline.entries("recipes")  # what judges their pictures is none
    return [name for name in (Path(line).stem for line in done.stdout.splitlines()) if name in recipes]


def tries() -> list[str]:
    """Return the recipes whose figures in the working tree are those of a try."""
    marked = []
    for file in sorted(METRICS.glob("*.json")):
        with suppress(UserError):  # not JSON: listed as what DVC could not read
            content = read_json(file)
            marked += [file.stem] if isinstance(content, dict) and KEY in content else []
    return marked


def comparison(recipe: str, base: str) -> str:
    """Return what `figura compare` says of a recipe's headline metrics, or why it says nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "noise.md"
        arguments = ["-m", "figura.commands.compare", base, "--recipe", recipe, "--markdown", str(file)]
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"## {recipe}: is it more than noise?\n\nNot known: `{last_line(done)}`"
        return file.read_text(encoding="utf-8").strip() if file.is_file() else done.stdout.strip()


def unread_files(kind: str, base: str) -> list[str]:
    """Return a line for each file of params or metrics that DVC cannot read, in the base or in the working tree."""
    from dvc.repo import Repo

    with Repo() as repo:
        errors = getattr(repo, kind).diff(a_rev=base).get("errors", {})
    return [
        f"`{file}` of {revision}: `{type(error).__name__}: {error}`"
        for revision, found in errors.items()
        for file, error in (found if isinstance(found, dict) else {f"all {kind}": found}).items()
    ]


def unread(done: subprocess.CompletedProcess[str], lines: list[str]) -> str:
    """Return Markdown that lists what DVC could not read, or without `lines` what the command said instead."""
    listed = "\n".join(f"- {line}" for line in lines or [f"`{last_line(done)}`"])
    return f"**`{command(done)}` could not read all, so this is incomplete:**\n\n{listed}"


def plots(base: str, folder: Path) -> str:
    """Empty `folder` and write pictures of all differences into it; return Markdown that shows them, by recipe."""
    from figura.commands.ci.change_pictures import beside, draw_curves

    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        done = dvc("plots", "diff", base, "--json", "--out", scratch)
        if done.returncode:
            return failure(done)
        content = json.loads(done.stdout)
        curves, pictures = read(content.get("data", {}))
        changed = {key: curve for key, curve in curves.items() if curve.differs()}
        shown: dict[str, list[str]] = defaultdict(list)
        for recipe in sorted({recipe_of(path) for path, _ in changed}):
            its_curves = {name: curve for (path, name), curve in changed.items() if recipe_of(path) == recipe}
            draw_curves(its_curves, folder / f"{recipe}_curves.png")
            shown[recipe].append(picture(recipe, "curves", "gray: base, blue: rerun"))
        differing = 0
        for name, (before, after) in sorted(pictures.items()):
            recipe, stem = recipe_of(name), Path(name).stem
            try:
                differs = beside(before, after, folder / f"{recipe}_{stem}.png")
            except UserError as error:
                differing += 1
                shown[recipe].append(f"`{stem}`: `{error}`")
                continue
            if differs:
                differing += 1
                shown[recipe].append(picture(recipe, stem, SIDES[before is not None, after is not None]))
    errors = [
        f"`{one.get('source', one.get('name', 'all plots'))}` of {one['rev']}: `{one['type']}: {one['msg']}`"
        for one in content.get("errors", [])
    ]
    parts = [unread(done, errors)] if errors or done.stderr.strip() else []
    parts += [folded(recipe, "\n\n".join(lines)) for recipe, lines in sorted(shown.items())]
    same = f"{len(curves) - len(changed)} curves and {len(pictures) - differing} pictures are the same."
    return "\n\n".join([*parts, same])


def recipe_of(name: str) -> str:
    """Return `vunet` for plots/vunet/pictures/worst.png."""
    return Path(name).parts[1]


def picture(recipe: str, name: str, caption: str) -> str:
    """Return Markdown for one picture below its caption."""
    return f"`{name}`, {caption}\n\n![{recipe} {name}](./{recipe}_{name}.png)"


def folded(title: str, text: str) -> str:
    """Return Markdown that folds `text` under `title`."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def read(
    data: dict[str, list[dict[str, Any]]],
) -> tuple[dict[tuple[str, str], "Curve"], dict[str, tuple[Path | None, Path | None]]]:
    """Split the output of `dvc plots diff --json`: curves, and pictures by path (base, rerun; None if missing).

    A table holds several curves, told apart by `name` and `series`; their keys are (path, "KL training").
    """
    from figura.commands.ci.change_pictures import Curve

    curves: dict[tuple[str, str], Curve] = {}
    pictures = {}
    for name, entries in data.items():
        if entries[0]["type"] == "image":
            paths = {WORKSPACE in entry["revisions"]: Path(entry["url"]) for entry in entries}
            pictures[name] = (paths.get(False), paths.get(True))
        else:
            sides: dict[str, tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
            for point in (point for entry in entries for point in entry["content"]["data"]["values"]):
                sides[f"{point['name']} {point['series']}"][point["rev"] == WORKSPACE].append(point)
            curves |= {(name, label): Curve(*both) for label, both in sides.items()}
    return curves, pictures


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Git."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)


def dvc(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of DVC."""
    return subprocess.run([sys.executable, "-m", "dvc", *arguments], capture_output=True, text=True, check=False)


def failure(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last error line of a failed DVC command: a report with a gap is better than none."""
    return f"`{command(done)}` failed: `{last_line(done)}`"


def command(done: subprocess.CompletedProcess[str]) -> str:
    """Return `dvc params diff`."""
    return f"dvc {' '.join(done.args[3:5])}"


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that a command wrote to stderr, or its exit status."""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


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

"""Is a difference between revisions more than noise? Compares headline metrics on the same examples.

Usage: figura compare REVISION [REVISION ...] --recipe NAME [--markdown FILE] [--picture FILE] [--sheet FILE]

A revision is a commit, branch, tag or experiment of DVC, or `workspace`; the first is the one compared against, and the
workspace is the second if only one is named. Metrics are those of `metrics.summary` of the recipe as it is in the
workspace, computed anew from each revision's dump, which is read from DVC's cache; nothing is checked out. Revisions
that differ in their `seed` alone are seeds of one setting: `dvc exp run --queue -S seed=1,2,3`. `resampling.py` has the
statistics, docs/sweeps.md an example. Not part of the DAG.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.commands.compare.revisions import WORKSPACE, read_revision
from figura.recipe.pipeline import recipe_file


def main(arguments: list[str]) -> None:
    """Compare, print, and write what is asked for."""
    parser = argparse.ArgumentParser(prog="figura compare", description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs="+", metavar="REVISION", help="commit, branch, experiment, or workspace")
    parser.add_argument("--recipe", required=True, help="name of the recipe in dvc.yaml, such as vunet")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables to FILE, as Markdown")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw effects and intervals to FILE, a PNG")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="draw the examples that changed most to FILE, a PNG")
    parser.add_argument("--by", metavar="HEADLINE", help="what the sheet sorts by; default: the first of the summary")
    parser.add_argument("--count", type=int, default=8, help="examples in the sheet; default: %(default)s")
    args = parser.parse_args(arguments)
    names = list(dict.fromkeys(args.revisions))
    names += [WORKSPACE] if len(names) == 1 and names != [WORKSPACE] else []
    if len(names) < 2:
        raise UserError("REVISION: name the revision to compare the workspace with")
    if args.count < 1:
        raise UserError(f"--count {args.count}: at least 1 is needed")

    from figura.commands.compare.report import report

    path = recipe_file(args.recipe)
    with tempfile.TemporaryDirectory() as scratch:
        revisions = [read_revision(name, args.recipe, Path(scratch)) for name in names]
        report(revisions, path, args)


if __name__ == "__main__":
    sys.exit(run(main))

"""Is a difference between revisions more than noise? Compares headline metrics on the same examples.

A revision is a commit, branch, tag or experiment, or `workspace`; the first is the one compared against, and the
workspace is the second if only one is named. Metrics are those of `metrics.summary` of the recipe as it is in the
workspace, computed anew from each revision's dump, which is read from the cache; nothing is checked out. Revisions
that differ in their `seed` alone are seeds of one setting. `resampling.py` has the
statistics, docs/sweeps.md an example. `figura report` shows the same with pictures. Not part of the DAG.
"""

import tempfile
from pathlib import Path

from figura.base.errors import UserError
from figura.commands import parser_of
from figura.pipeline.dag import recipe_file
from figura.pipeline.revisions import Files, with_workspace


def main(arguments: list[str]) -> None:
    parser = parser_of("compare", __doc__)
    parser.add_argument("revisions", nargs="+", metavar="REVISION", help="commit, branch, experiment, or workspace")
    parser.add_argument("--recipe", required=True, help="name of the recipe, such as vunet")
    args = parser.parse_args(arguments)
    names = with_workspace(args.revisions)
    if len(names) < 2:
        raise UserError("REVISION: name the revision to compare the workspace with")
    path = recipe_file(args.recipe)

    from figura.base.tables import as_text
    from figura.commands.compare.comparison import compare_revisions

    with tempfile.TemporaryDirectory() as scratch:
        result = compare_revisions([Files(name) for name in names], args.recipe, path, Path(scratch))
    print("\n\n".join(["\n".join(result.lines), *map(as_text, result.tables), "\n".join(result.sentences)]))

"""Write one page on what was trained and how well it did: `figura report [REVISION ...]` writes report.html.

The page holds its pictures and needs no connection. For each recipe in `dvc.yaml` it has the headline figures with
baselines and intervals, sheets of results, the curves and losses of the training, the flow of an iteration, what it was
trained on, and all figures. It reads metrics/, plots/, data/prepared and runs/ as they are here.

With revisions (commits, branches, tags or experiments of DVC, or `workspace`), it begins with what differs from the
first one, as `figura compare` finds: changed params beside changed figures, with intervals and probabilities; with one
revision, the workspace is compared with it. `--markdown FOLDER` writes the same as Markdown with pictures beside it.
Not part of the DAG.
"""

import argparse
import sys
from pathlib import Path

from figura.base.errors import UserError
from figura.base.exit_status import run

LIMIT = 5_000_000
"""Bytes of a page that opens quickly, and can be sent."""


def main(arguments: list[str]) -> None:
    """Gather, and write the page."""
    parser = argparse.ArgumentParser(prog="figura report", description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help="commit, branch, experiment, or workspace")
    parser.add_argument("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FOLDER", help="also write report.md and pictures there")
    parser.add_argument("--recipe", nargs="+", default=[], metavar="NAME", help="of dvc.yaml; default: all")
    args = parser.parse_args(arguments)
    if args.output.suffix != ".html":
        raise UserError(f"--output {args.output}: expected a file that ends in .html")

    from figura.commands.compare.revisions import WORKSPACE
    from figura.commands.report.contents import report_on
    from figura.commands.report.rendering import write_html, write_markdown

    names = list(dict.fromkeys(args.revisions))
    names += [WORKSPACE] if len(names) == 1 and names != [WORKSPACE] else []
    report = report_on(names, args.recipe)
    size = write_html(report, args.output)
    print(f"wrote {args.output}, {size / 1e6:.1f} MB: recipes {len(report.recipes)}, pictures {len(report.pictures)}")
    if size > LIMIT:
        print(f"warning: that is more than {LIMIT / 1e6:g} MB; --recipe NAME writes a page on fewer")
    if args.markdown:
        write_markdown(report, args.markdown)
        print(f"wrote {args.markdown / 'report.md'}")
    for content in report.recipes:
        for line in content.missing:
            print(f"{content.name}: left out: {line}")


if __name__ == "__main__":
    sys.exit(run(main))

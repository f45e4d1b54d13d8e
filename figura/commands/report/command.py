"""Write one page on what was trained and how well it did: `figura report [REVISION ...]` writes report.html.

The page holds its pictures and needs no connection. For each recipe it has the headline figures with
baselines and intervals, sheets of results, the curves and losses of the training, the flow of an iteration, what it was
trained on, and all figures. It reads metrics/, plots/, data/prepared and runs/ as they are here.

With revisions (commits, branches, tags or experiments, or `workspace`), it begins with what differs from the
first one: settings, what `figura compare` finds, curves of the trainings, figures and pictures. Recipes in which
nothing differs are only named. With one revision, the workspace is compared with it. `--markdown FOLDER` writes the
same as Markdown with pictures beside it, short enough for a comment on GitHub; CI posts it, with the table of
`figura gate`. Not part of the DAG.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError
from figura.base.files import read_text
from figura.commands import parser_of

if TYPE_CHECKING:
    from figura.commands.report.contents import Entry
    from figura.commands.report.page import Block, Section

LIMIT = 5_000_000  # bytes of a page that opens quickly, and can be sent


def main(arguments: list[str]) -> None:
    parser = parser_of("report", __doc__)
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help="commit, branch, experiment, or workspace")
    parser.add_argument("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: %(default)s")
    parser.add_argument("--markdown", type=Path, metavar="FOLDER", help="also write report.md and pictures there")
    parser.add_argument("--recipe", nargs="+", default=[], metavar="NAME", help="of a recipe; default: all")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="begin with the Markdown of `figura gate`")
    args = parser.parse_args(arguments)
    if args.output.suffix != ".html":
        raise UserError(f"--output {args.output}: expected a file that ends in .html")

    from figura.commands.report.contents import entries_of, provenance, recipe_blocks
    from figura.commands.report.page import Page, Section, Text, write_html, write_markdown
    from figura.pipeline.revisions import with_workspace

    names, chosen = with_workspace(args.revisions), entries_of(args.recipe)
    sections = [] if args.gate is None else [Section("Reproduction gate", [_gate(args.gate)])]
    if len(names) > 1:
        sections += _differences(names, chosen)
    else:
        sections += [Section(one.name, recipe_blocks(one)) for one in chosen]
    title = f"figura: {', '.join(names[1:])} against {names[0]}" if len(names) > 1 else "figura: results"
    page = Page(title, provenance(), sections)
    size = write_html(page, args.output)
    print(f"wrote {args.output}, {size / 1e6:.1f} MB: recipes {len(chosen)}, pictures {len(page.pictures)}")
    if size > LIMIT:
        print(f"warning: that is more than {LIMIT / 1e6:g} MB; --recipe NAME writes a page on fewer")
    if args.markdown:
        write_markdown(page, args.markdown)
        print(f"wrote {args.markdown / 'report.md'}")
    for section in page.sections:
        for block in section.blocks:
            if isinstance(block, Text) and block.kind == "warning":
                print(f"{section.title}: {block.text}")


def _gate(path: Path) -> "Block":
    """Return the table of the reproduction gate, or a sentence that it did not run."""
    from figura.commands.report.page import Markdown, Text

    if not path.exists():
        return Text("It did not run: the rerun ended before it. The log of the job says why.", "warning")
    return Markdown(read_text(path).strip())


def _differences(names: list[str], chosen: "list[Entry]") -> "list[Section]":
    """Return a section on settings, and one for each recipe in which something differs."""
    from figura.commands.report.contents import recipe_blocks
    from figura.commands.report.differences import differing_settings, recipe_differences
    from figura.commands.report.page import Fold, Section, Text
    from figura.pipeline.revisions import Files

    files = [Files(name) for name in names]
    settings, sections, same = list(differing_settings(files)), [], []
    for entry in chosen:
        if not (found := recipe_differences(entry, files)):
            same.append(entry.name)
            continue
        here = recipe_blocks(entry)
        warnings = [block for block in here if isinstance(block, Text) and block.kind == "warning"]
        sections.append(
            Section(entry.name, [*warnings, *found, Fold(f"{entry.name}, as it is here", here, only_html=True)])
        )
    if same:
        settings.append(Text(f"Nothing differs in {', '.join(same)}."))
    return [Section("What differs", settings), *sections]

"""The report as sections of blocks; one HTML file that holds everything, or Markdown beside its pictures."""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from figura.base.files import write_bytes, write_text
from figura.base.tables import Table, as_markdown, plain
from figura.commands.report.pictures import Picture

LONGEST = 50_000
"""Characters of report.md: a comment on GitHub holds 65,536, with the addresses of the pictures."""
LONGEST_PART = 20_000  # characters of a part that another command wrote, so that what follows still has room


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: Literal["plain", "strong", "warning"] = "plain"


@dataclass(frozen=True)
class Lines:
    """A list."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Rows:
    """A table under its caption."""

    caption: str
    table: Table


@dataclass(frozen=True)
class Cards:
    """A table of the numbers that people look at first: name, better, value, interval, baseline. HTML shows cards."""

    table: Table


@dataclass(frozen=True)
class Pictures:
    """Pictures, side by side where there is room."""

    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Markdown:
    """Markdown that another command wrote; HTML shows its text."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that are hidden until somebody asks for them; `only_html` ones are missing in Markdown."""

    title: str
    blocks: Sequence["Block"]
    only_html: bool = False


Block = Text | Lines | Rows | Cards | Pictures | Markdown | Fold


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """The whole report: `facts` are label and text."""

    title: str
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in the order of the page."""
        return [picture for section in self.sections for picture in _pictures(section.blocks, in_html=True)]


def _pictures(blocks: Sequence[Block], in_html: bool) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Pictures):
            yield from block.pictures
        elif isinstance(block, Fold) and (in_html or not block.only_html):
            yield from _pictures(block.blocks, in_html)


def write_html(page: Page, path: Path) -> int:
    """Write the page, which needs no other file and no connection; return its bytes."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["kind"] = lambda block: type(block).__name__
    text = environment.get_template("page.html.j2").render(page=page)
    write_text(path, text)
    return len(text.encode())


def write_markdown(page: Page, folder: Path) -> None:
    """Write `report.md` into a folder, of at most `LONGEST` characters, and its pictures beside it."""
    parts = [f"# {plain(page.title)}", "\n".join(f"- {plain(label)}: {plain(text)}" for label, text in page.facts)]
    for section in page.sections:
        parts += [f"## {plain(section.title)}", *map(as_text, section.blocks)]
        for picture in _pictures(section.blocks, in_html=False):
            write_bytes(folder / picture.name, picture.content)
    write_text(folder / "report.md", shortened("\n\n".join(filter(None, parts)) + "\n", LONGEST))


def as_text(block: Block) -> str:
    """Return a block as Markdown."""
    match block:
        case Text(text, kind):
            return plain(text) if kind == "plain" else f"**{plain(text)}**"
        case Lines(lines):
            return "\n".join(f"- {plain(line)}" for line in lines)
        case Rows(_, table) | Cards(table):
            return as_markdown(table)
        case Pictures(pictures):
            return "\n\n".join(f"{plain(one.title)}\n\n![{plain(one.alt)}](./{one.name})" for one in pictures)
        case Markdown(text):
            return shortened(text, LONGEST_PART)
        case Fold(only_html=True):
            return ""
        case Fold(title, blocks):
            content = "\n\n".join(map(as_text, blocks))
            return f"<details><summary>{html.escape(title)}</summary>\n\n{content}\n\n</details>"


def shortened(text: str, limit: int) -> str:
    """Cut a text to whole lines of at most `limit` characters, close open folds, and say how many lines are missing."""
    if len(text) <= limit:
        return text
    head = text[:limit].rpartition("\n")[0]
    missing = len(text.splitlines()) - len(head.splitlines())
    folds = head.count("<details>") - head.count("</details>")
    return "\n\n".join([head, *["</details>"] * folds, f"... and {missing} more lines."])

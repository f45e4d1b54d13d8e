"""Renders the report by its templates: one HTML file that holds everything, or Markdown beside its pictures."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from figura.base.files import write_bytes, write_text
from figura.commands.report.contents import Headline, Report, number

TEMPLATES = Path(__file__).parent


def write_html(report: Report, path: Path) -> int:
    """Write the page, which needs no other file and no connection; return its bytes."""
    text = _environment(escape=True).get_template("page.html.j2").render(report=report, number=number, bar=bar)
    write_text(path, text)
    return len(text.encode())


def write_markdown(report: Report, folder: Path) -> None:
    """Write `report.md` into a folder, and its pictures beside it."""
    for picture in report.pictures:
        write_bytes(folder / picture.name, picture.content)
    text = _environment(escape=False).get_template("page.md.j2").render(report=report, number=number, plain=plain)
    write_text(folder / "report.md", text)


def bar(headline: Headline) -> dict[str, float] | None:
    """Return where value, interval and baseline lie on a line from 0 to 100; None without a baseline or interval."""
    if headline.baseline is None or headline.low is None or headline.high is None:
        return None
    ends = (0.0, headline.low, headline.high, headline.baseline)
    low, span = min(ends), (max(ends) - min(ends)) * 1.08 or 1.0

    def place(value: float) -> float:
        return round(100 * (value - low) / span, 2)

    return {
        "value": place(headline.value), "low": place(headline.low), "width": place(headline.high) - place(headline.low),
        "baseline": place(headline.baseline),
    }  # fmt: skip


def plain(text: str) -> str:
    """Return a text for Markdown in which nothing is markup, on one line."""
    return re.sub(r"([\\`*_<>|\[\]#])", r"\\\1", " ".join(text.split()))


def _environment(escape: bool) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=escape, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip

"""The comparison as a table: for a terminal, and as Markdown."""

import math
from collections.abc import Mapping, Sequence

from figura.commands.compare.comparison import Comparison
from figura.commands.compare.resampling import Effect, Spread
from figura.recipe.schema import Headline


def rows_of(
    comparison: Comparison, headlines: Mapping[str, Headline], spreads: Mapping[str, Spread], confidence: float
) -> list[list[str]]:
    """Return the table of one comparison, its head first; columns of seeds only where several are known."""
    share = f"{100 * confidence:g} %"
    seeds = any(effect.seeds is not None for effect in comparison.effects.values())
    head = ["", "better", comparison.first.name, comparison.second.name, "effect", f"{share} over images", "P(better)"]
    rows = [[*head, *(["between seeds", f"{share} over images and seeds"] if seeds else []), "differs"]]
    for name, effect in comparison.effects.items():
        row = [name, headlines[name].better, number(effect.first), number(effect.second), f"{effect.difference:+.3g}"]
        row += [interval(effect.low, effect.high), f"{effect.probability:.3f}"]
        if seeds and effect.seeds is not None:
            row += [f"{math.sqrt(spreads[name].variance):.2g}", interval(*effect.seeds)]
        rows.append([*row, verdict(effect, comparison.one_setting)])
    return rows


def verdict(effect: Effect, one_setting: bool) -> str:
    """Return `better`, `worse` or `no`; seeds of one setting never differ."""
    differs = not one_setting and (effect.beyond_images if effect.seeds is None else effect.beyond_seeds)
    return effect.word if differs else "no"


def number(value: float) -> str:
    """Return a number with four digits."""
    return f"{value:.4g}"


def interval(low: float, high: float) -> str:
    """Return an interval of differences."""
    return f"[{low:+.3g}, {high:+.3g}]"


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table in Markdown."""
    head, *body = rows
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *([f"`{row[0]}`", *row[1:]] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

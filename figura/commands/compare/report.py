"""What a comparison of revisions prints and writes, once their dumps are at hand."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figura.base.errors import UserError, nearest
from figura.base.files import write_text
from figura.commands.compare.comparison import Comparison, Estimates, compare, estimate, sides_of, spreads_of
from figura.commands.compare.drawing import draw_changed, draw_effects
from figura.commands.compare.matching import check_inputs, matched
from figura.commands.compare.resampling import PairedBootstrap
from figura.commands.compare.revisions import Revision, changes, settings_of
from figura.commands.compare.tables import as_markdown, as_text, rows_of
from figura.dump import Dump
from figura.recipe.load import load_recipe
from figura.recipe.schema import Recipe

MOST_CHANGES = 4


@dataclass(frozen=True)
class RevisionComparison:
    """What differs between revisions.

    Attributes:
        lines: on the revisions, their rows, and what was left out.
        tables: one for each comparison with the first, its head first.
        sentences: what differs, one for each comparison.
    """

    recipe: Recipe
    settings: Sequence[Sequence[Revision]]
    dumps: Mapping[str, Dump]
    estimates: Estimates
    comparisons: Sequence[Comparison]
    lines: Sequence[str]
    tables: Sequence[Sequence[Sequence[str]]]
    sentences: Sequence[str]

    def draw_effects(self, path: Path) -> None:
        """Draw the effects with their intervals, a PNG."""
        draw_effects(self.comparisons, self.recipe.metrics.summary, path)

    def draw_changed(self, by: str | None, count: int, path: Path) -> None:
        """Draw the `count` examples that changed most in a headline, by default the first that can be compared, a PNG.

        Raises:
            UserError: this headline has no value for each example.
        """
        name = by or next(iter(self.estimates))
        judged = self.recipe.metrics.scores[self.recipe.metrics.summary[name].metric.partition(".")[0]]
        draw_changed(sides_of(self.settings), self.dumps, self.estimates[name], judged, name, count, path)


def compare_revisions(revisions: Sequence[Revision], path: Path) -> RevisionComparison | list[str]:
    """Compare revisions whose dumps are at hand by the recipe in `path`; if they are one training, return why.

    Raises:
        UserError: nothing can be compared, or dumps do not match.
    """
    settings = settings_of(revisions)
    used = [one for setting in settings for one in setting]
    lines = [
        f"{one.name}: same recipe, seed, code and data as another; left out" for one in revisions if one not in used
    ]
    if len(used) < 2:
        return [*lines, "no difference: there is one training"]
    dumps = matched({one.name: Dump(one.dump) for one in used})
    recipe = load_recipe(path, ["metrics"], next(iter(dumps.values())).facts)
    headline(recipe, None)
    for score in dict.fromkeys(one.metric.partition(".")[0] for one in recipe.metrics.summary.values()):
        lines += check_inputs(dumps, recipe.metrics.scores[score].arguments)
    bootstrap = PairedBootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    table = estimate(recipe, dumps, bootstrap)
    comparisons = compare(settings, table.estimates, recipe.metrics.summary, bootstrap)
    spreads = spreads_of(settings, table.estimates)
    return RevisionComparison(
        recipe, settings, dumps, table.estimates, comparisons,
        lines=[matching(dumps), *(described(used[0], one) for one in settings), *lines, *table.lines],
        tables=[rows_of(one, recipe.metrics.summary, spreads, bootstrap.confidence) for one in comparisons],
        sentences=[one.sentence for one in comparisons],
    )  # fmt: skip


def report(revisions: Sequence[Revision], path: Path, args: argparse.Namespace) -> None:
    """Compare revisions whose dumps are at hand; print and write what is asked for."""
    by = headline(load_recipe(path, ["metrics"], Dump(revisions[0].dump).facts), args.by)
    result = compare_revisions(revisions, path)
    if isinstance(result, list):
        print("\n".join(result))
        return
    if args.sheet and by not in result.estimates:
        raise UserError("\n".join([f"--by {by}: it cannot be compared", *result.lines]))
    parts = ["\n".join(result.lines), *map(as_text, result.tables), "\n".join(result.sentences)]
    print("\n\n".join(parts))
    if args.markdown:
        listed = "\n".join(f"- {line}" for line in result.lines)
        bold = [f"**{sentence}**" for sentence in result.sentences]
        parts = [f"## {args.recipe}: is it more than noise?", *bold, *map(as_markdown, result.tables), listed]
        write_text(args.markdown, "\n\n".join(parts) + "\n")
    if args.picture:
        result.draw_effects(args.picture)
    if args.sheet:
        result.draw_changed(by, args.count, args.sheet)


def headline(recipe: Recipe, name: str | None) -> str:
    """Return the headline that the sheet sorts by. Raises UserError if the recipe has none, or none of this name."""
    known = recipe.metrics.summary
    if not known:
        raise UserError(f"{recipe.path}: metrics.summary: missing; it names the metrics to compare")
    if name is not None and name not in known:
        raise UserError(f"--by {name}: no such headline{nearest(name, known)}; there are {', '.join(known)}")
    return name or next(iter(known))


def matching(dumps: Mapping[str, Dump]) -> str:
    """Return a line on how many rows match."""
    table = next(iter(dumps.values())).table
    counts = Counter(table["mode"])
    return f"{len(table)} rows match: " + ", ".join(f"{count} of {mode}" for mode, count in counts.items())


def described(first: Revision, setting: Sequence[Revision]) -> str:
    """Return a line on how a setting differs from the first revision."""
    seeds = ", ".join([f"{setting[0].seed}", *(f"{one.seed} ({one.name})" for one in setting[1:])])
    word = "seeds" if setting[1:] else "seed"
    differing = changes(first, setting[0])
    more = f", and {len(differing) - MOST_CHANGES} more" if len(differing) > MOST_CHANGES else ""
    what = f"{', '.join(differing[:MOST_CHANGES])}{more}; " if differing else ""
    return f"{setting[0].name}: {what}{word} {seeds}"

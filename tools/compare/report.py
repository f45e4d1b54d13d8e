"""What a comparison of revisions prints and writes, once their dumps are at hand."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.base.errors import UserError, nearest
from models.base.files import write_text
from models.dump import Dump
from models.recipe.load import load_recipe
from models.recipe.schema import Recipe
from tools.compare.comparison import compare, estimate, sides_of, spreads_of
from tools.compare.drawing import draw_changed, draw_effects
from tools.compare.matching import check_inputs, matched
from tools.compare.resampling import PairedBootstrap
from tools.compare.revisions import Revision, changes, settings_of
from tools.compare.tables import as_markdown, as_text, rows_of

MOST_CHANGES = 4


def report(revisions: Sequence[Revision], path: Path, args: argparse.Namespace) -> None:
    """Compare revisions whose dumps are at hand."""
    settings = settings_of(revisions)
    used = [one for setting in settings for one in setting]
    lines = [
        f"{one.name}: same recipe, seed, code and data as another; left out" for one in revisions if one not in used
    ]
    if len(used) < 2:
        print("\n".join([*lines, "no difference: there is one training"]))
        return
    dumps = matched({one.name: Dump(one.dump) for one in used})
    recipe = load_recipe(path, ["metrics"], next(iter(dumps.values())).facts)
    by = headline(recipe, args.by)
    for score in dict.fromkeys(one.metric.partition(".")[0] for one in recipe.metrics.summary.values()):
        lines += check_inputs(dumps, recipe.metrics.scores[score].arguments)
    bootstrap = PairedBootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    table = estimate(recipe, dumps, bootstrap)
    if args.sheet and by not in table.estimates:
        raise UserError("\n".join([f"--by {by}: it cannot be compared", *table.lines]))
    comparisons = compare(settings, table.estimates, recipe.metrics.summary, bootstrap)
    spreads = spreads_of(settings, table.estimates)
    tables = [rows_of(one, recipe.metrics.summary, spreads, bootstrap.confidence) for one in comparisons]
    sentences = [one.sentence for one in comparisons]
    lines = [matching(dumps), *(described(used[0], one) for one in settings), *lines, *table.lines]
    print("\n\n".join(["\n".join(lines), *map(as_text, tables), "\n".join(sentences)]))
    if args.markdown:
        listed = "\n".join(f"- {line}" for line in lines)
        bold = [f"**{sentence}**" for sentence in sentences]
        parts = [f"## {args.recipe}: is it more than noise?", *bold, *map(as_markdown, tables), listed]
        write_text(args.markdown, "\n\n".join(parts) + "\n")
    if args.picture:
        draw_effects(comparisons, recipe.metrics.summary, args.picture)
    if args.sheet:
        judged = recipe.metrics.scores[recipe.metrics.summary[by].metric.partition(".")[0]]
        draw_changed(sides_of(settings), dumps, table.estimates[by], judged, by, args.count, args.sheet)


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

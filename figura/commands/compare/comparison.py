"""The comparison of revisions: an effect with its interval for each headline, and a sentence of what differs."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.errors import UserError, nearest
from figura.base.tables import Table
from figura.commands.compare.matching import check_inputs, matched
from figura.dump import Dump
from figura.pipeline.lock import LOCK
from figura.pipeline.revisions import Files, Revision, changes, read_revision, settings_of
from figura.recipe.load import load_recipe
from figura.recipe.schema import Headline, Recipe
from figura.report.interfaces import NotApplicableError
from figura.report.metrics import build_scores, flattened
from figura.report.resampling import (
    LEAST_GROUPS,
    Effect,
    PairedBootstrap,
    PairedEstimate,
    Spread,
    effect_of,
    spread_of,
)

Estimates = dict[str, dict[str, PairedEstimate]]  # by headline, then by revision

MOST_CHANGES = 4  # differing settings and files that the line on a revision lists
ROUNDING = 1e-6
"""Share of a metric that float32 makes of the order of its sums, which another machine or batch size changes."""


@dataclass(frozen=True)
class Side:
    """What is compared: revisions that differ in their seed alone, named by the first."""

    revisions: Sequence[Revision]

    @property
    def name(self) -> str:
        """The name, with the number of seeds if there are several."""
        first, count = self.revisions[0].name, len(self.revisions)
        return first if count == 1 else f"{first} ({count} seeds)"


@dataclass(frozen=True)
class Comparison:
    """Effects of one side against the first, by headline."""

    first: Side
    second: Side
    effects: Mapping[str, Effect]
    one_setting: bool

    @property
    def beyond_rounding(self) -> Mapping[str, Effect]:
        """The effects that are more than `ROUNDING`, which all examples may share."""
        sizes = {name: max(abs(one.first), abs(one.second)) for name, one in self.effects.items()}
        return {name: one for name, one in self.effects.items() if abs(one.difference) > ROUNDING * sizes[name]}

    @property
    def sentence(self) -> str:
        """What differs, or that nothing does."""
        names = f"{self.second.name} and {self.first.name}"
        images = [name for name, effect in self.beyond_rounding.items() if effect.beyond_images]
        alone = f"; judged by images alone, {_listed(images)} would differ" if images else ""
        if self.one_setting:
            return f"{names}: no difference beyond seeds, for they differ in their seed alone{alone}"
        seeds = [name for name, effect in self.beyond_rounding.items() if effect.beyond_seeds]
        known = all(effect.seeds is not None for effect in self.effects.values())
        if known and seeds:
            return f"{self.second.name} differs from {self.first.name} beyond images and seeds: {self._words(seeds)}"
        if known:
            return f"{names}: no difference beyond seeds{alone}"
        if images:
            return (
                f"{self.second.name} differs from {self.first.name} on these images: {self._words(images)}; whether "
                "another seed does as much is not known: train both with `-S seed=1,2,3`, and name all of them here"
            )
        return f"{names}: no difference beyond these images"

    def verdict(self, headline: str) -> str:
        """Return `better`, `worse` or `no`; seeds of one setting never differ."""
        effect = self.effects[headline]
        beyond = effect.beyond_images if effect.seeds is None else effect.beyond_seeds
        return effect.word if beyond and headline in self.beyond_rounding and not self.one_setting else "no"

    def table(self, headlines: Mapping[str, Headline], spreads: Mapping[str, Spread], confidence: float) -> Table:
        """Return a row for each headline; columns of seeds only where several are known."""
        share = f"{100 * confidence:g} %"
        seeds = any(effect.seeds is not None for effect in self.effects.values())
        head = ["", "better", self.first.name, self.second.name, "effect", f"{share} over images", "P(better)"]
        rows = [[*head, *(["between seeds", f"{share} over images and seeds"] if seeds else []), "differs"]]
        for name, effect in self.effects.items():
            row = [name, headlines[name].better, f"{effect.first:.4g}", f"{effect.second:.4g}"]
            row += [f"{effect.difference:+.3g}", _interval(effect.low, effect.high), f"{effect.probability:.3f}"]
            if effect.seeds is not None:
                row += [f"{math.sqrt(spreads[name].variance):.2g}", _interval(*effect.seeds)]
            rows.append([*row, self.verdict(name)])
        return rows

    def _words(self, names: Sequence[str]) -> str:
        return _listed([f"{n} is {self.effects[n].word} by {abs(self.effects[n].difference):.3g}" for n in names])


def _interval(low: float, high: float) -> str:
    return f"[{low:+.3g}, {high:+.3g}]"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


@dataclass(frozen=True)
class RevisionComparison:
    """What differs between revisions.

    Attributes:
        recipe: of the workspace, whose section `metrics` judges all revisions.
        sides: the first is the one compared against.
        dumps: with the same rows, by revision.
        estimates: of each headline that can be compared.
        comparisons: one for each further side; none if all revisions hold the same training.
        lines: on the revisions, their rows, and what was left out.
        tables: one for each comparison.
    """

    recipe: Recipe
    sides: Sequence[Side]
    dumps: Mapping[str, Dump]
    estimates: Estimates
    comparisons: Sequence[Comparison]
    lines: Sequence[str]
    tables: Sequence[Table]

    @property
    def sentences(self) -> list[str]:
        """What differs, one sentence for each comparison."""
        return [one.sentence for one in self.comparisons] or ["no difference: there is one training"]


def compare_revisions(files: Sequence[Files], recipe_name: str, path: Path, scratch: Path) -> RevisionComparison:
    """Compare revisions by a recipe, the params file in `path`; links to their dumps appear below `scratch`.

    Raises:
        UserError: a revision has no dump of this recipe, dumps do not match, or the recipe has no headline to compare.
    """
    revisions = [read_revision(one, recipe_name, scratch) for one in files]
    recipe = load_recipe(path, ["metrics"], Dump(revisions[0].dump).facts)
    headlines = recipe.metrics.summary
    if not headlines:
        raise UserError(f"{path}: metrics.summary: missing; it names the metrics to compare")
    settings = settings_of(revisions)
    used = [one for setting in settings for one in setting]
    lines = [
        f"{one.name}: by {LOCK} trained with the recipe, seed, code and data of another; left out"
        for one in revisions
        if one not in used
    ]
    lines += [line for one in revisions for line in one.accepted]
    if len(used) < 2:
        return RevisionComparison(recipe, [Side(used)], {}, {}, [], lines, [])
    dumps = matched({one.name: Dump(one.dump) for one in used})
    for score in dict.fromkeys(one.metric.partition(".")[0] for one in headlines.values()):
        lines += check_inputs(dumps, recipe.metrics.scores[score].arguments)
    bootstrap = PairedBootstrap(recipe.metrics.bootstrap, recipe.metrics.confidence, recipe.seed)
    estimates, left_out = estimate(recipe, dumps, bootstrap)
    spreads = {
        name: spread_of([[by_revision[one.name]["value"] for one in setting] for setting in settings])
        for name, by_revision in estimates.items()
    }
    sides = [Side([one]) for one in used] if len(settings) == 1 else [Side(setting) for setting in settings]
    comparisons = []
    for other in sides[1:]:
        effects = {}
        for name, by_revision in estimates.items():
            ours, theirs = ([by_revision[one.name] for one in side.revisions] for side in (sides[0], other))
            effects[name] = effect_of(ours, theirs, headlines[name].better, spreads[name], bootstrap)
        comparisons.append(Comparison(sides[0], other, effects, one_setting=len(settings) == 1))
    table = dumps[used[0].name].table
    counts = ", ".join(f"{count} of {mode}" for mode, count in Counter(table["mode"]).items())
    lines = [*(_described(used[0], one) for one in settings), *lines, *left_out]
    return RevisionComparison(
        recipe, sides, dumps, estimates, comparisons,
        lines=[f"{len(table)} rows match: {counts}", *lines],
        tables=[one.table(headlines, spreads, bootstrap.confidence) for one in comparisons],
    )  # fmt: skip


def estimate(recipe: Recipe, dumps: Mapping[str, Dump], bootstrap: PairedBootstrap) -> tuple[Estimates, list[str]]:
    """Compute the headlines of `metrics.summary` from dumps with the same rows, by revision.

    A headline that does not apply to the data, has no interval or is not finite, is left out with a line. One of few
    groups of examples gets a line, too.

    Raises:
        UserError: a score has no such metric, or judged other groups in another dump.
    """
    estimates: Estimates = {}
    lines: list[str] = []
    scores, headlines = build_scores(recipe), recipe.metrics.summary
    needed = dict.fromkeys(one.metric.partition(".")[0] for one in headlines.values())
    metrics: dict[str, dict[str, Any]] = {}
    for score in needed:
        try:
            metrics[score] = {name: scores[score](dump, bootstrap) for name, dump in dumps.items()}
        except NotApplicableError as error:
            lines.append(f"metrics.scores.{score}: left out: {error}")
    for name, headline in headlines.items():
        score, _, key = headline.metric.partition(".")
        if score not in metrics:
            continue
        values = {revision: _value(recipe, name, figures, key) for revision, figures in metrics[score].items()}
        resampled = {revision: one for revision, one in values.items() if isinstance(one, PairedEstimate)}
        if len(resampled) < len(values):
            lines.append(f"metrics.summary.{name}: left out: {headline.metric} has no interval")
            continue
        if broken := [revision for revision, one in resampled.items() if not math.isfinite(one["value"])]:
            lines.append(f"metrics.summary.{name}: left out: {headline.metric} is not finite in {', '.join(broken)}")
            continue
        _check_groups(name, resampled)
        estimates[name] = resampled
        if (groups := next(iter(resampled.values())).groups) < LEAST_GROUPS:
            judged = f"{name}: independent examples, or groups of them: {groups}"
            lines.append(f"{judged}; with fewer than {LEAST_GROUPS}, no difference counts as real")
    if not estimates:
        raise UserError("\n".join([f"{recipe.path}: metrics.summary: nothing to compare", *lines]))
    return estimates, lines


def _value(recipe: Recipe, headline: str, figures: Mapping[str, Any], key: str) -> Any:
    value: Any = figures
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = [name for name in flattened(figures) if not name.endswith((".low", ".high"))]
            raise UserError(
                f"{recipe.path}: metrics.summary.{headline}.metric: the score has no {key!r}{nearest(key, known)}; "
                f"there are {', '.join(known)}"
            )
        value = value[part]
    return value


def _check_groups(headline: str, estimates: Mapping[str, PairedEstimate]) -> None:
    (first, reference), *others = estimates.items()
    for name, one in others:
        if one.groups != reference.groups:
            raise UserError(
                f"{headline}: {first} was judged by {reference.groups} independent examples or groups of them, "
                f"{name} by {one.groups}; without a value for each, they cannot be paired"
            )


def _described(first: Revision, setting: Sequence[Revision]) -> str:
    """Return a line on how a setting differs from the first revision."""
    seeds = ", ".join([f"{setting[0].seed}", *(f"{one.seed} ({one.name})" for one in setting[1:])])
    word = "seeds" if setting[1:] else "seed"
    differing = changes(first, setting[0])
    more = f", and {len(differing) - MOST_CHANGES} more" if len(differing) > MOST_CHANGES else ""
    what = f"{', '.join(differing[:MOST_CHANGES])}{more}; " if differing else ""
    return f"{setting[0].name}: {what}{word} {seeds}"

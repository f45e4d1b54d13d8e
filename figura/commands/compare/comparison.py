"""The comparison of settings: an effect for each headline metric, and a sentence of what differs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from figura.base.errors import UserError, nearest
from figura.commands.compare.resampling import Effect, PairedBootstrap, PairedEstimate, Spread, effect_of, spread_of
from figura.commands.compare.revisions import Revision
from figura.dump import Dump
from figura.recipe.schema import Headline, Recipe
from figura.report.interfaces import NotApplicableError
from figura.report.metrics import build_scores, flattened

Estimates = dict[str, dict[str, PairedEstimate]]
"""By headline, then by revision."""


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
    def sentence(self) -> str:
        """What differs, or that nothing does."""
        names = f"{self.second.name} and {self.first.name}"
        images = [name for name, effect in self.effects.items() if effect.beyond_images]
        if self.one_setting:
            alone = f"; judged by images alone, {_listed(images)} would differ" if images else ""
            return f"{names}: no difference beyond seeds, for they differ in their seed alone{alone}"
        seeds = [name for name, effect in self.effects.items() if effect.beyond_seeds]
        known = all(effect.seeds is not None for effect in self.effects.values())
        if known and seeds:
            return f"{self.second.name} differs from {self.first.name} beyond images and seeds: {self._words(seeds)}"
        if known:
            alone = f"; judged by images alone, {_listed(images)} would differ" if images else ""
            return f"{names}: no difference beyond seeds{alone}"
        if images:
            return (
                f"{self.second.name} differs from {self.first.name} on these images: {self._words(images)}; whether "
                "another seed does as much is not known: train both with `-S seed=1,2,3`, and name all of them here"
            )
        return f"{names}: no difference beyond these images"

    def _words(self, names: Sequence[str]) -> str:
        return _listed([f"{n} is {self.effects[n].word} by {abs(self.effects[n].difference):.3g}" for n in names])


def _listed(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


@dataclass
class EstimateTable:
    """Estimates of all headlines, and lines on those that cannot be compared."""

    estimates: Estimates = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def estimate(recipe: Recipe, dumps: Mapping[str, Dump], bootstrap: PairedBootstrap) -> EstimateTable:
    """Compute the headlines of `metrics.summary` from dumps with the same rows, by revision.

    A headline that does not apply to the data, or has no interval, is left out with a line.

    Raises:
        UserError: a score has no such metric, or judged other groups in another dump.
    """
    table = EstimateTable()
    scores, headlines = build_scores(recipe), recipe.metrics.summary
    needed = dict.fromkeys(one.metric.partition(".")[0] for one in headlines.values())
    metrics: dict[str, dict[str, Any]] = {}
    for score in needed:
        try:
            metrics[score] = {name: scores[score](dump, bootstrap) for name, dump in dumps.items()}
        except NotApplicableError as error:
            table.lines.append(f"metrics.scores.{score}: left out: {error}")
    for name, headline in headlines.items():
        score, _, key = headline.metric.partition(".")
        if score not in metrics:
            continue
        values = {revision: _value(recipe, name, figures, key) for revision, figures in metrics[score].items()}
        resampled = {revision: one for revision, one in values.items() if isinstance(one, PairedEstimate)}
        if len(resampled) < len(values):
            table.lines.append(f"metrics.summary.{name}: left out: {headline.metric} has no interval")
            continue
        _check_groups(name, resampled)
        table.estimates[name] = resampled
    if not table.estimates:
        raise UserError("\n".join([f"{recipe.path}: metrics.summary: nothing to compare", *table.lines]))
    return table


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


def sides_of(settings: Sequence[Sequence[Revision]]) -> list[Side]:
    """Return a side for each setting, or for each seed if there is only one setting."""
    return [Side([one]) for one in settings[0]] if len(settings) == 1 else [Side(setting) for setting in settings]


def compare(
    settings: Sequence[Sequence[Revision]],
    estimates: Estimates,
    headlines: Mapping[str, Headline],
    bootstrap: PairedBootstrap,
) -> list[Comparison]:
    """Compare each side with the first."""
    first, *others = sides_of(settings)
    spreads = spreads_of(settings, estimates)
    comparisons = []
    for other in others:
        effects = {}
        for name, by_revision in estimates.items():
            ours, theirs = ([by_revision[one.name] for one in side.revisions] for side in (first, other))
            effects[name] = effect_of(ours, theirs, headlines[name].better, spreads[name], bootstrap)
        comparisons.append(Comparison(first, other, effects, one_setting=len(settings) == 1))
    return comparisons


def spreads_of(settings: Sequence[Sequence[Revision]], estimates: Estimates) -> dict[str, Spread]:
    """Return the pooled spread between seeds of each headline."""
    return {
        name: spread_of([[by_revision[one.name]["value"] for one in setting] for setting in settings])
        for name, by_revision in estimates.items()
    }

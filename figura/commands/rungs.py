"""The settings of a race, and which of them go on after a rung."""

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from figura.base.errors import UserError
from figura.base.files import short_name
from figura.commands.compare.comparison import compare_revisions
from figura.engine.build import on_split_of
from figura.pipeline.calls import crossed
from figura.pipeline.revisions import SEED, Files
from figura.recipe.schema import Recipe
from figura.report.resampling import Direction, Effect, PairedBootstrap, PairedEstimate, Spread, effect_of, spread_of

Settings = dict[str, dict[str, list[str]]]
"""By what `-S` changes apart from the seed (`losses.KL.weight=2`): the overrides of each seed's experiment, by name."""


def settings_of(grid: Sequence[str], recipe: str, file: Path) -> Settings:
    """Return the settings of a grid, in the grammar of `-S`; a key without a file is one of the recipe.

    Raises:
        UserError: an override is not readable, or sets `train.steps`; there is one setting, or one stands twice.
    """
    overrides = [one if ":" in one.partition("=")[0] else f"{file}:{one}" for one in grid]
    if any(one.partition(":")[2].lstrip("+").startswith("train.steps=") for one in overrides):
        raise UserError(f"-S train.steps: the race sets it; write the whole length into {file}")
    settings: Settings = {}
    for by_file in crossed(overrides):
        run = [f"{path}:{text}" for path, texts in by_file.items() for text in texts]
        shown = [one.removeprefix(f"{file}:") for one in run]
        seeds = settings.setdefault(" ".join(one for one in shown if not one.startswith(f"{SEED}=")), {})
        # Git refuses names with two dots in a row, or one at the end
        name = short_name(re.sub(r"[^\w.,=+-]+|\.(?=\.|$)", "_", "-".join(["race", recipe, *shown])))
        if any(name in others for others in settings.values()):
            raise UserError(f"-S: {' '.join(shown)} stands twice")
        seeds[name] = run
    if len(settings) < 2:
        raise UserError("-S: one setting; a race needs several, such as -S losses.KL.weight=1,2,4")
    return settings


def on_validation(recipe: Recipe) -> list[str]:
    """Return the overrides with which `evaluate.data` has the splits of `data.validation`, as in `runtime.scores`."""
    judged = {name: on_split_of(one, recipe.data.validation.get(name)) for name, one in recipe.evaluate.data.items()}
    return [
        f"++evaluate.data.{name}.split={one.arguments['split']}"
        for name, one in judged.items()
        if one not in (None, recipe.evaluate.data[name])
    ]


@dataclass(frozen=True)
class Standing:
    """How a setting stands at a rung.

    Attributes:
        value: of the metric, the mean over seeds.
        effect: its difference from the best, with intervals that hold for all pairs of settings at once; None for the
            best itself.
        margin: the difference from the best that does not matter.
        better_half: whether it is in the better half of the settings.
    """

    value: float
    effect: Effect | None
    margin: float
    better_half: bool

    @property
    def worse(self) -> bool:
        """Whether it is worse than the best by more than the margin, by all of its interval."""
        if self.effect is None or self.effect.seeds is None:
            return False
        low, high = self.effect.seeds
        return (low if self.effect.better == "lower" else -high) > self.margin

    @property
    def goes_on(self) -> bool:
        """Whether it trains until the next rung. Half do in any case: who leads early need not win."""
        return self.better_half or not self.worse

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Its value, its difference from the best with the interval, and a verdict, as text."""
        if self.effect is None or self.effect.seeds is None:
            return f"{self.value:.4g}", "", "", "best"
        low, high = self.effect.seeds
        verdict = "stops" if not self.goes_on else "worse, better half" if self.worse else "no worse"
        return f"{self.value:.4g}", f"{self.effect.difference:+.3g}", f"[{low:+.3g}, {high:+.3g}]", verdict


def compare(
    settings: Mapping[str, Sequence[str]], metric: str, recipe: str, file: Path, margin: float
) -> dict[str, Standing]:
    """Return how settings stand, the best first, given the experiments of each, and a name in `metrics.summary`.

    Raises:
        UserError: dumps do not match, the metric has no interval, or two experiments hold the same training.
    """
    names = [one for experiments in settings.values() for one in experiments]
    with tempfile.TemporaryDirectory() as scratch:
        result = compare_revisions([Files(one) for one in names], recipe, file, Path(scratch))
    estimates, metrics = result.estimates.get(metric, {}), result.recipe.metrics
    if left_out := [one for one in names if one not in estimates]:
        raise UserError("\n".join([f"{metric} cannot be compared for {', '.join(left_out)}", *result.lines]))
    return standings(
        {setting: [estimates[one] for one in experiments] for setting, experiments in settings.items()},
        metrics.summary[metric].better,
        PairedBootstrap(metrics.bootstrap, metrics.confidence, result.recipe.seed),
        margin,
    )


def standings(
    estimates: Mapping[str, Sequence[PairedEstimate]], better: Direction, bootstrap: PairedBootstrap, margin: float
) -> dict[str, Standing]:
    """Return how settings stand, the best first, given the estimate of a metric for each of their seeds.

    Which setting is the best is seen in the same figures. So the confidence is that of all pairs of settings at once
    (Bonferroni): equal settings are called different in at most 1 - confidence of the races.

    Raises:
        UserError: a single group of examples judges them.
    """
    if any(one.groups < 2 for seeds in estimates.values() for one in seeds):
        raise UserError("a single example, or group of them, judges the settings; a race needs several")
    pairs = math.comb(len(estimates), 2)
    bootstrap = PairedBootstrap(bootstrap.samples, 1 - (1 - bootstrap.confidence) / pairs, bootstrap.seed)
    spread = spread_of([[one["value"] for one in seeds] for seeds in estimates.values()])
    if not spread.freedom:  # one seed a setting: Student's t over images, as a bootstrap is too short for such tails
        spread = Spread(0.0, 1)
    values = {name: sum(one["value"] for one in seeds) / len(seeds) for name, seeds in estimates.items()}
    best, *others = sorted(values, key=lambda name: values[name] if better == "lower" else -values[name])
    found = {best: Standing(values[best], None, margin, better_half=True)}
    for index, name in enumerate(others, 1):
        effect = effect_of(estimates[best], estimates[name], better, spread, bootstrap)
        found[name] = Standing(values[name], effect, margin, better_half=index < len(values) / 2)
    return found

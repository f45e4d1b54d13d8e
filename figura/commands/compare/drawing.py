"""Pictures of a comparison: effects with their intervals, and the examples that changed most."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.commands.compare.comparison import RevisionComparison
from figura.dump import SUFFIX, Dump
from figura.recipe.schema import Declaration
from figura.report.curves import save_figure
from figura.report.interfaces import Values, rows_where
from figura.report.resampling import PairedEstimate
from figura.report.sheets import pixels_of, side_by_side

COLOURS = {"better": "tab:green", "worse": "tab:red", "no": "0.45"}


def draw_effects(result: RevisionComparison, path: Path) -> None:
    """Draw a panel for each headline: a thick bar over images, a thin one over images and seeds, for each comparison.

    Green is better and red worse than the first, beyond what is known of the noise; the band is the better side of 0.
    """
    comparisons, headlines = result.comparisons, result.recipe.metrics.summary
    names = list(comparisons[0].effects)
    height = 0.9 + len(names) * (0.75 + 0.3 * len(comparisons))
    figure = Figure(figsize=(7.5, height), layout="constrained")
    panels = figure.subplots(len(names), 1, squeeze=False)
    for panel, name in zip(panels[:, 0], names, strict=True):
        ends = [0.0]
        for index, one in enumerate(comparisons):
            effect = one.effects[name]
            colour = COLOURS[one.verdict(name)]
            if effect.seeds is not None:
                panel.plot(effect.seeds, [index, index], color=colour, linewidth=1.2, marker="|")
                ends += effect.seeds
            panel.plot([effect.low, effect.high], [index, index], color=colour, linewidth=5, alpha=0.55)
            panel.plot(effect.difference, index, "o", color=colour)
            ends += [effect.low, effect.high, effect.difference]
        low, high = min(ends), max(ends)
        room = 0.08 * (high - low) or 1.0
        panel.set_xlim(low - room, high + room)
        band = (low - room, 0) if headlines[name].better == "lower" else (0, high + room)
        panel.axvspan(*band, color="tab:green", alpha=0.07, linewidth=0)
        panel.axvline(0, color="0.3", linewidth=1)
        panel.set_yticks(range(len(comparisons)), [one.second.name for one in comparisons])
        panel.set_ylim(len(comparisons) - 0.4, -0.6)
        panel.set_title(f"{name}, {headlines[name].better} is better", loc="left", fontsize="medium")
        panel.grid(axis="x", alpha=0.3)
    first = comparisons[0].first.name
    wide = any(effect.seeds is not None for one in comparisons for effect in one.effects.values())
    panels[-1, 0].set_xlabel(
        f"difference from {first}; bar: interval over images" + (", line: over images and seeds" if wide else "")
    )
    save_figure(figure, path)


def draw_changed(result: RevisionComparison, headline: str, count: int, path: Path) -> None:
    """Draw the `count` examples that changed most in a headline: inputs of its score, then each side's first seed.

    Raises:
        UserError: no example changed, the score has no value for each example, or the dump no images of it.
    """
    sides, estimates = result.sides, result.estimates[headline]
    metrics = result.recipe.metrics
    score = metrics.scores[metrics.summary[headline].metric.partition(".")[0]]
    mode = str(score.arguments.get("mode"))
    rows = {n: rows_where(dump.mode(mode), mode, score.arguments.get("where")) for n, dump in result.dumps.items()}
    shown = [rows[side.revisions[0].name] for side in sides]
    values = [_mean_values([estimates[one.name] for one in side.revisions], shown[0], headline) for side in sides]
    change = np.max([np.abs(one - values[0]) for one in values[1:]], axis=0)
    if not change.any():
        raise UserError(f"no example changed in {headline}")
    inputs, outputs = _images(shown, score)
    places = [int(place) for place in np.argsort(-change, kind="stable") if change[place]]
    places = [p for p in places if all(isinstance(r.table[f"file.{o}"].iloc[p], str) for r in shown for o in outputs)]
    if not places:
        raise UserError(f"no example of mode {mode!r} has {' and '.join(outputs)} in all dumps")
    what = headline if estimates[sides[0].revisions[0].name].examples is not None else f"part in {headline}"
    cells, labels = [], []
    for place in places[:count]:
        named = [*((shown[0], name) for name in inputs), *((one, name) for name in outputs for one in shown)]
        cells.append([pixels_of(one, place, name) for one, name in named])
        row = shown[0].table.iloc[place]
        example = "  ".join(f"{name} {row[name]}" for name in ("index", "name", "image_id") if name in row)
        labels.append(f"{what} {' -> '.join(f'{one[place]:.4g}' for one in values)}  {example}")
    names = [side.revisions[0].name for side in sides]
    titles = [*inputs, *(name if len(outputs) == 1 else f"{name} {output}" for output in outputs for name in names)]
    write_png(path, side_by_side(cells, titles, cell=192, labels=labels))


def _mean_values(seeds: Sequence[PairedEstimate], rows: Dump, headline: str) -> Values:
    """Return what each row contributes (rows,), averaged over seeds: its value, or the change if it were left out."""
    order = np.arange(len(rows)) if "image_id" not in rows.table else np.argsort(rows.table["image_id"], kind="stable")
    parts = []
    for one in seeds:
        if one.examples is not None and len(one.examples) == len(rows):
            parts.append(one.examples)
        elif len(one.left_out) == one.groups == len(rows):
            part = np.empty(len(rows))
            part[order] = one["value"] - one.left_out
            parts.append(np.nan_to_num(part))
        else:
            raise UserError(f"{headline} has no value for each example")
    return np.asarray(np.mean(parts, axis=0))


def _images(shown: Sequence[Dump], score: Declaration) -> tuple[list[str], list[str]]:
    """Return the names of inputs and of outputs that are images: those the score reads, or all outputs of its mode.

    Outputs are those that all dumps have.
    """
    rows = shown[0]
    files = {
        str(column).removeprefix("file."): str(rows.table[column].dropna().iloc[0])
        for column in rows.table
        if str(column).startswith("file.") and rows.table[column].notna().any()
    }
    images = {name: path for name, path in files.items() if path.endswith(SUFFIX["image"])}
    read = [value for value in score.arguments.values() if isinstance(value, str) and value in images]
    inputs = [name for name in read if images[name].startswith("inputs/")]
    outputs = [name for name in read if name not in inputs]
    outputs = outputs or [name for name, path in images.items() if not path.startswith("inputs/")]
    outputs = [name for name in outputs if all(f"file.{name}" in one.table for one in shown)]
    if not outputs:
        raise UserError(f"the dumps have no images of mode {rows.part!r}; `save` them in `evaluate.modes`")
    return inputs, outputs

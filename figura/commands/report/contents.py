"""Gathers what the report says, from files alone: recipes, statistics, metrics, plots, and dumps of revisions."""

import contextlib
import io
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from figura.base.errors import UserError
from figura.base.files import read_json, read_text
from figura.base.yaml12 import read_yaml
from figura.commands.report.pictures import Picture, picture_of
from figura.recipe.pipeline import entries
from figura.recipe.trial import KEY
from figura.report.metrics import flattened

Table = Sequence[Sequence[str]]
"""Rows, the first of them the head."""

METRICS, PLOTS = Path("metrics"), Path("plots")
CURVES = ("losses",)
"""Pictures that are curves of the training; the others are of the results."""


@dataclass(frozen=True)
class Headline:
    """A number that people look at first."""

    name: str
    value: float
    low: float | None
    high: float | None
    baseline: float | None
    better: str


@dataclass
class RecipeContent:
    """What the page says of a recipe.

    Attributes:
        name: in `dvc.yaml`.
        file: its params file.
        about: its first comment.
        trial: whether the figures are those of a try.
        facts: label and text.
        data: counts of the data, by split.
        losses: weights and schedules.
        headlines: of `metrics/<name>.json`.
        figures: all of `metrics/full/<name>.json`, by dotted name.
        flow: the recipe's flow picture.
        curves: of the training.
        sheets: of the results.
        examples: of the data.
        missing: what could not be read, and why.
    """

    name: str
    file: str
    about: str = ""
    trial: bool = False
    facts: list[tuple[str, str]] = field(default_factory=list)
    data: Table = ()
    losses: Table = ()
    headlines: list[Headline] = field(default_factory=list)
    figures: Table = ()
    flow: Picture | None = None
    curves: list[Picture] = field(default_factory=list)
    sheets: list[Picture] = field(default_factory=list)
    examples: list[Picture] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ComparisonContent:
    """What differs between revisions, for one recipe."""

    recipe: str
    lines: Sequence[str]
    changed: Sequence[tuple[str, Sequence[str]]]
    tables: Sequence[Table]
    sentences: Sequence[str]
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Report:
    """All that the page says."""

    title: str
    facts: Sequence[tuple[str, str]]
    recipes: Sequence[RecipeContent]
    comparisons: Sequence[ComparisonContent]
    notes: Sequence[str]

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in the order of the page."""
        of_recipes = [
            [*one.examples, *([one.flow] if one.flow else []), *one.curves, *one.sheets] for one in self.recipes
        ]
        compared = [list(one.pictures) for one in self.comparisons]
        return [picture for part in (*compared, *of_recipes) for picture in part]


def report_on(revisions: Sequence[str], recipes: Sequence[str]) -> Report:
    """Gather the report on recipes of `dvc.yaml`, all if none is named; with several revisions, what differs.

    Raises:
        UserError: there is no such recipe.
    """
    several = len(revisions) > 1
    contents, comparisons, notes = [], [], []
    for name, entry in tqdm(recipes_of(recipes).items(), unit="recipe", desc="report"):
        contents.append(recipe_content(name, entry))
        if several and "data" in entry:
            try:
                comparison = comparison_content(name, Path(entry["params"]), revisions)
            except UserError as error:
                notes.append(f"{name}: not compared: {error}")
            else:
                comparisons += [] if comparison is None else [comparison]
    against = f"{', '.join(revisions[1:])} against {revisions[0]}" if several else ""
    if several and not comparisons and not notes:
        trains = any("data" in entry for entry in recipes_of(recipes).values())
        notes.append(f"{against}: {'no training differs' if trains else 'not compared; only trainings are'}")
    return Report(f"figura: {against or 'results'}", provenance(), contents, comparisons, notes)


def recipe_content(name: str, entry: Mapping[str, Any]) -> RecipeContent:
    """Return what the page says of a recipe; what cannot be read is listed in `missing`."""
    path = Path(entry["params"])
    content = RecipeContent(name, str(path))
    trains = "data" in entry
    parts = [_about, _metrics, _pictures]
    parts += [_trained, _data, _flow] if trains else []
    for part in parts:
        try:
            part(content, path, entry)
        except UserError as error:
            content.missing.append(str(error))
    return content


def _about(content: RecipeContent, path: Path, entry: Mapping[str, Any]) -> None:
    lines = []
    for line in read_text(path).splitlines():
        if not line.startswith("# ") or line.startswith("# dvc "):
            break
        lines.append(line.removeprefix("# "))
    text = " ".join(lines)
    content.about = text.partition(". ")[0].rstrip(".") + "." if text else ""


def _trained(content: RecipeContent, path: Path, entry: Mapping[str, Any]) -> None:
    model = Path("runs") / content.name / "model/recipe.yaml"
    recipe = read_yaml(model if model.is_file() else path)
    train, networks = recipe.get("train", {}), recipe.get("networks", {})
    length = f"{train['epochs']} epochs" if train.get("epochs") else f"{train.get('steps')} iterations"
    precision = {"no": "float32"}.get(str(train.get("precision")), str(train.get("precision")))
    content.facts += [
        ("data", str(entry["data"])),
        ("networks", ", ".join(f"{name} ({one['type']})" for name, one in networks.items())),
        ("training", f"{length}, batches of {recipe.get('data', {}).get('batch_size')}, {precision}"),
        ("seed", str(recipe.get("seed"))),
    ]
    rows = [["loss", "type", "weight", "schedule"]]
    for name, loss in recipe.get("losses", {}).items():
        schedule = loss.get("schedule")
        words = ", ".join(f"{key} {value}" for key, value in schedule.items()) if isinstance(schedule, dict) else ""
        weight = f"{loss.get('weight'):g}" if isinstance(loss.get("weight"), int | float) else str(loss.get("weight"))
        rows.append([name, str(loss.get("type")), weight, words])
    content.losses = rows


def _data(content: RecipeContent, path: Path, entry: Mapping[str, Any]) -> None:
    root = Path("data/prepared") / entry["data"]
    statistics = read_json(root / "statistics.json")
    counts = {
        split: {key: value for key, value in one.items() if isinstance(value, int) and not isinstance(value, bool)}
        for split, one in statistics.items()
        if isinstance(one, dict)
    }
    names = list(dict.fromkeys(name for one in counts.values() for name in one))
    content.data = [
        ["split", *(name.replace("_", " ") for name in names)],
        *([split, *(f"{one[name]:,}" if name in one else "" for name in names)] for split, one in counts.items()),
    ]
    content.examples = [
        picture_of(file, f"{entry['data']}: {words(file.stem)}", f"The prepared data: {words(file.stem)}.", 900)
        for file in sorted((root / "plots").glob("*.png"))
    ]


def _metrics(content: RecipeContent, path: Path, entry: Mapping[str, Any]) -> None:
    name = entry.get("metrics_name", content.name)
    summary, full = (read_json(folder / f"{name}.json") for folder in (METRICS, METRICS / "full"))
    content.trial = KEY in summary or KEY in full
    summary, full = summary.get(KEY, summary), full.get(KEY, full)
    better = {key: one.get("better", "") for key, one in read_yaml(path)["metrics"].get("summary", {}).items()}
    content.headlines = [
        Headline(key, one["value"], one.get("low"), one.get("high"), one.get("baseline"), better.get(key, ""))
        for key, one in summary.items()
    ]
    content.figures = [["figure", "value", "interval"], *_rows_of(full)]


def _rows_of(figures: Mapping[str, Any]) -> list[list[str]]:
    flat = flattened(figures)
    names = [name for name in flat if not name.endswith((".low", ".high"))]
    return [
        [name, number(flat[name]), f"{number(low)} to {number(flat[f'{name}.high'])}" if low is not None else ""]
        for name, low in ((name, flat.get(f"{name}.low")) for name in names)
    ]


def _pictures(content: RecipeContent, path: Path, entry: Mapping[str, Any]) -> None:
    folder = PLOTS / entry.get("metrics_name", content.name) / "pictures"
    kinds = {name: str(one.get("type")) for name, one in read_yaml(path)["metrics"].get("pictures", {}).items()}
    order = [*CURVES, *kinds]
    files = [file for file in folder.glob("*.*") if file.suffix in (".png", ".jpg")]
    if not files:
        raise UserError(f"{folder}: no pictures; run `dvc repro`, or `dvc checkout`")
    place = {name: number for number, name in enumerate(order)}
    for file in sorted(files, key=lambda file: (place.get(file.stem, len(order)), file.name)):
        curve = file.stem in CURVES
        alt = (
            f"Curves of the training of {content.name}: losses and their weights over iterations."
            if curve
            else f"Sheet {words(file.stem)} of {content.name} ({kinds.get(file.stem, 'picture')}); its titles name the "
            "columns, and its labels the examples."
        )
        try:
            (content.curves if curve else content.sheets).append(picture_of(file, words(file.stem), alt))
        except UserError as error:
            content.missing.append(str(error))


def _flow(content: RecipeContent, path: Path, entry: Mapping[str, Any]) -> None:
    from figura.commands.describe.__main__ import main as describe

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / content.name / "flow" / "flow.png"
        file.parent.mkdir(parents=True)
        describe([str(path), "--output", str(file)])
        alt = f"Flow of tensors in {content.file}: data, injectors with their networks, and losses, step by step."
        content.flow = picture_of(file, "flow of an iteration", alt, 2000)


def comparison_content(recipe: str, path: Path, names: Sequence[str]) -> ComparisonContent | None:
    """Return what differs between revisions for a recipe; None if they hold one training.

    Raises:
        UserError: a revision has no dump of this recipe, or dumps do not match.
    """
    from figura.commands.compare.report import compare_revisions
    from figura.commands.compare.revisions import changes, read_revision

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        revisions = [read_revision(name, recipe, folder / "dumps") for name in names]
        result = compare_revisions(revisions, path)
        if isinstance(result, list):
            return None
        drawn = folder / recipe / "compared"
        drawn.mkdir(parents=True)
        against, lines = f"{', '.join(names[1:])} against {names[0]}", list(result.lines)
        result.draw_effects(drawn / "effects.png")
        alt = f"Differences of {against} with their intervals."
        pictures = [picture_of(drawn / "effects.png", "effects", alt)]
        try:
            result.draw_changed(None, 8, drawn / "changed.png")
            alt = f"Examples that changed most, {against}."
            pictures.append(picture_of(drawn / "changed.png", "examples that changed most", alt))
        except UserError as error:
            lines.append(f"no sheet of the examples that changed most: {error}")
        first, *others = result.settings
        changed = [(one[0].name, changes(first[0], one[0])) for one in others]
        return ComparisonContent(recipe, lines, changed, result.tables, result.sentences, pictures)


def provenance() -> list[tuple[str, str]]:
    """Return what the results belong to: commit and whether files differ from it, as label and text."""

    def git(*arguments: str) -> str:
        with contextlib.suppress(OSError):  # no git here
            done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
            return done.stdout.strip()
        return ""

    facts = []
    if commit := git("log", "-1", "--format=%h of %cs: %s"):
        facts.append(("commit", commit))
        changed = len(git("status", "--porcelain", "--untracked-files=no").splitlines())
        facts.append(("working tree", f"differs from it in {changed} of its files" if changed else "as committed"))
    return facts


def recipes_of(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the entries of recipes in `dvc.yaml`, and of what judges their pictures; all, or the named ones.

    Raises:
        UserError: there is no such entry.
    """
    known = entries("recipes")
    known |= {
        str(one["metrics"]): {"params": one["params"], "metrics_name": one["metrics"]}
        for one in entries("pose_consistency").values()
    }
    for name in names:
        if name not in known:
            raise UserError(f"--recipe {name}: dvc.yaml has no such recipe; there are {', '.join(known)}")
    return {name: entry for name, entry in known.items() if not names or name in names}


def number(value: Any) -> str:
    """Return a number with four digits, whole ones as they are."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def words(name: str) -> str:
    """Return a file's name as words."""
    return name.replace("_", " ")

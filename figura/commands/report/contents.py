"""What the report says of a recipe, from files alone: the recipe, statistics of its data, metrics and plots."""

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figura.base.errors import CHECKOUT, REPRO, UserError, nearest
from figura.base.files import git, read_json, read_text
from figura.base.yaml12 import read_yaml
from figura.commands.report.page import Block, Cards, Fold, Lines, Pictures, Rows, Text
from figura.commands.report.pictures import Picture, picture_of
from figura.pipeline.accepted import acceptances
from figura.pipeline.dag import PIPELINE, entries
from figura.pipeline.lock import read_lock
from figura.recipe.expansion import read_recipe
from figura.recipe.trial import KEY
from figura.report.curves import read_histories
from figura.report.metrics import flattened
from figura.report.verdicts import judge_curves, losses_to_judge, verdicts

METRICS, PLOTS = Path("metrics"), Path("plots")
CURVES = "losses"  # the picture that shows curves of the training; the others are of the results


@dataclass(frozen=True)
class Entry:
    """A recipe of the pipeline, or what judges its pictures.

    Attributes:
        name: in the pipeline; of what judges pictures, that of its metrics.
        path: of the params file.
        data: the prepared dataset; None if nothing is trained.
    """

    name: str
    path: Path
    data: str | None


def entries_of(names: list[str]) -> list[Entry]:
    """Return the recipes of the pipeline, and what judges their pictures; all, or the named ones.

    Raises:
        UserError: there is no such entry.
    """
    known = [Entry(name, Path(one["params"]), one.get("data")) for name, one in entries("recipes").items()]
    known += [Entry(str(e["metrics"]), Path(e["params"]), None) for e in entries("pose_consistency").values()]
    there = [one.name for one in known]
    for name in names:
        if name not in there:
            near = nearest(name, there)
            raise UserError(f"--recipe {name}: {PIPELINE} has no such recipe{near}; there are {', '.join(there)}")
    return [one for one in known if not names or one.name in names]


def recipe_blocks(entry: Entry) -> list[Block]:
    """Return what the page says of a recipe; what cannot be read is a warning."""
    parts: list[Callable[[Entry], Iterator[Block]]] = [_about, _headlines, _settings, _pictures, _losses, _flow, _data]
    blocks: list[Block] = []
    for part in [*parts, _figures]:
        try:
            blocks += part(entry)
        except UserError as error:
            said = str(error)
        except (LookupError, TypeError, AttributeError) as error:  # a recipe that is being edited
            said = f"{entry.path}, or a file of its results, has another form: {error!r}; `figura check` says more"
        else:
            continue
        warning = Text(f"left out: {said}", "warning")
        blocks += [] if warning in blocks else [warning]
    return blocks


def metrics_of(entry: Entry, folder: Path) -> tuple[dict[str, Any], bool]:
    """Return the metrics of a recipe in a folder, and whether they are those of a try."""
    content = read_json(folder / f"{entry.name}.json")
    return content.get(KEY, content), KEY in content


def _about(entry: Entry) -> Iterator[Block]:
    """The first sentence of the recipe's first comment."""
    lines = []
    for line in read_text(entry.path).splitlines():
        if line.startswith("# yaml-language-server:"):
            continue
        if not line.startswith("# ") or line.startswith(f"# {REPRO.split()[0]} "):
            break
        lines.append(line.removeprefix("# "))
    if lines:
        yield Text(" ".join(lines).partition(". ")[0].rstrip(".") + ".")


def _headlines(entry: Entry) -> Iterator[Block]:
    summary, trial = metrics_of(entry, METRICS)
    if trial:
        yield Text("A try: its figures are no result.", "warning")
    better = {key: one.get("better", "") for key, one in read_recipe(entry.path)["metrics"].get("summary", {}).items()}
    rows = [
        [
            name, better.get(name, ""), number(one["value"]), _interval(one.get("low"), one.get("high")),
            "" if one.get("baseline") is None else number(one["baseline"]),
        ]
        for name, one in summary.items()
    ]  # fmt: skip
    if rows:
        yield Cards([["", "better", "value", "interval", "baseline"], *rows])
    if not trial:
        said = [f"{name}: {one}" for name, one in verdicts(metrics_of(entry, METRICS / "full")[0]).items()]
        run = Path("runs") / entry.name
        if entry.data is not None and (run / "history").exists():
            said += judge_curves(*read_histories(run), losses_to_judge(read_recipe(entry.path)))
        if said:
            yield Lines(said)


def _trained(entry: Entry) -> dict[str, Any]:
    """Return the recipe as it was trained, or if nothing was, the params file."""
    model = _recipe_of_model(entry)
    return read_yaml(model) if model.is_file() else read_recipe(entry.path)


def _recipe_of_model(entry: Entry) -> Path:
    return Path("runs") / entry.name / "model/recipe.yaml"


def _settings(entry: Entry) -> Iterator[Block]:
    if entry.data is None:
        return
    recipe = _trained(entry)
    train, networks = recipe.get("train", {}), recipe.get("networks", {})
    length = f"{train['epochs']} epochs" if train.get("epochs") else f"{train.get('steps')} iterations"
    precision = {"no": "float32"}.get(known := str(train.get("precision", "no")), known)
    batch = recipe.get("data", {}).get("batch_size")
    built = ", ".join(f"{name} ({one['type']})" for name, one in networks.items())
    # while a training runs, the figures are still those of the one before
    now = "" if _recipe_of_model(entry).is_file() else ", as it is now: no trained model is here"
    yield Lines(
        [
            f"recipe: {entry.path}{now}",
            f"data: {entry.data}",
            f"networks: {built}",
            f"training: {length}, batches of {batch}, {precision}, seed {recipe.get('seed')}",
            *(f"{stage}: {one}" for stage, one in acceptances(read_lock()).items() if stage.endswith(f"@{entry.name}")),
        ]
    )


def _pictures(entry: Entry) -> Iterator[Block]:
    folder = PLOTS / entry.name / "pictures"
    kinds = {name: str(one.get("type")) for name, one in read_recipe(entry.path)["metrics"].get("pictures", {}).items()}
    order = {name: index for index, name in enumerate(kinds)}
    files = [file for file in folder.glob("*.*") if file.suffix in (".png", ".jpg")]
    if not files:
        raise UserError(f"{folder}: no pictures; run `{REPRO}`, or `{CHECKOUT}`")
    sheets, curves = list[Picture](), list[Picture]()
    for file in sorted(files, key=lambda file: (order.get(file.stem, len(order)), file.name)):
        curve = file.stem == CURVES
        alt = (
            f"Curves of the training of {entry.name}: losses and their weights over iterations."
            if curve
            else f"Sheet {words(file.stem)} of {entry.name} ({kinds.get(file.stem, 'picture')}); its titles name the "
            "columns, and its labels the examples."
        )
        try:
            (curves if curve else sheets).append(picture_of(file, words(file.stem), alt))
        except UserError as error:
            yield Text(f"left out: {error}", "warning")
    yield Pictures(sheets)
    yield from (Pictures([picture]) for picture in curves)


def _losses(entry: Entry) -> Iterator[Block]:
    rows = [["loss", "type", "weight", "schedule"]]
    for name, loss in (_trained(entry).get("losses", {}) if entry.data else {}).items():
        schedule = loss.get("schedule")
        text = ", ".join(f"{key} {value}" for key, value in schedule.items()) if isinstance(schedule, dict) else ""
        weight = f"{loss.get('weight'):g}" if isinstance(loss.get("weight"), int | float) else str(loss.get("weight"))
        rows.append([name, str(loss.get("type")), weight, text])
    if len(rows) > 1:
        yield Rows(f"losses of {entry.name}", rows)


def _flow(entry: Entry) -> Iterator[Block]:
    if entry.data is None:
        return
    from figura.commands.describe.command import main as describe

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / entry.name / "flow" / "flow.png"
        file.parent.mkdir(parents=True)
        describe([str(entry.path), "--output", str(file)])
        alt = f"Flow of tensors in {entry.path}: data, injectors with their networks, and losses, step by step."
        picture = picture_of(file, "flow of an iteration", alt, 2000)
    yield Fold(f"How an iteration of {entry.name} flows", [Pictures([picture])])


def _data(entry: Entry) -> Iterator[Block]:
    if entry.data is None:
        return
    root = Path("data/prepared") / entry.data
    counts = {
        split: {key: value for key, value in one.items() if isinstance(value, int) and not isinstance(value, bool)}
        for split, one in read_json(root / "statistics.json", f"run `{REPRO} prepare@{entry.data}`").items()
        if isinstance(one, dict)
    }
    names = list(dict.fromkeys(name for one in counts.values() for name in one))
    rows = [["split", *map(words, names)]]
    rows += [[split, *(f"{one[name]:,}" if name in one else "" for name in names)] for split, one in counts.items()]
    examples = [
        picture_of(file, f"{entry.data}: {words(file.stem)}", f"The prepared data: {words(file.stem)}.", 900)
        for file in sorted((root / "plots").glob("*.png"))
    ]
    yield Fold(f"What {entry.name} was trained on", [Rows(f"data of {entry.name}", rows), Pictures(examples)])


def _figures(entry: Entry) -> Iterator[Block]:
    figures, _ = metrics_of(entry, METRICS / "full")
    flat = flattened(figures)
    names = [name for name in flat if not name.endswith((".low", ".high"))]
    rows = [
        [name, number(flat[name]), _interval(*(flat.get(f"{name}.{e}") for e in ("low", "high")))] for name in names
    ]
    if rows:
        table = Rows(f"figures of {entry.name}", [["figure", "value", "interval"], *rows])
        yield Fold(f"All {len(rows)} figures of {entry.name}", [table])


def provenance() -> list[tuple[str, str]]:
    """Return what the results belong to: commit and whether files differ from it, as label and text."""
    facts = []
    if commit := git("log", "-1", "--format=%h of %cs: %s"):
        facts.append(("commit", commit.strip()))
        changed = len((git("status", "--porcelain", "--untracked-files=no") or "").splitlines())
        facts.append(("working tree", f"differs from it in {changed} of its files" if changed else "as committed"))
    return facts


def number(value: Any) -> str:
    """Return a number with four digits, whole ones as they are."""
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value)


def _interval(low: Any, high: Any) -> str:
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"


def words(name: str) -> str:
    """Return a file's name as words."""
    return name.replace("_", " ")

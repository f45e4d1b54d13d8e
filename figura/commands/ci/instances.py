"""Names what differs most behind the failing rows of the gate: examples of a dump, files of prepared data."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml
from figura.commands.compare.matching import KEY
from figura.commands.compare.revisions import Files
from figura.dump import EXAMPLES, Dump, read_table
from figura.recipe.pipeline import entries

SHOWN = 5  # examples, or files


def differing_files(files: Files, folder: str) -> list[str]:
    """Return a line for each of the first files of a folder that differ from those of the revision of `files`."""
    try:
        before = files.hashes(folder)
    except UserError as error:
        return [f"{error}; so nothing is named"]
    now = {str(path): _md5(path) for path in Path(folder).rglob("*") if path.is_file()}
    differing = [path for path in sorted({*before, *now}) if before.get(path) != now.get(path)]
    lines = [f"{folder}: {len(differing)} of {len({*before, *now})} files differ"]
    for path in differing[:SHOWN]:
        lines.append(f"  {path}{'' if path in now else ': missing'}{'' if path in before else ': new'}")
    return lines


def differing_examples(files: Files, recipe: str, scores: Iterable[str]) -> list[str]:
    """Return lines with the examples of a recipe's dump that differ most from those of the revision of `files`.

    Of each score's mode, or of all modes where its declaration names none.
    """
    folder = f"runs/{recipe}/dump"
    table = Path(folder) / EXAMPLES
    if not table.exists():
        return [f"{table}: no such file; `dvc repro eval-dump@{recipe}` writes it"]
    try:
        content = files.read(str(table))
        if content is None:
            return [f"{files.name}: it has no {table}, so nothing is named"]
        before = read_table(content, Path(f"{table} of {files.name}"), ["mode"])
        now = Dump(Path(folder)).table
    except UserError as error:
        return [f"{error}; so nothing is named"]
    modes = {mode for score in scores for mode in modes_of(recipe, score)}
    chosen = [mode for mode in before["mode"].unique() if mode in (modes or set(before["mode"]))]
    return [
        line
        for mode in chosen
        for line in compare_examples(before[before["mode"] == mode], now[now["mode"] == mode], f"{folder}, mode {mode}")
    ]


def modes_of(recipe: str, score: str) -> list[str]:
    """Return the mode that a score of a recipe of `dvc.yaml` reads; nothing if it names none."""
    entry = entries("recipes").get(recipe)
    scores = read_yaml(Path(entry["params"]))["metrics"]["scores"] if entry else {}
    mode = scores.get(score, {}).get("mode")
    return [mode] if isinstance(mode, str) else []


def compare_examples(before: pd.DataFrame, now: pd.DataFrame, where: str) -> list[str]:
    """Return a line with the number of rows that differ, and one for each of those that differ most.

    Rows match by mode, draw, dataset, index and name. Differences of a column are compared in standard deviations of
    its values in `before`; times (`ms.`) do not count.
    """
    key = [column for column in KEY if column in before and column in now]
    old, new = (table.set_index(key) for table in (before, now))
    common = old.index.intersection(new.index)
    missing, added = len(old) - len(common), len(new) - len(common)
    spread = old.select_dtypes("number").std()
    numbers = [one for one in map(str, spread.index) if one in new and not one.startswith("ms.") and one[-3:] != "_id"]
    spread = spread[numbers].where(lambda one: one > 0, 1.0)  # of a constant column: its own unit
    first, second = (table.loc[common].reset_index() for table in (old, new))
    away = ((second[numbers] - first[numbers]).abs() / spread).fillna(0.0)
    largest = away.max(axis="columns").sort_values(ascending=False, kind="stable")
    differing = [int(place) for place in largest.index[largest > 0]]
    line = f"{where}: {len(differing)} of {len(old)} examples differ"
    if missing or added:
        line += f"; {missing} are missing, {added} are new"
    elif not differing:
        line += ": the dump is the same, and metrics are computed from it differently"
    ids = [column for column in first if column in ("index", "name") or str(column).endswith("_id")]
    lines = [line]
    for place in differing[:SHOWN]:
        column = str(away.iloc[place].idxmax())
        ours, theirs = (table[column].iloc[place] for table in (first, second))
        example = ", ".join(f"{one} {first[one].iloc[place]}" for one in ids)
        lines.append(f"  {example}: {column} {ours:.4g} -> {theirs:.4g}, {away[column].iloc[place]:.2g} sd")
    return lines


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()

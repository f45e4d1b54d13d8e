"""Rows of several dumps that are the same examples, and a check that their scores see equal inputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from figura.base.errors import UserError
from figura.dump import Dump

KEY = ("mode", "draw", "dataset", "index", "name")
SAME_DATA = "evaluate both on the same data, with the same `evaluate.data`"


def matched(dumps: Mapping[str, Dump]) -> dict[str, Dump]:
    """Return the dumps, by name of their revision, with the same rows in the same order: those of the first.

    Only modes that all dumps have are left. An example is known by its mode, draw, dataset, index and name.

    Raises:
        UserError: a dump lacks rows, has others, or an id of a row differs.
    """
    tables = {name: dump.table for name, dump in dumps.items()}
    first, reference = next(iter(tables.items()))
    modes = [mode for mode in reference["mode"].unique() if all((t["mode"] == mode).any() for t in tables.values())]
    key = [column for column in KEY if all(column in table for table in tables.values())]
    indexed = {n: t[t["mode"].isin(modes)].set_index(key, drop=False) for n, t in tables.items()}
    order = indexed[first].index
    for name, table in indexed.items():
        if order.has_duplicates or table.index.has_duplicates or len(order.symmetric_difference(table.index)):
            raise UserError(
                f"{first} and {name} were judged on different examples: {len(order.intersection(table.index))} of "
                f"{len(order)} and {len(table)} rows match by {', '.join(key)}; {SAME_DATA}"
            )
        indexed[name] = table = table.loc[order]
        for column in sorted(ids_of(reference) & ids_of(tables[name])):
            check_column(first, indexed[first], name, table, column)
    return {name: dumps[name].rows(table) for name, table in indexed.items()}


def ids_of(table: pd.DataFrame) -> set[str]:
    """Return the columns called `*_id`, but those that name what was drawn for an example, see `drawn`."""
    return {str(column) for column in table if str(column).endswith("_id")} - {f"{one}_id" for one in drawn(table)}


def drawn(table: pd.DataFrame) -> set[str]:
    """Return the inputs that are drawn anew with each seed, such as `appearance`: those with an id of their own."""
    names = {str(column).removesuffix("_id") for column in table if str(column).endswith("_id")}
    return {name for name in names if f"file.{name}" in table}


def check_column(first: str, reference: pd.DataFrame, name: str, table: pd.DataFrame, column: str) -> None:
    """Raise UserError if a column of two tables with the same rows differs."""
    ours, theirs = (one[column].reset_index(drop=True) for one in (reference, table))
    differs = (ours != theirs) & ~(ours.isna() & theirs.isna())
    if differs.any():
        place = int(np.flatnonzero(differs)[0])
        raise UserError(
            f"{first} and {name} were judged on different data: {column} differs in {int(differs.sum())} of "
            f"{len(ours)} rows, at index {reference['index'].iloc[place]} it is {ours[place]} and {theirs[place]}; "
            f"{SAME_DATA}"
        )


def check_inputs(dumps: Mapping[str, Dump], arguments: Mapping[str, Any]) -> list[str]:
    """Check that all that a score reads of the examples is the same in each dump.

    Args:
        dumps: with the same rows, by revision.
        arguments: of the score's declaration; texts may name columns, inputs or records.

    Returns:
        A line for each input that was drawn with the seed and differs (`drawn`).

    Raises:
        UserError: another input differs.
    """
    (first, reference), *others = dumps.items()
    table, lines = _of_mode(reference, arguments), []
    for word in dict.fromkeys(value for value in arguments.values() if isinstance(value, str)):
        for name, dump in others:
            other = _of_mode(dump, arguments)
            if word in table and word in other:
                check_column(first, table, name, other, word)
            pairs = _files(word, (reference, table), (dump, other))
            differing = sum(not _equal((reference, ours), (dump, theirs)) for ours, theirs in pairs)
            if differing and any(word == one or word.startswith(f"{one}_") for one in drawn(table)):
                lines.append(f"{word} was drawn with the seed: {name} has another in {differing} of {len(table)} rows")
            elif differing:
                raise UserError(
                    f"{first} and {name} were judged on different data: {word!r} of the examples differs in "
                    f"{differing} of its files; {SAME_DATA}"
                )
    return lines


def _of_mode(dump: Dump, arguments: Mapping[str, Any]) -> pd.DataFrame:
    mode = arguments.get("mode")
    return dump.table if mode is None else dump.mode(str(mode)).table


def _files(word: str, *sides: tuple[Dump, pd.DataFrame]) -> list[tuple[str, str]]:
    """Return the pairs of files of an input or of its records, none if `word` names neither."""
    if all(dump.holds(f"inputs/{word}.json") for dump, _ in sides):
        return [(f"inputs/{word}.json", f"inputs/{word}.json")]
    column = f"file.{word}"
    if any(column not in rows for _, rows in sides):
        return []
    pairs = zip(*(rows[column] for _, rows in sides), strict=True)  # of an example without the input, no file
    return [(a, b) for a, b in pairs if all(isinstance(one, str) and one.startswith("inputs/") for one in (a, b))]


def _equal(first: tuple[Dump, str], second: tuple[Dump, str]) -> bool:
    """Whether files of two dumps hold the same, in whatever compression."""
    (dump, path), (other, other_path) = first, second
    if dump.read(path) == other.read(other_path):
        return True
    if path.endswith(".json"):
        return dump.records(Path(path).stem) == other.records(Path(other_path).stem)
    return np.array_equal(dump.decoded(path), other.decoded(other_path))

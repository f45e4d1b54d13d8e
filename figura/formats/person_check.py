"""The check of a person's annotation in a dataset that figura did not prepare."""

from collections.abc import Collection, Sequence
from typing import Any

from figura.formats.normalise import Joints, normalise
from figura.formats.records import Size, UnusableError, check_id


def check_person(record: Any, size: Size, joints: Sequence[str], categories: Collection[int]) -> None:
    """Raise UnusableError if a person annotation of a prepared dataset is not as `normalise` writes it.

    Joints may be missing. `categories` are those of people; other annotations pass.
    """
    check_id(record)
    if type(record.get("category_id")) is not int:
        raise UnusableError("category unknown", repr(record.get("category_id"))[:80])
    if record["category_id"] not in categories:
        return
    repairs = normalise(record, size, Joints(tuple(joints)))[1]
    if repairs:
        raise UnusableError(repairs[0].kind, f"{repairs[0].before} (right: {repairs[0].after})")

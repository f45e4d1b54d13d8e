"""Write `facts.json`, the facts of a people dataset for recipes and readers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figura.base.files import write_text
from figura.data.formats.facts import FACTS
from figura.data.formats.skeletons import Skeleton


def write_facts(
    folder: Path,
    *,
    skeleton: Skeleton | None,
    categories: Mapping[int, str],
    people: str | None,
    annotated: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write `facts.json` (for its keys, see `figura.data.formats.facts`); `categories` are names by id."""
    facts = {
        "skeleton": None if skeleton is None else skeleton.settings(),
        "categories": [{"id": number, "name": name} for number, name in sorted(categories.items())],
        "people": people,
        "annotated": annotated,
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in facts.items())
    write_text(folder / FACTS, f"{{\n{lines}\n}}\n")

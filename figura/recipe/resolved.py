"""What a training depends on: its resolved recipe, saved beside the weights and tracked, and the files it names."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from figura.base.dotted_keys import leaves, texts
from figura.base.yaml12 import to_yaml
from figura.recipe.schema import RESULT_SECTIONS, Recipe


def settings(recipe: Recipe) -> dict[str, bool | int | float | str]:
    """Return the settings that training depends on by dotted key, for trackers: lists and null become text."""
    content = recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
    return {k: value if isinstance(value, bool | int | float | str) else str(value) for k, value in leaves(content)}


def resolved(recipe: Recipe) -> str:
    """Return the sections that training depends on as YAML, with all defaults filled in, and the facts of its data."""
    content = recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
    return to_yaml(content | ({"facts": recipe.facts} if recipe.facts else {}))


def named_files(recipe: Recipe, sections: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield existing files and folders that sections name, with dotted keys; a path has a `/` or a suffix."""
    content = recipe.model_dump(include=set(sections), by_alias=True)
    if start := content.get("train", {}).pop("init_from", None):
        files = {name: f"{start['run']}/model/{name}.safetensors" for name in start["networks"] or recipe.networks}
        yield from (("train.init_from.run", path) for path in files.values() if os.path.isfile(path))
    for key, text in texts(content):
        if Path(text).name and ("/" in text or Path(text).suffix) and os.path.exists(text):
            yield key, text

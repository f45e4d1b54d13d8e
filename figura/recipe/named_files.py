"""Files named in a recipe: initial weights, and those read by losses and metrics."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from figura.recipe.dotted_keys import texts
from figura.recipe.schema import Recipe


def named_files(recipe: Recipe, sections: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the existing files and folders named in sections, each with its dotted key.

    A string counts as a path if it has a `/` or a suffix.
    """
    content = recipe.model_dump(include=set(sections), by_alias=True)
    if start := content.get("train", {}).pop("init_from", None):
        files = {name: f"{start['run']}/model/{name}.safetensors" for name in start["networks"] or recipe.networks}
        yield from (("train.init_from.run", path) for path in files.values() if os.path.isfile(path))
    for key, text in texts(content):
        if Path(text).name and ("/" in text or Path(text).suffix) and os.path.exists(text):
            yield key, text

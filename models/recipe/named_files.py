"""The files that a recipe names: weights to start from, and those that losses and metrics read."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from models.recipe.dotted_keys import texts
from models.recipe.schema import Recipe


def named_files(recipe: Recipe, sections: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the files and folders that exist and that sections name, each with its dotted key.

    A text names one if it has a `/` or a suffix.
    """
    content = recipe.model_dump(include=set(sections), by_alias=True)
    if start := content.get("train", {}).pop("init_from", None):
        files = {name: f"{start['run']}/model/{name}.safetensors" for name in start["networks"] or recipe.networks}
        yield from (("train.init_from.run", path) for path in files.values() if os.path.isfile(path))
    for key, text in texts(content):
        if Path(text).name and ("/" in text or Path(text).suffix) and os.path.exists(text):
            yield key, text

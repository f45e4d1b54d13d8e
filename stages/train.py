"""Train a recipe: `python -m stages.train RECIPE RUN` writes RUN/model and RUN/history.

With `FIGURA_RESUME_ANYWAY=1` in the environment, it resumes from the furthest state of the run, even if that state was
refused because its recipe, code, packages or data differ.
"""

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from models.base.lock import hold
from models.base.yaml12 import read_yaml
from models.live.changes import changes, remember
from models.recipe.load import check_recipe, check_schema
from models.recipe.trial import mark, scratch, short_training
from stages import command
from stages.dependencies import refuse_untracked


def main(arguments: list[str]) -> None:
    """Train; resume where a killed run of the same recipe, data and code stopped."""
    parser = argparse.ArgumentParser(prog="python -m stages.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path, help="params file, such as params.yaml")
    parser.add_argument("run", type=Path, help="folder of the run, such as runs/vunet")
    args = parser.parse_args(arguments)
    content = read_yaml(args.recipe)
    asked = short_training(check_schema(content, args.recipe))
    first = os.environ.get("RANK", "0") == "0"
    with hold(args.run) if first else nullcontext():
        live = scratch(args.run, asked) / "live"
        if asked.train.try_ and first:
            print(mark(asked), flush=True)
        if first:
            print(*changes(args.recipe, content, live), sep="\n", flush=True)
        train(content, args.recipe, args.run, live if first else None)


def train(content: dict[str, Any], path: Path, run: Path, live: Path | None) -> None:
    """Train the recipe of a content, read from `path`; keep its settings in `live`, in the first of all processes."""
    from models.live.listeners import listeners
    from models.training.trainer import Trainer

    recipe = check_recipe(content, path)
    refuse_untracked(recipe)
    anyway = os.environ.get("FIGURA_RESUME_ANYWAY") == "1"
    trainer = Trainer(recipe, run, listeners=listeners(recipe), resume_anyway=anyway)
    if live is not None:
        remember(content, live)
    with trainer.stop_request.by_signals():
        trainer.fit()


if __name__ == "__main__":
    sys.exit(command.run(main))

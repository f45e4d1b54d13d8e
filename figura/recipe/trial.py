"""A try, `train.try: true`: a short run of the full pipeline. All its limits are defined here.

Training, evaluation and metrics run as usual, on fewer examples. Schedules and gates are unchanged, so a try covers the
first `STEPS` iterations of a long training: not the end of a ramp, and nothing that starts later. Its numbers are not
results, so every output is marked as a try, and its metrics are under the key `try`.
"""

from pathlib import Path

from figura.base.yaml12 import read_yaml
from figura.recipe.schema import Recipe

STEPS = 10
RECORDED = 2  # iterations per row of the history
VALIDATED = 16  # validation examples of the single evaluation during training
EVALUATED = 16  # examples of each mode in the dump, and of online scores
GRID = 4  # rows and columns of a grid
AVERAGED = 64  # examples of an average
RESAMPLES = 50  # resamples of the bootstrap
KEY = "try"  # parent key of a try's metrics, so that no table shows them beside results; scores must not have this name


def mark(recipe: Recipe) -> str:
    """Return the prefix that marks a try's outputs; empty if the recipe is not a try."""
    return f"TRY of {recipe.train.steps} steps, no result" if recipe.train.try_ else ""


def is_try(model: Path) -> bool:
    """Whether the weights in a folder come from a try, according to the recipe beside them."""
    recipe = model / "recipe.yaml"
    train = read_yaml(recipe).get("train") if recipe.is_file() else None
    return isinstance(train, dict) and bool(train.get("try"))


def short_training(recipe: Recipe) -> Recipe:
    """Return the recipe with `train` shortened if it is a try; never lengthens it.

    Evaluation, log line, sample sheet and online scores happen once, after the last iteration.
    """
    train, scores = recipe.train, recipe.runtime.scores
    if not train.try_:
        return recipe
    fewer = {
        "steps": min(train.steps or STEPS, STEPS), "epochs": None, "record_every": min(train.record_every, RECORDED),
        "evaluate_every": STEPS, "evaluate_limit": min(train.evaluate_limit or VALIDATED, VALIDATED),
    }  # fmt: skip
    samples = recipe.runtime.samples and recipe.runtime.samples.model_copy(update={"every": None})
    limit = {"every": None, "limit": min((scores and scores.limit) or EVALUATED, EVALUATED)}
    once = {"log_every": STEPS, "samples": samples, "scores": scores and scores.model_copy(update=limit)}
    return recipe.model_copy(
        update={"train": train.model_copy(update=fewer), "runtime": recipe.runtime.model_copy(update=once)}
    )


def short_evaluation(recipe: Recipe) -> Recipe:
    """Return the recipe with smaller grids and with averages over fewer examples in `evaluate`."""
    evaluate = recipe.evaluate
    grids = {name: one.model_copy(update={"size": min(one.size, GRID)}) for name, one in evaluate.grids.items()}
    averages = {
        name: one.model_copy(update={"examples": min(one.examples, AVERAGED)})
        for name, one in evaluate.averages.items()
    }
    fewer = evaluate.model_copy(update={"grids": grids, "averages": averages})
    return recipe.model_copy(update={"evaluate": fewer})


def short_metrics(recipe: Recipe) -> Recipe:
    """Return the recipe with fewer resamples in `metrics`."""
    fewer = recipe.metrics.model_copy(update={"bootstrap": min(recipe.metrics.bootstrap, RESAMPLES)})
    return recipe.model_copy(update={"metrics": fewer})


def scratch(run: Path, recipe: Recipe) -> Path:
    """Return the parent of `live/`, `resume/` and `checkpoints/`, which is separate for a try.

    So a try neither resumes nor removes a stopped training, and no training resumes a try.
    """
    return run / KEY if recipe.train.try_ else run

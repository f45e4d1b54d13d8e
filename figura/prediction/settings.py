"""Settings of a prediction: a recipe's sections `predict` and `evaluate`, with overrides, checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.evaluation.model_folder import refuse_other_networks, trained_facts
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema import Predict, Recipe
from figura.recipe.schema_check import check_schema
from figura.recipe.trusted import refuse_untrusted, refuse_untrusted_model


def checked_content(
    path: Path, content: dict[str, Any], model: Path, assignments: Sequence[str], trusted_types_only: bool
) -> dict[str, Any]:
    """Return a recipe's content after assignments `key=value`, before any slow import.

    Raises:
        UserError: an assignment or the content is malformed, its networks differ from the model's, or it is not
            trusted.
    """
    if trusted_types_only:
        refuse_untrusted(content, path)
        refuse_untrusted_model(model)
    content = overridden(content, assignments, ("evaluate", "predict"))
    refuse_other_networks(path, content, model)
    check_schema(content, path)
    return content


def recipe_and_predict(path: Path, content: dict[str, Any], model: Path) -> tuple[Recipe, Predict]:
    """Return a checked recipe with the facts of a model's data, and its section `predict`.

    Raises:
        UserError: all errors in the sections `evaluate` and `predict`, or there is no `predict`.
    """
    recipe = check_recipe(content, path, ["evaluate", "predict"], trained_facts(model))
    if recipe.predict is None:
        raise UserError(
            f"{path}: predict: missing; it says how photos become examples, which mode runs and what is saved, "
            "such as {data: {type: images.Photos}, mode: translation, save: {fake: image}}"
        )
    return recipe, recipe.predict

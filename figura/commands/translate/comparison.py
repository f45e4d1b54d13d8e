"""The first losses of a translated recipe beside those of the original (`figura translate --compare FOLDER`)."""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from figura.base.errors import UserError, nearest, one_line
from figura.base.files import read_json
from figura.engine.build import build_steps, make_accelerator, start_networks
from figura.engine.precision import in_float32
from figura.engine.weights import load_tensors, to_device
from figura.interfaces import State, loss_of
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe

TOLERANCE = 1e-5  # largest relative difference of a loss


def compare(content: Mapping[str, Any], output: Path, folder: Path) -> Iterator[str]:
    """Yield a table of losses there and here, from a folder as the command's help describes it.

    Args:
        content: the recipe.
        output: its path, for messages.
        folder: with values.safetensors, losses.json, and weights.

    Raises:
        UserError: a file cannot be read or does not fit, or a loss differs by more than `TOLERANCE`.
    """
    theirs = read_json(folder / "losses.json", "a JSON file of the original's losses is needed")
    if not isinstance(theirs, dict) or not all(isinstance(one, int | float) for one in theirs.values()):
        raise UserError(f"{folder / 'losses.json'}: expected a map of losses' names to numbers")
    networks = {}
    for name, entry in content["networks"].items():
        has_weights = (file := folder / f"{name}.safetensors").is_file()
        networks[name] = {**entry, "weights": str(file)} if has_weights else entry
        if not has_weights:
            yield f"network {name!r} has random weights: there is no {file}"
    train = {**content["train"], "precision": "no", "compile": False}
    recipe = check_recipe({**content, "networks": networks, "train": train}, output)
    ours = losses_of(recipe, folder / "values.safetensors")
    parts = {key: key.split(" + ") for key in theirs}
    compared = {*chain(*parts.values())}
    for name in sorted(compared - ours.keys()):
        known = nearest(name, ours) or f"; there are {', '.join(ours)}"
        raise UserError(f"{folder / 'losses.json'}: no loss {name!r} in the first iteration{known}")
    sums = {key: sum(ours[name] for name in names) for key, names in parts.items()}
    differences = {key: abs(value - theirs[key]) / (abs(theirs[key]) or 1.0) for key, value in sums.items()}
    width = max(map(len, [*sums, *ours]), default=0)
    yield f"{'loss':<{width}}  {'there':>12}  {'here':>12}  relative difference"
    for key, value in sums.items():
        yield f"{key:<{width}}  {theirs[key]:12.7g}  {value:12.7g}  {differences[key]:.1e}"
    for name in [name for name in ours if name not in compared]:
        yield f"{name:<{width}}  {'not given':>12}  {ours[name]:12.7g}"
    apart = [name for name, difference in differences.items() if not difference <= TOLERANCE]
    if apart:
        raise UserError(f"{output}: more than {TOLERANCE:g} apart: {', '.join(apart)}")


def losses_of(recipe: Recipe, file: Path) -> dict[str, float]:
    """Return the weighted losses of all steps in the first iteration, before any update, by name.

    Args:
        recipe: whose networks have their first weights.
        file: a batch by name, `p_means.top` for a map of tensors; an injector whose outputs it has does not run.

    Raises:
        UserError: a value is missing, or does not fit.
    """
    accelerator = make_accelerator(recipe)
    values: dict[str, Any] = {}
    for key, tensor in to_device(load_tensors(file), accelerator.device).items():
        name, _, part = key.partition(".")
        values[name] = {**values.get(name, {}), part: tensor} if part else tensor
    networks, _ = start_networks(recipe, accelerator)
    state, found = State(values), dict[str, float]()
    for step in build_steps(recipe, dict(networks.live), accelerator).values():
        given = {key for key, one in step.injectors.items() if one.injector.adds and {*one.injector.adds} <= {*values}}
        step.injectors = {key: one for key, one in step.injectors.items() if key not in given}
        try:
            losses = step.observe(state, networks, 0, training=True) if step.runs(state, 0, training=True) else {}
        except (KeyError, RuntimeError, ValueError) as error:
            raise UserError(f"{file}: {one_line(str(error.args[0]))}") from None
        weights = {name: step.losses[loss_of(name)].effective_weight(0) for name in losses}
        found |= {name: weights[name] * in_float32(value).mean().item() for name, value in losses.items()}
    return found

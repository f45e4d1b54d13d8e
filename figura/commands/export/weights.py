"""Writes the weights of trained networks as other programs name them, by modules `export_FORMAT` of the systems."""

import importlib
from pathlib import Path

from figura.base.errors import UserError
from figura.base.files import replacing
from figura.engine.weights import save_tensors
from figura.evaluation.trained import load_trained
from figura.recipe.schema import Recipe


def export_weights(model: Path, recipe: Recipe, output: Path, exporter: str) -> list[str]:
    """Write a file for each network that a format has; return a line for each, also for those that it has not.

    `exporter` is the module of the format.

    Raises:
        UserError: weights cannot be read, `output` cannot be written, or the format has none of the networks.
    """
    exported, lines, written = importlib.import_module(exporter).exported, [], 0
    for name, network in load_trained(model, recipe)[1].items():
        try:
            tensors, line = exported(network)
        except UserError as error:
            lines.append(f"{name}: not written: {error}")
            continue
        output.mkdir(parents=True, exist_ok=True)
        path = output / f"{name}.safetensors"
        with replacing(path) as temporary:
            save_tensors({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, temporary)
        lines.append(f"{path}: written: {line}")
        written += 1
    if not written:
        raise UserError("\n".join([f"{model}: the format has none of its networks", *lines]))
    return lines

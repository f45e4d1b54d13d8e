"""Writes the weights of trained networks: as a model that predicts anywhere, or as other programs name them."""

import importlib
import shutil
from pathlib import Path

from figura.base.checksums import SUMS, read_sums, write_sums
from figura.base.errors import UserError
from figura.base.files import replacing, replacing_folder, write_text
from figura.base.yaml12 import to_yaml
from figura.engine.weights import save_tensors
from figura.evaluation.model_folder import model_recipe
from figura.evaluation.trained import load_trained
from figura.recipe.schema import Recipe

PREDICTION = ("evaluate", "predict", "metrics", "runtime")
"""The sections of a params file that a run's model lacks, and that a prediction or an evaluation reads."""
CARD = ("README.md", "metrics.json")
"""Files beside a model that people write, or scores: they have no checksum."""


def export_model(model: Path, recipe: Recipe, output: Path) -> list[str]:
    """Write a model folder that needs no other file to predict: weights in half precision, and the whole recipe.

    The `CARD` in `output` stays. Return a line for each file.

    Raises:
        UserError: weights cannot be read, or do not fit float16; or `output` cannot be written, or has other files.
    """
    _refuse_other_files(output, model)
    networks = load_trained(model, recipe)[1]
    content = model_recipe(model) | recipe.model_dump(include=set(PREDICTION), by_alias=True)
    with replacing_folder(output) as folder:
        for name, network in networks.items():
            tensors = {key: t.half() if t.is_floating_point() else t for key, t in network.state_dict().items()}
            if large := [key for key, t in tensors.items() if t.is_floating_point() and not t.isfinite().all()]:
                raise UserError(f"{model}: {name}.{large[0]} has values beyond the range of float16, 65504")
            save_tensors({key: t.contiguous() for key, t in tensors.items()}, folder / f"{name}.safetensors")
        write_text(folder / "recipe.yaml", to_yaml(content))
        shutil.copyfile(model / "provenance.json", folder / "provenance.json")
        write_sums(folder)
        for name in CARD:
            if (output / name).is_file():
                shutil.copyfile(output / name, folder / name)
    return [f"{output / name}.safetensors: written in half precision" for name in networks]


def _refuse_other_files(output: Path, model: Path) -> None:
    """Raise UserError if a folder has files that are not of an exported model, all of which would be removed."""
    folder = output.resolve()
    if folder == model.resolve():
        raise UserError(f"{output}: is the model to export; name another folder")
    if Path.cwd().is_relative_to(folder):
        raise UserError(f"{output}: is the folder of this shell, or above it; name a folder to make")
    if folder.is_file():
        raise UserError(f"{output}: is a file; a model is a folder")
    listed = read_sums(folder).keys() if (folder / SUMS).is_file() else set()
    there = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
    if others := [name for name in there if name not in (*listed, *CARD, SUMS)]:
        raise UserError(f"{output}: has {others[0]}, which is no part of a model, and would be lost; name a new folder")


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

"""Where an import may write."""

from pathlib import Path

from figura.base.checksums import SUMS
from figura.base.errors import UserError

SUFFIX = ".safetensors"
SUFFIXES = {".bin", ".ckpt", ".onnx", ".pkl", ".pt", ".pth", SUFFIX, ".tar"}
"""Of files of weights; the folder of a run has none of them."""


def refuse_output(output: Path) -> None:
    """Raise UserError if a file of weights lies in a model, if a run has or is a model already, which may be a
    training's only result, or if the folder of a run is called like a file of weights.
    """
    if output.suffix == SUFFIX:
        if (output.parent / SUMS).exists():
            raise UserError(f"{output}: {output.parent} is a model, whose {SUMS} guards its files; name another folder")
    elif output.suffix.lower() in SUFFIXES:
        raise UserError(f"{output}: a file of weights to write ends in {SUFFIX}; any other name is a run's folder")
    elif (output / "model").exists():
        raise UserError(f"{output}/model: a model is there already; remove it, or name another folder")
    elif (output / SUMS).exists():
        raise UserError(f"{output}: this is a model; name the folder of another run")

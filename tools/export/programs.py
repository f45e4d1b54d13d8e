"""A call of a network as a program of `torch.export`, and as an ONNX file."""

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from models.base.errors import UserError, one_line
from models.base.modes import evaluating
from tools.export.calls import Exportable

BATCH, HEIGHT, WIDTH = "batch", "height", "width"
Axes = dict[str, dict[int, str]]
"""By input, the names of its axes whose length may change."""


def axes_of(tensors: Mapping[str, Tensor], sizes: bool) -> Axes:
    """Return the axes that may change: the first of all inputs, and with `sizes`, both sides of pictures."""
    return {
        name: {0: BATCH} | ({2: HEIGHT, 3: WIDTH} if sizes and tensor.ndim == 4 and not _is_noise(name) else {})
        for name, tensor in tensors.items()
    }


def _is_noise(name: str) -> bool:
    return name.startswith("noise_")


def program_of(module: Exportable, tensors: Mapping[str, Tensor], axes: Axes) -> ExportedProgram:
    """Return the program of a module, traced with `tensors`, whose batch has at least two examples.

    Raises:
        UserError: PyTorch cannot trace it with these axes.
    """
    dynamic = {name: dict.fromkeys(of, Dim.DYNAMIC) for name, of in axes.items()}
    with evaluating(module), _plain_algorithms(), _quiet():
        try:
            return torch.export.export(module, (), dict(tensors), dynamic_shapes=dynamic)
        except Exception as error:  # any network may fail in any way
            raise UserError(_told(error)) from error


def save_onnx(program: ExportedProgram, path: Path, tensors: Mapping[str, Tensor], axes: Axes, outputs: list[str],
              metadata: Mapping[str, str]) -> None:  # fmt: skip
    """Write a program as one ONNX file with metadata."""
    with _plain_algorithms(), _quiet():
        made = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=list(tensors), output_names=outputs,
            dynamic_shapes=tuple(axes.values()),
        )  # fmt: skip
    assert made is not None
    made.model.metadata_props.update(metadata)
    made.save(path, external_data=False)


def save_program(program: ExportedProgram, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a program as `torch.export.load` reads it; each value of the metadata is a file in it.

    The examples that it was traced with are left out: they are data of others, and would be pickled.
    """
    program.example_inputs = None
    content = io.BytesIO()  # a path would become the name of the folder inside
    torch.export.save(program, content, extra_files=dict(metadata))
    path.write_bytes(content.getvalue())


def _told(error: Exception) -> str:
    """Return what an error says, in a line."""
    if "specialized it to be a constant" in str(error):
        return "what it computes depends on the size or number of the examples"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(f"torch.export: {lines[0] if lines else type(error).__name__}")


@contextmanager
def _plain_algorithms() -> Iterator[None]:
    """Inside, networks use PyTorch's convolutions, not the faster ones that suit a size of batch and picture.

    These are used outside autocast alone. Autocast to float32 changes no number; its context manager refuses float32,
    so this sets what that manager would set.
    """
    before = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float32)
    torch.set_autocast_enabled("cpu", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", before[0])
        torch.set_autocast_dtype("cpu", before[1])


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, PyTorch's exporter does not warn of what it does itself."""
    loggers: list[Any] = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

"""A call of a network as a program of `torch.export`, and as an ONNX file."""

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from figura.base.errors import UserError, one_line
from figura.base.modes import evaluating
from figura.commands.export.calls import Example, Exportable

BATCH, HEIGHT, WIDTH = "batch", "height", "width"
Axes = dict[str, dict[int, str]]  # by input, the names of its axes whose length may change
TRACED_LEAST = 2
"""PyTorch's least length of any axis that may change: it proves nothing for 1, which the comparison tries."""
COLOURS = re.compile(r"\x1b\[[\d;]*m")


def axes_of(one: Example, several: Example, sizes: bool) -> Axes:
    """Return the axes that may change: the first, where `one` example and `several` differ in it; with `sizes`, both
    sides of pictures.

    Raises:
        UserError: how many random tensors the network draws depends on the number of examples.
    """
    if one.tensors.keys() != several.tensors.keys():
        raise UserError("how many tensors of random numbers it draws depends on the number of examples")
    axes: Axes = {}
    for name, tensor in several.tensors.items():
        axes[name] = {0: BATCH} if tensor.shape[:1] != one.tensors[name].shape[:1] else {}
        if sizes and tensor.ndim == 4 and name not in several.distributions:
            axes[name] |= {2: HEIGHT, 3: WIDTH}
    return axes


def program_of(module: Exportable, tensors: Mapping[str, Tensor], axes: Axes) -> ExportedProgram:
    """Return the program of a module, traced with `tensors`, whose batch has at least two examples.

    Raises:
        UserError: PyTorch cannot trace it with these axes, or the program holds for some lengths of them alone.
    """
    dynamic = {name: dict.fromkeys(of, Dim.DYNAMIC) for name, of in axes.items()}
    with evaluating(module), _plain_algorithms(), _quiet():
        try:
            program = torch.export.export(module, (), dict(tensors), dynamic_shapes=dynamic)
        except Exception as error:  # any network may fail in any way
            raise UserError(_told("torch.export", error)) from error
    for name, (least, most) in ranges_of(program, axes).items():
        what = "the number of examples" if name == BATCH else f"the {name}"
        if most is not None:
            raise UserError(f"what it computes depends on {what}: a file would hold for {least} to {most} alone")
        if name == BATCH and least > TRACED_LEAST:
            raise UserError(f"what it computes depends on {what}: a file would hold for {least} and more alone")
    return program


def ranges_of(program: ExportedProgram, axes: Axes) -> dict[str, tuple[int, int | None]]:
    """Return, by name of an axis, from which length to which the program computes what its network does.

    A branch of Python on a length, which a program cannot have, narrows it; None is no limit. Below the least length
    the program may compute the same: PyTorch rounds up to what it need not prove.
    """
    places = {node.name: node for node in program.graph.nodes}
    ranges: dict[str, tuple[int, int | None]] = {}
    for place, of in zip(program.graph_signature.user_inputs, axes.values(), strict=True):
        for axis, name in of.items():
            symbol = places[place].meta["val"].shape[axis].node.expr
            if (found := program.range_constraints.get(symbol)) is not None:
                least, most = ranges.get(name, (0, None))
                upper = int(str(found.upper)) if str(found.upper).isdecimal() else None  # int_oo is no limit
                ranges[name] = max(least, int(found.lower)), min(filter(None, (upper, most)), default=None)
    return ranges


def least_sides(program: ExportedProgram, axes: Axes) -> dict[str, int]:
    """Return the least height and width of `ranges_of`, where they are more than PyTorch's least of any axis."""
    ranges = ranges_of(program, axes)
    return {name: ranges[name][0] for name in (HEIGHT, WIDTH) if name in ranges and ranges[name][0] > TRACED_LEAST}


def save_onnx(program: ExportedProgram, path: Path, tensors: Mapping[str, Tensor], axes: Axes, outputs: list[str],
              metadata: Mapping[str, str]) -> None:  # fmt: skip
    """Write a program as one ONNX file with metadata. Raises UserError if ONNX lacks what the program computes."""
    with _plain_algorithms(), _quiet():
        try:
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=list(tensors), output_names=outputs,
                dynamic_shapes=tuple(axes.values()),
            )  # fmt: skip
        except Exception as error:  # of many classes, as the operators
            raise UserError(_told("torch.onnx", error)) from error
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


def _told(exporter: str, error: BaseException) -> str:
    """Return what the first cause of an error says, in a line without colours."""
    if "specialized it to be a constant" in str(error):
        return "what it computes depends on the size or number of the examples"
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines() if line.strip()]
    return one_line(f"{exporter}: {lines[0] if lines else type(error).__name__}")


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
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

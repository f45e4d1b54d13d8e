"""Exports each call of a network to a file, and checks the file beside PyTorch."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from figura.base.errors import UserError, printable
from figura.base.files import replacing
from figura.base.modes import evaluating
from figura.commands.export import PACKAGES
from figura.commands.export.calls import (
    SEVERAL,
    Call,
    Example,
    Exportable,
    Resize,
    calls_of,
    example_of,
    high_and_odd,
    wide,
)
from figura.commands.export.comparison import Comparison, compare
from figura.commands.export.metadata import metadata_of
from figura.commands.export.programs import Axes, axes_of, least_sides, program_of, save_onnx, save_program
from figura.evaluation.trained import load_trained
from figura.recipe.schema import Recipe

SUFFIXES = {"onnx": ".onnx", "torch_export": ".pt2"}


class DiffersError(UserError):
    """A file computes other numbers than PyTorch."""


@dataclass
class File:
    """An exported file.

    Attributes:
        path: where it is, or would be.
        comparisons: of batches of one, of several, and of pictures of other sizes.
        least: sides of pictures from which on the file surely computes what PyTorch does, by name of the axis.
        fixed: why pictures must have the size of the examples; '' if they need not.
        fault: why the file was not written, or ''.
    """

    path: Path
    comparisons: list[Comparison] = field(default_factory=list)
    least: dict[str, int] = field(default_factory=dict)
    fixed: str = ""
    fault: str = ""


@dataclass
class Exported:
    """The files, a line for each call that could not be exported, and networks that no mode calls or that have calls
    and no file.
    """

    form: str
    files: list[File]
    faults: list[str]
    unused: list[str]
    missing: list[str]


def export(
    model: Path, recipe: Recipe, output: Path, form: str, tolerance: float, pictures: Sequence[Path] = ()
) -> Exported:
    """Write a file for each call of a network into `output`, unless its results differ by more than the tolerance.

    Examples are of `pictures`, if any (`calls_of`).

    Raises:
        UserError: weights or data cannot be read, `output` cannot be written, or nothing can be exported.
    """
    predict = recipe.predict
    trained, networks = load_trained(model, recipe)
    trained = trained.model_copy(update={"predict": predict})
    calls = calls_of(trained, networks, pictures)
    have = {call.name for call in calls.files.values()}
    unused = [name for name in networks if name not in calls.called]
    missing = [name for name in networks if name in calls.called - have]
    done = Exported(form, [], calls.faults, unused, missing)
    output.mkdir(parents=True, exist_ok=True)
    for name, call in calls.files.items():
        file = File(output / f"{name}{SUFFIXES[form]}")
        print(printable(f"{file.path}: is written, and compared with PyTorch at several sizes"), flush=True)
        try:
            _export_call(model, trained, call, file, form, tolerance)
        except UserError as error:
            file.fault = str(error)
        done.files.append(file)
    if not done.files:
        raise UserError("\n".join([f"{model}: no mode of evaluate calls a network that can be exported", *done.faults]))
    return done


def _export_call(model: Path, recipe: Recipe, call: Call, file: File, form: str, tolerance: float) -> None:
    """Write the file of one call: for pictures of any size if that works, otherwise of the size of the examples."""
    example = example_of(call, SEVERAL)
    examples = [one := example_of(call, 1), example]
    try:
        others = [_resized(call, example, wide)]
        with suppress(UserError):  # a network may refuse odd sides
            others.append(_resized(call, example, high_and_odd))
        axes = axes_of(one, example, sizes=True)
        _write(model, recipe, call, [*examples, *others], axes, file, form, tolerance)
    except DiffersError:
        raise
    except UserError as error:
        file.fixed, file.comparisons, file.least = str(error), [], {}
        _write(model, recipe, call, examples, axes_of(one, example, sizes=False), file, form, tolerance)


def _resized(call: Call, example: Example, resize: Resize) -> Example:
    """Return an example with pictures of another size; raise UserError if the call takes none."""
    try:
        resized = example_of(call, 1, resize)
    except Exception as error:  # any network may refuse a size in any way
        raise UserError("the network takes no other size") from error
    other = [name for name, one in resized.tensors.items() if one.shape[1:] != example.tensors[name].shape[1:]]
    if not other:
        raise UserError("no input is a picture")
    if not example.distributions.keys().isdisjoint(other):
        raise UserError("the shape of the noise depends on theirs")
    return resized


def _write(
    model: Path, recipe: Recipe, call: Call, examples: list[Example], axes: Axes, file: File, form: str,
    tolerance: float,
) -> None:  # fmt: skip
    """Write a file and compare it on all examples. The second is traced; those after it have other sizes.

    Raises:
        DiffersError: it differs too much; nothing is written then.
        UserError: it cannot be traced or run, or differs too much for another size; neither.
    """
    traced = examples[1]
    module = Exportable(call, list(traced.tensors))
    with evaluating(module):
        outputs = list(module(**traced.tensors))
    program = program_of(module, traced.tensors, axes)
    file.least = least_sides(program, axes)
    metadata = metadata_of(model, recipe, call, traced, axes, file.least, PACKAGES[form])
    with replacing(file.path) as temporary:
        if form == "onnx":
            save_onnx(program, temporary, traced.tensors, axes, outputs, metadata)
        else:
            save_program(program, temporary, metadata)
        file.comparisons = [compare(module, one.tensors, temporary, form) for one in examples]
        for index, one in enumerate(file.comparisons):
            if one.relative > tolerance:
                share = f"{one.relative:.2g} of the largest value of a component; at most {tolerance:g} is allowed"
                if index > 1:
                    raise UserError(f"for another size, results differ from PyTorch's by {share}")
                raise DiffersError(f"its results differ from PyTorch's by {share}")

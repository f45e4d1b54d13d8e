"""The table of an export, and what is wrong with it."""

from collections.abc import Sequence

from figura.base.errors import UserError, printable
from figura.commands.export.files import Exported, File


def show(done: Exported) -> None:
    """Print a row for each file and batch, then remarks.

    Raises:
        UserError: a file was not written, or a network that a mode calls has none; a line for each.
    """
    other = "onnxruntime, ms" if done.form == "onnx" else "torch.export, ms"
    head = ("file", "inputs", "difference", "relative", "PyTorch, ms", other)
    rows = [head, *(row for file in done.files for row in _rows(file))]
    print(printable("\n".join(_aligned(rows))))
    for file in done.files:
        if file.fixed and not file.fault:
            print(printable(f"{file.path}: pictures must have the size of the examples: {file.fixed}"))
        if file.least and not file.fault:
            sides = " and ".join(f"{name} {least}" for name, least in file.least.items())
            rest = "PyTorch may compute smaller ones otherwise"
            print(printable(f"{file.path}: traced for pictures from {sides} on; {rest}"))
    for line in done.faults:
        print(printable(line))
    if done.unused:
        print(f"not exported, because no mode of evaluate calls them: {', '.join(done.unused)}")
    faults = [f"{file.path}: not written: {file.fault}" for file in done.files if file.fault]
    faults += [f"{name}: a mode of evaluate calls it, and it has no file" for name in done.missing]
    if faults:
        raise UserError("\n".join(faults))


def _rows(file: File) -> list[tuple[str, ...]]:
    return [
        (str(file.path), one.shapes, f"{one.absolute:.1e}", f"{one.relative:.1e}", f"{one.pytorch:.1f}",
         f"{one.exported:.1f}")
        for one in file.comparisons
    ]  # fmt: skip


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

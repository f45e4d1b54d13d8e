"""Writes the results of a prediction as files, as `python -m tools.predict` does."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.errors import UserError
from models.prediction.comparison import PredictionTable
from models.prediction.inputs import Photo
from models.prediction.results import Output, write_output, write_picture

if TYPE_CHECKING:
    from figura.results import Result, Results


def write_results(results: "Results", folder: Path) -> None:
    """Write files and `predictions.csv` into a folder, which is made if it is not there.

    Raises:
        UserError: a file cannot be written, or two of them would have the same name; then none is written.
    """
    if twice := [name for name, count in Counter(_names(results)).items() if count > 1]:
        more = f", and {len(twice) - 1} more names" if len(twice) > 1 else ""
        raise UserError(f"{folder / twice[0]}: two results would be this file{more}; save them into two folders")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write(results, folder)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UserError where something cannot be written, such as a file where a folder must be."""
    try:
        yield
    except OSError as error:
        in_the_way = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "a file is where a folder must be" if in_the_way else error.strerror or error
        raise UserError(f"{error.filename or path}: cannot be written: {reason}") from None


def _names(results: "Results") -> Iterator[str]:
    """Yield what the files of all results are called, without suffixes."""
    for one in results:
        yield from (f"{one.name}.{name}" for name in (*one.pictures, *one.records, *one.arrays))
        yield from (f"{one.name}.{name}.compared" for name in one.compared)
    yield from results.sheets


def _write(results: "Results", folder: Path) -> None:
    outputs = [_output(one) for one in results]
    for one in outputs:
        write_output(folder, one, {name: form for name, form in results.forms.items() if name in one.values})
    for name, sheet in results.sheets.items():
        write_picture(folder / f"{name}.png", sheet)
    table = PredictionTable(folder, list(dict.fromkeys(name for one in outputs for name in one.numbers)))
    for one in outputs:  # the table comes last: it lists whole files
        table.add(one.name, one.photo, one.numbers)
    table.close()


def _output(one: "Result") -> Output:
    photo = Photo(one.image.file or Path(one.image.name), one.image.name, one.image.id, place=one.image.frame)
    values = {**one.pictures, **one.records, **one.arrays}
    return Output(one.name, photo, values, one.numbers, one.compared)

"""Writes the results of a prediction as files, as `python -m tools.predict` does."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from models.base.pictures import write_png
from models.prediction.comparison import PredictionTable
from models.prediction.inputs import Photo
from models.prediction.results import Output, write_output

if TYPE_CHECKING:
    from figura.results import Result, Results


def write_results(results: "Results", folder: Path) -> None:
    """Write files and `predictions.csv` into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for one in results for name in one.numbers))
    with closing(PredictionTable(folder, columns)) as table:
        for one in results:
            output = _output(one)
            write_output(folder, output, {name: form for name, form in results.forms.items() if name in output.values})
            table.add(one.name, output.photo, one.numbers)
    for name, sheet in results.sheets.items():
        write_png(folder / f"{name}.png", sheet)


def _output(one: "Result") -> Output:
    photo = Photo(one.image.file or Path(one.image.name), one.image.name, one.image.id, place=one.image.frame)
    values = {**one.pictures, **one.records, **one.arrays}
    return Output(one.name, photo, values, one.numbers, one.compared)

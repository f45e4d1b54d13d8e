"""What the report says of revisions: what differs in settings, figures, pictures and trainings from the first one."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.pictures import decode_picture, write_png
from figura.commands.compare.comparison import compare_revisions
from figura.commands.compare.drawing import draw_changed, draw_effects
from figura.commands.log_plots import draw_logs, read_log
from figura.commands.report.contents import METRICS, PLOTS, Entry, words
from figura.commands.report.page import Block, Fold, Lines, Pictures, Rows, Text
from figura.commands.report.pictures import Picture, picture_of
from figura.pipeline.calls import changed_params
from figura.pipeline.revisions import Files
from figura.report.metrics import flattened
from figura.report.sheets import side_by_side

ABSENT = "-"
EXAMPLES = 8  # in a sheet of what changed most
FEW = 10  # rows of a table that is not folded
GAP = 12  # pixels between pictures of two revisions


def differing_settings(files: Sequence[Files]) -> Iterator[Block]:
    """Yield the tracked params that differ from the first revision, and those that could not be read."""
    first, *others = [one.name for one in files]
    for other in others:
        try:
            found = changed_params(first, other)
        except UserError as error:
            yield Text(f"settings of {other}: not compared: {error}", "warning")
            continue
        if unread := list(_unread(found.get("errors", {}))):
            yield Text("Not all params could be read, so this is incomplete:", "warning")
            yield Lines(unread)
        rows = [
            [file, key, *(_shown(one.get(side)) for side in ("old", "new"))]
            for file, keys in found.get("diff", {}).items()
            for key, one in keys.items()
        ]
        if rows:
            table = Rows(f"settings of {other} against {first}", [["file", "setting", first, other], *rows])
            yield table if len(rows) <= FEW else Fold(f"{len(rows)} settings differ", [table])
        else:
            yield Text(f"No setting of {other} differs from {first}.")


def _unread(errors: Mapping[str, Any]) -> Iterator[str]:
    for revision, found in errors.items():
        for file, error in (found if isinstance(found, Mapping) else {"all params": found}).items():
            yield f"{file} of {revision}: {type(error).__name__}: {error}"


def recipe_differences(entry: Entry, files: Sequence[Files]) -> list[Block]:
    """Return what differs between revisions for a recipe; nothing if nothing does. What cannot be read is a warning."""
    blocks: list[Block] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / entry.name
        parts = [_figures(entry, files), _pictures(entry, files, scratch / "differing")]
        if entry.data is not None:
            parts = [_comparison(entry, files, scratch / "compared"), _training(entry, files, scratch), *parts]
        for part in parts:
            try:
                blocks += part
            except UserError as error:
                blocks.append(Text(f"not compared: {error}", "warning"))
    return blocks


def _comparison(entry: Entry, files: Sequence[Files], folder: Path) -> Iterator[Block]:
    """Whether headlines differ by more than noise."""
    folder.mkdir(parents=True)
    result = compare_revisions(files, entry.name, entry.path, folder / "dumps")
    if not result.comparisons:
        return
    yield from (Text(sentence, "strong") for sentence in result.sentences)
    for one, table in zip(result.comparisons, result.tables, strict=True):
        yield Rows(f"{entry.name}, {one.second.name} against {one.first.name}", table)
    first, *others = [one.name for one in files]
    against = f"{', '.join(others)} against {first}"
    draw_effects(result, folder / "effects.png")
    effects = picture_of(folder / "effects.png", "effects", f"Differences of {against} with their intervals.")
    sheets, lines = list[Picture](), list(result.lines)
    for headline in result.estimates:
        file = folder / f"changed_in_{headline}.png"
        try:
            draw_changed(result, headline, EXAMPLES, file)
        except UserError as error:
            lines.append(f"no sheet of the examples that changed most: {error}")
            continue
        alt = f"Examples that changed most in {headline}, {against}."
        sheets.append(picture_of(file, f"changed most in {headline}", alt))
    yield Lines(lines)
    yield Pictures([effects])
    if sheets:
        yield Fold(f"Examples of {entry.name} that changed most", [Pictures(sheets)])


def _figures(entry: Entry, files: Sequence[Files]) -> Iterator[Block]:
    """All figures that differ, without intervals."""
    path = (METRICS / "full" / f"{entry.name}.json").as_posix()
    tables = [_metrics(one, path) for one in files]
    names = dict.fromkeys(name for table in tables for name in table)
    rows = [[name, *(_shown(table.get(name)) for table in tables)] for name in names]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if rows:
        table = Rows(f"figures of {entry.name} that differ", [["figure", *(one.name for one in files)], *rows])
        yield table if len(rows) <= FEW else Fold(f"{len(rows)} figures of {entry.name} differ", [table])


def _metrics(files: Files, path: str) -> dict[str, Any]:
    """Return the figures of a metrics file by dotted name; none without a file."""
    try:
        content = json.loads(files.read_text(path) or "{}")
    except ValueError as error:
        raise UserError(f"{path} of {files.name}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} of {files.name}: found {type(content).__name__}, expected a map of figures")
    return flattened(content)


def _pictures(entry: Entry, files: Sequence[Files], folder: Path) -> Iterator[Block]:
    """Pictures that differ, side by side."""
    root = (PLOTS / entry.name / "pictures").as_posix()
    found = [{path: one.read(path) for path in one.find_made(root)} for one in files]
    pictures: list[Picture] = []
    same = 0
    for path in sorted({path for one in found for path in one if path.endswith((".png", ".jpg"))}):
        sides = [(one.name, content) for one, of in zip(files, found, strict=True) if (content := of.get(path))]
        if len(sides) == len(files) and len({content for _, content in sides}) == 1:
            same += 1
            continue
        name = Path(path).stem
        try:
            row = [decode_picture(content, Path(path)) for _, content in sides]
        except UserError as error:
            yield Text(f"not compared: {error}", "warning")
            continue
        write_png(folder / f"{name}.png", side_by_side([row], [of for of, _ in sides], gap=GAP, cell=1))
        title = f"{words(name)} of {', '.join(of for of, _ in sides)}"
        pictures.append(picture_of(folder / f"{name}.png", title, f"The picture {title}, side by side."))
    if pictures:
        yield Fold(f"{len(pictures)} pictures of {entry.name} differ, {same} do not", [Pictures(pictures)])


def _training(entry: Entry, files: Sequence[Files], scratch: Path) -> Iterator[Block]:
    """Curves of trainings that differ, in shared panels."""
    history = f"runs/{entry.name}/history"
    folders = {}  # of those that have a history
    for number, one in enumerate(files):
        for path in one.find_made(history):
            folders[one.name] = scratch / f"run-{number}"
            target = folders[one.name] / "history" / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(one.read(path) or b"")
    contents = [{p.name: p.read_bytes() for p in sorted((f / "history").glob("*"))} for f in folders.values()]
    if not folders or (len(folders) == len(files) and all(content == contents[0] for content in contents)):
        return
    drawn = draw_logs({name: read_log(folder) for name, folder in folders.items()}, scratch / "trainings")
    alt = f"Curves of the trainings of {entry.name}: {', '.join(folders)}."
    yield Fold(f"Trainings of {entry.name}", [Pictures([picture_of(file, words(file.stem), alt) for file in drawn])])


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)

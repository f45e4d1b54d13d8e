"""Write the figures of README.md, docs/ and cards anew from the metrics: `python -m bench.figures`.

A figure has its name behind it, as in metrics/tolerances.yaml: `24.5 [24.3, 24.7]<!-- pix2pix.translation.psnr -->`. It
keeps its number of decimals, and its way to write 0.5 or .5. Figures to come are written with question marks, `??.?`,
and are filled as soon as `dvc repro` has written them. Figures of trainings outside of the DAG have no name; their
table follows a line `<!-- figures: ... -->` that says where they are from.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from figura.base.errors import UserError

ROOT = Path(__file__).parents[1]
NUMBER = r"-?[\d?]*\.[\d?]+"
FIGURE = re.compile(rf"(?P<value>{NUMBER})( \[(?P<low>{NUMBER}), (?P<high>{NUMBER})\])?<!-- (?P<name>[\w.]+) -->")


def pages() -> list[Path]:
    """Return README.md, the pages of docs/, and the cards of the models in weights/zoo."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("weights/zoo/*/README.md"))]


def metrics() -> dict[str, Any]:
    """Return all figures by name: numbers, or maps with `value`, `low` and `high`; those of weights/zoo, too."""
    files = {path.stem: path for path in sorted((ROOT / "metrics/full").glob("*.json"))}
    files |= {path.parent.name: path for path in sorted(ROOT.glob("weights/zoo/*/metrics.json"))}
    return {name: figure for stem, path in files.items() for name, figure in _named(json.loads(path.read_text()), stem)}


def _named(content: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        yield f"{name}.{key}", value
        if isinstance(value, Mapping):
            yield from _named(value, f"{name}.{key}")


def renewed(text: str, known: Mapping[str, Any]) -> str:
    """Return a page with the figures that the metrics have.

    Raises:
        UserError: a figure with digits has a name that no metric has, or an interval that the metric has not.
    """
    return FIGURE.sub(partial(_figure, known), text)


def _figure(known: Mapping[str, Any], match: re.Match[str]) -> str:
    name, parts = match["name"], {key: match[key] for key in ("value", "low", "high") if match[key]}
    found = known.get(name)
    if found is None and "?" in match[0]:
        return match[0]
    figure: Mapping[str, Any] = found if isinstance(found, Mapping) else {"value": found}
    if missing := [part for part in parts if figure.get(part) is None]:
        raise UserError(f"{match[0]}: metrics/full has no {' and no '.join(missing)} of {name}")
    value, *ends = (_written(figure[part], like) for part, like in parts.items())
    interval = f" [{', '.join(ends)}]" if ends else ""
    return f"{value}{interval}<!-- {name} -->"


def _written(number: float, like: str) -> str:
    whole, _, decimals = like.partition(".")
    text = f"{number:.{len(decimals)}f}"
    return text if whole.strip("-") else text.replace("0.", ".", 1) if abs(number) < 1 else text


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    known = metrics()
    for path in pages():
        before = path.read_text(encoding="utf-8")
        if (after := renewed(before, known)) != before:
            path.write_text(after, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

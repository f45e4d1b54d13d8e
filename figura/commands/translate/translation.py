"""A configuration of another trainer on its way to a recipe: what was read, what it became, and what is left."""

import math
import re
from collections.abc import Callable, Mapping
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

from figura.base.error_collector import shown
from figura.base.errors import UserError, nearest
from figura.commands.translate.reading import System
from figura.recipe.expansion import read_recipe
from figura.systems import PROJECT

PAGES = PROJECT / "docs/coming_from"
Change = Mapping[Any, Any] | Callable[[Any], Any]
Table = dict[str, tuple[Any, ...]]
"""By key there: keys here, separated by spaces; the default there (None: left as it is here); optionally a `Change`."""


@cache
def rows(page: str) -> dict[str, str]:
    """Return, by option, what the tables of a page of `docs/coming_from` say about it, without Markdown's links.

    An option that stands in several sections also has `SECTION/option`.
    """
    found: dict[str, str] = {}
    section, cells = "", list[str]()
    for line in (PAGES / f"{page}.md").read_text("utf-8").splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        before, cells = cells, [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) < 3 or not before:
            last = len(cells) == 3 and "why not" not in cells[2]  # the column in the middle is the default there
            continue
        said = cells[2] if last else "; ".join(filter(None, cells[1:]))
        said = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", said)
        for option in re.findall(r"`([^`]+)`", cells[0]):
            name = option.split()[0].rstrip(":")
            found.setdefault(name, said)
            found.setdefault(f"{section}/{name}", said)
    return found


class Translation:
    """What one source says, and the recipe that says the same.

    Args:
        system: whose configuration it is.
        source: of the configuration, for messages.
        given: its values, by dotted key or option.
        program: what a command line starts; empty for a file.
        output: the recipe to write.
        examples: pictures of the training data, by which epochs become steps; None if not known.
    """

    def __init__(
        self, system: System, source: str, given: Mapping[str, Any], program: str, output: Path, examples: int | None
    ) -> None:
        self.system, self.source, self.given = system, source, dict(given)
        self.program, self.output, self.examples = program, output, examples
        self.recipe: dict[str, Any] = {}
        self.comments: dict[str, str] = {}
        self.data: dict[str, Any] = {}
        """Entries of `datasets` in data/params.yaml."""
        self.commands: dict[str, str] = {}
        """What to run, by what it takes the place of."""
        self.remarks: list[str] = []
        self.taken = {*system.files}
        self.left: dict[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, which counts as read, or the default there.

        Raises:
            UserError: it has another type than the default.
        """
        self.taken.add(key)
        value = self.given.get(key, default)
        if isinstance(default, float) and type(value) is int:
            return float(value)
        if isinstance(default, list) and not isinstance(value, list):
            return [value]
        if default is not None and type(value) is not type(default):
            kind = type(default).__name__
            raise UserError(f"{self.source}: {key}: found {shown(value)}, expected {kind}, such as {shown(default)}")
        return value

    def set(self, here: str, value: Any, *there: str) -> None:
        """Set a dotted key of the recipe; `there` are the keys that it came from."""
        *sections, last = here.split(".")
        section = self.recipe
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
        renamed = [key for key in there if key in self.given and re.split(r"[./]", key)[-1].lstrip("-") != last]
        self.comments.pop(here, None)
        if renamed:
            self.comments[here] = ", ".join([*renamed[:2], *(["..."] if renamed[2:] else [])])

    def drop(self, here: str) -> None:
        """Remove a dotted key of the recipe, if it is there."""
        *sections, last = here.split(".")
        section = self.recipe
        for name in sections:
            section = section.get(name, {})
        section.pop(last, None)

    def start(self, recipe: str) -> None:
        """Begin with a recipe of figura, whose other settings stay."""
        with chdir(PROJECT):  # which the files that it extends are relative to
            self.recipe = read_recipe(Path("recipes", recipe))

    def table(self, table: Table) -> None:
        """Take over the keys of a table.

        Raises:
            UserError: a value is none of those that a change knows.
        """
        for there, (here, default, *change) in table.items():
            value = self.get(there, default)
            if value is None and default is None:
                continue
            for how in change:
                value = self.choice(there, value, how) if isinstance(how, Mapping) else how(value)
            for one in here.split():
                self.set(one, value, there)

    def choice(self, key: str, value: Any, known: Mapping[Any, Any]) -> Any:
        """Return what a value is here. Raises UserError if it is none of those known."""
        if not isinstance(value, str | int) or value not in known:
            raise UserError(
                f"{self.source}: {key}: found {shown(value)}, which has no counterpart here; there are "
                f"{', '.join(map(str, known))}{nearest(value, map(str, known)) if isinstance(value, str) else ''}"
            )
        return known[value]

    def leave(self, key: str, reason: str) -> None:
        """List a key as not taken over, for a reason of its own."""
        self.left[key] = reason

    def epochs(self, epochs: float, batch_size: int) -> int:
        """Return the iterations of epochs whose last batch may be smaller. Raises UserError without `examples`."""
        if self.examples is None:
            raise UserError(
                f"{self.source}: it counts in epochs, figura in steps: add --examples N, the number of its training "
                "pictures"
            )
        return round(epochs * math.ceil(self.examples / batch_size))

    def commands_of(self, prepare: str, first: str, train: str, judge: str, predict: str = "") -> None:
        """Say what to run: the stages by hand, and what each takes the place of there."""
        recipe, name = self.output, self.output.stem
        run = f"runs/{name}"
        self.commands = {
            first: prepare,
            train: f"python -m stages.train {recipe} {run}",
            judge: f"python -m stages.eval_dump {recipe} {run} && python -m stages.metrics {recipe} {run} "
            f"metrics/{name}.json plots/{name}",
            predict or "its pictures of new inputs": f"figura predict {recipe} {run} photos/ --output predicted",
        }

    def weights(self, kind: str, file: str, network: str, options: str = "") -> None:
        """Say how its trained weights are imported."""
        weights = f"weights/{self.output.stem}/start/{network}.safetensors"
        self.commands[f"{file}, a pickle, of which nothing is run"] = (
            f"figura import {kind} {file} --output {weights}{options}, then `networks.{network}.weights: {weights}`"
        )

    def listed(self) -> dict[str, list[str]]:
        """Return the keys that were not taken over, by reason."""
        found: dict[str, list[str]] = {}
        for key in self.given:
            if key not in self.taken or key in self.left:
                found.setdefault(self.left.get(key) or self._reason(self.system.row(key)), []).append(key)
        return found

    def _reason(self, key: str) -> str:
        unknown = f"docs/coming_from/{self.system.page}.md does not know it, and nothing was done"
        return described(key, self.system.page) or f"{unknown}{nearest(key, rows(self.system.page))}"


def described(key: str, page: str) -> str | None:
    """Return what a page says about a key, or `SECTION/key`: its row, or that of its longest beginning with a `*`."""
    known = rows(page)
    stars = [name for name in known if name.endswith("*") and key.startswith(name[:-1])]
    plain = known.get(key, known.get(key.rpartition("/")[2]))
    return plain or (known[max(stars, key=len)] if stars else None)

"""A configuration of another trainer on its way to a recipe: what was read, what it became, and what is left."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figura.base.error_collector import shown
from figura.base.errors import ADD, REPRO, UserError, nearest
from figura.commands.translate.reading import System
from figura.commands.translate.table import Table
from figura.recipe.expansion import read_recipe
from figura.systems import PROJECT


@dataclass
class Translation:
    """What one source says, and the recipe that says the same."""

    system: System
    keys: Table
    source: str
    """Of the configuration, for messages."""
    given: dict[str, Any]
    """Its values, by dotted key or option."""
    output: Path
    examples: int | None
    """Pictures of the training data, by which epochs become steps; None if not known."""
    program: str = ""
    """What a command line starts; empty for a file."""
    recipe: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    """Entries of `datasets` in data/params.yaml."""
    commands: dict[str, str] = field(default_factory=dict)
    """What to run, by what it takes the place of."""
    remarks: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, which counts as read, or the default there.

        Raises:
            UserError: it has another type than the default, or is not finite.
        """
        self.taken.add(key)
        value = self.given.get(key, default)
        if isinstance(default, float) and type(value) is int:
            return float(value)
        if type(default) is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(default, list) and not isinstance(value, list):
            return [value]
        endless = isinstance(value, float) and not math.isfinite(value)
        if default is not None and (endless or type(value) is not type(default)):
            kind = type(default).__name__
            raise UserError(f"{self.source}: {key}: found {shown(value)}, expected {kind}, such as {shown(default)}")
        return value

    def numbers(self, key: str, default: Sequence[float] = ()) -> list[float]:
        """Return numbers, as many as the default has if it has any. Raises UserError for another value."""
        values = self.get(key, [*default])
        finite = all(type(one) in (int, float) and math.isfinite(one) for one in values)
        if finite and len(values) == (len(default) or len(values)):
            return values
        raise UserError(f"{self.source}: {key}: found {shown(values)}; expected {len(default) or 'a list of'} numbers")

    def count(self, key: str, default: int | None = None) -> Any:
        """Return a whole number from 1, or the default there. Raises UserError for another value."""
        value = self.get(key, default)
        if value is not None and (type(value) is not int or value < 1):
            raise UserError(f"{self.source}: {key}: found {shown(value)}; expected a whole number from 1")
        return value

    def read(self, *keys: str) -> None:
        """Count keys as read that need nothing here."""
        self.taken.update(keys)

    def names(self, prefix: str) -> list[str]:
        """Return the names below a dotted prefix, in their order."""
        return list(dict.fromkeys(key[len(prefix) :].split(".")[0] for key in self.given if key.startswith(prefix)))

    def at(self, here: str) -> Any:
        """Return a section of the recipe, which is made if it is not there."""
        section = self.recipe
        for name in here.split("."):
            section = section.setdefault(name, {})
        return section

    def set(self, here: str, value: Any, *there: str) -> None:
        """Set a dotted key of the recipe; `there` are the keys that it came from."""
        sections, _, last = here.rpartition(".")
        section: Any = self.at(sections) if sections else self.recipe
        section[int(last) if isinstance(section, list) else last] = value
        renamed = [key for key in there if key in self.given and re.split(r"[./]", key)[-1].lstrip("-") != last]
        self.comments.pop(here, None)
        if renamed:
            self.comments[here] = ", ".join([*renamed[:2], *(["..."] if renamed[2:] else [])])

    def take(self, here: str, there: str, default: Any = None) -> Any:
        """Set a dotted key to the value of a key there; without value and default, the recipe's stays. Return it."""
        value = self.get(there, default)
        if value is not None:
            self.set(here, value, there)
        return value

    def drop(self, *keys: str) -> None:
        """Remove dotted keys of the recipe, if they are there."""
        for sections, _, last in (here.rpartition(".") for here in keys):
            self.at(sections).pop(last, None)

    def judge_apart(self, network: str) -> None:
        """Let a discriminator judge real and fake pictures in a call each, so that batch norm does not mix them."""
        for step, section in self.recipe["steps"].items():
            calls, section["injectors"] = section["injectors"], {}
            for name, call in calls.items():
                inputs = dict(call.get("inputs", {}))
                if call.get("network") != network or "fake" not in inputs:
                    section["injectors"][name] = call
                    continue
                fake, judged = inputs.pop("fake"), [*inputs][-1]  # behind the x of pairs
                for end, logits, image in (("real", "logits", inputs[judged]), ("fake", "fake_logits", fake)):
                    outputs = {"logits": call["outputs"][logits]}
                    entry = {**call, "inputs": {**inputs, judged: image}, "outputs": outputs}
                    section["injectors"][f"{name}_{end}"] = entry
                self.comments[f"steps.{step}.injectors.{name}_real"] = "a call each, as there: it has batch norm"

    def start(self, recipe: str) -> None:
        """Begin with a recipe of figura, whose other settings stay."""
        with chdir(PROJECT):  # which the files that it extends are relative to
            self.recipe = read_recipe(Path("recipes", recipe))

    def table(self, section: str = "", prefix: str = "") -> None:
        """Take over the keys of a section of the table, below a prefix.

        Raises:
            UserError: a value is none of those that the table knows.
        """
        for there, row in self.keys.taken[section].items():
            value = self.get(there, row.default)
            if value is None and row.default is None:
                continue
            if value in row.values or (row.values and "null" not in row.values.values()):
                value = self.choice(there, value, row.values)
            for here in row.here:
                self.set(f"{prefix}{here}", None if value == "null" else value, there)

    def choice(self, key: str, value: Any, known: Mapping[Any, Any]) -> Any:
        """Return what a value is here. Raises UserError if it is none of those known."""
        if not isinstance(value, str | int | float) or value not in known:
            names = [str(one) for one in known if one != ""]
            meant = nearest(value, names) if isinstance(value, str) else ""
            raise UserError(
                f"{self.source}: {key}: found {shown(value)}, which has no counterpart here; there are "
                f"{', '.join(names)}{meant}"
            )
        return known[value]

    def pick(self, key: str, default: str, known: Mapping[Any, Any]) -> Any:
        """Read a key, and return what its value is here. Raises UserError if it is none of those known."""
        return self.choice(key, self.get(key, default), known)

    def leave(self, key: str, reason: str) -> None:
        """List a key as not taken over, for a reason of its own."""
        self.left[key] = reason

    def epochs(self, epochs: float, batch_size: int) -> int:
        """Return the iterations of epochs whose last batch may be smaller.

        Raises:
            UserError: without `examples`, or for a batch of nothing.
        """
        if batch_size < 1:
            raise UserError(f"{self.source}: the size of a batch: found {batch_size}; expected a whole number from 1")
        if self.examples is None:
            raise UserError(
                f"{self.source}: it counts in epochs, figura in steps: add --examples N, the number of its training "
                "pictures"
            )
        return round(epochs * math.ceil(self.examples / batch_size))

    def linear(self, constant: int, falling: int, batch_size: int, to: float = 0.0) -> dict[str, Any]:
        """Return the schedule of a rate that is constant for some epochs, then falls; at its end the training ends."""
        start, end = self.epochs(constant - 1, batch_size), self.epochs(constant + falling, batch_size)
        first = 1.0 - (1.0 - to) * max(0, -start) / max(1, end - start)  # without constant epochs, it begins lower
        return {"type": "Linear", "start": max(0, start), "end": end, "from": first, "to": to}

    def below(self, folder: object, name: str) -> str:
        """Return a folder or file of raw data as data/params.yaml names it: `name` if it lies outside their source."""
        if not re.match(r"/|~|[A-Za-z]:|.*\.\.(/|$)", str(folder)):
            return str(folder)
        self.remarks.append(f"copy {folder} to {name} below the source of the data")
        return name

    def dataset(self, kind: str, entry: Mapping[str, Any], name: str = "", source: str = "", **others: Any) -> None:
        """Write the entry of data/params.yaml; by default it is called as the recipe is."""
        name = name or self.output.stem
        self.data[name] = {"kind": kind, "source": f"data/raw/{source or name}", "seed": 7, "max_rejected": 0.0}
        self.data[name] |= {**others, kind: dict(entry)}

    def run(self, first: str, train: str, judge: str, predict: str = "its pictures of new inputs") -> None:
        """Say what to run: the stages by hand, and what each takes the place of there."""
        recipe, name = self.output, self.output.stem
        run = f"runs/{name}"
        ((dataset, entry),) = self.data.items()
        self.commands = {
            first: f"{ADD} {entry['source']} && {REPRO} prepare@{dataset}",
            train: f"python -m stages.train {recipe} {run}",
            judge: f"python -m stages.eval_dump {recipe} {run} && python -m stages.metrics {recipe} {run} "
            f"metrics/{name}.json plots/{name}",
            predict: f"figura predict {recipe} {run} photos/ --output predicted",
        }

    def weights(self, kind: str, file: str, network: str, recipe: bool = False, run: bool = False) -> None:
        """Say how its trained weights are imported: as a network's first ones, or as a run that is evaluated."""
        weights = f"runs/{self.output.stem}" if run else f"weights/{self.output.stem}/start/{network}.safetensors"
        line = f"figura import {kind} {shlex.quote(file)} --output {weights}"
        line += f" --recipe {self.output}" if recipe or run else ""
        then = "" if run else f", then `networks.{network}.weights: {weights}`"
        self.commands[f"{file}, a pickle, of which nothing is run"] = f"{line}{then}"

    def listed(self) -> dict[str, list[str]]:
        """Return the keys that were not taken over, by reason."""
        found: dict[str, list[str]] = {}
        for key in self.given:
            if key not in self.taken or key in self.left:
                found.setdefault(self.left.get(key) or self._reason(key), []).append(key)
        return found

    def _reason(self, key: str) -> str:
        said = self.keys.describe(self.system.row(key)) or self.keys.said.get(key)
        return said or f"figura's table of {self.system.name} does not know it, and nothing was done" + nearest(
            key, self.keys.said
        )

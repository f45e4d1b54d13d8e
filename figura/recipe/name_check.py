"""Check that every name exists when it is read, given gates and mixtures, in training and in validation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from figura.base.error_collector import ErrorCollector
from figura.interfaces import Injector
from figura.recipe.gates import Gate, When, can_run, covers_every_iteration, describe
from figura.recipe.schema import Recipe

Injectors = Mapping[str, Mapping[str, Injector]]
"""The constructed injectors of each step."""


@dataclass(frozen=True)
class Place:
    """Where names are read or added: its key, its gates, the `requires` and the `accumulation` of its step."""

    key: str
    when: When
    requires: frozenset[str]
    parts: int


class NameCheck:
    """Compares the names that are read with those that exist; adds each error to `errors` once."""

    def __init__(self, errors: ErrorCollector) -> None:
        self.errors = errors
        self.on = True  # False once a dataset or injector failed to build: its names are then unknown
        self._reported: set[tuple[str, str]] = set()

    def known(self, wanted: Iterable[str], names: Iterable[str], key: str) -> None:
        """Add an error for each name in `wanted` that is not in `names`."""
        for name in wanted:
            if name not in names:
                self.report(key, name, None, names)

    def chain(self, injectors: Mapping[str, Injector], names: Iterable[str], key: str) -> set[str]:
        """Follow injectors that always run; return `names` and the names they add."""
        names = set(names)
        for name, injector in injectors.items():
            self.known(injector.reads, names, f"{key}.{name}")
            self.report_duplicate(set(injector.adds) & names, f"{key}.{name}")
            names |= set(injector.adds)
        return names

    def steps(
        self, recipe: Recipe, injectors: Injectors, training_only: Iterable[str], train: Sequence[set[str]],
        validation: Sequence[set[str]],
    ) -> set[str]:  # fmt: skip
        """Follow the names through the steps, first in training, then in validation; return all names of validation.

        `train` and `validation` hold the names that each dataset of the split provides. `training_only` holds the
        losses that validation skips.
        """
        self._check_gates_that_never_open(recipe)
        _Pass(self, recipe, injectors, train, training=True).follow(list(recipe.losses))
        validating = _Pass(self, recipe, injectors, validation, training=False)
        validating.follow([loss for loss in recipe.losses if loss not in training_only])
        return validating.all_names()

    def _check_gates_that_never_open(self, recipe: Recipe) -> None:
        gates = {f"losses.{n}": (recipe.loss_step(n), entry.gate) for n, entry in recipe.losses.items()}
        for step, entry in recipe.steps.items():
            gates |= {f"steps.{step}.injectors.{n}": (step, one.gate) for n, one in entry.injectors.items()}
        for key, (step, gate) in gates.items():
            outer = (recipe.steps[step].gate,) if step in recipe.steps else ()
            if can_run(outer) and not can_run((*outer, gate)):
                self.errors.add(
                    key,
                    f"{describe((gate,))}: it would never run, its step {step!r} runs {describe(outer)}",
                )

    def report_duplicate(self, names: Iterable[str], key: str) -> None:
        """Add an error for each existing name that an injector adds again."""
        for name in sorted(names):
            self.report(key, name, f"adds {name!r}, which is there already: a name is written once")

    def report(self, key: str, name: str, message: str | None, allowed: Iterable[str] = ()) -> None:
        """Add an error about a name at `key`; the default message is that it is not in `allowed`."""
        if not self.on or (key, name) in self._reported:
            return
        self._reported.add((key, name))
        if message is not None:
            self.errors.add(key, message)
        else:
            self.errors.add_unknown(key, name, allowed, "name: nobody provides")


class _Pass:
    """The names of one iteration, in training or in validation."""

    def __init__(
        self, check: NameCheck, recipe: Recipe, injectors: Injectors, provided: Sequence[set[str]], *, training: bool
    ) -> None:
        self.check, self.recipe, self.injectors, self.provided = check, recipe, injectors, provided
        self.training = training
        self.makers: dict[str, list[Place]] = {}

    def all_names(self) -> set[str]:
        """Return the names that exist in at least some iterations; of the batch, those that all datasets provide."""
        return self._of_batch(frozenset()) | self.makers.keys()

    def follow(self, losses: Iterable[str]) -> None:
        """Check every reader of every step."""
        for name, step in self.recipe.steps.items():
            key, requires = f"steps.{name}", frozenset(step.requires)
            parts = self.recipe.parts(name) if self.training else 1
            gate = self._gate(step.gate)
            for wanted in requires:
                if not any(wanted in names for names in self.provided):
                    made = any(maker.parts == parts for maker in self.makers.get(wanted, ()))
                    self.check.known([wanted], [wanted] if made else self.all_names(), f"{key}.requires")
            self._read(step.detach, Place(f"{key}.detach", (gate,), requires, parts))
            for injector_name, injector in self.injectors.get(name, {}).items():
                entry = step.injectors[injector_name]
                if entry.only != ("evaluation" if self.training else "training"):
                    when = (gate, self._gate(entry.gate))
                    place = Place(f"{key}.injectors.{injector_name}", when, requires, parts)
                    self._read(injector.reads, place)
                    self._add(injector.adds, place)
            for loss in (loss for loss in losses if self.recipe.loss_step(loss) == name):
                declared = self.recipe.losses[loss]
                when = (gate, self._gate(declared.gate))
                for role, wanted in declared.inputs.items():
                    # a batch that lacks an input skips the loss
                    if not any(wanted in names for names in self.provided):
                        self._read([wanted], Place(f"losses.{loss}.inputs.{role}", when, requires, parts))

    def _gate(self, gate: Gate) -> Gate:
        return gate if self.training else Gate(1, gate.after, gate.before)

    def _of_batch(self, requires: frozenset[str]) -> set[str]:
        """Return the names that every dataset with the required names provides."""
        some = set[str]().union(*self.provided)
        chosen = [names for names in self.provided if requires & some <= names]
        return set[str].intersection(*chosen) if chosen else set()

    def _add(self, names: Iterable[str], adder: Place) -> None:
        some = set[str]().union(*self.provided)
        for name in names:
            others = self.makers.setdefault(name, [])
            if name in some or any(m.parts == adder.parts and can_run((*m.when, *adder.when)) for m in others):
                self.check.report_duplicate([name], adder.key)
            others.append(adder)

    def _read(self, wanted: Iterable[str], reader: Place) -> None:
        batch = self._of_batch(reader.requires)
        available = batch | reader.requires
        for name in wanted:
            makers = [m for m in self.makers.get(name, []) if m.parts == reader.parts and m.requires <= available]
            if name in available or covers_every_iteration(reader.when, [maker.when for maker in makers]):
                continue
            self.check.report(reader.key, name, self._why(name, reader, makers), batch | self.makers.keys())

    def _why(self, name: str, reader: Place, makers: Sequence[Place]) -> str | None:
        """Return why a name is missing in some or all iterations; None if nothing ever adds it."""
        if any(name in names for names in self.provided):
            return f"{name!r} comes from some datasets only; a step that reads it says `requires: [{name}]`"
        if makers:
            adds = "; ".join(f"{maker.key} adds it {describe(maker.when)}" for maker in makers)
            return f"{name!r} is not there in every iteration in which this runs ({describe(reader.when)}): {adds}"
        if others := self.makers.get(name):
            first = others[0]
            if first.parts != reader.parts:
                return (
                    f"{name!r} is made by {first.key} in {first.parts} parts of a batch, this goes in {reader.parts}: "
                    "names are shared by steps of the same accumulation"
                )
            lacking = ", ".join(sorted(first.requires - reader.requires))
            return f"{name!r} is made by {first.key}, whose step requires {lacking}; this one does not"
        elsewhere = [
            f"steps.{step}.injectors.{place} is for {self.recipe.steps[step].injectors[place].only} only"
            for step, made in self.injectors.items()
            for place, injector in made.items()
            if name in injector.adds and self.recipe.steps[step].injectors[place].only
        ]
        kind = "training" if self.training else "validation passes"
        return f"in {kind} nobody provides {name!r}: {'; '.join(elsewhere)}" if elsewhere else None

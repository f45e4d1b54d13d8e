"""Check that every name exists when it is read, given gates and mixtures, in training and in validation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm

from figura.base.error_collector import ErrorCollector
from figura.interfaces import Injector
from figura.recipe.gates import ALWAYS, Gate, When, iterations
from figura.recipe.schema import Recipe

Injectors = Mapping[str, Mapping[str, Injector]]  # the constructed injectors of each step


@dataclass(frozen=True)
class Place:
    """Where names are read or added: its key, its gates, and the `accumulation` of its step."""

    key: str
    when: When
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
                    key, f"{describe((gate,))}: it would never run, its step {step!r} runs {describe(outer)}"
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
            self.errors.add_unknown(key, name, allowed, "name: nothing provides")


class _Pass:
    """The names of one iteration, in training or in validation."""

    def __init__(
        self, check: NameCheck, recipe: Recipe, injectors: Injectors, provided: Sequence[set[str]], *, training: bool
    ) -> None:
        self.check, self.recipe, self.injectors, self.provided = check, recipe, injectors, provided
        self.training = training
        self.batch = set[str]().union(*provided)  # a step or loss is skipped for a batch that lacks one of these
        self.makers: dict[str, list[Place]] = {}

    def all_names(self) -> set[str]:
        """Return the names that exist in at least some iterations; of the batch, those that all datasets provide."""
        return set[str].intersection(*self.provided or [set()]) | self.makers.keys()

    def follow(self, losses: Iterable[str]) -> None:
        """Check every reader of every step."""
        for name, step in self.recipe.steps.items():
            key, gate = f"steps.{name}", self._gate(step.gate)
            parts = self.recipe.parts(name) if self.training else 1
            self._read(step.detach, Place(f"{key}.detach", (gate,), parts))
            for injector_name, injector in self.injectors.get(name, {}).items():
                entry = step.injectors[injector_name]
                if entry.only != ("evaluation" if self.training else "training"):
                    when = (gate, self._gate(entry.gate))
                    place = Place(f"{key}.injectors.{injector_name}", when, parts)
                    self._read(injector.reads, place)
                    self._add(injector.adds, place)
            for loss in (loss for loss in losses if self.recipe.loss_step(loss) == name):
                declared = self.recipe.losses[loss]
                when = (gate, self._gate(declared.gate))
                for role, wanted in declared.inputs.items():
                    self._read([wanted], Place(f"losses.{loss}.inputs.{role}", when, parts))

    def _gate(self, gate: Gate) -> Gate:
        return gate if self.training else Gate(1, gate.after, gate.before)

    def _add(self, names: Iterable[str], adder: Place) -> None:
        for name in names:
            others = self.makers.setdefault(name, [])
            if name in self.batch or any(m.parts == adder.parts and can_run((*m.when, *adder.when)) for m in others):
                self.check.report_duplicate([name], adder.key)
            others.append(adder)

    def _read(self, wanted: Iterable[str], reader: Place) -> None:
        for name in wanted:
            makers = [maker for maker in self.makers.get(name, []) if maker.parts == reader.parts]
            if name in self.batch or covers_every_iteration(reader.when, [maker.when for maker in makers]):
                continue
            self.check.report(reader.key, name, self._why(name, reader, makers), self.batch | self.makers.keys())

    def _why(self, name: str, reader: Place, makers: Sequence[Place]) -> str | None:
        """Return why a name is missing in some or all iterations; None if nothing ever adds it."""
        if makers:
            adds = "; ".join(f"{maker.key} adds it {describe(maker.when)}" for maker in makers)
            return f"{name!r} is not there in every iteration in which this runs ({describe(reader.when)}): {adds}"
        if others := self.makers.get(name):
            return (
                f"{name!r} is made by {others[0].key} in {others[0].parts} parts of a batch, this goes in "
                f"{reader.parts}: names are shared by steps of the same accumulation"
            )
        elsewhere = [
            f"steps.{step}.injectors.{place} is for {self.recipe.steps[step].injectors[place].only} only"
            for step, made in self.injectors.items()
            for place, injector in made.items()
            if name in injector.adds and self.recipe.steps[step].injectors[place].only
        ]
        kind = "training" if self.training else "validation passes"
        return f"in {kind} nothing provides {name!r}: {'; '.join(elsewhere)}" if elsewhere else None


def covers_every_iteration(reader: When, makers: Sequence[When]) -> bool:
    """Whether at least one of `makers` is active in every iteration in which `reader` is.

    Walks the reader's iterations from each bound on, until all that run every so many iterations have met again: the
    rest repeats. At most 65,536 iterations are walked from a bound.
    """
    read, made = iterations(reader), [iterations(maker) for maker in makers]
    bounds = {read.start, *(bound for maker in made for bound in (maker.start, maker.stop) if bound > read.start)}
    period = min(lcm(*(maker.step for maker in made)), 2**16)
    return all(
        any(t in maker for maker in made)
        for bound in bounds
        for t in read[-((read.start - bound) // read.step) :][:period]
    )


def can_run(when: When) -> bool:
    """Whether all gates are active in some common iteration."""
    return bool(iterations(when))


def describe(when: When) -> str:
    """Return gates as text: `every 2, after 5`."""
    return ", ".join(dict.fromkeys(str(gate) for gate in when if gate != ALWAYS)) or "always"

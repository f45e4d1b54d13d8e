"""The recipe's data-flow graph: producers and consumers of each tensor name, and which steps update which network.

Nothing is run, and only the recipe is read. `dry_run.py` adds shapes and costs, `diagram.py` draws the graph.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from figura.base.errors import UserError, nearest
from figura.engine.build import build_injectors
from figura.injectors.forward import Forward
from figura.injectors.tensors import Detach, Interpolate
from figura.interfaces import Injector
from figura.recipe.schema import DatasetEntry, Declaration, Gated, LossEntry, Recipe, StepEntry
from figura.recipe.types import batch_names, partial_names

Kind = Literal["data", "injector", "loss", "saved"]


@dataclass(frozen=True)
class Box:
    """A node of the graph: it reads names of the state, adds names, or both.

    Attributes:
        key: its key in the recipe, `steps.D.injectors.judge`.
        kind: what it is.
        title: its name, the last part of the key.
        lines: further short lines of text.
        inputs: (role, name in the state) of each input.
        outputs: the names that it adds.
        network: the network that it calls.
        averaged: whether it calls the averaged weights.
        cuts: whether it stops the gradient.
        learns: the steps that train the network through this very call.
        weight: a loss's weight without its schedule.
    """

    key: str
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[str, ...] = ()
    network: str | None = None
    averaged: bool = False
    cuts: bool = False
    learns: tuple[str, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True)
class Panel:
    """The boxes of one step, of a mode, or of the data, in the order in which they run.

    `off` are losses of weight 0, which are not computed.
    """

    kind: Literal["data", "step", "mode"]
    title: str
    lines: tuple[str, ...]
    boxes: tuple[Box, ...]
    off: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flow:
    """The panels in order, the data first. `unread` are names in the data that no box reads."""

    panels: tuple[Panel, ...]
    unread: tuple[str, ...]

    @property
    def boxes(self) -> dict[str, Box]:
        """All boxes by key."""
        return {box.key: box for panel in self.panels for box in panel.boxes}


def training_flow(recipe: Recipe) -> Flow:
    """Return the graph of a training iteration in which every step runs."""
    panels = []
    for name, step in recipe.steps.items():
        entries = {key: entry for key, entry in step.injectors.items() if entry.only != "evaluation"}
        injectors = _injector_boxes(entries, f"steps.{name}.injectors")
        own = {key: loss for key, loss in recipe.losses.items() if recipe.loss_step(key) == name}
        losses = [_loss_box(key, loss) for key, loss in own.items() if loss.weight != 0]
        off = tuple(key for key, loss in own.items() if loss.weight == 0)
        panels.append(Panel("step", name, tuple(_step_lines(step)), (*injectors, *losses), off))
    return _with_data(recipe, recipe.data.train, _with_learners(recipe, panels))


def mode_flow(recipe: Recipe, mode: str) -> Flow:
    """Return the graph of a mode of `evaluate`: what it computes from a validation batch, and what it saves.

    Raises:
        UserError: the mode is unknown.
    """
    modes = recipe.evaluate.modes
    if mode not in modes:
        raise UserError(f"no mode {mode!r}{nearest(mode, modes)}; there are {', '.join(modes)}")
    key = f"evaluate.modes.{mode}"
    injectors = _injector_boxes(modes[mode].injectors, f"{key}.injectors")
    saved = [
        Box(f"{key}.save.{name}", "saved", name, (form,), inputs=((name, name),))
        for name, form in modes[mode].save.items()
    ]
    repeat = modes[mode].repeat
    lines = ("evaluation of trained networks", *((f"{repeat} draws an example",) if repeat > 1 else ()))
    return _with_data(recipe, recipe.data.validation, [Panel("mode", mode, lines, (*injectors, *saved))])


def _injector_boxes(entries: Mapping[str, Declaration], key: str) -> list[Box]:
    boxes = []
    for (name, entry), injector in zip(entries.items(), build_injectors(dict(entries), key), strict=True):
        call = injector if isinstance(injector, Forward) else None
        roles = call.inputs if call else {read: read for read in injector.reads}
        boxes.append(
            Box(
                f"{key}.{name}", "injector", name, tuple(_injector_lines(entry, injector)), tuple(roles.items()),
                injector.adds, call.network if call else None, averaged=call is not None and call.weights == "ema",
                cuts=isinstance(injector, Detach | Interpolate) or (call is not None and not call.grad),
            )
        )  # fmt: skip
    return boxes


def _injector_lines(entry: Declaration, injector: Injector) -> Iterable[str]:
    if isinstance(injector, Forward):
        for key, value in (entry.arguments.get("args") or {}).items():
            yield f"{key} {worded(value) if isinstance(value, dict) and 'type' in value else short(value)}"
        if injector.weights == "ema":
            yield "averaged weights"
        if not injector.grad:
            yield "without gradient"
    else:
        yield entry.type
    if isinstance(entry, Gated):
        yield from _gate_line(entry)


def _gate_line(entry: Gated) -> Iterable[str]:
    if (gate := str(entry.gate)) != "always":
        yield gate


def _loss_box(name: str, entry: LossEntry) -> Box:
    lines = [entry.type]
    if entry.schedule is not None:
        lines.append(f"× {worded(entry.schedule.model_dump())}")
    lines += _gate_line(entry)
    return Box(f"losses.{name}", "loss", name, tuple(lines), tuple(entry.inputs.items()), weight=entry.weight)


def _step_lines(step: StepEntry) -> Iterable[str]:
    yield f"trains {', '.join(step.trains)}"
    yield worded(step.optimizer.model_dump())
    if step.lr_schedule is not None:
        yield f"rate × {worded(step.lr_schedule.model_dump())}"
    options = list(_gate_line(step))
    options += [f"{key} {value:g}" for key in ("clip", "clip_value") if (value := getattr(step, key)) is not None]
    if step.detach:
        options.append(f"no gradient into {', '.join(step.detach)}")
    if options:
        yield ", ".join(options)


def _with_learners(recipe: Recipe, panels: Sequence[Panel]) -> list[Panel]:
    """Set `learns` of each network call: the steps whose gradient reaches it, followed backwards from their losses."""
    learners: dict[str, list[str]] = {}
    for at, panel in enumerate(panels):
        seen = set[str]()
        open_boxes = [(at, box) for box in panel.boxes if box.kind == "loss"]
        while open_boxes:
            place, reader = open_boxes.pop()
            found = (one for _, name in reader.inputs for one in producers(panels, place, reader, name))
            for source, box in found:
                arrives = not (source != place and set(box.outputs) & set(recipe.steps[panels[place].title].detach))
                if box.key in seen or box.cuts or not arrives:
                    continue
                seen.add(box.key)
                if box.network in recipe.steps[panel.title].trains and not box.averaged:
                    learners.setdefault(box.key, []).append(panel.title)
                open_boxes.append((source, box))
    return [
        replace(panel, boxes=tuple(replace(box, learns=tuple(learners.get(box.key, ()))) for box in panel.boxes))
        for panel in panels
    ]


def producers(panels: Sequence[Panel], at: int, reader: Box, name: str) -> list[tuple[int, Box]]:
    """Return the boxes that may produce `name` for a box of panel `at`; several, if they never run together.

    Producers inside the panel hide those of earlier panels.
    """
    before = takewhile(lambda box: box.key != reader.key, panels[at].boxes)
    own = [(at, box) for box in before if name in box.outputs]
    return own or [(k, box) for k in range(at) for box in panels[k].boxes if name in box.outputs]


def _with_data(recipe: Recipe, entries: Mapping[str, DatasetEntry], panels: Sequence[Panel]) -> Flow:
    read = {name for panel in panels for box in panel.boxes for _, name in box.inputs}
    provided = [*batch_names(entries), *sorted(partial_names(recipe) & read)]
    total = sum(entry.weight for entry in entries.values())
    changing = any(getattr(entry, "schedule", None) for entry in entries.values())
    boxes = []
    for name, entry in entries.items():
        share = () if len(entries) == 1 or changing else (f"{entry.weight / total:.0%} of the batches",)
        boxes.append((name, (entry.type, *share)))
    title, lines = boxes[0] if len(boxes) == 1 else ("batch", tuple(f"{n}: {', '.join(what)}" for n, what in boxes))
    data = Box("data", "data", title, lines, outputs=tuple(name for name in provided if name in read))
    unread = tuple(name for name in provided if name not in read)
    return Flow((Panel("data", "data", (), (data,)), *panels), unread)


def worded(entry: Mapping[str, Any]) -> str:
    """Format a declaration: `Linear 0 → 1, 500–1750`, or `WarmUp steps 30, then Cosine 1 → 0, 60–1100`."""
    options = dict(entry)
    kind = str(options.pop("type")).rpartition(".")[2]
    parts = []
    if {"start", "end", "from", "to"} <= options.keys():
        first, to, start, end = (options.pop(key) for key in ("from", "to", "start", "end"))
        parts = [f"{first:g} → {to:g}, {start}–{end}"]
    parts += [
        f"{key} {worded(v) if isinstance(v, Mapping) and 'type' in v else short(v)}" for key, v in options.items()
    ]
    return f"{kind} {', '.join(parts)}".strip()


def short(value: Any) -> str:
    """Format a value as in YAML, floats without trailing zeros."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    return f"[{', '.join(map(short, value))}]" if isinstance(value, list | tuple) else str(value)

"""Computes sizes and positions in the diagram of a recipe: boxes and their text, columns, panels.

Lengths are in pixels at 100 dpi, font sizes in points; y points downwards from the top of the highest box.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from figura.commands.describe.dataflow import Box, Flow, producers
from figura.commands.describe.graph_layout import Columns, Item, arrange, with_slots

WIDTH = 1600.0  # minimum width of a diagram
LARGEST_ZOOM = 1.3  # for a diagram with few columns
FONT = "DejaVu Sans"
TITLE, TEXT, SMALL = 10.5, 8.5, 8.0  # points
ROW, HEAD, PAD, TURN, MARGIN = 15.0, 22.0, 9.0, 58.0, 22.0
WIDEST_LINE = 190.0  # inside a box
CURVE = 24.0  # height of a weight's curve
LABEL_LINE = 12.0


@dataclass(frozen=True)
class Placed:
    """A box with its place in the column and its text: below the title (`lines`), at each arrow, at the end (`tag`).

    `head` is the height above the first arrow.
    """

    box: Box
    item: Item
    lines: list[str]
    inputs: list[str]
    tag: str
    width: float
    head: float


class Placement:
    """The positions of all boxes and columns.

    A wire is one output of one box. If several boxes produce the same name in turn, each has a wire.

    Attributes:
        columns: boxes and slots of passing wires, from the top.
        placed: boxes with their text, by key.
        wires: name and producer, by key of the wire.
        panel_of: each column's panel number.
        lefts: left edge of each column; `widths` their widths.
        labels: width of the wires' labels after each column; wires bend only to the right of them.
        width: total width; `height` is that of the highest column.
        zoom: factor that enlarges the diagram to `WIDTH`.
    """

    def __init__(self, flow: Flow, shapes: Mapping[str, Sequence[str]]) -> None:
        self.flow, self.shapes = flow, shapes
        self.wires = {f"{name}@{box.key}": (name, box) for box in flow.boxes.values() for name in box.outputs}
        self.placed: dict[str, Placed] = {}
        self.panel_of: list[int] = []
        columns: Columns = []
        for number, panel in enumerate(flow.panels):
            for layer in range(1 + max(box.layer for box in panel.boxes)):
                columns.append([self._sized(number, box) for box in panel.boxes if box.layer == layer])
                self.panel_of.append(number)
        self.columns = with_slots(columns)
        arrange(self.columns)
        self.height = max(item.top + item.height for column in self.columns for item in column)
        self._place_columns()

    def label(self, wire: str) -> list[str]:
        """Return the lines below a wire's name: its shapes, at most three."""
        shapes = list(self.shapes.get(self.wires[wire][0], ()))
        return shapes if len(shapes) <= 3 else [*shapes[:2], f"and {len(shapes) - 2} more"]

    def border(self, at: int) -> bool:
        """Whether another panel begins after a column."""
        return self.panel_of[at] != self.panel_of[at + 1]

    def span(self, number: int) -> tuple[float, float]:
        """Return the left and right end of a panel."""
        own = [at for at, panel in enumerate(self.panel_of) if panel == number]
        return self.lefts[own[0]] - MARGIN + 4, self.lefts[own[-1]] + self.widths[own[-1]] + MARGIN - 4

    def _sized(self, number: int, box: Box) -> Item:
        reads = [
            (f"{name}@{producer.key}", name if role == name else f"{role} ← {name}")
            for role, name in box.inputs
            for _, producer in producers(self.flow.panels, number, box, name)
        ]
        inputs = [text for _, text in reads]
        texts = [part for line in box.lines for part in fitted(line, WIDEST_LINE)]
        if box.kind == "saved":  # the title is the name already: write the format at the arrow
            texts, inputs = [], texts
        tag = ""
        if box.network is not None and box.key.startswith("steps."):
            tag = f"trained by {', '.join(box.learns)}" if box.learns else "not trained here"
        weight = text_width(f"× {box.weight:g}", TITLE, True) + 14 if box.kind == "loss" else 0
        width = max(
            text_width(box.title, TITLE, True) + weight,
            text_width(box.network or "", TEXT, True),
            *(text_width(line, TEXT) for line in (*texts, *inputs, tag)),
        )  # fmt: skip
        head = HEAD + ROW * (len(texts) + (box.network is not None)) + CURVE * varies(box)
        step = 26.0 + LABEL_LINE * max((len(self.label(f"{name}@{box.key}")) for name in box.outputs), default=0)
        height = max(head + ROW * len(inputs) + ROW * bool(tag) + PAD, step * len(box.outputs))
        count = len(box.outputs)
        item = Item(
            box.key, [wire for wire, _ in reads], [f"{name}@{box.key}" for name in box.outputs], height,
            [head + ROW * (place + 0.5) for place in range(len(inputs))],
            [height / 2 + step * (place - (count - 1) / 2) for place in range(count)],
        )  # fmt: skip
        self.placed[box.key] = Placed(box, item, texts, inputs, tag, width + 2 * PAD + 2, head)
        return item

    def _place_columns(self) -> None:
        """Compute the width and left edge of every column; a narrow diagram is stretched where wires bend."""
        self.widths = [max(self.placed[i.key].width for i in column if not i.slot) for column in self.columns]
        self.labels = [self._label_width(at) for at in range(len(self.columns) - 1)]
        natural = sum(self.widths) + sum(self.labels) + TURN * len(self.labels) + 4 * MARGIN
        self.zoom = min(LARGEST_ZOOM, max(1.0, WIDTH / natural))
        self.width = max(natural, WIDTH / self.zoom)
        turn = TURN + (self.width - natural) / max(len(self.labels), 1)
        self.lefts = [2 * MARGIN]
        for width, label in zip(self.widths, self.labels, strict=False):
            self.lefts.append(self.lefts[-1] + width + label + turn)

    def _label_width(self, at: int) -> float:
        """Return the width of the labels after a column, with the margins of a panel's border."""
        widths = [0.0]
        for item in self.columns[at]:
            for wire in item.gives:
                name = self.wires[wire][0]
                if not item.slot:
                    widths += [text_width(name, TEXT, True), *(text_width(line, SMALL) for line in self.label(wire))]
                elif self.border(at):
                    widths.append(text_width(name, TEXT, True))
        return max(widths) + (8.0 + 2 * MARGIN if self.border(at) else 8.0)


def varies(box: Box) -> bool:
    """Whether a loss's weight changes."""
    return len(set(box.weights)) > 1


def fitted(text: str, width: float) -> list[str]:
    """Wrap a text at its commas into lines of at most `width`, if the parts fit; [lists] stay whole."""
    wrapped: list[str] = []
    for part in re.split(r"(?<=,) (?![^\[]*\])", text):
        longer = f"{wrapped[-1]} {part}" if wrapped else part
        if wrapped and text_width(longer, TEXT) <= width:
            wrapped[-1] = longer
        else:
            wrapped.append(part)
    return wrapped


@cache
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of a text in pixels."""
    if not text.strip():
        return 0.0
    font = FontProperties(family=FONT, weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text, size=size, prop=font).get_extents().x1) * 100 / 72

"""Draws a recipe's data-flow graph: boxes from top to bottom in the order of execution, and a lane for each tensor.

A line from a box to the upper end of a lane adds a tensor; an arrow from the lane to a box reads it. Colours show where
a tensor comes from: each network has one colour for its calls and their outputs; data is grey. A call is filled if a
step trains the network through it, and dashed if none does.
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from figura.base.files import replacing
from figura.commands.describe.dataflow import Box, Flow, Panel, producers

NETWORKS = ("#2f6fb0", "#d9791f", "#3f8f5f", "#8a5fb3", "#b5485d", "#2a9299", "#8c6d3f")
DATA = ("#46515f", "#8b7150", "#4f7d78", "#84688c")  # alternating, to tell neighbouring lanes apart
PLAIN, LOSS, SAVED, INK, SOFT, PANEL = "#77736a", "#b0303f", "#4d6a6d", "#20262d", "#626b76", "#f4f5f7"
SANS, MONO = "DejaVu Sans", "DejaVu Sans Mono"
TITLE, TEXT, TABLE = 10.5, 8.5, 8.0  # points
WIDTH, ROW, GAP, LANE, MARGIN = 640.0, 17.0, 12.0, 20.0, 22.0  # hundredths of an inch
LETTERS = 98  # of size `TEXT` in a line
KEY = "colour: where a tensor comes from"
STEP_KEY = "filled: a step trains the network through this call; dashed: no step does; " + KEY

Wire = tuple[str, str]
"""Name of a tensor, and key of the box that adds it: if several boxes add the same name in turn, each has a wire."""


def draw_flow(
    flow: Flow, shapes: Mapping[str, Sequence[str]], title: str, footers: Mapping[str, str],
    table: Sequence[str], notes: Sequence[str], path: Path,
) -> None:  # fmt: skip
    """Draw a recipe to `path`, .png or .svg; the same arguments give the same bytes.

    Args:
        flow: the graph to draw.
        shapes: the shapes of each name's tensors, where known.
        title: headline.
        footers: a line at the bottom of a panel, by the panel's title.
        table: lines about the networks, with aligned columns.
        notes: lines at the end.
        path: the file to write.
    """
    drawing = _Drawing(flow, shapes)
    drawing.write(title, TITLE + 2, bold=True)
    for panel in flow.panels:
        drawing.panel(panel, footers.get(panel.title, ""))
    for line in table:
        drawing.text(0.0, line, TABLE, family=MONO)
        drawing.y += ROW
    for note in [*notes, STEP_KEY if flow.panels[1].kind == "step" else KEY]:
        drawing.write(note, TEXT, colour=SOFT)
    figure = drawing.figure()
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "figura"}):
        figure.savefig(temporary, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})


def lanes(spans: Mapping[Wire, tuple[float, float]]) -> dict[Wire, int]:
    """Return a lane for each span (start, end): spans in one lane do not touch, and short ones get the first lanes."""
    taken: list[list[tuple[float, float]]] = []
    places = {}
    for wire, (start, end) in sorted(spans.items(), key=lambda item: item[1][1] - item[1][0]):
        free = (n for n, others in enumerate(taken) if all(end < first or last < start for first, last in others))
        places[wire] = next(free, len(taken))
        if places[wire] == len(taken):
            taken.append([])
        taken[places[wire]].append((start, end))
    return places


class _Drawing:
    """A drawing that grows downwards: `y` is the height of the next line, from the top.

    Boxes are between x = 0 and `WIDTH`, lanes to the left of them.
    """

    def __init__(self, flow: Flow, shapes: Mapping[str, Sequence[str]]) -> None:
        self.flow, self.shapes = flow, shapes
        called = dict.fromkeys(box.network for box in flow.boxes.values() if box.network)
        self.networks = {name: NETWORKS[index % len(NETWORKS)] for index, name in enumerate(called)}
        self.axes = Figure(facecolor="white").add_axes((0.0, 0.0, 1.0, 1.0))
        self.y = MARGIN
        self.panels: list[tuple[float, float]] = []  # upper and lower ends
        self.added: dict[Wire, float] = {}  # height at which a tensor leaves its box
        self.read: dict[Wire, list[float]] = {}  # heights at which it enters boxes

    def write(self, text: str, size: float = TEXT, *, x: float = 0.0, **style: Any) -> None:
        """Write a text below what was drawn last, wrapped; `style` is that of `text`."""
        letters = int(LETTERS * TEXT / size)
        for line in textwrap.wrap(text, letters, break_on_hyphens=False, subsequent_indent="    "):
            self.text(x, line, size, **style)
            self.y += ROW

    def text(
        self, x: float, text: str, size: float, *, colour: str = INK, family: str = SANS, bold: bool = False,
        italic: bool = False, align: str = "left",
    ) -> None:  # fmt: skip
        """Write a line of text at the height `y`, which stays."""
        self.axes.text(
            x, self.y, text, fontsize=size, color=colour, ha=align, va="center", family=family, parse_math=False,
            weight="bold" if bold else "normal", style="italic" if italic else "normal", zorder=6,
        )  # fmt: skip

    def panel(self, panel: Panel, footer: str) -> None:
        """Draw a panel with its boxes; its background follows in `figure`."""
        top = self.y
        self.y += GAP + ROW / 2
        self.write(panel.title if panel.kind == "data" else f"{panel.kind} {panel.title}", TITLE + 1.5, bold=True)
        for line in panel.lines:
            self.write(line, colour=SOFT)
        for box in panel.boxes:
            self._box(self.flow.panels.index(panel), box)
        self.y += 1.5 * GAP
        if panel.off:
            self.write(f"weight 0: {', '.join(panel.off)}", colour=SOFT, italic=True)
        if footer:
            self.write(footer)
        self.panels.append((top, self.y))
        self.y += 2 * GAP

    def figure(self) -> Figure:
        """Draw the lanes and the backgrounds of panels; return the whole picture, as large as needed."""
        spans = {wire: (start, max([start, *self.read.get(wire, ())])) for wire, start in self.added.items()}
        places = lanes(spans)
        left = -LANE * (2 + max(places.values(), default=0))
        data = [wire for wire in self.added if self.flow.boxes[wire[1]].kind == "data"]
        for wire, (start, end) in spans.items():
            x = -LANE * (1 + places[wire])
            colour = DATA[data.index(wire) % len(DATA)] if wire in data else self._colour(self.flow.boxes[wire[1]])
            self.axes.plot([0, x, x], [start, start, end], color=colour, linewidth=1.7, zorder=2)
            self.axes.plot(x, start, marker="o", markersize=5, color=colour, zorder=3)
            for y in self.read.get(wire, ()):
                self.axes.plot([x, 0], [y, y], color=colour, linewidth=1.7, zorder=2)
                self.axes.fill([0, -8, -8], [y, y - 4, y + 4], color=colour, linewidth=0, zorder=4)
        for top, bottom in self.panels:
            self._patch(left, top, WIDTH + GAP - left, bottom - top, PANEL, "none", order=0)
        left, right = left - MARGIN, WIDTH + GAP + MARGIN
        self.axes.set(xlim=(left, right), ylim=(self.y + MARGIN, 0))
        self.axes.set_axis_off()
        figure = self.axes.get_figure(root=True)
        assert figure is not None
        figure.set_size_inches((right - left) / 100, (self.y + MARGIN) / 100)
        return figure

    def _box(self, at: int, box: Box) -> None:
        """Draw a box of panel `at` with its text; remember where tensors enter and leave."""
        colour = self._colour(box)
        self.y += GAP
        top = self.y
        self.y += ROW * 0.7
        lines = ", ".join(box.lines)
        side = {"loss": f"× {box.weight:g}", "saved": lines}.get(box.kind, box.network or "")
        self.text(WIDTH - GAP, side, TITLE, colour=colour, bold=True, align="right")
        self.write(box.title, TITLE, x=GAP, bold=True)
        if box.kind != "saved":
            self.write(lines, x=GAP, colour=SOFT)
        for role, name in box.inputs:
            for _, producer in producers(self.flow.panels, at, box, name):
                self.read.setdefault((name, producer.key), []).append(self.y)
                self.write(name if role == name else f"{role} ← {name}", x=GAP)
        for name in box.outputs:
            self.added[name, box.key] = self.y
            self.write(f"adds {name}  {', '.join(self.shapes.get(name, ()))}", x=GAP, colour=colour)
        calls = bool(box.network) and box.key.startswith("steps.")
        if calls:
            self.write(f"trained by {', '.join(box.learns)}" if box.learns else "not trained here", x=GAP, italic=True)
        self.y -= ROW * 0.3
        still = calls and not box.learns
        face = "white" if still or box.kind in ("loss", "saved") else _pale(colour)
        self._patch(0, top, WIDTH, self.y - top, face, colour, order=1, line=1.9 if box.learns else 1.2, dashed=still)

    def _colour(self, box: Box) -> str:
        kinds = {"data": DATA[0], "loss": LOSS, "saved": SAVED, "injector": PLAIN}
        return self.networks[box.network] if box.network else kinds[box.kind]

    def _patch(
        self, x: float, y: float, width: float, height: float, face: str, edge: str, *, order: float,
        line: float = 1.2, dashed: bool = False,
    ) -> None:  # fmt: skip
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle="round,pad=0,rounding_size=6", facecolor=face, edgecolor=edge,
                linewidth=line, linestyle="--" if dashed else "-", zorder=order,
            )
        )  # fmt: skip


def _pale(colour: str) -> str:
    """Return a colour mixed with four times as much white."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round((part + 4 * 255) / 5):02x}" for part in parts)

"""Draws a recipe's data-flow graph: a panel for each step, boxes in columns, and wires labelled with name and shape.

Colours show where a tensor comes from: each network has one colour for its calls and their outputs; data is grey. A
call is filled if a step trains the network through it, and dashed if none does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from figura.base.files import replacing
from figura.commands.describe.dataflow import Flow, Panel
from figura.commands.describe.graph_layout import Item, lines
from figura.commands.describe.placement import (
    CURVE,
    FONT,
    HEAD,
    LABEL_LINE,
    MARGIN,
    PAD,
    ROW,
    SMALL,
    TEXT,
    TITLE,
    Placed,
    Placement,
    fitted,
    text_width,
    varies,
)

NETWORKS = ("#2f6fb0", "#d9791f", "#3f8f5f", "#8a5fb3", "#b5485d", "#2a9299", "#8c6d3f")
DATA = ("#46515f", "#8b7150", "#4f7d78", "#84688c")  # alternating, to tell neighbouring wires apart
PLAIN, LOSS, SAVED, INK, SOFT, PANEL = "#77736a", "#b0303f", "#4d6a6d", "#20262d", "#626b76", "#f4f5f7"
TOP, LINE = 52.0, 1.7  # where panels begin; width of wires
KEY = "colour: where a tensor comes from"
STEP_KEY = "filled: a step trains the network through this call    dashed: no step does    "


def draw_flow(
    flow: Flow, shapes: Mapping[str, Sequence[str]], title: str, footers: Mapping[str, str],
    table: Sequence[Sequence[str]], notes: Sequence[str], path: Path,
) -> None:  # fmt: skip
    """Draw a recipe to `path`, .png or .svg; the same arguments give the same bytes.

    Args:
        flow: the graph to draw.
        shapes: the lines below each name, where known.
        title: headline.
        footers: a line at the bottom of a panel, by the panel's title.
        table: rows below the panels, the first is a header; network names in the first column get their colour.
        notes: lines at the end.
        path: the file to write.
    """
    figure = _Drawing(flow, Placement(flow, shapes)).figure(title, footers, table, notes)
    with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "figura"}):
        figure.savefig(temporary, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})


class _Drawing:
    def __init__(self, flow: Flow, places: Placement) -> None:
        self.flow, self.places, self.zoom = flow, places, places.zoom
        called = dict.fromkeys(box.network for box in flow.boxes.values() if box.network)
        self.networks = {name: NETWORKS[place % len(NETWORKS)] for place, name in enumerate(called)}
        data = [name for name, (_, box) in places.wires.items() if box.kind == "data"]
        self.data = {wire: DATA[place % len(DATA)] for place, wire in enumerate(data)}

    def figure(
        self, title: str, footers: Mapping[str, str], table: Sequence[Sequence[str]], notes: Sequence[str]
    ) -> Figure:
        """Return the whole picture."""
        places = self.places
        widths = [right - left - 28 for left, right in map(places.span, range(len(self.flow.panels)))]
        texts = [
            [part for line in panel.lines for part in fitted(line, width)]
            for panel, width in zip(self.flow.panels, widths, strict=True)
        ]
        notes = [part for note in notes for part in fitted(note, places.width - 2 * MARGIN)]
        self.head = TOP + 44.0 + ROW * max(map(len, texts)) + 16.0
        ends = [
            fitted(footers.get(panel.title, ""), width) for panel, width in zip(self.flow.panels, widths, strict=True)
        ]
        bottom = self.head + places.height + 40.0 + 16.0 * max(map(len, ends))
        height = bottom + 26.0 + 19.0 * len(table) + 17.0 * len(notes) + 14.0
        figure = Figure(figsize=(places.width * self.zoom / 100, height * self.zoom / 100), dpi=100, facecolor="white")
        self.axes: Axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(0, places.width), ylim=(height, 0))
        self.axes.set_axis_off()
        self._text(MARGIN + 4, 28, title, 13.5, bold=True)
        if self.networks:
            key = STEP_KEY + KEY if self.flow.panels[1].kind == "step" else KEY
            self._text(places.width - MARGIN - 4, bottom + 26, key, SMALL, colour=SOFT, align="right")
        for number, panel in enumerate(self.flow.panels):
            self._panel(number, panel, texts[number], bottom, ends[number])
        for at, column in enumerate(places.columns):
            for item in column:
                for wire in item.gives:
                    self._wire(at, item, wire)
                if not item.slot:
                    self._box(at, places.placed[item.key])
        self._table(table, bottom + 26.0)
        for place, line in enumerate(notes):
            self._text(MARGIN + 4, bottom + 32.0 + 19.0 * len(table) + 17.0 * place, line, SMALL, colour=SOFT)
        return figure

    def _panel(self, number: int, panel: Panel, texts: Sequence[str], bottom: float, footer: Sequence[str]) -> None:
        left, right = self.places.span(number)
        self._patch(left, TOP, right - left, bottom - TOP, PANEL, "none", 10.0, 0)
        steps = len(self.flow.panels) - 1
        title = panel.title if number == 0 else f"{panel.kind} {f'{number}: ' if steps > 1 else ''}{panel.title}"
        self._text(left + 14, TOP + 24, title, 13, bold=True)
        for place, line in enumerate(texts):
            first = place == 0 and number > 0
            self._text(left + 14, TOP + 48 + ROW * place, line, TEXT, colour=INK if first else SOFT)
        below = bottom - 14 - 16.0 * (len(footer) - 1)
        if panel.off:
            self._text(left + 14, below - 19, f"weight 0: {', '.join(panel.off)}", SMALL, colour=SOFT, style="italic")
        for place, line in enumerate(footer):
            self._text(left + 14, below + 16.0 * place, line, SMALL)

    def _colour(self, wire: str) -> str:
        _, box = self.places.wires[wire]
        return self.data[wire] if box.kind == "data" else self.networks[box.network] if box.network else PLAIN

    def _wire(self, at: int, item: Item, wire: str) -> None:
        """Draw a wire from a column to the next one, and through the column if the wire only passes it."""
        places, colour, y = self.places, self._colour(wire), self.head + item.give_height(wire)
        right = places.lefts[at] + places.widths[at]
        if at + 1 == len(places.columns):
            return
        bend, left = right + places.labels[at], places.lefts[at + 1]
        border = places.border(at)
        x = right + (MARGIN + 2 if border and not item.slot else 7)
        if item.slot:
            x += MARGIN if border else 0
        if border or not item.slot:
            self._text(x, y - 8, places.wires[wire][0], TEXT, colour=colour, bold=True)
        for place, line in enumerate(() if item.slot else places.label(wire)):
            self._text(x, y + 9 + LABEL_LINE * place, line, SMALL, colour=SOFT)
        ends = [self.head + end for name, _, end in lines(places.columns, at) if name == wire]
        start, middle = (places.lefts[at] - 0.5 if item.slot else right), (bend + left) / 2
        points = [(start, y), (bend, y)]
        for end in ends:
            self._stroke([*points, (middle, y), (middle, end), (left + 0.5, end)], colour)
        if not ends:
            self._stroke(points, colour)
            self.axes.plot(bend, y, marker="o", markersize=4 * self.zoom, color=colour, zorder=3)

    def _box(self, at: int, placed: Placed) -> None:
        box, item, places = placed.box, placed.item, self.places
        kinds = {"data": DATA[0], "loss": LOSS, "saved": SAVED, "injector": PLAIN}
        colour = self.networks[box.network] if box.network else kinds[box.kind]
        x, y, width = places.lefts[at], self.head + item.top, places.widths[at]
        still = bool(placed.tag) and not box.learns
        face = "white" if still or box.kind in ("loss", "saved") else _pale(colour, 0.82)
        self._patch(x, y, width, item.height, face, colour, 5.0, 3, 1.9 if box.learns else 1.2, dashed=still)
        self._text(x + PAD, y + 13, box.title, TITLE, bold=True)
        if box.kind == "loss":
            self._text(x + width - PAD, y + 13, f"× {box.weight:g}", TITLE, colour=LOSS, bold=True, align="right")
        below = y + HEAD + 6
        if box.network:
            self._text(x + PAD, below, box.network, TEXT, colour=colour, bold=True)
            below += ROW
        for place, line in enumerate(placed.lines):
            self._text(x + PAD, below + ROW * place, line, TEXT, colour=SOFT)
        if varies(box):
            self._curve(box.weights, x + PAD, y + placed.head - CURVE + 3, width - 2 * PAD)
        for row, place in enumerate(item.order):
            arrives, wire_colour = y + item.ins[row], self._colour(item.reads[place])
            self._text(x + PAD, arrives, placed.inputs[place], TEXT, colour=wire_colour)
            self.axes.fill([x, x - 8, x - 8], [arrives, arrives - 4, arrives + 4], color=wire_colour, lw=0, zorder=4)
        if placed.tag:
            words = colour if box.learns else SOFT
            self._text(x + PAD, y + item.height - 11, placed.tag, SMALL, colour=words, style="italic")

    def _curve(self, weights: Sequence[float], x: float, y: float, width: float) -> None:
        """Draw a weight over the iterations."""
        low, high, height = min(0.0, *weights), max(0.0, *weights), CURVE - 8
        xs = [x + width * place / (len(weights) - 1) for place in range(len(weights))]
        ys = [y + height * (high - weight) / (high - low) for weight in weights]
        self.axes.fill_between(xs, ys, y + height * high / (high - low), color=_pale(LOSS, 0.8), lw=0, zorder=5)
        self.axes.plot(xs, ys, color=LOSS, linewidth=1.2 * self.zoom, zorder=5)

    def _table(self, table: Sequence[Sequence[str]], top: float) -> None:
        widths = [max(text_width(cell, TEXT, True) for cell in cells) for cells in zip(*table, strict=True)]
        for place, row in enumerate(table):
            x = MARGIN + 4
            for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
                colour = SOFT if place == 0 else self.networks.get(cell, INK) if column == 0 else INK
                self._text(x, top + 19.0 * place, cell, TEXT, colour=colour, bold=column == 0 and place > 0)
                x += width + 28

    def _text(
        self, x: float, y: float, text: str, size: float, *, colour: str = INK, bold: bool = False,
        align: str = "left", style: str = "normal",
    ) -> None:  # fmt: skip
        self.axes.text(
            x, y, text, fontsize=size * self.zoom, color=colour, ha=align, va="center", style=style,
            weight="bold" if bold else "normal", family=FONT, parse_math=False, zorder=6,
        )  # fmt: skip

    def _stroke(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        codes = [Curve.MOVETO, Curve.LINETO, *[Curve.CURVE4] * (len(points) - 2)]
        path = Curve(points, codes)
        self.axes.add_patch(
            PathPatch(path, fill=False, edgecolor=colour, linewidth=LINE * self.zoom, snap=False, zorder=2)
        )

    def _patch(
        self, x: float, y: float, width: float, height: float, face: str, edge: str, radius: float,
        order: float, line: float = 1.2, dashed: bool = False,
    ) -> None:  # fmt: skip
        shape = f"round,pad=0,rounding_size={radius}"
        self.axes.add_patch(
            FancyBboxPatch(
                (x, y), width, height, boxstyle=shape, facecolor=face, edgecolor=edge, linewidth=line * self.zoom,
                linestyle="--" if dashed else "-", zorder=order,
            )
        )  # fmt: skip


def _pale(colour: str, share: float) -> str:
    """Return a colour mixed with white; `share` 1 is white."""
    parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)

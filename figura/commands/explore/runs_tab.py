"""The tab Runs: two runs side by side, their curves, pictures and output, also while they train."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nicegui import run as threads
from nicegui import ui

from figura.base.errors import REPRO, UserError, one_line
from figura.base.exit_status import refusal
from figura.commands.explore import run_control, run_curves, runs
from figura.commands.explore.widgets import Latest, Picture, button, computed

SIDES = ("left", "right")
SECONDS = 1.5  # between two looks at the runs that are shown; the list is looked at every `LIST_EVERY` times
LIST_EVERY = 3
LINES = 40  # of output
NOTHING = ""  # the choice of no run
ELSEWHERE = (
    "Experiments with their params and metrics: dvc exp show, or the DVC view of VS Code; their curves and pictures: "
    "dvc plots diff. Settings that differ: dvc params diff. What an iteration does: figura describe."
)
COLOURS = ("#2f7fd0", "#d06a00", "#2e9a5b", "#c4488e", "#8a6fd1", "#9c8200", "#c94a3a", "#1594a5")
"""Of curves; each has a contrast of 3 on white and on black."""
LEGEND, PLOT = 20, 280  # pixels: the height of a line of the legend, and of the chart below it
HALF = "grow w-full md:w-[calc(50%-1rem)] max-w-full"
SAMPLES = "samples of "  # how the choices of pictures that are sample sheets begin


@dataclass
class View:
    """What is read of a run in a thread, for the page to show.

    Attributes:
        run: None if nothing is chosen.
        curves: by name.
        sheets: sample sheets by what they show, and step.
        results: result pictures by name.
        output: the last lines that a training printed which was started here.
        launch: what became of a start.
        error: why something cannot be read.
    """

    run: runs.Run | None = None
    curves: Mapping[str, run_curves.Points] = field(default_factory=dict)
    sheets: Mapping[str, Mapping[int, Path]] = field(default_factory=dict)
    results: Mapping[str, Path] = field(default_factory=dict)
    output: Sequence[str] = ()
    launch: str = ""
    error: str = ""

    def picture(self, choice: str, step: int) -> tuple[str, Path] | None:
        """Return title and file of a result picture, or of the last sample sheet up to a step, if there is one."""
        if not choice.startswith(SAMPLES):
            return (choice, self.results[choice]) if choice in self.results else None
        sheet = runs.sheet_at(self.sheets.get(choice.removeprefix(SAMPLES), {}), step)
        return None if sheet is None else (f"iteration {sheet[0]}", sheet[1])


def look(name: str) -> View:
    """Read what is new of a run; runs in a thread."""
    view = View()
    if name == NOTHING:
        return view
    try:
        view.run = run = runs.read_run(name)
        view.sheets, view.results = runs.samples(run), runs.result_pictures(run)
        view.output, view.launch = runs.output_tail(run, LINES), run_control.launch_status(run)
        view.curves = run_curves.curves_of(run)
    except Exception as error:  # noqa: BLE001  # files vanish while a training replaces them; look again
        view.error = one_line(str(error) if isinstance(error, UserError) else refusal(error) or repr(error))
    return view


class Side:
    """One of the two places for a run: what is chosen, what was read of it, and where it is shown."""

    def __init__(self, tab: "RunsTab", name: str) -> None:
        self.tab, self.name, self.view = tab, name, View()
        self._shown: tuple[Path, float] | None = None
        with tab.places, ui.card().classes(HALF).props("flat bordered"):
            self.select = ui.select({NOTHING: "none"}, value=NOTHING, label=f"Run, {name}", on_change=tab.refresh)
            self.select.classes("w-full").props("dense outlined")
            self.state = ui.label("nothing is chosen").classes("text-sm").props('role="status"')
            self.launch = ui.label().classes("text-sm")
            with ui.row().classes("flex-wrap"):
                self.stop_button = button("Stop", self.stop)
                self.resume_button = button("Train or resume", self.resume)
        with tab.pictures, ui.column().classes(HALF):
            self.picture = Picture("", 1400)
        with tab.outputs:
            self.output = ui.label().classes(f"{HALF} max-h-80 overflow-auto text-xs whitespace-pre-wrap font-mono")
        self.output.style("overflow-wrap: anywhere").props(f'role="region" aria-label="output, {name}" tabindex=0')

    def show(self) -> None:
        """Show the state of the run and what it printed."""
        view, run = self.view, self.view.run
        trains, known = (run.state == runs.TRAINING, run.name in self.tab.recipes) if run else (False, False)
        self.state.set_text(runs.summary(run) if run else "nothing is chosen")
        self.launch.set_text("; ".join(text for text in (view.launch, view.error) if text))
        self.stop_button.set_enabled(trains)
        self.resume_button.set_enabled(known and not trains)
        self.output.set_text("\n".join(view.output) or "nothing")

    async def show_picture(self, choice: str, step: int) -> None:
        """Show a picture of the run; a file that has not changed is not read again."""
        found = self.view.picture(choice, step)
        version = None
        if found is not None:
            with suppress(OSError):  # a training may remove it
                version = found[1], found[1].stat().st_mtime
        if version == self._shown:
            return
        self._shown = version
        if version is None or found is None or self.view.run is None:
            self.picture.name(f"{self.name}: none" if self.view.run else "")
            self.picture.clear()
        else:
            await self.picture.show_file(found[1], f"{self.name}: {one_line(self.view.run.name)}, {found[0]}")

    async def stop(self) -> None:
        """Stop the training after a question."""
        run = self.view.run
        if run is None or not await _confirm(
            f"Stop the training of {one_line(run.name)} ({run.state_text})? It finishes its iteration and writes a "
            "resume point, so that it can go on from there.", "Stop",
        ):  # fmt: skip
            return
        holder = await computed(run_control.stop, run)
        if holder is not None:
            ui.notify(f"asked process {holder.process} to stop")

    async def resume(self) -> None:
        """Train the recipe, or go on, after a question."""
        run = self.view.run
        if run is None or not await _confirm(
            f"Run {REPRO} train@{one_line(run.name)}? It goes on from the resume point, if there is one, trains "
            "again what has changed, and goes on when this page is closed.", "Start",
        ):  # fmt: skip
            return
        process = await computed(run_control.resume, run.name)
        if process is not None:
            ui.notify(f"started, process {process}")


class RunsTab:
    """The tab for one browser window."""

    def __init__(self, recipes: Collection[str]) -> None:
        self.recipes, self.looks = recipes, 0
        self.steps: list[int] = []  # of sample sheets
        self.refresh = Latest(self._refresh)
        self.show_pictures = Latest(self._show_pictures)
        self.places = ui.row().classes("w-full flex-wrap gap-4")
        ui.label(ELSEWHERE).classes("text-sm")
        _heading("Curves")
        with ui.row().classes("w-full flex-wrap items-center gap-4"):
            self.names = ui.select([], label="Curves", multiple=True, on_change=self.draw)
            self.names.classes("grow min-w-64 max-w-full").props("dense outlined use-chips")
            self.log_scale = ui.switch("Log scale", on_change=self.draw)
        self.chart = ui.echart({"series": []}, renderer="svg").classes("w-full").props('role="img"')
        _heading("Pictures")
        with ui.row().classes("w-full flex-wrap items-center gap-4"):
            self.choice = ui.select([], label="Pictures", on_change=self.offer_steps)
            self.choice.classes("w-64 max-w-full").props("dense outlined")
            self.step = ui.slider(min=0, max=1, value=0, on_change=self.show_pictures).classes("grow min-w-48")
            self.step.props('aria-label="iteration of the sample sheets"')
            self.step_text = ui.label().classes("text-sm")
        self.pictures = ui.row().classes("w-full flex-wrap gap-4")
        with ui.expansion("Output").classes("w-full").props("dense"):
            self.outputs = ui.row().classes("w-full flex-wrap gap-4")
        self.sides = [Side(self, name) for name in SIDES]
        tabs = next(one for one in self.chart.ancestors() if isinstance(one, ui.tab_panels))
        tabs.bind_value_to(ui.timer(SECONDS, self.refresh), "active", lambda tab: tab == "Runs")

    async def _refresh(self) -> None:
        if self.looks % LIST_EVERY == 0:
            await self.read_list()
        self.looks += 1
        for side in self.sides:
            choice = str(side.select.value)
            view = await threads.io_bound(look, choice)
            if view is not None and side.select.value == choice:
                side.view = view
                side.show()
        self.offer_curves()
        self.draw()
        await self.offer_pictures()

    async def read_list(self) -> None:
        """Offer the runs; at first, show the one that trains, or that was written last."""
        found = await computed(runs.list_runs, self.recipes)
        choices = {NOTHING: "none"} | {one.name: one_line(f"{one.name}: {one.state_text}") for one in found or ()}
        for side in self.sides:
            if choices != side.select.options:
                side.select.set_options(choices, value=side.select.value if side.select.value in choices else NOTHING)
        if self.looks == 0 and self.sides[0].select.value == NOTHING:
            first = next((one.name for one in found or () if one.state != runs.NEVER), NOTHING)
            self.sides[0].select.set_value(first)

    def offer_curves(self) -> None:
        """Offer the curves of both runs; those that were chosen stay."""
        options = list(dict.fromkeys(name for side in self.sides for name in side.view.curves))
        if options == self.names.options:
            return
        selection = [name for name in self.names.value or () if name in options]
        default = [name for name in ("train.total", "validation.total", "validation_batch.total") if name in options]
        self.names.set_options(options, value=selection or default[:2] or options[:1])

    def draw(self) -> None:
        """Draw the chosen curves of both runs, if anything has changed."""
        series = []
        for index, name in enumerate(self.names.value or ()):
            for number, side in enumerate(self.sides):
                run, (steps, values) = side.view.run, side.view.curves.get(name, ([], []))
                if run is not None and steps:
                    title = f"{side.name}: {run.name} {name}, {values[-1]:.5g} at {steps[-1]}"
                    colour = COLOURS[(2 * index + number) % len(COLOURS)]
                    pairs = visible((steps, values), self.log_scale.value)
                    series.append(line(title, pairs, colour, dashed=side.name == "right"))
        options = chart_options(series, self.log_scale.value)
        if options == self.chart.options:
            return
        self.chart.style(f"height: {PLOT + LEGEND * len(series)}px")
        self.chart.options.clear()
        self.chart.options.update(options)
        self.chart.props["aria-label"] = f"curves over iterations: {'; '.join(one['name'] for one in series) or 'none'}"
        self.chart.update()

    async def offer_pictures(self) -> None:
        """Offer the sample sheets and result pictures of both runs."""
        views = [side.view for side in self.sides]
        kinds = [f"{SAMPLES}{kind}" for view in views for kind in view.sheets]
        options = list(dict.fromkeys([*kinds, *(name for view in views for name in view.results)]))
        if options != self.choice.options:
            value = self.choice.value if self.choice.value in options else next(iter(options), None)
            self.choice.set_options(options, value=value)
        await self.offer_steps()

    async def offer_steps(self) -> None:
        """Fit the slider to the sample sheets that are chosen, of both runs; at its end, it follows new ones."""
        kind = str(self.choice.value).removeprefix(SAMPLES)
        at_end = self.step.value >= len(self.steps) - 1
        self.steps = sorted({step for side in self.sides for step in side.view.sheets.get(kind, ())})
        self.step.props["max"] = max(1, len(self.steps) - 1)
        self.step.set_enabled(len(self.steps) > 1)
        self.step.update()
        if at_end and self.steps:
            self.step.set_value(len(self.steps) - 1)
        await self.show_pictures()

    async def _show_pictures(self) -> None:
        """Show the chosen pictures; of sample sheets, of each run the last one up to the slider's step."""
        at = self.steps[min(int(self.step.value), len(self.steps) - 1)] if self.steps else 0
        self.step_text.set_text(f"iteration {at}" if self.steps else "")
        for side in self.sides:
            await side.show_picture(str(self.choice.value), at)


def visible(points: run_curves.Points, log_scale: bool) -> list[list[float]]:
    """Return the points that a chart can show: finite ones, on a log scale those above 0."""
    pairs = zip(*points, strict=True)
    return [[step, value] for step, value in pairs if value - value == 0 and (value > 0 or not log_scale)]


def line(name: str, points: list[list[float]], colour: str, dashed: bool) -> dict[str, Any]:
    """Return a series of ECharts."""
    return {
        "type": "line", "name": one_line(name), "data": points, "showSymbol": len(points) < 30, "symbolSize": 5,
        "color": colour, "lineStyle": {"width": 1.5, "type": "dashed" if dashed else "solid"},
    }  # fmt: skip


def chart_options(series: list[dict[str, Any]], log_scale: bool) -> dict[str, Any]:
    """Return the options of ECharts; names are drawn as text (`richText`), not read as HTML."""
    text = {"color": "currentColor"}  # that of the page, light or dark
    axis = {"axisLabel": text, "nameTextStyle": text, "splitLine": {"lineStyle": {"color": "#88888855"}}}
    return {
        "animation": False,
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "legend": {"orient": "vertical", "top": 0, "left": 8, "itemGap": 4, "textStyle": text},
        "grid": {"left": 8, "right": 24, "top": 24 + LEGEND * len(series), "bottom": 28, "containLabel": True},
        "xAxis": {"type": "value", "name": "iteration", "nameLocation": "middle", "nameGap": 24, **axis},
        "yAxis": {"type": "log" if log_scale else "value", "scale": True, **axis},
        "series": series,
    }  # fmt: skip


def _heading(text: str) -> None:
    ui.label(text).classes("text-lg").props('role="heading" aria-level="2"')


async def _confirm(question: str, act: str) -> bool:
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        with ui.row():
            button("Cancel", lambda: dialog.submit(False))
            button(act, lambda: dialog.submit(True))
    answer = await dialog
    dialog.delete()
    return bool(answer)

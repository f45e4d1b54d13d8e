"""The tab Runs: all runs and experiments; two of them side by side, their curves, sheets, settings and logs, live."""

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from nicegui import run as threads
from nicegui import ui

from figura.base.errors import UserError, one_line
from figura.base.exit_status import refusal
from figura.commands.explore import experiments, programs, run_control, run_curves, run_files, runs
from figura.commands.explore.project import Project
from figura.commands.explore.widgets import computed
from figura.commands.report.pictures import picture_of

SIDES = ("left", "right")
SECONDS = 1.5
"""Between two looks at the runs that are shown; the list is looked at every `LIST_EVERY` times."""
LIST_EVERY = 3
LINES = 40
"""Of logs."""
NOTHING = ""
"""The choice of no run."""
COLOURS = ("#2f7fd0", "#d06a00", "#2e9a5b", "#c4488e", "#8a6fd1", "#9c8200", "#c94a3a", "#1594a5")
"""Of curves; each has a contrast of 3 on white and on black."""
LEGEND, PLOT = 20, 280
"""Pixels: the height of a line of the legend, and of the chart below it."""
TABLE = "w-full scrolls-as-a-whole"
"""Of tables, which scroll as a whole, so that the keyboard reaches what scrolls."""
STYLE = """
.scrolls-as-a-whole { overflow: auto !important }
.scrolls-as-a-whole .q-table__middle { overflow: visible !important; max-height: none !important }
"""
CHOICE = """
<q-td :props="props">
  <template v-if="props.row.can_be_shown">
    <q-btn v-for="side in ['left', 'right']" :key="side" dense flat no-caps :label="side"
      :aria-label="'show ' + props.row.name + ' ' + side" @click="$parent.$emit('show', [side, props.row.key])" />
  </template>
</q-td>
"""


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return the folder, of this process, for what DVC's cache has of experiments."""
    return tempfile.TemporaryDirectory(prefix="figura-explore-")


@dataclass
class View:
    """What is read of a run in a thread, for the page to show.

    Attributes:
        run: None if nothing is chosen.
        curves: by name.
        sheets: sample sheets by what they show, and step.
        log: the last lines of the live log.
        output: the last lines that a training printed which was started here.
        launch: what became of a start.
        error: why something cannot be read.
    """

    run: runs.Run | None = None
    curves: Mapping[str, run_curves.Points] = field(default_factory=dict)
    sheets: Mapping[str, Mapping[int, Path]] = field(default_factory=dict)
    log: Sequence[str] = ()
    output: Sequence[str] = ()
    launch: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """The run's name; empty if nothing is chosen."""
        return self.run.name if self.run else NOTHING

    @property
    def trains(self) -> bool:
        """Whether the run trains now."""
        return self.run is not None and self.run.state == runs.TRAINING


class Side:
    """One of the two places for a run: what is chosen, and its curves, which are read on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.choice: runs.Run | str = NOTHING
        self.view = View()
        self.choices = 0  # how often something was chosen
        self._curves: run_curves.Curves | None = None
        self._reading = threading.Lock()  # files are read on from where the last reader was

    def choose(self, choice: runs.Run | str) -> None:
        """Show another run from now on."""
        self.choice = choice
        self.choices += 1

    def look(self) -> View:
        """Read what is new; runs in a thread."""
        with self._reading:
            try:
                return self._view()
            except UserError as error:
                return View(error=one_line(str(error)))
            except Exception as error:  # noqa: BLE001  # files vanish while a training replaces them; look again
                return View(error=one_line(refusal(error) or repr(error)))

    def _view(self) -> View:
        if self.choice == NOTHING:
            return View()
        run = runs.read_run(self.root, self.choice) if isinstance(self.choice, str) else self.choice
        if self._curves is None or (self._curves.folder, self._curves.live) != (run.folder, run.live):
            self._curves = run_curves.Curves(run)
        view = View(run, {}, run_files.samples(run), run_files.log_tail(run, LINES))
        view.output, view.launch = run_files.output_tail(run, LINES), run_control.launch_status(run)
        try:
            view.curves = self._curves.read(run.state)
        except UserError as error:
            view.error = one_line(str(error))
        return view


class Sheet:
    """A picture with its caption, which is enlarged by a click."""

    def __init__(self, enlarge: Callable[[str, str], None]) -> None:
        self.file: tuple[Path, float] | None = None
        with ui.element("figure").classes("m-0 w-full"):
            self.caption = ui.label().classes("text-sm")
            self.button = ui.element("button").classes("w-full cursor-zoom-in")
            with self.button:
                self.image = ui.element("img").classes("max-w-full max-h-[80vh] object-contain object-left-top")
        self.button.on("click", lambda: enlarge(self.image.props.get("src", ""), self.caption.text))
        self.button.set_visibility(False)

    async def show(self, file: Path | None, caption: str) -> None:
        """Show a picture of a file, or that there is none; a file that has not changed is not read again."""
        self.caption.set_text(caption)
        version = None if file is None else (file, _written(file))
        if version == self.file:
            return
        self.file = version
        picture = None if file is None else await computed(picture_of, file, caption, caption)
        if version == self.file:  # nothing else was asked for meanwhile
            self.show_address(picture.address if picture else "", caption)

    def show_address(self, address: str, caption: str) -> None:
        """Show a picture that is an address; nothing if it is empty."""
        self.caption.set_text(caption)
        self.image.props["src"], self.image.props["alt"] = address, caption
        self.button.props["aria-label"] = f"enlarge {caption}"
        self.image.update()
        self.button.update()
        self.button.set_visibility(bool(address))


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def runs_tab(project: Project) -> None:
    """Build the tab."""
    RunsTab(project)


class RunsTab:
    """The tab for one browser window."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.runs: dict[str, runs.Run] = {}
        self.experiments: dict[str, experiments.ExperimentRun] = {}
        self.sides = {side: Side(project.root) for side in SIDES}
        self.looks, self.dark, self.drawn_options = 0, False, ""
        self.compared_names: tuple[str, str] | None = None
        self.parts: dict[str, SidePart] = {}
        ui.add_css(STYLE)
        self._build_list()
        self._build_sides()
        self._build_chart()
        self._build_sheets()
        self._build_results()
        self._build_settings()
        self._build_logs()
        self.timer = ui.timer(SECONDS, self.refresh)
        ui.timer(0.5, self.read_experiments, once=True)

    # layout

    def _build_list(self) -> None:
        _heading("Runs and experiments")
        columns = ["name", "show", "state", "iterations", "images/s", "changed", "metrics", "params"]
        labels = {"changed": "last written", "params": "changed params"}
        wide = ("state", "metrics", "params")
        self.table = ui.table(
            rows=[],
            columns=[
                {
                    "name": name, "label": labels.get(name, name), "field": name, "align": "left", "sortable": False,
                    "style": "white-space: normal; min-width: 10rem" if name in wide else "",
                }
                for name in columns
            ],
            row_key="key",
        )  # fmt: skip
        self.table.classes(f"{TABLE} max-h-96").props('dense flat bordered role="region" aria-label="runs" tabindex=0')
        self.table.add_slot("body-cell-show", CHOICE)
        self.table.on("show", lambda event: self.choose(*event.args))
        self.note = ui.label("Reading the runs ...").classes("text-sm").props('role="status"')
        self.note.style("min-height: 1.5em")  # else buttons below move under the pointer when the note goes

    def _build_sides(self) -> None:
        with ui.row().classes("w-full flex-wrap gap-4"):
            for side in SIDES:
                self.parts[side] = SidePart(self, side)

    def _build_chart(self) -> None:
        _heading("Curves")
        with ui.row().classes("w-full flex-wrap items-center gap-4"):
            self.names = ui.select([], label="Curves", multiple=True, on_change=lambda: self.draw())
            self.names.classes("grow min-w-64 max-w-full").props("dense outlined use-chips")
            self.log_scale = ui.switch("Log scale", on_change=lambda: self.draw())
        self.chart = ui.echart({"series": []}, renderer="svg").classes("w-full").props('role="img"')
        self.cut_note = ui.label().classes("text-sm")
        self.values = _plain_table(["curve", *SIDES], "newest values")

    def _build_sheets(self) -> None:
        _heading("Sample sheets")
        with ui.row().classes("w-full flex-wrap items-center gap-4"):
            self.newest = ui.switch("Newest", value=True, on_change=self.show_sheets)
            self.kind = ui.select(["validation"], value="validation", label="Examples", on_change=self.show_sheets)
            self.kind.classes("w-40").props("dense outlined")
            self.step = ui.slider(min=0, max=1, value=0, on_change=self.slide).classes("grow min-w-48")
            self.step.props('aria-label="iteration of the sample sheets"')
            self.step_text = ui.label().classes("text-sm")
        self.sheet_steps: list[int] = []
        self.sheets = self._pair()

    def _build_results(self) -> None:
        _heading("Results")
        self.picture = ui.select([], label="Result picture", on_change=self.show_results)
        self.picture.classes("w-64 max-w-full").props("dense outlined")
        self.results = self._pair()

    def _build_settings(self) -> None:
        with _section("Settings that differ"):
            self.settings_note = ui.label("Choose two runs.").classes("text-sm")
            self.settings = _plain_table(["setting", *SIDES], "settings that differ")
            self.settings.set_visibility(False)

    def _build_logs(self) -> None:
        with _section("Flow of an iteration"):
            with ui.row().classes("flex-wrap"):
                for side in SIDES:
                    _button(f"Draw {side}", partial(self.draw_flow, side))
            self.flows = self._pair()
        with _section("Logs"), ui.row().classes("w-full flex-wrap gap-4"):
            self.logs = {side: _log(f"log, {side}") for side in SIDES}
        with ui.dialog().props("maximized") as self.dialog, ui.card().classes("overflow-auto").props("tabindex=0"):
            _button("Close", self.dialog.close)
            self.large = ui.element("img").classes("max-w-none")

    def _pair(self) -> dict[str, Sheet]:
        with ui.row().classes("w-full flex-wrap gap-4"):
            pair = {}
            for side in SIDES:
                with ui.column().classes(HALF):
                    pair[side] = Sheet(self.enlarge)
            return pair

    def enlarge(self, address: str, caption: str) -> None:
        """Show a picture as large as it is."""
        self.large.props["src"], self.large.props["alt"] = address, caption
        self.large.update()
        self.dialog.open()

    # what is chosen

    @property
    def views(self) -> dict[str, View]:
        """What was read last."""
        return {side: self.sides[side].view for side in SIDES}

    def choices(self) -> dict[str, str]:
        """Return what may be chosen, with its label."""
        of_experiments = [name for name, one in self.experiments.items() if one.has_results]
        return {NOTHING: "none"} | {name: one_line(name) for name in [*self.runs, *of_experiments]}

    async def choose(self, side: str, name: str) -> None:
        """Show a run or experiment of the list; whatever else a request names is left out."""
        if side not in SIDES or name not in self.choices():
            return
        choice: runs.Run | str | None = name
        place = self.sides[side]
        place.choices += 1
        count = place.choices
        if name in self.experiments:
            self.note.set_text(f"Fetching {one_line(name)} from DVC's cache ...")
            choice = await computed(experiments.fetch_run, self.project, self.experiments[name], Path(_scratch().name))
            self.note.set_text("")
        if place.choices != count:  # somebody has chosen another one meanwhile
            return
        place.choose(NOTHING if choice is None else choice)
        self.parts[side].select.set_value(NOTHING if choice is None else name)
        await self.refresh()

    # refreshing

    def is_open(self) -> bool:
        """Whether this tab is the one that is shown."""
        panel = next((one for one in self.table.ancestors() if isinstance(one, ui.tab_panel)), None)
        panels = next((one for one in self.table.ancestors() if isinstance(one, ui.tab_panels)), None)
        return panel is None or panels is None or panels.value == panel.props["name"]

    async def refresh(self) -> None:
        """Read what is new and show it."""
        if not self.is_open():
            return
        if self.looks % LIST_EVERY == 0:
            await self.read_list()
        if self.looks == 0:
            await self.choose_first()
        self.looks += 1
        for side in self.sides.values():
            choice, view = side.choice, await threads.io_bound(side.look)
            if view is not None and side.choice is choice:
                side.view = view
        await self.show()

    async def read_list(self) -> None:
        """Read the list of runs."""
        answer = await computed(runs.list_runs, self.project.root, list(self.project.recipes))
        if answer is None:
            return
        answer.sort(key=lambda one: (one.state != runs.TRAINING, -one.mtime))
        self.runs = {one.name: one for one in answer}
        self.show_list()

    async def choose_first(self) -> None:
        """Show the run that trains, or that was written last."""
        self.dark = bool(await _ask_browser("document.body.classList.contains('body--dark')"))
        if self.sides["left"].choices:  # somebody was faster
            return
        first = next((one.name for one in self.runs.values() if one.state != runs.NEVER), NOTHING)
        self.sides["left"].choose(first)
        self.parts["left"].select.set_value(first)

    async def read_experiments(self) -> None:
        """Ask DVC, which takes seconds; so the runs are shown first."""
        for _ in range(50):
            if not self.runs:
                await asyncio.sleep(0.2)
        self.note.set_text("Asking DVC for experiments ...")
        answer = await computed(experiments.experiments, self.project)
        self.experiments = {one.name: one for one in answer or ()}
        self.note.set_text("")
        self.show_list()

    def show_list(self) -> None:
        """Show runs, then experiments."""
        rows = [_row_of_run(one) for one in self.runs.values()]
        rows += [_row_of_experiment(one) for one in self.experiments.values()]
        if rows != self.table.rows:
            self.table.rows = rows
            self.table.update()
        for part in self.parts.values():
            part.offer(self.choices())

    async def show(self) -> None:
        """Show what was read."""
        for side, view in self.views.items():
            self.parts[side].show(view)
            self.logs[side].set_text("\n".join([*view.output, *view.log]) or "nothing yet")
        self.offer_curves()
        self.draw()
        await self.offer_sheets()
        await self.offer_results()
        await self.compare_settings()

    # curves

    def offer_curves(self) -> None:
        """Offer the curves of both runs; those that were chosen stay."""
        options = list(dict.fromkeys(name for view in self.views.values() for name in view.curves))
        if options == self.names.options:
            return
        selection = [name for name in self.names.value or () if name in options]
        default = [name for name in ("train.total", "validation.total", "validation_batch.total") if name in options]
        self.names.set_options(options, value=selection or default[:2] or options[:1])

    def draw(self) -> None:
        """Draw the chosen curves of both runs, if anything has changed."""
        series, values, is_cut = [], [], False
        for place, name in enumerate(self.names.value or ()):
            row = {"curve": name}
            for number, (side, view) in enumerate(self.views.items()):
                if name in view.curves:
                    points = view.curves[name]
                    pairs = visible(points, self.log_scale.value)
                    is_cut |= len(pairs) < len(points[0])
                    colour = COLOURS[(2 * place + number) % len(COLOURS)]
                    series.append(line(f"{side}: {view.name} {name}", pairs, colour, dashed=side == "right"))
                row[side] = _newest(view.curves.get(name))
            values.append(row)
        options = chart_options(series, self.log_scale.value, self.dark)
        if (text := json.dumps(options)) == self.drawn_options:
            return
        self.drawn_options = text
        self.chart.style(f"height: {PLOT + LEGEND * len(series)}px")
        self.chart.options.clear()
        self.chart.options.update(options)
        self.chart.props["aria-label"] = f"curves over iterations: {', '.join(one['name'] for one in series) or 'none'}"
        self.chart.update()
        self.cut_note.set_text(
            "Values that are not finite, or on a log scale not above 0, are left out." if is_cut else ""
        )
        self.values.rows = values
        self.values.update()

    # sheets and pictures

    async def offer_sheets(self) -> None:
        """Offer the steps of both runs' sheets."""
        kinds = list(dict.fromkeys(kind for view in self.views.values() for kind in view.sheets)) or ["validation"]
        if kinds != self.kind.options:
            self.kind.set_options(kinds, value=self.kind.value if self.kind.value in kinds else kinds[0])
        steps = sorted({step for view in self.views.values() for step in view.sheets.get(self.kind.value, ())})
        if steps != self.sheet_steps:
            self.sheet_steps = steps
            self.step.props["max"] = max(1, len(steps) - 1)
            self.step.set_enabled(len(steps) > 1)
            self.step.update()
        await self.show_sheets()

    async def slide(self) -> None:
        """Show the sheets of the step where the slider was put."""
        if int(self.step.value) != len(self.sheet_steps) - 1:
            self.newest.set_value(False)
        await self.show_sheets()

    async def show_sheets(self) -> None:
        """Show the newest sheets, or those of the slider's step: of each run the last one up to it."""
        if self.newest.value and self.sheet_steps:
            self.step.set_value(len(self.sheet_steps) - 1)
        place = min(int(self.step.value), len(self.sheet_steps) - 1)
        at = self.sheet_steps[place] if self.sheet_steps else 0
        self.step_text.set_text(f"iteration {at}" if self.sheet_steps else "no sheets (runtime.samples)")
        for side, view in self.views.items():
            sheet = run_files.sheet_at(view.sheets.get(self.kind.value, {}), at)
            none = f"{side}: no sheet" if view.run else ""
            caption = none if sheet is None else f"{side}: {one_line(view.name)}, iteration {sheet[0]}"
            await self.sheets[side].show(None if sheet is None else sheet[1], caption)

    async def offer_results(self) -> None:
        """Offer the result pictures of both runs."""
        options = list(dict.fromkeys(name for files in self._result_files().values() for name in files))
        if options != self.picture.options:
            value = self.picture.value if self.picture.value in options else next(iter(options), None)
            self.picture.set_options(options, value=value)
        await self.show_results()

    def _result_files(self) -> dict[str, dict[str, Path]]:
        return {side: run_files.result_pictures(view.run) if view.run else {} for side, view in self.views.items()}

    async def show_results(self) -> None:
        """Show the chosen result picture of both runs."""
        for side, files in self._result_files().items():
            file, view = files.get(str(self.picture.value)), self.sides[side].view
            none = f"{side}: no such picture" if view.run else ""
            await self.results[side].show(
                file, f"{side}: {one_line(view.name)}, {self.picture.value}" if file else none
            )

    async def draw_flow(self, side: str) -> None:
        """Draw what an iteration of a run's recipe does, as its params file says now."""
        run = self.sides[side].view.run
        if run is None:
            ui.notify(f"{side}: choose a run first")
            return
        self.flows[side].show_address("", f"{side}: drawing, which takes as long as PyTorch takes to start ...")
        picture = await computed(programs.flow_picture, self.project, run.recipe)
        caption = f"{side}: flow of an iteration of {one_line(run.recipe)}"
        self.flows[side].show_address(picture.address if picture else "", caption if picture else "")

    # settings

    async def compare_settings(self) -> None:
        """Show in which settings two runs differ, when others are chosen."""
        left, right = (view.run for view in self.views.values())
        names = (left.name, right.name) if left and right else None
        if names == self.compared_names:
            return
        self.compared_names = names
        rows: list[dict[str, str]] = []
        if left is None or right is None:
            note = "Choose two runs."
        else:
            try:
                differences = await threads.io_bound(run_files.setting_differences, left.resolved, right.resolved)
                rows = [dict(zip(("setting", *SIDES), row, strict=True)) for row in differences or ()]
                note = f"{len(rows)} settings differ."
            except UserError as error:
                note = one_line(str(error))
        self.settings_note.set_text(note)
        self.settings.rows = rows
        self.settings.update()
        self.settings.set_visibility(bool(rows))

    # stopping and resuming

    async def stop(self, side: str) -> None:
        """Stop the training of a side after a question."""
        run = self.sides[side].view.run
        if run is None or not await _confirm(
            f"Stop the training of {one_line(run.name)} ({run.state_text})? It finishes its iteration and writes a "
            "resume point, so that it can go on from there.", "Stop",
        ):  # fmt: skip
            return
        holder = await computed(run_control.stop, run)
        if holder is not None:
            ui.notify(f"asked process {holder.process} to stop")

    async def resume(self, side: str) -> None:
        """Train a side's recipe, or go on, after a question."""
        run = self.sides[side].view.run
        if run is None or not await _confirm(
            f"Run dvc repro train@{one_line(run.recipe)}? It goes on from the resume point, if there is one, trains "
            "again what has changed, and goes on when this page is closed.", "Start",
        ):  # fmt: skip
            return
        process = await computed(run_control.resume, self.project, run.recipe)
        if process is not None:
            ui.notify(f"started, process {process}")


class SidePart:
    """The choice of a run, its state, and the buttons to stop and resume it."""

    def __init__(self, tab: RunsTab, side: str) -> None:
        self.tab, self.side = tab, side
        with ui.card().classes(HALF).props("flat bordered"):
            self.select = ui.select({NOTHING: "none"}, value=NOTHING, label=f"Run, {side}", on_change=self.choose)
            self.select.classes("w-full").props("dense outlined")
            self.state = ui.label().classes("text-sm").props('role="status"')
            self.launch = ui.label().classes("text-sm")
            with ui.row().classes("flex-wrap"):
                self.stop = _button("Stop", lambda: tab.stop(side))
                self.resume = _button("Train or resume", lambda: tab.resume(side))
        self.show(View())

    async def choose(self) -> None:
        """Show what was chosen here."""
        choice = self.tab.sides[self.side].choice
        if self.select.value != (choice if isinstance(choice, str) else choice.name):
            await self.tab.choose(self.side, str(self.select.value))

    def offer(self, choices: dict[str, str]) -> None:
        """Offer runs by name."""
        if choices != self.select.options:
            self.select.set_options(choices, value=self.select.value if self.select.value in choices else NOTHING)

    def show(self, view: View) -> None:
        """Show the state of a run."""
        self.state.set_text(runs.summary(view.run) if view.run else "nothing is chosen")
        self.launch.set_text("; ".join(text for text in (view.launch, view.error) if text))
        own = view.run is not None and " @ " not in view.run.name
        self.stop.set_enabled(view.trains)
        self.resume.set_enabled(own and not view.trains and view.name in self.tab.project.recipes)


HALF = "grow w-full md:w-[calc(50%-1rem)] max-w-full"


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


def chart_options(series: list[dict[str, Any]], log_scale: bool, dark: bool) -> dict[str, Any]:
    """Return the options of ECharts; names are drawn as text (`richText`), not read as HTML."""
    colour, grid = ("#e0e0e0", "#444444") if dark else ("#333333", "#dddddd")
    text = {"textStyle": {"color": colour}}
    axis = {
        "axisLabel": {"color": colour},
        "nameTextStyle": {"color": colour},
        "splitLine": {"lineStyle": {"color": grid}},
    }
    return {
        "animation": False,
        "tooltip": {"trigger": "axis", "renderMode": "richText", "confine": True},
        "legend": {"orient": "vertical", "top": 0, "left": 8, "itemGap": 4, **text},
        "grid": {"left": 8, "right": 24, "top": 24 + LEGEND * len(series), "bottom": 28, "containLabel": True},
        "xAxis": {"type": "value", "name": "iteration", "nameLocation": "middle", "nameGap": 24, **axis},
        "yAxis": {"type": "log" if log_scale else "value", "scale": True, **axis},
        "series": series,
    }  # fmt: skip


def _newest(points: run_curves.Points | None) -> str:
    return f"{points[1][-1]:.5g} at {points[0][-1]}" if points and points[0] else ""


def _row_of_run(run: runs.Run) -> dict[str, Any]:
    of = f" of {run.steps}" if run.steps else ""
    return {
        "key": run.name, "name": one_line(run.name), "state": run.state_text,
        "iterations": "" if run.step is None else f"{run.step}{of}",
        "images/s": "" if run.images_per_second is None else f"{run.images_per_second:.3g}",
        "changed": f"{runs.age(time.time() - run.mtime)} ago" if run.mtime else "",
        "metrics": _metrics(run.metrics), "params": "", "can_be_shown": True,
    }  # fmt: skip


def _row_of_experiment(one: experiments.ExperimentRun) -> dict[str, Any]:
    return {
        "key": one.name, "name": one_line(one.name),
        "state": "commit" if one.state == "baseline" else f"experiment, {one.state}",
        "iterations": "", "images/s": "", "changed": "", "metrics": _metrics(one.metrics),
        "params": "; ".join(f"{key} {value}" for key, value in one.changed_params.items()),
        "can_be_shown": one.has_results,
    }  # fmt: skip


def _metrics(metrics: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {estimate}" for name, estimate in metrics.items())


def _heading(text: str) -> None:
    ui.label(text).classes("text-lg").props('role="heading" aria-level="2"')


def _section(title: str) -> ui.expansion:
    return ui.expansion(title).classes("w-full").props("dense")


def _button(text: str, act: Callable[[], Any]) -> ui.button:
    """Return a button in the colour of the text around it, which can be read on light and on dark."""
    return ui.button(text, on_click=act, color=None).props("outline dense no-caps").classes("px-2")


def _plain_table(columns: list[str], label: str) -> ui.table:
    style = "white-space: normal; overflow-wrap: anywhere; min-width: 6rem"
    table = ui.table(
        rows=[],
        columns=[{"name": one, "label": one, "field": one, "align": "left", "style": style} for one in columns],
        row_key=columns[0],
    )
    return table.classes(f"{TABLE} max-h-80").props(f'dense flat role="region" aria-label="{label}" tabindex=0')


def _log(label: str) -> ui.label:
    text = ui.label().classes(f"{HALF} max-h-80 overflow-auto text-xs whitespace-pre-wrap font-mono")
    return text.style("overflow-wrap: anywhere").props(f'role="region" aria-label="{label}" tabindex=0')


async def _ask_browser(question: str) -> Any:
    """Return what the browser answers; None if it does not."""
    try:
        return await ui.run_javascript(question, timeout=3.0)
    except TimeoutError:
        return None


async def _confirm(question: str, act: str) -> bool:
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        with ui.row():
            _button("Cancel", lambda: dialog.submit(False))
            _button(act, lambda: dialog.submit(True))
    answer = await dialog
    dialog.delete()
    return bool(answer)

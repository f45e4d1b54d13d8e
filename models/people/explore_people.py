"""The trial People: drag the joints of a stickman, see the person in that pose, and what a pose network reads in it."""

import time
from collections.abc import Awaitable, Mapping

import numpy as np
from nicegui import events, ui

from figura.base.pictures import Pixels
from figura.commands.explore.try_parts import PointerPicture, example_picker, trials, upload_button
from figura.commands.explore.trying import recipes_on
from figura.commands.explore.widgets import Latest, Picture, computed
from figura.recipe.schema import Recipe
from figura.report.sheets import as_pixels

from .explore_person_drawer import Joints, PeopleTrial, nearest_joint, people_trial, ring_svg, with_joint, without_joint
from .pairs import PersonPairs

REACH = 1 / 12  # how far from a joint it can be taken, as a share of the picture's side
LIVE = 0.3  # seconds: where drawing takes less, the person follows the mouse
HINT = "Drag a joint; or choose one below and move it by its numbers (arrow keys: one pixel)."


def panel(recipes: Mapping[str, Recipe]) -> Awaitable[None]:
    """Lay the trial out for the recipes that draw people."""

    async def build(recipe: str) -> None:
        trial = await computed(people_trial, recipes, recipe)
        if trial is not None:
            await PeoplePanel(trial).build()

    missing = "No recipe here draws people: none has both validation data people.PersonPairs and a section `predict`."
    return trials(recipes_on(recipes, PersonPairs), missing, build)


class PeoplePanel:
    """One client's pose and appearance, and the person that they give."""

    def __init__(self, trial: PeopleTrial) -> None:
        self.trial, self.drawer = trial, trial.drawer
        self.chosen, self.seconds = 0, 0.0
        self.dragging = self.filling = False
        self.draw = Latest(self._draw)

    async def build(self) -> None:
        """Lay it out, and draw the first person."""
        self.joints, self.look = self.drawer.example(0)
        with ui.row().classes("w-full flex-wrap gap-4 items-start"):
            with ui.column().classes("gap-1").style("width: min(100%, 208px)"):
                example_picker("Appearance", len(self.drawer), self.appearance_of)
                upload_button("Upload an appearance", self.uploaded)
                self.appearance = Picture("Appearance", 192)
            with ui.column().classes("gap-1").style("width: min(100%, 336px)"):
                example_picker("Pose", len(self.drawer), self.pose_of)
                ui.label("Pose").classes("text-sm")
                self.stickman = PointerPicture("Pose: a stickman whose joints can be dragged", self.pointer)
                ui.label(HINT).classes("text-xs")
                self._joint_controls()
            self.person = Picture("Generated person", 256, "person.png")
            self.reading = Picture("Read by the pose network", 336)
        self._show_look("example 0")
        self.show_pose()
        await self.draw()

    def _joint_controls(self) -> None:
        names = dict(enumerate(name.replace("_", " ") for name in self.drawer.skeleton.keypoints))
        with ui.row().classes("flex-wrap items-center gap-2"):
            self.joint = ui.select(names, value=0, label="Joint", on_change=self.choose).props("dense").classes("w-28")
            self.there = ui.switch("there", on_change=self.typed)
            self.place = []
            for axis in ("x", "y"):
                number = ui.number(axis, min=0, max=self.drawer.size - 1, step=1, format="%.1f", on_change=self.typed)
                self.place.append(number.props("dense debounce=200").classes("w-14"))

    def show_pose(self) -> None:
        """Show the stickman, and the numbers of the chosen joint."""
        self.stickman.show(self.drawer.pose(self.joints), ring_svg(self.joints, self.chosen, self.drawer.size))
        x, y, flag = self.joints[self.chosen]
        self.filling = True
        self.joint.set_value(self.chosen)
        self.there.set_value(bool(flag > 0))
        for number, value in zip(self.place, (x, y), strict=True):
            number.set_value(round(float(value), 1))
        self.filling = False

    async def _draw(self) -> None:
        start = time.perf_counter()
        result = await computed(self.trial.drawn, self.joints.copy(), self.look)
        if result is None:
            return
        self.seconds = time.perf_counter() - start
        picture, reading, text = result
        self.person.show(picture, f"{self.seconds:.2f} s")
        if reading is not None:
            self.reading.show(reading)
        self.reading.note.set_text(text)

    async def pointer(self, event: events.GenericEventArguments) -> None:
        """Take the nearest joint, move it, let it go: then the person is drawn."""
        kind = event.args["mouse_event_type"]
        x, y = event.args["image_x"] - 0.5, event.args["image_y"] - 0.5
        if kind == "pointerdown":
            joint = nearest_joint(self.joints, x, y, self.drawer.size * REACH)
            if joint is not None:
                self.dragging, self.chosen = True, joint
                self.show_pose()
        elif self.dragging:
            if kind in ("pointermove", "pointerup"):
                self.joints = with_joint(self.joints, self.chosen, x, y, self.drawer.size)
                self.show_pose()
            self.dragging = kind == "pointermove"
            if not self.dragging or self.seconds < LIVE:
                await self.draw()

    def choose(self) -> None:
        """Choose a joint by its name."""
        if not self.filling:
            self.chosen = int(self.joint.value)
            self.show_pose()

    async def typed(self) -> None:
        """Move the chosen joint to the numbers that somebody typed, or take it away."""
        if self.filling or any(number.value is None for number in self.place):
            return
        x, y = (float(number.value) for number in self.place)
        if self.there.value:
            await self.moved(with_joint(self.joints, self.chosen, x, y, self.drawer.size))
        elif self.joints[self.chosen, 2] > 0:
            await self.moved(without_joint(self.joints, self.chosen))

    async def moved(self, joints: Joints) -> None:
        """Take other joints."""
        if np.array_equal(joints, self.joints):
            return
        self.joints = joints
        self.show_pose()
        await self.draw()

    async def pose_of(self, index: int) -> None:
        """Take the pose of an example."""
        example = await computed(self.drawer.example, index)
        if example is not None:
            await self.moved(example[0])

    async def appearance_of(self, index: int) -> None:
        """Take the appearance of an example."""
        example = await computed(self.drawer.example, index)
        if example is not None:
            self.look = example[1]
            self._show_look(f"example {index}")
            await self.draw()

    async def uploaded(self, pixels: Pixels) -> None:
        """Take the appearance of the person in a picture that was sent."""
        result = await computed(self.trial.appearance, pixels)
        if result is not None:
            self.look, note = result
            self._show_look(note)
            await self.draw()

    def _show_look(self, note: str) -> None:
        self.appearance.show(as_pixels(self.look[None])[0], note)

"""The trial People: drag the joints of a stickman, see the person in that pose, and what a pose network reads in it."""

import time
from collections.abc import Awaitable

import numpy as np
from nicegui import events, ui

from figura.base.pictures import Pixels
from figura.commands.explore.project import Project
from figura.commands.explore.try_parts import (
    ExamplePicker,
    LivePicture,
    pointer_picture,
    trial_note,
    trials,
    upload_button,
)
from figura.commands.explore.trying_people import (
    Appearance,
    Joints,
    PeopleTrial,
    appearance_picture,
    nearest_joint,
    people_trial,
    stickman_svg,
    with_joint,
    without_joint,
)
from figura.commands.explore.widgets import computed, data_url
from models.people.pairs import PersonPairs

REACH = 1 / 12
"""How far from a joint it can be taken, as a share of the picture's side."""
LIVE = 0.3
"""Seconds: where drawing takes less, the person follows the mouse."""
HINT = "Drag a joint; or choose one below and move it by its numbers or the arrows."


async def people_panel(project: Project) -> None:
    """Lay the trial out for the first trained recipe that draws people."""
    missing = "No recipe here draws people: none has a validation dataset people.PersonPairs."

    def load(project: Project, recipe: str) -> tuple[PeopleTrial, Joints, Appearance]:
        trial = people_trial(project, recipe)
        return trial, *trial.drawer.example(0)

    async def show(recipe: str, trial: tuple[PeopleTrial, Joints, Appearance]) -> None:
        await PeoplePanel(recipe, *trial).build()

    await trials(project, PersonPairs, missing, load, show)


class PeoplePanel:
    """One client's pose and appearance, and the person that they give."""

    def __init__(self, recipe: str, trial: PeopleTrial, joints: Joints, look: Appearance) -> None:
        self.trial, self.drawer, self.recipe = trial, trial.drawer, recipe
        self.joints, self.look = joints, look
        self.chosen = 0
        self.dragging = self.drawing = self.filling = False
        self.version, self.seconds = 0, 0.0

    async def build(self) -> None:
        """Lay it out, and draw the first person."""
        if self.drawer.trial:
            trial_note(self.recipe)
        size = self.drawer.size
        with ui.row().classes("w-full flex-wrap gap-4 items-start"):
            with ui.column().classes("gap-1").style("width: min(100%, 208px)"):
                ExamplePicker("Appearance", len(self.drawer), self.appearance_of)
                upload_button("Upload an appearance", self.uploaded)
                self.appearance = LivePicture("Appearance", "appearance.png", 192)
            with ui.column().classes("gap-1").style("width: min(100%, 336px)"):
                ExamplePicker("Pose", len(self.drawer), self.pose_of)
                ui.label("Pose").classes("text-sm")
                self.stickman = pointer_picture("Pose: a stickman whose joints can be dragged", self.pointer)
                ui.label(HINT).classes("text-xs")
                self._joint_controls(size)
            with ui.column().classes("gap-1").style("width: min(100%, 256px)"):
                self.person = LivePicture("Generated person", "person.png", 256)
            with ui.column().classes("gap-1").style("width: min(100%, 336px)"):
                if self.trial.reader is None:
                    ui.label(f"Read by the pose network: {self.trial.unread}").classes("text-sm")
                else:
                    self.reading = LivePicture("Read by the pose network (grey: asked for)", "reading.png", 336)
                    if self.trial.reader.trial:
                        trial_note("pose network")
        self.appearance.show(appearance_picture(self.look), "example 0")
        self.show_pose()
        await self.draw()

    def _joint_controls(self, size: int) -> None:
        names = dict(enumerate(name.replace("_", " ") for name in self.drawer.skeleton.keypoints))
        with ui.row().classes("flex-wrap items-center gap-2"):
            self.joint = ui.select(names, value=0, label="Joint", on_change=self.choose).props("dense").classes("w-28")
            self.there = ui.switch("there", on_change=self.changed)
            self.place = []
            for axis in ("x", "y"):
                number = ui.number(axis, min=0, max=size - 1, step=1, format="%.1f", on_change=self.changed)
                self.place.append(number.props("dense debounce=200").classes("w-14"))
        with ui.row().classes("gap-1"):
            arrows = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
            for word, step in arrows.items():
                button = ui.button(
                    icon=f"arrow_{_ICONS[word]}", on_click=lambda step=step: self.nudge(*step), color=None
                )
                button.props("outline dense")
                button.props["aria-label"] = f"Move the joint one pixel {word}"

    def show_pose(self) -> None:
        """Show the stickman, and the numbers of the chosen joint."""
        self.stickman.set_source(data_url(self.drawer.pose(self.joints)))
        svg = stickman_svg(self.joints, self.drawer.skeleton, self.chosen, self.drawer.size)
        self.stickman.set_content(svg)
        x, y, flag = self.joints[self.chosen]
        self.filling = True
        self.joint.set_value(self.chosen)
        self.there.set_value(bool(flag > 0))
        for number, value in zip(self.place, (x, y), strict=True):
            number.set_value(round(float(value), 1))
        self.filling = False

    async def draw(self) -> None:
        """Draw the person; what changes meanwhile is drawn afterwards, once."""
        self.version += 1
        if self.drawing:
            return
        self.drawing, drawn = True, 0
        try:
            while drawn != self.version:
                drawn, start = self.version, time.perf_counter()
                result = await computed(self.trial.drawn, self.joints.copy(), self.look)
                if result is None:
                    return
                self.seconds = time.perf_counter() - start
                self.person.show(result.picture, f"{self.seconds:.2f} s")
                if result.reading is not None:
                    self.reading.show(result.reading.overlay, result.reading.text)
        finally:
            self.drawing = False

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

    def changed(self) -> Awaitable[None] | None:
        """Pass on what somebody typed, and not what the page itself fills in."""
        return None if self.filling else self.typed()

    async def typed(self) -> None:
        """Move the chosen joint to the numbers, or take it away."""
        if any(number.value is None for number in self.place):
            return
        x, y = (float(number.value) for number in self.place)
        if self.there.value:
            await self.moved(with_joint(self.joints, self.chosen, x, y, self.drawer.size))
        elif self.joints[self.chosen, 2] > 0:
            await self.moved(without_joint(self.joints, self.chosen))

    async def nudge(self, x: int, y: int) -> None:
        """Move the chosen joint by whole pixels."""
        at = self.joints[self.chosen]
        await self.moved(with_joint(self.joints, self.chosen, at[0] + x, at[1] + y, self.drawer.size))

    async def moved(self, joints: np.ndarray) -> None:
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
            self.appearance.show(appearance_picture(self.look), f"example {index}")
            await self.draw()

    async def uploaded(self, pixels: Pixels) -> None:
        """Take the appearance of the person in a picture that was sent."""
        result = await computed(self.trial.appearance, pixels)
        if result is not None:
            self.look, note = result
            self.appearance.show(appearance_picture(self.look), note)
            await self.draw()


_ICONS = {"left": "back", "right": "forward", "up": "upward", "down": "downward"}

"""How often people of a video change their number: `python -m bench.tracking [RECIPE RUN] [--videos 20]`.

Drawn people cross the picture in both directions, some turn round, and a pillar hides them. First, records are the true
joints with noise, without most of the hidden ones and without some people; with RECIPE and RUN, also what that network
finds in the pictures. Numbers are those of `figura predict`, and of simpler ways.

Switches are those of CLEAR MOT (Bernardin and Stiefelhagen 2008): a true person keeps the number of before while both
are alike, else gets that of the most similar person left; a number other than the last one is a switch.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from bench.table import show
from figura.data.formats.skeletons import COCO
from figura.interfaces import Networks, State
from figura.prediction.inputs import USUAL_RATE, Photo, refuse
from figura.prediction.predictor import Predictor, load
from figura.synthetic.background import draw_background
from figura.synthetic.canvas import Canvas, Frame, Piece
from figura.synthetic.fabric import plain
from figura.synthetic.figure import build
from figura.synthetic.identity import Identity, draw_identity
from figura.synthetic.pose import TEMPLATES, Pose
from figura.synthetic.scene import compose
from figura.synthetic.staging import GROUND_SLOPE, Actor, stand
from models.pose.tracking import TrackPeople, assigned, similarities

Floats = NDArray[np.float64]
Record = dict[str, Any]
FRAMES, SIDE = 90, 192
SAME = 0.5
"""OKS from which on a person that was found is a true one."""
LEAST_JOINTS = 6
"""Visible joints of a person who can be found."""


class Walker(NamedTuple):
    """A person on a straight way, who may turn round; `speed` in sides of the picture a frame."""

    identity: Identity
    height: float
    start: float
    speed: float
    turns_at: int
    phase: float

    def actor(self, frame: int, side: int, horizon: float) -> Actor:
        """Return the walker in a frame, on a canvas of `side` pixels."""
        height = self.height * side
        back = max(frame - self.turns_at, 0)
        x, way = self.start + self.speed * (frame - 2 * back), np.sign(self.speed) * (-1 if back else 1)
        figure = build(self.identity, stride(self.phase + 2 * np.pi * frame * abs(self.speed) / self.height / 0.8),
                       turn=90.0 * way, light=0.3)  # fmt: skip
        return stand(figure, height=height, x=x * side, ground=horizon + GROUND_SLOPE * height)


def stride(phase: float) -> Pose:
    """Return a pose of a walk: arms and legs swing between those of the template and its mirror image."""
    template = TEMPLATES["walking"][0]
    share = (1 + np.sin(phase)) / 2
    arms, legs = (np.array(one) * share + np.array(one)[::-1] * (1 - share) for one in (template.arms, template.legs))
    return Pose("walking", np.array(template.spine), np.zeros(2), arms, legs)


def video(seed: int) -> Iterator[tuple[NDArray[np.uint8], list[Floats]]]:
    """Yield the frames of a video, uint8 (SIDE, SIDE, 3) RGB, and the joints of each person, always in one order.

    Joints (17, 3) are x, y in pixels and 2 for visible, 1 for hidden, 0 for outside.
    """
    random = np.random.default_rng(seed)
    side, horizon = 2 * SIDE, 0.35 * 2 * SIDE
    background = draw_background(random, side=side, horizon=horizon, clutter=8)
    walkers = []
    for number in range(random.integers(3, 5)):
        speed = random.uniform(0.008, 0.02) * (1 if number % 2 else -1)
        walkers.append(
            Walker(
                draw_identity(random, limb_thickness=1.2, head_size=1.2),
                height=random.uniform(0.5, 0.72),
                start=random.uniform(-0.3, 0.2) if speed > 0 else random.uniform(0.8, 1.3),
                speed=speed,
                turns_at=int(random.integers(35, 60)) if random.random() < 0.3 else FRAMES,
                phase=random.uniform(0, 6),
            )
        )
    left = random.uniform(0.3, 0.6) * side
    pillar = np.array([[left, 0], [left + 0.12 * side, 0], [left + 0.12 * side, side], [left, side]])
    piece = Piece((pillar,), 0.0, plain((90, 110, 120), light=0.3), Frame(pillar[0], pillar[3], 0.06 * side))
    front = Actor("thing", (piece,), 0.98 * side, np.array([left, 0, left + 0.12 * side, side]))
    for frame in range(FRAMES):
        actors = [walker.actor(frame, side, horizon) for walker in walkers]
        painted = sorted([*actors, front], key=lambda actor: actor.ground)
        scene = compose(Canvas(background.copy()), painted)
        joints = dict(zip(map(id, painted), scene.keypoints, strict=True))
        yield (
            cv2.cvtColor(scene.picture, cv2.COLOR_BGR2RGB),
            [one for actor in actors if (one := joints[id(actor)]) is not None],
        )


def records(people: Sequence[Floats], random: np.random.Generator) -> list[Record]:
    """Return what a network might find: joints off by half their deviation, few of the hidden ones, not all people."""
    found = []
    for joints in people:
        visible = joints[:, 2] == 2
        if visible.sum() < LEAST_JOINTS or random.random() < 0.04:
            continue
        scale = np.sqrt(np.prod(np.ptp(joints[joints[:, 2] > 0, :2], axis=0)))
        kept = np.where(visible, random.random(17) < 0.95, (joints[:, 2] == 1) & (random.random(17) < 0.3))
        places = joints[:, :2] + random.normal(0, 0.5, (17, 2)) * COCO.sigmas[:, None] * scale
        found.append(np.column_stack([places, np.full(17, 0.8)]) * kept[:, None])
    if random.random() < 0.03 and found:  # a person who is not there
        found.append(found[0] + [random.uniform(30, 90), 0, 0] * (found[0][:, 2:] > 0))
    order = random.permutation(len(found))
    return [{"keypoints": found[place].ravel().tolist(), "score": 0.8} for place in order]


def switches(truth: Sequence[Sequence[Floats]], found: Sequence[Sequence[Record]]) -> tuple[int, int, int]:
    """Return the switches, the matches, and the true people who could be found, of the frames of a video."""
    numbers: dict[int, int] = {}
    count = matches = possible = 0
    for people, there in zip(truth, found, strict=True):
        tracked = [one for one in there if "track_id" in one]
        poses = [np.array(one["keypoints"]).reshape(-1, 3) for one in tracked]
        seen = [place for place, joints in enumerate(people) if (joints[:, 2] == 2).sum() >= LEAST_JOINTS]
        possible += len(seen)
        alike = similarities(
            [(people[place][:, :2], people[place][:, 2] > 0) for place in seen],
            [(pose[:, :2], pose[:, 2] > 0) for pose in poses],
            2 * COCO.sigmas,
        )
        for row, place in enumerate(seen):
            for column, one in enumerate(tracked):
                if numbers.get(place) == one["track_id"] and alike[row, column] >= SAME:
                    alike[row, column] += len(seen) + 1  # the number of before, if it still fits
        for place, match in zip(seen, assigned(alike, SAME), strict=True):
            if match is not None:
                number = tracked[match]["track_id"]
                count += numbers.get(place, number) != number
                numbers[place] = number
                matches += 1
    return count, matches, possible


def numbered(frames: Sequence[list[Record]], **settings: Any) -> list[list[Record]]:
    """Return the records of a video's frames with the numbers of `TrackPeople`."""
    track = TrackPeople("people", "photo", **settings)
    copies = [[dict(one) for one in there] for there in frames]
    for place, there in enumerate(copies):
        photo = Photo(Path("drawn.mp4"), f"drawn-{place:06d}", place + 1, place=place)
        track(State({"photo": [photo], "people": [there]}), Networks({}, {}), 0)
    return copies


def main() -> None:
    """Print the switches of each way of numbering, for each kind of records."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, nargs="?", help="of poses")
    parser.add_argument("run", type=Path, nargs="?", help="its run, or a model")
    parser.add_argument("--videos", type=int, default=20, metavar="N")
    parser.add_argument("--first", type=int, default=100, metavar="SEED", help="settings were chosen on 0 to 19")
    args = parser.parse_args()
    videos = [list(video(seed)) for seed in range(args.first, args.first + args.videos)]
    truth = [[joints for _, joints in frames] for frames in videos]
    random = np.random.default_rng(args.first)
    found = {"noisy truth": [[records(people, random) for people in frames] for frames in truth]}
    if args.run is not None:
        predictor = load(args.run, recipe=args.recipe, settings={"predict.save": {"people": "records"}})
        found["network"] = [predicted(predictor, [picture for picture, _ in frames]) for frames in videos]
    print(f"{len(videos)} videos of {FRAMES} frames, {sum(len(frames[0]) for frames in truth)} people")
    rows: list[list[object]] = [["records", "numbers by", "switches", "matched", "of people in sight"]]
    for kind, there in found.items():
        for name, settings in WAYS.items():
            every = [numbered(frames, **settings) for frames in there]
            counts = np.sum([switches(*one) for one in zip(truth, every, strict=True)], axis=0)
            rows.append([kind, name, *counts.tolist()])
    show(rows)


WAYS: dict[str, dict[str, Any]] = {
    "figura predict": {},
    "... without velocity": {"smoothing": 0.0},
    "... duplicates too": {"duplicate": 1.0},
    "last pose alone, memory 12": {"smoothing": 0.0, "duplicate": 1.0, "tolerance": 1.0, "memory": 12},
}
"""The arguments of `TrackPeople`; the last are close to OpenPifPaf's decoder."""


def predicted(predictor: Predictor, frames: Sequence[NDArray[np.uint8]]) -> list[list[Record]]:
    """Return the people that a network finds in the frames of a video, as `figura predict` does."""
    path, results = Path("drawn.mp4"), dict[int, list[Record]]()
    photos = [
        Photo(path, f"drawn-{place:06d}", place + 1, frame, place, USUAL_RATE) for place, frame in enumerate(frames)
    ]
    for one in predictor.start(refuse).results(photos):
        assert one.image.frame is not None
        results[one.image.frame] = [dict(record) for record in one.records["people"]]  # numbered anew
    return [results[place] for place in range(len(frames))]


if __name__ == "__main__":
    main()

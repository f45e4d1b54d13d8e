"""models/pose/tracking.py: numbers of people in videos, by hand and through `figura predict`."""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
import toy_photos

from figura.commands.predict import main
from figura.formats.skeletons import COCO
from figura.interfaces import Example, Networks, Records, State
from figura.prediction.inputs import Photo, PhotoExamples
from figura.prediction.predictor import load
from models.pose.decode.overlays import COLOURS, OverlayStyle, overlay
from models.pose.tracking import TrackPeople, assigned, similarities

STANDING = COCO.standing_pose * (10, -10)  # about 90 pixels high


def person(x: float, y: float = 100.0, score: float = 0.9, missing: Iterable[int] = ()) -> dict[str, Any]:
    joints = np.column_stack([STANDING + np.array([x, y]), np.ones(17)])
    joints[list(missing)] = 0
    return {"keypoints": joints.ravel().tolist(), "score": score, "bbox": [x - 20, y - 90, 40, 90], "category_id": 1}


def follow(
    track: TrackPeople, frames: Sequence[list[dict[str, Any]]], first: int = 0, path: str = "a.mp4"
) -> list[Any]:
    """Give a batch of frames to an injector; return the numbers of the people in each."""
    photos = [Photo(Path(path), f"a-{index}", index + 1, place=index) for index in range(first, first + len(frames))]
    copies = [[dict(one) for one in people] for people in frames]
    track(State({"photo": photos, "people": copies}), Networks({}, {}), 0)
    return [[one.get("track_id") for one in people] for people in copies]


def new() -> TrackPeople:
    return TrackPeople("people", "photo")


def test_similarity_is_cocos() -> None:
    """exp(-d^2 / (2 area (2 sigma)^2)), the mean over the joints that both have."""
    deviations, first, moved = 2 * COCO.sigmas, STANDING, STANDING + np.array([3, 4])
    known = np.ones(17, bool)
    some = known.copy()
    some[5:] = False
    found = similarities([(first, known)], [(moved, known), (moved, some), (first, ~known)], deviations)
    area = np.ptp(first[:, 0]) * np.ptp(first[:, 1])
    each = np.exp(-(5**2) / (2 * area * (2 * COCO.sigmas) ** 2))
    np.testing.assert_allclose(found, [[each.mean(), each[:5].mean(), 0.0]], rtol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_the_assignment_is_the_best_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, columns = random.integers(0, 5, 2)
    similar = random.random((rows, columns)).round(1 if seed % 2 else 9)
    chosen = assigned(similar, 0.3)
    taken = [column for column in chosen if column is not None]
    assert len(set(taken)) == len(taken)
    assert all(similar[row, column] > 0.3 for row, column in enumerate(chosen) if column is not None)
    every = itertools.permutations([*range(columns), *[None] * rows], int(rows))
    best = max(sum(max(similar[r, c] - 0.3, 0) for r, c in enumerate(one) if c is not None) for one in every)
    assert sum(similar[r, c] - 0.3 for r, c in enumerate(chosen) if c is not None) == pytest.approx(best)


def test_two_people_walk_through_each_other() -> None:
    """Their records change places, too."""
    order = [1 if t % 2 else -1 for t in range(50)]
    frames = [[person(223 - 4 * t, 118), person(20 + 4 * t)][::way] for t, way in enumerate(order)]
    assert follow(new(), frames) == [[2, 1][::way] for way in order]


def test_a_hidden_person_comes_back_with_the_number_but_not_for_ever() -> None:
    track = TrackPeople("people", "photo", memory=10)
    walk = [[person(4.0 * t)] if t < 10 or t >= 20 else [] for t in range(30)]
    assert follow(track, walk) == [[1]] * 10 + [[]] * 10 + [[1]] * 10
    assert follow(track, [[]] * 11 + [[person(4.0 * 41)]], first=30)[-1] == [2]
    halves = [person(4.0 * t, missing=range(11, 17) if t % 3 else range(11)) for t in range(1, 12)]
    assert follow(new(), [[person(0)], *([one] for one in halves)]) == [[1]] * 12


def test_who_gets_no_number() -> None:
    assert follow(new(), [[person(0), person(200, score=0.14)]]) == [[1, None]]
    assert follow(new(), [[person(0), person(1, score=0.5), person(60, score=0.4)]]) == [[1, None, 2]]  # found twice
    picture = [person(0)]
    state = State({"photo": [Photo(Path("a.jpg"), "a", 1)], "people": [picture]})
    new()(state, Networks({}, {}), 0)
    assert picture == [person(0)]


def test_each_video_has_its_own_numbers() -> None:
    track = new()
    assert follow(track, [[person(0), person(90)]]) == [[1, 2]]
    assert follow(track, [[person(300)]], path="b.mp4") == [[1]]
    assert follow(track, [[person(90), person(0), person(300)]], first=1) == [[2, 1, 3]]
    assert follow(track, [[person(300)]]) == [[1]]  # the first one once more, from its beginning


def test_batches_do_not_matter() -> None:
    random = np.random.default_rng(3)
    frames = [[person(x + 3.0 * t) for x in random.permutation([0, 40, 90])[: 2 + t % 2]] for t in range(24)]
    whole = follow(new(), frames)
    for size in (1, 5, 7):
        track = new()
        parts = [follow(track, frames[at : at + size], first=at) for at in range(0, 24, size)]
        assert [one for part in parts for one in part] == whole
    track = new()
    follow(track, frames[:6])
    follow(track, frames[6:12], first=6)  # this batch fails later on, and is predicted frame by frame
    again = [follow(track, frames[at : at + 1], first=at)[0] for at in range(6, 12)]
    assert again == whole[6:12]
    assert follow(track, frames[12:], first=12) == whole[12:]
    assert max(len(one.before) for one in track.videos.values()) <= 12  # memory does not grow with the video


def test_a_track_keeps_its_colour() -> None:
    picture = np.zeros((120, 400, 3), np.uint8)
    style = OverlayStyle(colours="instance", scores=False)
    one, other = (person(100) | {"track_id": 5}), (person(300) | {"track_id": 2})
    drawn = overlay(picture, [one, other], [], COCO, style)
    assert (overlay(picture, [other, one], [], COCO, style) == drawn).all()
    for colour, half in ((COLOURS[4], drawn[:, :200]), (COLOURS[1], drawn[:, 200:])):
        assert (half == colour).all(axis=2).any()
    labelled = [overlay(picture, [person(100) | extra], [], COCO) for extra in ({}, {"track_id": 5}, {"track_id": 6})]
    assert not (labelled[1] == labelled[0]).all()
    assert not (labelled[1] == labelled[2]).all()


class Walkers(PhotoExamples):
    """Two people, the first one at a place that the grey of the photo says, and the photo."""

    names: ClassVar[tuple[str, ...]] = ("x", "name", "people", "photo")

    def examples(self, photo: Photo) -> list[Example]:
        red = photo.pixels()[..., 0]
        people = Records([person(round(float(red.mean())), 200.0), person(400.0, 200.0)])
        return [{"x": red[None].astype(np.float32), "name": photo.name, "people": people, "photo": photo}]


def test_predict_numbers_the_people_of_videos_alone(tmp_path: Path) -> None:
    recipe, run = toy_photos.write_run(tmp_path, {
        "predict": {
            "data": {"type": "test_tracking.Walkers"}, "mode": "plain", "save": {"people": "records"},
            "injectors": {"track": {"type": "pose.TrackPeople", "people": "people", "photo": "photo"}},
        }
    })  # fmt: skip
    clip = toy_photos.write_video(tmp_path / "clip.avi", 8)
    cv2.imwrite(str(tmp_path / "one.png"), np.full((32, 48, 3), 120, np.uint8))
    for size in ("1", "3", "8"):
        out = tmp_path / size
        main([recipe, run, str(tmp_path / "one.png"), str(clip), "--output", str(out), "--batch-size", size])
        found = [json.loads((out / f"clip-{index:06d}.people.json").read_text()) for index in range(8)]
        assert [[one["track_id"] for one in people] for people in found] == [[1, 2]] * 8
        assert [list(one) for one in json.loads((out / "one.people.json").read_text())] == [
            ["keypoints", "score", "bbox", "category_id", "width", "height"]
        ] * 2
    results = load(run, recipe=recipe).predict([tmp_path / "one.png", clip])
    assert [one.people[1].track_id for one in results] == [None, *[2] * 8]
    assert results.to_pandas()["track_id"].tolist()[2:] == [1, 2] * 8
    assert "track_id" not in load(run, recipe=recipe).predict(tmp_path / "one.png").to_pandas()

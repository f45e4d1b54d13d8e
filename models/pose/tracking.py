"""One number for each person of a video, from frame to frame, by the similarity of poses.

As in OpenPifPaf's decoder `posesimilarity` (Kreiss, Bertoni and Alahi, *OpenPifPaf*, 2021), the people of a frame are
assigned to the tracks so far by the Hungarian method; the similarity is COCO's, of keypoints. Here a track also moves
on at its velocity, so that people who walk past each other, or behind something, keep their numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from figura.interfaces import Injector, Networks, State
from figura.prediction.inputs import Photo

from .argument_types import Count, Positive, Share, skeleton_of

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Body = tuple[Floats, Flags]  # places (K, 2) of joints in pixels, and which of them are known (K,)
SMOOTHING = 0.2  # share of a track's error that corrects its velocity
DUPLICATE = 0.5
"""Similarity to a better person from which on both are the same one found twice; the worse gets no number."""
LEAST_SIMILARITY = 0.2  # of a person with where a track is expected; below, it is somebody else


@dataclass(frozen=True)
class Track:
    """A person as expected in the next frame.

    Attributes:
        number: counts the people of a video from 1.
        places: (K, 2), x and y of the joints in pixels.
        known: (K,), whether a joint has ever been found.
        velocity: (2,), pixels a frame.
        absent: frames since the person was found.
    """

    number: int
    places: Floats
    known: Flags
    velocity: Floats
    absent: int = 0

    def found(self, body: Body) -> "Track":
        """Return the track after a frame with this body; joints that are missing move with the others."""
        joints, seen = body
        both = seen & self.known
        off = np.median((joints - self.places)[both], axis=0)
        velocity = self.velocity + SMOOTHING * off
        places = np.where(seen[:, None], joints, self.places + off)
        return Track(self.number, places + velocity, seen | self.known, velocity)

    def lost(self) -> "Track":
        """Return the track after a frame in which nobody is this person."""
        return replace(self, places=self.places + self.velocity, absent=self.absent + 1)


@dataclass
class Video:
    """The tracks of a video, and what they were before each frame of the last batch."""

    tracks: tuple[Track, ...] = ()
    people: int = 0
    last: int = -1
    before: dict[int, tuple[tuple[Track, ...], int]] = field(default_factory=dict)


class TrackPeople(Injector):
    """Adds `track_id` to the records of people on the frames of a video: a number that they keep.

    Records of pictures stay as they are. Each video has its own numbers, from 1.

    Args:
        people: name of the records of `FindPeople`, which get the numbers.
        photo: name of the photos.
        least_score: people that score less get no number.
        tolerance: factor on the deviations of joints, which COCO measured on the same picture: people move, too.
        memory: frames that a person may be missing: about a second.
        skeleton: as for the dataset; default COCO's.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton",)

    def __init__(
        self,
        people: str,
        photo: str,
        least_score: Share = 0.15,
        tolerance: Positive = 2.0,
        memory: Count = 25,
        skeleton: dict[str, Any] | None = None,
    ) -> None:
        self.people, self.photo = people, photo
        self.least_score, self.tolerance, self.memory = least_score, tolerance, memory
        self.deviations = 2 * skeleton_of(skeleton).sigmas
        self.reads, self.amends = (people, photo), (people,)
        self.videos: dict[Path, Video] = {}

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        frames: dict[Path, list[tuple[int, Any]]] = {}
        photos: list[Photo] = state[self.photo]
        for photo, records in zip(photos, state[self.people], strict=True):
            if photo.place is not None:
                frames.setdefault(photo.path, []).append((photo.place, records))
        for path, batch in frames.items():
            video = self.videos.setdefault(path, Video())
            if batch[0][0] > video.last:
                video.before.clear()
            elif batch[0][0] not in video.before:  # the same video once more
                video = self.videos[path] = Video()
            for place, records in batch:
                video.tracks, video.people = video.before.setdefault(place, (video.tracks, video.people))
                video.last = place
                self._number(video, records)

    def _number(self, video: Video, records: Sequence[dict[str, Any]]) -> None:
        chosen, bodies = [], list[Body]()
        for record in records:  # best first
            joints = np.array(record["keypoints"], dtype=np.float64).reshape(-1, 3)
            body = joints[:, :2], joints[:, 2] > 0
            again = similarities([body], bodies, self.deviations) >= DUPLICATE
            if record["score"] >= self.least_score and not again.any():
                chosen.append(record)
                bodies.append(body)
        expected = [(one.places, one.known) for one in video.tracks]
        similar = similarities(expected, bodies, self.tolerance * self.deviations)
        tracks, numbers = [], dict[int, int]()
        for track, place in zip(video.tracks, assigned(similar, LEAST_SIMILARITY), strict=True):
            tracks.append(track.lost() if place is None else track.found(bodies[place]))
            if place is not None:
                numbers[place] = track.number
        for place, (record, body) in enumerate(zip(chosen, bodies, strict=True)):
            if place not in numbers:
                video.people += 1
                numbers[place] = video.people
                tracks.append(Track(video.people, *body, np.zeros(2)))
            record["track_id"] = numbers[place]
        video.tracks = tuple(one for one in tracks if one.absent <= self.memory)


def similarities(first: Sequence[Body], second: Sequence[Body], deviations: Floats) -> Floats:
    """Return the object keypoint similarity of each of `first` with each of `second`, float64 (rows, columns).

    The mean is over the joints that both have, 0 for none; the area is the larger one of the boxes around the joints of
    each.
    """
    similar = np.zeros((len(first), len(second)))
    areas = [[_area(*one) for one in people] for people in (first, second)]
    for row, (places, known) in enumerate(first):
        for column, (others, there) in enumerate(second):
            if (both := known & there).any():
                squares = ((places - others)[both] ** 2).sum(axis=1)
                area = max(areas[0][row], areas[1][column])
                similar[row, column] = np.exp(-squares / (2 * deviations[both] ** 2 * area)).mean()
    return similar


def _area(places: Floats, known: Flags) -> float:
    """Return the area of the box around the known joints, at least 1."""
    return max(float(np.prod(np.ptp(places[known], axis=0))), 1.0) if known.any() else 1.0


def assigned(similar: Floats, least: float) -> list[int | None]:
    """Return the column of each row, or None, so that the similarities above `least` have the largest sum.

    By shortest augmenting paths (Jonker and Volgenant, *Computing* 38, 1987). Each row has a column of its own, which
    stands for None.
    """
    rows, columns = similar.shape
    own = np.where(np.eye(rows, dtype=bool), 0.0, np.inf)
    cost = np.hstack([np.where(similar > least, least - similar, np.inf), own])
    of_row, of_column = np.zeros(rows), np.zeros(columns + rows)  # potentials
    row_of = np.full(columns + rows, -1)
    for start in range(rows):
        shortest, previous = np.full(columns + rows, np.inf), np.full(columns + rows, -1)
        closed = np.zeros(columns + rows, dtype=bool)
        row, column, length = start, -1, 0.0
        while row >= 0:
            through = length + cost[row] - of_row[row] - of_column
            nearer = ~closed & (through < shortest)
            shortest[nearer], previous[nearer] = through[nearer], column
            column = int(np.where(closed, np.inf, shortest).argmin())
            length, row = shortest[column], row_of[column]
            closed[column] = row >= 0
        of_row[start] += length
        of_row[row_of[closed]] += length - shortest[closed]
        of_column[closed] -= length - shortest[closed]
        while column >= 0:
            before = int(previous[column])
            row_of[column] = start if before < 0 else row_of[before]
            column = before
    places: list[int | None] = [None] * rows
    for column, row in enumerate(row_of[:columns]):
        if row >= 0:
            places[row] = column
    return places

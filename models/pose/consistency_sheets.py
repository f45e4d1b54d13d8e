"""Sheets with the target pose and the detected pose in each kind of picture."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from figura.base.pictures import write_png
from figura.base.sampling import evenly_spaced
from figura.dump import Dump
from figura.report.interfaces import NotApplicableError, Picture
from figura.report.sheets import pixels_of, side_by_side
from models.pose.coco_evaluation import Record
from models.pose.consistency_scores import asked_poses, best_people, images_of, similarity
from models.pose.decode.overlays import OverlayStyle, overlay
from models.pose.dump_evaluation import skeleton_of

STYLE = OverlayStyle(colours="instance", least_side=192, scores=False)


class PoseSheet(Picture):
    """One row per example: the target pose, in grey, and the detected person over each picture.

    Only the person with the highest score is drawn. Row labels have the OKS of each picture.

    Args:
        mode: of the dump.
        kinds: of pictures, as in `pose.DumpedPeople`; one column each. Kinds missing in the dump are skipped.
        picture: name of the pictures among the inputs.
        results: records of the detected people.
        truth: records of the target poses, among the inputs; without it, none is drawn and there are no OKS.
        count: rows, evenly spaced.
        skeleton: as in `pose.Scenes`; COCO's unless given.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton",)
    suffix = ".jpg"

    def __init__(
        self,
        mode: str,
        kinds: list[str],
        picture: str,
        results: str,
        truth: str | None = None,
        count: int = 8,
        skeleton: dict[str, Any] | None = None,
    ) -> None:
        if not kinds:
            raise ValueError("kinds []: at least one is needed")
        self.mode, self.kinds, self.picture, self.results = mode, kinds, picture, results
        self.truth, self.count, self.skeleton = truth, count, skeleton_of(skeleton)

    def __call__(self, dump: Dump, path: Path) -> None:
        rows = dump.mode(self.mode)
        there = set(rows.column("kind").astype(str))
        kinds = [kind for kind in self.kinds if kind in there]
        images = {kind: images_of(rows, kind) for kind in kinds}
        places = {number: place for place, number in enumerate(rows.table["image_id"].astype(int).tolist())}
        asked = asked_poses(dump, self.truth) if self.truth else {}
        read, sigmas = best_people(rows.records(self.results)), np.asarray(self.skeleton.sigmas, dtype=np.float64)
        examples = [one for one in images[kinds[0]] if all(one in n for n in images.values())] if kinds else []
        if not examples:
            raise NotApplicableError("no example has a picture of each kind")
        cells, labels = [], []
        for example in (examples[place] for place in evenly_spaced(len(examples), self.count)):
            numbers = [images[kind][example] for kind in kinds]
            poses, people = [asked.get(number) for number in numbers], [read.get(number) for number in numbers]
            cells.append([
                overlay(
                    pixels_of(rows, places[number], self.picture), _one(person), (), self.skeleton, STYLE, _one(pose)
                )
                for number, person, pose in zip(numbers, people, poses, strict=True)
            ])  # fmt: skip
            similar = (
                f"{kind} {similarity(person, pose, sigmas):.2f}"
                for kind, person, pose in zip(kinds, people, poses, strict=True)
                if pose is not None
            )
            labels.append("  ".join([f"example {example}  OKS", *similar] if self.truth else [f"example {example}"]))
        write_png(path, side_by_side(cells, kinds, labels=labels))


def _one(record: Record | None) -> list[Record]:
    return [] if record is None else [record]

"""Injectors that decode fields into people and objects, in pixels of the image file."""

import os
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numba.core import event
from tqdm import tqdm

from figura.base.errors import UserError, need
from figura.interfaces import Injector, Networks, Records, State
from figura.recipe.types import checked_call

from ..argument_types import categories_from, skeleton_of
from .cifcaf import CifCafDecoder, Record, people_records
from .cifdet import CifDetDecoder, object_records
from .injectors import as_array


class Compiling(event.Listener):
    """Says once, when it begins, that numba compiles a decoder: up to minutes without a sign of life.

    numba caches what it has compiled (`models.pose.target_rendering`), and reports no event when it reads the cache.
    """

    def on_start(self, event_: event.Event) -> None:
        """Say so, if it is a decoder of this package."""
        if event_.data["dispatcher"].py_func.__module__.startswith(__package__):
            event.unregister("numba:compile", self)
            if os.environ.get("RANK", "0") == "0":
                tqdm.write("numba compiles the decoder: a minute or two, once on this machine", file=sys.stderr)

    def on_end(self, event_: event.Event) -> None:
        """Say nothing."""


event.register("numba:compile", Compiling())


class FindPeople(Injector):
    """Adds the people in each image, as records of `cifcaf.people_records`.

    `<output>_count` float32 (N,) is the number of people, `<output>_score` float32 (N,) the best score or 0.

    Args:
        cif: name of the decoded fields of joints, (N, K, 5, rows, columns).
        caf: name of the decoded fields of connections, (N, C, 8, rows, columns).
        output: name of the records.
        stride: of the fields, pixels.
        dense: name of the decoded fields of the skeleton's dense connections, if there is a head for them. The
            decoder's `dense_weight` then defaults to 1.
        skeleton: as in the dataset; default: COCO's.
        decoder: arguments of `models.pose.decode.cifcaf.CifCafDecoder`.
        maximum: maximum number of people per image; COCO counts 20.
        least_score: minimum score of returned people; `force_complete` leaves duplicates with a score near 0.
        category: the dataset's category id of people.
    """

    from_data: ClassVar[tuple[str, ...]] = ("skeleton", "stride", "category")

    def __init__(
        self,
        cif: str,
        caf: str,
        output: str,
        stride: int | None = None,
        dense: str | None = None,
        skeleton: dict[str, Any] | None = None,
        decoder: dict[str, Any] | None = None,
        maximum: int = 20,
        least_score: float = 0.0,
        category: int = 1,
    ) -> None:
        self.cif, self.caf = cif, (caf,) if dense is None else (caf, dense)
        self.maximum, self.least_score, self.category = maximum, least_score, category
        self.output = output
        body = skeleton_of(skeleton)
        settings = ({} if dense is None else {"dense_weight": 1.0}) | (decoder or {})
        self.decode = checked_call(CifCafDecoder, settings, "decoder", stride=need("stride", stride), skeleton=body)
        self.reads = (cif, *self.caf, "image_id", "to_original")
        self.adds = (output, f"{output}_count", f"{output}_score")

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        cif = as_array(state[self.cif])
        caf = np.concatenate([as_array(state[name]) for name in self.caf], axis=1)
        poses_of = self.decode.batch(cif, caf, torch.get_num_threads())
        maps = as_array(state["to_original"])
        settings = self.category, self.maximum, self.least_score
        _add(state, self.output, [
            people_records(poses, matrix, int(number), *settings)
            for poses, matrix, number in zip(poses_of, maps, state["image_id"], strict=True)
        ])  # fmt: skip


class FindObjects(Injector):
    """Adds the objects in each image, as records of `cifdet.object_records`.

    `<output>_count` float32 (N,) is the number of objects, `<output>_score` float32 (N,) the best score or 0.

    Args:
        cifdet: name of the decoded fields, (N, categories, 6, rows, columns).
        output: name of the records.
        stride: of the fields, pixels.
        categories: as in the dataset, a list of `{id, name}` in the order of the fields, with the ids for the records;
            by default, ids count the fields from 1.
        decoder: arguments of `models.pose.decode.cifdet.CifDetDecoder`.
        maximum: maximum number of objects per image; COCO counts 100.
        least_score: minimum score of returned objects.
    """

    from_data: ClassVar[tuple[str, ...]] = ("stride", "categories")

    def __init__(
        self,
        cifdet: str,
        output: str,
        stride: int | None = None,
        categories: list[dict[str, Any]] | None = None,
        decoder: dict[str, Any] | None = None,
        maximum: int = 100,
        least_score: float = 0.0,
    ) -> None:
        self.cifdet, self.maximum, self.least_score = cifdet, maximum, least_score
        self.ids = tuple(categories_from(categories))
        self.output = output
        self.decode = checked_call(CifDetDecoder, decoder or {}, "decoder", stride=need("stride", stride))
        self.reads = (cifdet, "image_id", "to_original")
        self.adds = (output, f"{output}_count", f"{output}_score")

    def __call__(self, state: State, networks: Networks, step: int) -> None:
        maps = as_array(state["to_original"])
        fields = as_array(state[self.cifdet])
        if self.ids and fields.shape[1] != len(self.ids):
            raise UserError(f"{self.cifdet} has {fields.shape[1]} fields, but there are {len(self.ids)} categories")
        boxes_of = self.decode.batch(fields, torch.get_num_threads())
        settings = self.ids, self.maximum, self.least_score
        _add(state, self.output, [
            object_records(boxes, matrix, int(number), *settings)
            for boxes, matrix, number in zip(boxes_of, maps, state["image_id"], strict=True)
        ])  # fmt: skip


def _add(state: State, output: str, images: Sequence[list[Record]]) -> None:
    state.add(output, [Records(records) for records in images])
    state.add(f"{output}_count", torch.tensor([float(len(records)) for records in images]))
    state.add(f"{output}_score", torch.tensor([max((r["score"] for r in records), default=0.0) for records in images]))

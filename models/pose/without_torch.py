"""Find people without PyTorch: `figura pose.without_torch NETWORK.onnx PHOTO [PHOTO ...] --output FILE`.

NETWORK.onnx is a pose network that `figura export` wrote. It runs in onnxruntime; figura's decoders, compiled by numba,
turn its fields into people and objects. Settings are those in the file's metadata: side and colours of the pictures
from the recipe's `predict`, decoders from the mode of `evaluate`. FILE gets records in COCO's result format, in pixels
of the upright photo; `image_id` counts photos from 1. Nothing of PyTorch is imported: docs/export.md.
"""

import argparse
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError, one_line
from figura.base.files import write_text
from figura.base.yaml12 import parse_yaml

from .argument_types import skeleton_of

Record = dict[str, Any]


def main(arguments: list[str]) -> None:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="figura pose.without_torch", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("network", type=Path, metavar="NETWORK.onnx", help="an exported pose network")
    parser.add_argument("photos", nargs="+", type=Path, metavar="PHOTO", help="image files")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON file to write")
    args = parser.parse_args(arguments)
    if find_spec("onnxruntime") is None:
        raise UserError("onnxruntime: not installed; `pip install onnxruntime` installs it")
    finder = Finder(args.network)
    records = [one for number, photo in enumerate(args.photos, 1) for one in finder.records(photo, number)]
    write_text(args.output, json.dumps(records, indent=1) + "\n")
    print(f"{args.output}: {len(records)} people and objects in {len(args.photos)} photos")


class Finder:
    """An exported pose network with its decoders.

    Raises:
        UserError: the file does not run in onnxruntime or is not a pose network written by `figura export`, its
            metadata are incomplete, or two injectors find people or objects.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self.path = path
        try:
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  # onnxruntime raises classes of its own
            raise UserError(f"{path}: onnxruntime cannot read it: {one_line(str(error))}") from None
        known = self.session.get_modelmeta().custom_metadata_map
        if not {"preprocessing", "recipe", "mode"} <= known.keys():
            raise UserError(f"{path}: its metadata name no pose network; `figura export runs/pose` writes one")
        try:
            self._read(known)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except Exception as error:  # noqa: BLE001  # of many classes, as what is missing or wrong
            what = one_line(f"{type(error).__name__}: {error}")
            raise UserError(f"{path}: its metadata are wrong ({what}); export the network again") from None

    def _read(self, known: Mapping[str, str]) -> None:
        """Read settings and decoders from metadata.

        Raises:
            UserError: the message lacks the path of the file.
            Exception: a setting is missing or invalid.
        """
        from .decode.cifcaf import CifCafDecoder
        from .decode.cifdet import CifDetDecoder

        recipe = parse_yaml(known["recipe"], "recipe")
        preparation = json.loads(known["preprocessing"])
        if (kind := preparation["type"]) != "pose.Photos":
            rest = "" if recipe.get("predict") else ": its recipe has no `predict`; add that, and export again"
            raise UserError(f"preprocessing: found {kind}; pose.Photos is needed{rest}")
        arguments = preparation["arguments"]
        self.side, self.multiple = (int(arguments[key]) for key in ("side", "multiple"))
        self.multiply, self.add = (np.array(preparation[key], np.float32)[:, None, None] for key in ("multiply", "add"))
        self.names: dict[str, str] = json.loads(known.get("outputs", "{}"))
        fields = {self.names.get(one.name, one.name) for one in self.session.get_outputs()}
        people, objects = (_injector(recipe, known["mode"], type_, fields) for type_ in ("FindPeople", "FindObjects"))
        self.people, self.objects = people or {}, objects or {}
        if people is not None:
            skeleton = skeleton_of(people.get("skeleton"))
            settings = ({"dense_weight": 1.0} if people.get("dense") else {}) | (people.get("decoder") or {})
            self.find_people = CifCafDecoder(stride=people["stride"], skeleton=skeleton, **settings)
        if objects is not None:
            self.find_objects = CifDetDecoder(stride=objects["stride"], **(objects.get("decoder") or {}))
            self.categories = [one["id"] for one in objects.get("categories") or ()]

    def records(self, photo: Path, number: int) -> list[Record]:
        """Return the people and then the objects in a photo: records of `people_records` and `object_records`.

        Raises:
            UserError: not a picture, or the network does not support it, for example with a fixed size.
        """
        from .decode.cifcaf import people_records
        from .decode.cifdet import object_records

        pixels, to_photo = self.prepare(photo)
        image = self.session.get_inputs()[0]
        names = [one.name for one in self.session.get_outputs()]
        try:
            outputs = self.session.run(None, {image.name: pixels})
        except Exception as error:  # noqa: BLE001  # onnxruntime raises classes of its own
            shape = " x ".join(map(str, pixels.shape))
            takes = " x ".join(map(str, image.shape))
            raise UserError(
                f"{photo}: {self.path} takes {takes}, the photo becomes {shape}: {one_line(str(error))}"
            ) from None
        fields = {self.names.get(name, name): value[0] for name, value in zip(names, outputs, strict=True)}
        found: list[Record] = []
        if self.people:
            connections = [fields[self.people[name]] for name in ("caf", "dense") if self.people.get(name)]
            poses = self.find_people(fields[self.people["cif"]], np.concatenate(connections))
            chosen = _chosen(self.people, "category", "maximum", "least_score")
            found += people_records(poses, to_photo, number, **chosen)
        if self.objects:
            boxes = self.find_objects(fields[self.objects["cifdet"]])
            chosen = _chosen(self.objects, "maximum", "least_score")
            found += object_records(boxes, to_photo, number, self.categories, **chosen)
        return found

    def prepare(self, photo: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Read a photo, resize its longer side to that of the recipe, and pad it to the network's stride.

        Returns the network's input, float32 (1, 3, rows, columns), and the map (2, 3) of its pixels to the photo's.
        """
        from figura.base.raw_pictures import read_picture

        from .affine import MEAN_COLOUR, fit_to_multiple

        pixels = read_picture(photo)
        height, width = pixels.shape[:2]
        placement = fit_to_multiple(width, height, self.side or max(width, height), self.multiple)
        image = placement.picture(pixels, MEAN_COLOUR).transpose(2, 0, 1).astype(np.float32) * self.multiply + self.add
        return image[None], placement.to_original


def _chosen(entry: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry[name] for name in names if name in entry}


def _injector(recipe: Any, mode: str, kind: str, fields: set[str]) -> dict[str, Any] | None:
    """Return the entry of a mode's only injector of a type, or None; `fields` are those that it can read.

    Raises:
        UserError: there are two such injectors, or one reads other fields.
    """
    place, entries = f"recipe.evaluate.modes.{mode}.injectors", recipe["evaluate"]["modes"][mode]["injectors"]
    matching = {name: entry for name, entry in entries.items() if entry["type"] == f"pose.{kind}"}
    if len(matching) > 1:
        raise UserError(f"{place}: {' and '.join(matching)} are of type pose.{kind}; at most one is needed")
    for name, entry in matching.items():
        for key in ("cif", "caf", "dense", "cifdet"):
            if entry.get(key) is not None and entry[key] not in fields:
                have = ", ".join(sorted(fields))
                raise UserError(f"{place}.{name}.{key}: found {entry[key]!r}; the network gives {have}")
    return next(iter(matching.values()), None)

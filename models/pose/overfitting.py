"""Reduce a pose recipe to a few images, and check whether training found every keypoint and person in them."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError
from figura.dump import Dump
from figura.evaluation.trained import write_dump
from figura.formats.skeletons import Skeleton
from figura.recipe.completion import with_data
from figura.recipe.schema import Recipe

from .dump_evaluation import evaluate
from .field_scores import VISIBLE
from .plots import WorstImages
from .scenes import Scenes

Array = NDArray[np.floating]

CONFIDENT = 0.5


def few_images(content: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return a recipe's content with the first crowd-free images as both splits, and a matching schedule."""
    (entry,) = with_data(content, ErrorCollector(args.recipe))["data"]["train"].values()
    entry = entry | {"root": args.root or entry["root"], "split": args.split, "side": args.side or entry["side"]}
    entry = {key: value for key, value in entry.items() if key not in ("weight", "augmentation")}
    whole = Scenes(**{key: value for key, value in entry.items() if key != "type"})
    calm = [row for row in whole.rows if not whole.table.annotations(int(row)).crowd.any()]
    if len(calm) < args.images:
        raise UserError(f"{whole.table.path}: {len(calm)} images have no crowd region, {args.images} are asked for")
    entry["image_ids"] = [int(whole.table.image_ids[row]) for row in calm[: args.images]]
    content["data"] = {
        "train": {"few": entry},
        "validation": {"few": entry | {"joints": True, "truth": True}},
        "batch_size": args.images,
    }
    content["evaluate"].pop("data", None)
    for step in content["steps"].values():
        step["lr_schedule"] = {
            "type": "WarmUp", "steps": 20,
            "then": {"type": "Cosine", "start": args.steps // 2, "end": args.steps, "from": 1.0, "to": 0.02},
        }  # fmt: skip
    content["train"] |= {"steps": args.steps, "epochs": None, "evaluate_every": args.steps // 4, "record_every": 5}
    content["train"]["try"] = False
    content["runtime"] = content.get("runtime", {}) | {"log_every": args.steps // 8, "trackers": []}
    return content


def distance(field: Array, keypoint: Array, stride: int) -> float:
    """Return the smallest distance in pixels between a keypoint and where a confident cell within one stride points.

    `field` is a decoded cif field (5, rows, columns). The result is infinite without a confident cell. The minimum is
    used, not the most confident cell: another person's joint may be in the next cell, which then correctly points
    there.
    """
    rows, columns = np.mgrid[: field.shape[1], : field.shape[2]]
    near = (np.abs(columns * stride - keypoint[0]) <= stride) & (np.abs(rows * stride - keypoint[1]) <= stride)
    places = field[2:4, near & (field[1] >= CONFIDENT)].T * stride
    return float(np.linalg.norm(places - keypoint, axis=1).min(initial=np.inf))


def decoded(
    recipe: Recipe, networks: Mapping[str, torch.nn.Module], skeleton: Skeleton, folder: Path
) -> dict[str, float]:
    """Evaluate as in the DAG and draw the detected people; return COCO's keypoint metrics."""
    write_dump(recipe, dict(networks), folder / "dump")
    dump = Dump(folder / "dump")
    metrics = evaluate(dump, "poses", "people", "truth", skeleton).values()
    print("keypoints: " + ", ".join(f"{name} {value:.3f}" for name, value in metrics.items() if np.isfinite(value)))
    count = len(dump.mode("poses"))
    styles = (entry.arguments.get("style") for entry in recipe.evaluate.modes["poses"].injectors.values())
    least = float(next((style["least_score"] for style in styles if style and "least_score" in style), 0.0))
    sheet = WorstImages("poses", "people", "truth", "overlay", count, least_score=least, skeleton=skeleton.settings())
    sheet(dump, folder / "people.png")
    return metrics


@torch.no_grad()
def judge(network: torch.nn.Module, data: Scenes) -> int:
    """Print the field errors at each image's visible keypoints; return the number of missed keypoints."""
    missed = 0
    stride = data.encoders["cif"].stride
    print(f"{'image':>8} {'visible':>8} {'found':>6} {'farthest px':>12}")
    for index in range(len(data)):
        view, example = data.view(index, np.random.default_rng(0)), data.example(index, np.random.default_rng(0))
        fields = network.eval()(torch.from_numpy(example["image"])[None], decode=True)["cif"][0].numpy()
        distances = [
            distance(fields[joint], keypoints[joint, :2], stride)
            for keypoints in view.people.keypoints
            for joint in np.flatnonzero(keypoints[:, 2] >= VISIBLE)
            if ((keypoints[joint, :2] >= 0) & (keypoints[joint, :2] <= data.side - 1)).all()
        ]
        hits = sum(one <= stride for one in distances)
        missed += len(distances) - hits
        print(f"{example['image_id']:>8} {len(distances):>8} {hits:>6} {max(distances, default=0.0):>12.2f}")
    return missed

"""COCO's figures and their intervals for 5,000 images of five people: where time and memory go, beside pycocotools.

Usage: python -m bench.coco_figures [--images 5000] [--people 5] [--samples 500] [--folder FOLDER] [--no-reference]

Writes a dump of drawn numbers: people of 17 joints and boxes of five categories, results with noise, missed ones,
second ones and false ones, each image with the same small picture. Then runs the scores and pictures of
`recipes/pose.yaml` on it, part by part. CPU seconds are those of this process; peaks are of its resident size during
the part. Beside them are COCOeval of pycocotools and, where it is installed, that of faster-coco-eval, whose figures
must be the same.
"""

import argparse
import contextlib
import hashlib
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.table import show
from figura.base.checksums import SUMS, write_sums
from figura.data.formats.skeletons import COCO as SKELETON
from figura.dump import Dump, RecordsFile, Table, write_value
from figura.report.interfaces import Bootstrap
from models.pose.coco_evaluation import Evaluation
from models.pose.coco_scores import BoxAP, KeypointAP, KeypointErrors
from models.pose.dump_evaluation import estimates
from models.pose.plots import OKSHistogram, PrecisionRecall, WorstImages

Record = dict[str, Any]
WIDTH, HEIGHT = 640, 480
CATEGORIES = 5  # the first is people
CONFIDENCE = 0.95


def annotations(random: np.random.Generator, image: int, people: int) -> list[Record]:
    """Return the annotations of an image: people, one in 30 a crowd, one in 10 without joints, and two objects."""
    records: list[Record] = []
    pose = SKELETON.standing_pose - SKELETON.standing_pose.min(axis=0)
    for place in range(random.poisson(people)):
        tall = float(np.clip(random.lognormal(4.6, 0.7), 20, 0.95 * HEIGHT))
        shape = (pose / np.ptp(pose[:, 1])) * tall * (1, -1) + (0, tall)
        shape = shape + random.normal(0, 0.03 * tall, shape.shape)
        shape += random.uniform((0, 0), (WIDTH - 0.5 * tall, HEIGHT - tall)) - shape.min(axis=0)
        flags = random.choice([0.0, 1.0, 2.0], p=[0.2, 0.1, 0.7], size=len(shape))
        crowd, bare = random.uniform() < 1 / 30, random.uniform() < 0.1
        flags *= not (crowd or bare)
        corner, extent = shape.min(axis=0), np.ptp(shape, axis=0)
        records.append(
            {
                "id": 1000 * image + place,
                "image_id": image,
                "category_id": 1,
                "iscrowd": int(crowd),
                "bbox": np.round([*corner, *extent], 2).tolist(),
                "area": round(0.6 * float(extent.prod()), 2),
                "num_keypoints": int((flags > 0).sum()),
                "keypoints": np.where(flags[:, None] > 0, np.c_[shape, flags], 0.0).round(2).ravel().tolist(),
            }
        )
    for place in range(random.poisson(2)):
        side = random.uniform(10, 200, 2)
        box = np.round([*random.uniform((0, 0), (WIDTH - 200, HEIGHT - 200)), *side], 2).tolist()
        category = int(random.integers(2, CATEGORIES + 1))
        one = {"id": 1000 * image + 500 + place, "image_id": image, "category_id": category, "iscrowd": 0}
        records.append({**one, "bbox": box, "area": box[2] * box[3]})
    return records


def results(random: np.random.Generator, image: int, truth: list[Record]) -> tuple[list[Record], list[Record]]:
    """Return the people and objects that a detector might find in an image."""
    people, objects = [], []
    for record in truth:
        for second in range(1 + int(random.poisson(0.6))):
            box = np.array(record["bbox"])
            noise = float(random.gamma(2.0, 0.02)) * (1 + second)
            score = float(np.clip(random.normal(0.9 - 4 * noise - 0.3 * second, 0.1), 0.001, 0.999))
            one = {"image_id": image, "category_id": record["category_id"], "score": round(score, 6)}
            if random.uniform() < 0.1:
                continue
            moved = np.round(box + random.normal(0, noise, 4) * box[[2, 3, 2, 3]], 2).clip(0.1).tolist()
            objects.append({**one, "bbox": moved})
            if "keypoints" in record and not record["iscrowd"]:
                joints = np.reshape(record["keypoints"], (-1, 3))
                spread = noise * np.sqrt(record["area"])
                joints = np.c_[joints[:, :2] + random.normal(0, spread, (len(joints), 2)), random.uniform(size=17)]
                people.append({**one, "keypoints": joints.round(4).ravel().tolist(), "bbox": moved})
    for _ in range(random.poisson(2)):
        corner, extent = random.uniform((0, 0), (WIDTH / 2, HEIGHT / 2)), random.uniform(20, 240, 2)
        joints = np.c_[corner + random.uniform(size=(17, 2)) * extent, random.uniform(size=17)]
        box = np.round([*corner, *extent], 2).tolist()
        one = {"image_id": image, "score": round(float(random.uniform(0.001, 0.5)), 6), "bbox": box}
        people.append({**one, "category_id": 1, "keypoints": joints.round(4).ravel().tolist()})
        objects.append({**one, "category_id": int(random.integers(1, CATEGORIES + 1))})
    return people, objects


def write_dump(folder: Path, images: int, people: int, seed: int = 0) -> None:
    """Write a dump of the mode `poses` with the records `truth`, `people` and `objects`."""
    random = np.random.default_rng(seed)
    table = Table(folder / "examples.csv")
    files = {name: RecordsFile(folder / f"{name}.json") for name in ("inputs/truth", "poses/people", "poses/objects")}
    picture = torch.linspace(-1, 1, 192).expand(3, 192, 192)
    for place in range(images):
        name = f"poses/{place:06d}.overlay.image.png"
        write_value(folder / name, picture)
        row = {"mode": "poses", "index": place, "image_id": place + 1, "width": WIDTH, "height": HEIGHT}
        table.add({**row, "file.overlay": name})
        truth = annotations(random, place + 1, people)
        for file, records in zip(files.values(), (truth, *results(random, place + 1, truth)), strict=True):
            file.add(records)
    table.close()
    for file in files.values():
        file.close()
    write_sums(folder)


class Parts:
    """Measures parts of the work: seconds, CPU seconds, and the peak of the resident size."""

    def __init__(self) -> None:
        self.rows: list[list[object]] = [["part", "s", "CPU s", "peak, MiB"]]

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure a block."""
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        spent = [time.perf_counter() - wall, time.process_time() - cpu]
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        self.rows.append([name, *spent, peak / 1024])


def reference(
    new: Callable[..., Any], evaluator: Callable[..., Any], truth: list[Record], found: list[Record], images: list[int]
) -> NDArray[np.float64]:
    """Return the figures of a COCOeval, given its class and that of its index."""
    kind = "keypoints" if "keypoints" in found[0] else "bbox"
    chosen = [one for one in truth if kind == "bbox" or one.get("keypoints")]
    categories = sorted({one["category_id"] for one in chosen})
    index = new()
    index.dataset = {
        "info": {},
        "images": [{"id": image, "width": WIDTH, "height": HEIGHT} for image in images],
        "categories": [{"id": one, "name": str(one)} for one in categories],
        "annotations": [dict(one) for one in chosen],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        index.createIndex()
        # a box, where there is one, is the area, as `Evaluation` has it; `loadRes` of keypoints takes their extent
        ours = new()
        more = [{**one, "id": place + 1, "iscrowd": 0} for place, one in enumerate(found)]
        ours.dataset = {
            **index.dataset,
            "annotations": [{**one, "area": one["bbox"][2] * one["bbox"][3]} for one in more],
        }
        ours.createIndex()
        judged = evaluator(index, ours, kind)
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return np.array(judged.stats[:10] if kind == "keypoints" else judged.stats[:12], dtype=np.float64)


def main() -> None:
    """Print the table, and an MD5 of all figures that tells whether two versions agree to the last digit."""
    parser = argparse.ArgumentParser(prog="python -m bench.coco_figures", description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--people", type=int, default=5, help="the mean for an image")
    parser.add_argument("--samples", type=int, default=500, help="of the bootstrap")
    parser.add_argument("--folder", type=Path, help="where the dump is, or is written; default: a temporary folder")
    parser.add_argument("--no-reference", action="store_true", help="leave out the other programs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "dump"
        if not (folder / SUMS).exists():
            write_dump(folder, args.images, args.people)
        measure(folder, Path(temporary), args.samples, not args.no_reference)


def measure(folder: Path, plots: Path, samples: int, with_reference: bool) -> None:
    """Time each part on a dump, and print."""
    parts, bootstrap = Parts(), Bootstrap(samples, CONFIDENCE, 7)
    with parts.part("reading"):
        dump = Dump(folder)
        rows = dump.mode("poses")
        people, objects, truth = rows.records("people"), rows.records("objects"), dump.records("truth")
        images = rows.numbers("image_id").astype(int).tolist()
    values = {}
    for name, records, sigmas in (("people", people, SKELETON.sigmas), ("boxes", objects, None)):
        with parts.part(f"{name}: matching"):
            evaluation = Evaluation(truth, records, images, sigmas)
        with parts.part(f"{name}: figures"):
            values[name] = evaluation.values()
        with parts.part(f"{name}: bootstrap"):
            estimates(evaluation, bootstrap)
        del evaluation
    written: dict[str, Any] = {}
    dump = Dump(folder)
    for score, compute in {
        "KeypointAP": KeypointAP("poses", "people", "truth"),
        "BoxAP": BoxAP("poses", "objects", "truth"),
        "KeypointErrors": KeypointErrors("poses", "people", "truth"),
    }.items():
        with parts.part(f"score {score}"):
            written[score] = compute(dump, bootstrap)
    for picture, draw in {
        "PrecisionRecall": PrecisionRecall("poses", "people", "truth"),
        "PrecisionRecall, boxes": PrecisionRecall("poses", "objects", "truth", "bbox"),
        "OKSHistogram": OKSHistogram("poses", "people", "truth"),
        "WorstImages": WorstImages("poses", "people", "truth", "overlay", 12, least_score=0.15),
    }.items():
        with parts.part(f"picture {picture}"):
            draw(dump, plots / f"{picture}.png")
    if with_reference:
        for package in ("pycocotools", "faster_coco_eval"):
            if find_spec(package) is None:
                continue
            new, evaluator = classes(package)
            for name, found in (("people", people), ("boxes", objects)):
                with parts.part(f"{name}: {package}, no intervals"):
                    theirs = reference(new, evaluator, truth, found, images)
                np.testing.assert_allclose(theirs, list(values[name].values()), rtol=0, atol=1e-12)
    show(parts.rows)
    digest = hashlib.md5(repr(written).encode(), usedforsecurity=False).hexdigest()
    print(f"\n{len(truth)} annotations, {len(people)} people, {len(objects)} boxes; MD5 of all figures: {digest}")


def classes(package: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the index and the evaluator of a package."""
    if package == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        return COCO, COCOeval
    from faster_coco_eval import COCO as FASTER  # type: ignore[import-not-found]
    from faster_coco_eval import COCOeval_faster

    return FASTER, COCOeval_faster


if __name__ == "__main__":
    main()

"""Pack the poses of a dump for COCO's evaluation server.

Usage: figura pose.submit DUMP OUT --testset NAME --algorithm NAME [--kind detections]

DUMP is the output of eval-dump for the test images, for example with `--split test-dev2017`. Writes
OUT/<type>_<testset>_<algorithm>_results.zip with one JSON file of the same name, as the server wants it; <type> is
`person_keypoints`, or `detections` with `--kind detections`. The server knows COCO's 17 joints and 80 categories alone:
other joints and ids above 90 are refused. The same dump gives the same bytes. Not part of the DAG.

From COCO's `image_info_test-dev2017.json` to the archive, for a run of recipes/pose.yaml that was trained on COCO:
    1. data/params.yaml, datasets.people.coco: `annotations: {train: ..., validation: ..., test-dev: FILE}` and `images`
       likewise; `python -m stages.prepare people`
    2. python -m stages.eval_dump recipes/pose.yaml runs/pose --split test-dev --output test-dev
    3. figura pose.submit test-dev . --testset test-dev2017 --algorithm NAME
"""

import argparse
import json
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figura.base.errors import UserError
from figura.base.files import replacing
from figura.formats.coco import KEYPOINTS
from figura.formats.records import is_finite

if TYPE_CHECKING:
    from figura.dump import Dump

TYPES = {"keypoints": "person_keypoints", "detections": "detections"}
RECORDS = {"keypoints": "people", "detections": "objects"}
VALUES = {"keypoints": ("keypoints", 51), "detections": ("bbox", 4)}  # x, y, confidence of 17 joints; x, y, w, h
CATEGORIES = {"keypoints": (1, 1), "detections": (1, 90)}  # COCO's ids, first and last; some are not in use
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that zip supports


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="figura pose.submit", description=__doc__.splitlines()[0])
    parser.add_argument("dump", type=Path, help="folder of a dump, such as runs/pose/dump")
    parser.add_argument("folder", type=Path, help="folder to write the archive to")
    parser.add_argument("--testset", required=True, help="COCO's name for the test set, such as test-dev2017")
    parser.add_argument("--algorithm", required=True, help="your name for the method")
    parser.add_argument("--kind", choices=list(TYPES), default="keypoints", help="what to submit; default: keypoints")
    parser.add_argument("--mode", default="poses", help="mode of the dump; default: poses")
    parser.add_argument("--records", help="name of the records; default: people, with --kind detections: objects")
    args = parser.parse_args(arguments)
    for option in ("testset", "algorithm"):
        if not WORD.fullmatch(word := getattr(args, option)):
            raise UserError(f"--{option} {word!r}: is part of a file name; letters, digits and . _ - are allowed")

    from figura.dump import Dump

    whole = Dump(args.dump)
    if whole.trial:
        raise UserError(f"{args.dump}: {whole.trial}; dump a trained model")
    check_facts(whole.facts, args.kind, args.dump)
    dump, name = whole.mode(args.mode), args.records or RECORDS[args.kind]
    path = args.dump / args.mode / f"{name}.json"
    entries = results(dump.records(name), args.kind, image_ids(dump), path)
    archive = args.folder / f"{TYPES[args.kind]}_{args.testset}_{args.algorithm}_results.zip"
    write_archive(archive, entries)
    print(f"{archive}: {len(entries)} results of {len({one['image_id'] for one in entries})} images")


def check_facts(facts: Mapping[str, Any], kind: str, dump: Path) -> None:
    """Check the joints of a dump; one without facts is accepted.

    Raises:
        UserError: keypoints are not COCO's 17 joints in COCO's order.
    """
    skeleton = facts.get("skeleton")
    if kind == "keypoints" and skeleton is not None and tuple(skeleton["keypoints"]) != KEYPOINTS:
        joints = skeleton["keypoints"]
        raise UserError(
            f"{dump}: the people have {len(joints)} joints, {', '.join(joints[:3])}, ...; COCO's server takes its own "
            f"{len(KEYPOINTS)}, {', '.join(KEYPOINTS[:3])}, ..., in this order"
        )


def image_ids(dump: "Dump") -> set[int]:
    """Return the ids of the evaluated images.

    Raises:
        UserError: the table has no ids, or has duplicate images (several draws, or in two datasets).
    """
    path = dump.folder / "examples.csv"
    if "image_id" not in dump.table:
        raise UserError(f"{path}: no column `image_id`; only datasets of COCO's kind have one")
    ids = dump.rows(dump.table[dump.table["image_id"].notna()]).numbers("image_id").astype(int).tolist()
    if repeated := [number for number, count in Counter(ids).items() if count > 1]:
        raise UserError(f"{path}: image {repeated[0]} was evaluated more than once; submit one result of each")
    return set(ids)


def results(records: Any, kind: str, known: Collection[int], path: Path) -> list[dict[str, Any]]:
    """Return the records with only the server's fields, sorted by image and then by descending score.

    Args:
        records: the dump's records.
        kind: `keypoints` (`image_id`, `category_id`, `keypoints`, `score`) or `detections` (`bbox`, not `keypoints`).
        known: the ids of the evaluated images.
        path: the records' file, for messages.

    Raises:
        UserError: there are no records, or the server would reject one (the message has the first).
    """
    if not isinstance(records, list) or not records:
        raise UserError(f"{path}: no list with results in it; there is nothing to submit")
    entries = []
    for index, record in enumerate(records):
        try:
            fault = _fault(record, kind, known)
        except (TypeError, AttributeError):  # fields of other types
            fault = f"found {record!r:.100}"
        if fault:
            raise UserError(f"{path}: record {index} (counted from 0): {fault}")
        entries.append({key: record[key] for key in ("image_id", "category_id", VALUES[kind][0], "score")})
    return sorted(entries, key=lambda one: (one["image_id"], -one["score"]))


def _fault(record: Any, kind: str, known: Collection[int]) -> str | None:
    field, length = VALUES[kind]
    if missing := [key for key in ("image_id", "category_id", field, "score") if key not in record]:
        return f"has no {', '.join(missing)}"
    if type(record["image_id"]) is not int or record["image_id"] not in known:
        return f"image_id {record['image_id']!r}: not an image of the dump's table"
    first, last = CATEGORIES[kind]
    if not first <= record["category_id"] <= last:
        allowed = f"{first}, person" if first == last else f"{first} to {last}"
        return f"category_id {record['category_id']}: COCO has {allowed}"
    values = record[field]
    if len(values) != length or not is_finite([*values, record["score"]]):
        return f"{field} and score: found {len(values)} and 1; expected {length} and 1 finite numbers"
    if field == "bbox" and min(values[2:]) < 0:
        return f"bbox: width {values[2]}, height {values[3]}; expected none below 0"
    return None


def write_archive(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Write a zip archive with the entries as its only file, `<stem>.json`, atomically and reproducibly."""
    info = zipfile.ZipInfo(f"{path.stem}.json", TIME)
    info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
    text = json.dumps(entries, allow_nan=False, separators=(",", ":"))
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr(info, text)

"""Hostile input: whatever a file or an option holds, figura takes it or raises `UserError`, in bounded time and space.

Each property makes input by mutating real files, and gives it to the code that a command gives it to. That may raise
`UserError` with a bounded message; it may take 5 s and 2 GiB, write below the current folder alone, and start no
program.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import matplotlib.pyplot  # noqa: F401, so that it looks for its folders before it is watched
import numpy as np
import pytest
import torch
import toy
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pipeline.dag import ROOT
from pycocotools.mask import encode
from real_people import leave_out_plots
from safetensors.torch import save

from figura import dump as dumps
from figura.base import exit_status
from figura.base.errors import LENGTH, LINES
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.ci.reproduction import compare, read_results
from figura.commands.ci.tolerances import read_tolerances
from figura.commands.import_weights.tensor_files import read_content, tensors_of
from figura.engine.build import build_networks
from figura.engine.weights import load_weights
from figura.formats.coco import KEYPOINTS
from figura.prediction.input_files import find_files
from figura.prediction.inputs import Photo
from figura.preparation.datasets import read_dataset
from figura.recipe.load import load_recipe
from figura.recipe.schema_check import check_schema
from models.images.photos import Photos
from models.people.photos import PersonPhotos
from models.pose.import_openpifpaf import refuse_content
from reliability import CASES, SEED
from reliability.guarded import guarded
from reliability.mutations import (
    CANARY,
    JSON_FRAGMENTS,
    YAML_FRAGMENTS,
    mutated_bytes,
    mutated_tree,
    text_bytes,
)  # fmt: skip
from stages import prepare

pytestmark = pytest.mark.slow
LONGEST = 2 * LINES * LENGTH  # characters that one command may print
RECIPES = ("params.yaml", "recipes/pix2pix.yaml", "recipes/pose.yaml", "recipes/super_resolution.yaml")


@cache
def recipe_text(name: str) -> Any:
    """Return the content of a recipe of this project, or of the toy one."""
    return toy.recipe() if name == "toy" else toy.shipped(name)


def recipes_mutated(*names: str) -> st.SearchStrategy[bytes]:
    """Return recipes with something hostile in them, and recipes whose bytes are damaged."""
    trees = [mutated_tree(recipe_text(name), YAML_FRAGMENTS) for name in names]
    texts = st.sampled_from([to_yaml(recipe_text(name)).encode() for name in names]).flatmap(mutated_bytes)
    return st.one_of(*(text_bytes(tree) for tree in trees), texts)


def write(name: str, content: bytes) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read_schema(content: bytes) -> Path:
    """Read a recipe as every command does first; return its path."""
    path = write("recipe.yaml", content)
    check_schema(read_yaml(path), path)
    return path


def read_recipe(content: bytes) -> None:
    """Read a recipe, and check types, arguments and names, as a training does."""
    load_recipe(read_schema(content))


def read_data_params(content: bytes) -> None:
    """Read the entry of a dataset."""
    path = write("data/params.yaml", content)
    for name in ("people", "pairs"):
        read_dataset(name, path)


@cache
def jpeg(number: int = 0, suffix: str = ".jpg", width: int = 48) -> bytes:
    """Return a small picture of noise."""
    pixels = np.random.default_rng(number).integers(0, 256, (32, width, 3), np.uint8)
    return bytes(cv2.imencode(suffix, pixels)[1].tobytes())


def annotation(number: int) -> dict[str, Any]:
    """Return a person as COCO annotates it."""
    return {
        "id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "bbox": [5, 5, 20, 25.5], "area": 400,
        "segmentation": [[5, 5, 25, 5, 25, 30]], "keypoints": [20.5, 10, 2, 22, 9, 1] + [0] * 45, "num_keypoints": 2,
    }  # fmt: skip


COCO = {
    "images": [{"id": n, "file_name": f"{n}.jpg", "width": 48, "height": 32} for n in (1, 2, 3, 4)],
    "annotations": [annotation(n) for n in (1, 2, 3, 4)]
    + [annotation(5) | {"image_id": 1, "iscrowd": 1, "segmentation": {"size": [32, 48], "counts": [500, 36, 1000]}}],
    "categories": [{"id": 1, "name": "person", "keypoints": list(KEYPOINTS), "skeleton": [[1, 2], [2, 3]]}],
}  # fmt: skip
ENTRY = {"seed": 7, "max_rejected": 1.0, "source": "raw"}
SECTIONS = {
    "people": {"kind": "coco", "coco": {"images": "images", "annotations": "annotations.json",
                                        "shares": {"validation": 0.5}}},
    "pairs": {"kind": "paired", "paired": {"train": "train", "validation": "val"}},
}  # fmt: skip


def prepared(name: str) -> None:
    """Prepare a dataset in the current folder."""
    write("data/params.yaml", to_yaml({"datasets": {name: ENTRY | SECTIONS[name]}}).encode())
    prepare.main([name])


def read_coco(content: bytes) -> None:
    """Prepare four pictures of people with these annotations."""
    for number in (1, 2, 3, 4):
        write(f"raw/images/{number}.jpg", jpeg(number))
    write("raw/annotations.json", content)
    prepared("people")


JOINTS = [number for joint in range(17) for number in (12 + joint, 6 + joint, 0.8)]
PAIRS = [JOINTS[place : place + 2] for place in range(0, 51, 3)]
EXPORTS: dict[str, Any] = {
    "results.json": [{"image_id": f"{number}.jpg", "category_id": 1, "keypoints": JOINTS, "score": 1.0,
                      "box": [10, 5, 20, 20]} for number in (1, 2, 3, 4)],
    "poses/1_keypoints.json": {"version": 1.3, "people": [{"pose_keypoints_2d": [9, 9, 0.5] * 25}]},
    "poses/results_1.json": {"meta_info": {"keypoint_id2name": {"0": "nose"}}, "instance_info": [
        {"keypoints": PAIRS, "keypoint_scores": [0.5] * 17, "bbox": [[1, 2, 9, 9]], "bbox_score": 0.5}]},
    "mpii.json": [{"image": "1.jpg", "joints": PAIRS[:16], "joints_vis": [1] * 16, "center": [9, 9], "scale": 0.1}],
    "ochuman.json": {"keypoint_names": ["nose", "left_eye"], "images": [{"file_name": "1.jpg", "annotations": [
        {"bbox": [1, 2, 9, 9], "keypoints": [3, 4, 1, 5, 6, 3], "segms": {"outer": [[1, 2, 9, 2, 9, 9]]}}]}]},
    "people/1.people.json": [{"category_id": 1, "score": 0.5, "bbox": [1, 2, 9, 9], "keypoints": JOINTS}],
    "annotations.json": COCO | {
        "annotations": [one | {"score": 0.5, "keypoints": JOINTS} for one in COCO["annotations"]]
    },
    "videos/1.json": COCO,
    "data.yaml": {"train": "images", "val": "images", "kpt_shape": [2, 3], "flip_idx": [1, 0], "names": ["person"]},
    "labels/1.txt": "0 0.5 0.5 0.25 0.25 0.5 0.5 2 0.25 0.5 1",
}  # fmt: skip


@st.composite
def exports_mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return an export of another tool, and its name."""
    name = draw(st.sampled_from([*EXPORTS]))
    if name == "labels/1.txt":
        return name, draw(mutated_bytes(EXPORTS[name].encode()))
    fragments = YAML_FRAGMENTS if name == "data.yaml" else JSON_FRAGMENTS
    return name, draw(text_bytes(mutated_tree(EXPORTS[name], fragments)))


def read_export(export: tuple[str, bytes]) -> None:
    """Prepare people from an export of another tool."""
    name, content = export
    for number in (1, 2, 3, 4):
        write(f"raw/images/{number}.jpg", jpeg(number))
    write("raw/data.yaml", json.dumps(EXPORTS["data.yaml"]).encode()) if name == "labels/1.txt" else None
    write("raw/labels/1.txt", EXPORTS["labels/1.txt"].encode()) if name == "data.yaml" else None
    write(f"raw/{name}", content)
    annotations = "data.yaml" if name == "labels/1.txt" else name.partition("/")[0]
    section = {"annotations": annotations} if annotations == "data.yaml" else {
        "annotations": annotations, "shares": {"validation": 0.5}
    }  # fmt: skip
    entry = {"kind": "coco", "source": "raw", "seed": 1, "max_rejected": 1.0, "coco": section}
    write("data/params.yaml", to_yaml({"datasets": {"people": entry}}).encode())
    prepare.main(["people"])


def read_pairs(files: tuple[bytes, str, str]) -> None:
    """Prepare pairs, one of which has this content and this name, or is something else than a file."""
    content, name, kind = files
    for number in range(3):
        write(f"raw/train/{number}.png", jpeg(number, ".png"))
        write(f"raw/val/{number}.png", jpeg(number + 3, ".png"))
    odd(Path("raw/train"), content, name, kind)
    prepared("pairs")


def odd(folder: Path, content: bytes, name: str, kind: str) -> Path:
    """Make a file of an odd name in a folder, or a link, a FIFO or a folder of that name."""
    path = folder / os.fsdecode(os.fsencode(name.replace("/", "_").replace("\0", "_"))[:240] + b".png")
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    match kind:
        case "file":
            path.write_bytes(content)
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.symlink_to({"loop": path.name, "zero": "/dev/zero", "outside": "/etc/passwd", "up": "../.."}[kind])
    return path


NAMES = st.one_of(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60),
    st.binary(min_size=1, max_size=30).map(os.fsdecode),
    st.sampled_from(
        ["n\nl", "caf\udce9", "-o", "a'b\"c", "%s", "名前", "x" * 200, "..", "a b", "\x1b[31m", "*", "[1]", "0"]
    ),
)
NODES = st.sampled_from(["file"] * 6 + ["folder", "fifo", "loop", "zero", "outside", "up"])


def pictures_mutated() -> st.SearchStrategy[bytes]:
    """Return pictures of every format with damaged bytes."""
    return st.sampled_from([jpeg(1, suffix) for suffix in (".png", ".jpg", ".bmp", ".webp", ".tiff")]).flatmap(
        mutated_bytes
    )


def read_photo(files: tuple[bytes, str, str]) -> None:
    """Read a photo as predictions do."""
    odd(Path("photos"), *files)
    data = Photos(image_size=(16, 16), layout="whole")
    for number, file in enumerate(find_files(["photos"], Path("out")), 1):
        data.examples(Photo(file.path, file.name, number))


MASK = encode(np.asfortranarray(np.eye(32, 48, dtype=np.uint8)))["counts"].decode()
PEOPLE = [
    {"image_id": 1, "category_id": 1, "bbox": [10.0, 5.0, 20.0, 20.0], "score": 0.9,
     "keypoints": [float(n) for joint in range(17) for n in (12 + joint, 6 + joint, 0.8)],
     "segmentation": {"size": [32, 48], "counts": MASK}}
    for _ in range(2)
]  # fmt: skip


def read_people(content: bytes) -> None:
    """Cut out the people of a photo, as predictions of VUNet do."""
    write("people.json", b"")
    write("a.people.json", content)
    photo = Photo(write("a.png", jpeg(1, ".png")), "a", 1)
    for one in PersonPhotos(image_size=16, min_height=2, min_keypoints=1).examples(photo):
        assert all(np.isfinite(array).all() for array in one.values() if isinstance(array, np.ndarray)), "not finite"


METRICS = {"l1": {"value": 0.25, "low": 0.2, "high": 0.3}, "count": 12, "nested": {"AP": 0.5, "AR": 0.75}}
LOCK = {
    "schema": "2.0",
    "stages": {
        "prepare@people": {"cmd": "x", "outs": [{"path": "data/prepared/people", "hash": "md5", "md5": "0" * 32}]},
    },
}  # fmt: skip


def read_metrics(texts: tuple[bytes, bytes]) -> None:
    """Compare metrics as the gate does."""
    metrics, lock = (one.decode("utf-8", "replace") for one in texts)
    tolerances = read_tolerances(write("t.yaml", b'"*": {relative: 0.1, absolute: 0.1}\n'))
    whole = read_results({"metrics/full/toy.json": json.dumps(METRICS)}, json.dumps(LOCK), " of HEAD")
    compare(whole, read_results({"metrics/full/toy.json": metrics}, lock, ""), tolerances)


STATE = {"layer.weight": torch.arange(18.0).reshape(2, 1, 3, 3), "layer.bias": torch.zeros(2),
         "last.weight": torch.ones(1, 2, 1, 1), "last.bias": torch.zeros(1)}  # fmt: skip


@cache
def painter() -> torch.nn.Module:
    """Return a network that `STATE` fits."""
    return build_networks(toy.checked({}))["painter"]


@st.composite
def weights_mutated(draw: st.DrawFn) -> bytes:
    """Return files of safetensors: another header, another length of the header, other bytes."""
    whole = save(STATE)
    if draw(st.booleans()):
        return draw(mutated_bytes(whole))
    length = int.from_bytes(whole[:8], "little")
    header = draw(mutated_tree(json.loads(whole[8 : 8 + length]), JSON_FRAGMENTS)).encode("utf-8", "replace")
    stated = draw(st.sampled_from([len(header)] * 8 + [0, 1, 2**40, 2**64 - 1, len(header) + 1]))
    return stated.to_bytes(8, "little") + header + whole[8 + length :]


def read_weights(content: bytes) -> None:
    """Load weights into a network, as a start and of a trained model."""
    load_weights(painter(), write("painter.safetensors", content))


class Touching:
    """Pickled, it is code that runs when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@cache
def pickles() -> list[bytes]:
    """Return files of PyTorch: weights, and whole objects that would run code."""
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    contents = [
        STATE, {"model": STATE, "epoch": 3}, {"state_dict": STATE}, {"model": network}, network,
        Touching(os.system, f"touch {CANARY}"), {"model": Touching(os.system, f"touch {CANARY}")},
        {"model": Touching(eval, f"open('{CANARY}', 'w')")}, {**STATE, "x": Touching(exec, f"open('{CANARY}', 'w')")},
        Touching(partial, print), Touching(open, CANARY, "w"),
    ]  # fmt: skip
    files = []
    for one in contents:
        for zipped in (True, False):
            file = io.BytesIO()
            torch.save(one, file, _use_new_zipfile_serialization=zipped)
            files.append(file.getvalue())
        if not isinstance(one, torch.nn.Module):
            files.append(pickle.dumps(one))
    return files


def read_checkpoint(content: bytes) -> None:
    """Read a checkpoint of OpenPifPaf."""
    path = write("checkpoint.pkl", content)
    found = read_content(path)
    refuse_content(found)
    tensors_of(found, path)


@cache
def toy_dump() -> dict[str, bytes]:
    """Return the files of a dump, by path."""
    npy = io.BytesIO()
    np.save(npy, np.arange(27, dtype=np.float32).reshape(3, 3, 3))
    table = "mode,index,draw,dataset,name,loss.distance,file.image,file.y\n" + "".join(
        f"plain,{n},0,toy,n{n},0.{n},plain/{n}.x.image.png,inputs/{n}.npy\n" for n in range(3)
    )
    files = {
        "examples.csv": table.encode(), "grids.csv": b"grid,row,column,file.image\nall,0,1,plain/0.x.image.png\n",
        "facts.json": b'{"joints": 17}\n', "inputs/truth.json": b'[{"a": 1},\n{"b": [1, 2]}]\n', 
        "averages/mean.npy": npy.getvalue(),
    }  # fmt: skip
    with zipfile.ZipFile(archive := io.BytesIO(), "w") as file:
        for n in range(3):
            file.writestr(f"plain/{n}.x.image.png", jpeg(n, ".png", 32))
    files["plain.x.zip"] = archive.getvalue()
    files |= {f"inputs/{n}.npy": npy.getvalue() for n in range(3)}
    return files | {"SHA256SUMS": sums(files)}


def sums(files: dict[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(one).hexdigest()}  {name}\n" for name, one in files.items()).encode()


def read_dump(damaged: tuple[str, bytes]) -> None:
    """Read everything in a dump, as metrics do."""
    changed, content = damaged
    files = toy_dump() | {changed: content}
    if changed != "SHA256SUMS":  # else the checksums fit
        files["SHA256SUMS"] = sums({name: one for name, one in files.items() if name != "SHA256SUMS"})
    for name, one in files.items():
        write(f"dump/{name}", one)
    dump = dumps.Dump(Path("dump"))
    _ = dump.facts, dump.trial, dump.average("mean"), dump.records("truth"), dump.grid("all").table
    for row in dump.mode("plain"):
        assert "image" not in row or row["image"].dtype == np.float32


@st.composite
def dumps_mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return the name of a file in a dump, and another content."""
    name = draw(st.sampled_from(["examples.csv", "grids.csv", "facts.json", "inputs/truth.json", "averages/mean.npy",
                                 "plain.x.zip", "inputs/1.npy", "SHA256SUMS"]))  # fmt: skip
    base = toy_dump()[name]
    if name.endswith(".json") and draw(st.booleans()):
        return name, draw(text_bytes(mutated_tree(json.loads(base), JSON_FRAGMENTS)))
    if name.endswith(".npy") and draw(st.booleans()):
        shape = draw(
            st.sampled_from(["(1000000000000,)", "(-1, 3)", "(3, 3)", "()", "(3, 3, 3, 3)", "(0,)", "x", "(True, 3)"])
        )
        kind = draw(st.sampled_from(["<f4", "<f8", "|O", "<c16", "<M8[s]", "|S4", ">f4", "[('a', '<f4')]"]))
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        return name, base[:8] + len(head).to_bytes(2, "little") + head.encode() + base[128:]
    return name, draw(mutated_bytes(base))


DATA = mutated_tree(read_yaml(ROOT / "data/params.yaml"), YAML_FRAGMENTS)
PICKLES = st.deferred(lambda: st.sampled_from(pickles())).flatmap(
    lambda one: st.one_of(st.just(one), mutated_bytes(one))
)
LOCKS = st.one_of(st.just(json.dumps(LOCK)), mutated_tree(LOCK, YAML_FRAGMENTS))
PROPERTIES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], object], float]] = {
    "recipe, schema": (recipes_mutated(*RECIPES, "toy"), read_schema, 1.5),
    "recipe, whole": (recipes_mutated("toy"), read_recipe, 1.0),
    "data/params.yaml": (text_bytes(DATA), read_data_params, 1.0),
    "COCO": (text_bytes(mutated_tree(COCO, JSON_FRAGMENTS)), read_coco, 1.0),
    "exports": (exports_mutated(), read_export, 2.0),
    "pairs": (st.tuples(pictures_mutated(), NAMES, NODES), read_pairs, 1.0),
    "photos": (st.tuples(pictures_mutated(), NAMES, NODES), read_photo, 1.0),
    "people.json": (text_bytes(mutated_tree(PEOPLE, JSON_FRAGMENTS)), read_people, 1.0),
    "dump": (dumps_mutated(), read_dump, 1.0),
    "weights": (weights_mutated(), read_weights, 1.0),
    "checkpoints of OpenPifPaf": (PICKLES, read_checkpoint, 1.0),
    "metrics of the gate": (
        st.tuples(text_bytes(mutated_tree(METRICS, JSON_FRAGMENTS)), text_bytes(LOCKS)), read_metrics, 1.0,
    ),
}  # fmt: skip
"""What makes an input, what reads it in the current folder, and its share of the cases, relative to the others."""


@pytest.mark.parametrize("name", PROPERTIES)
def test_hostile_input_is_taken_or_refused_in_words(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, read, share = PROPERTIES[name]
    leave_out_plots(monkeypatch)

    @seed(SEED)
    @settings(
        max_examples=max(2, round(share * (CASES or 340) / len(PROPERTIES))), deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(inputs)
    def test(value: Any) -> None:
        check(read, value, tmp_path)

    test()


def check(read: Callable[[Any], object], value: Any, folder: Path) -> None:
    """Give an input to what reads it, in an empty folder, and assert what holds for every command."""
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    said = io.StringIO()
    with guarded(folder), redirect_stdout(said), redirect_stderr(said):
        status = exit_status.run(lambda _: read(value), [])
    text = said.getvalue()
    assert not (folder / CANARY).exists(), "the code in it ran"
    assert len(text) <= LONGEST
    assert status in (0, 1)
    assert (status == 1) == ("error: " in text)

"""Hostile input: whatever a file or an option holds, figura takes it or raises `UserError`, in bounded time and space.

Usage: python -m tests.reliability.hostile [--cases 10000] [--seed 0] [--only NAME] [--coverage SECONDS]

Each property makes input by mutating real files, and gives it to the code that a command gives it to. That may raise
`UserError` with a bounded message; it may take 5 s and 2 GiB, write below the current folder alone, and start no
program. `--coverage` guides the mutations by the branches they reach, with atheris, where that is installed. Exit
status 1 if any case is lost; each loss names the input that made it.
"""

import argparse
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache, partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import cv2
import matplotlib.pyplot  # noqa: F401, so that it looks for its folders before it is watched
import numpy as np
import torch
import toy
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st
from pipeline.dag import ROOT
from pycocotools.mask import encode
from safetensors.torch import save

from figura import dump as dumps
from figura.base import exit_status as command
from figura.base.errors import LENGTH, LINES
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.ci.reproduction import compare, read_results
from figura.commands.ci.tolerances import read_tolerances
from figura.commands.import_weights.tensor_files import read_content, tensors_of
from figura.data.formats.coco import KEYPOINTS
from figura.data.preparation.datasets import read_dataset
from figura.engine.build import build_networks
from figura.engine.weights import load_weights
from figura.prediction.inputs import Photo, find_files
from figura.recipe.load import check_recipe
from figura.recipe.overrides import overridden
from figura.recipe.schema_check import check_schema
from models.images.photos import Photos
from models.images.weight_files import WeightFile
from models.people.photos import PersonPhotos
from models.pose.import_openpifpaf import refuse_content
from reliability.guarded import Forbidden, guarded
from reliability.mutations import (
    CANARY,
    JSON_FRAGMENTS,
    TEXTS,
    YAML_FRAGMENTS,
    mutated_bytes,
    mutated_tree,
    text_bytes,
)  # fmt: skip
from stages import prepare

LONGEST = 2 * LINES * LENGTH
"""Characters that one command may print."""
OUTCOMES = ACCEPTED, REFUSED, LOST = "accepted", "refused", "LOST"
RECIPES = ("params.yaml", "recipes/pix2pix.yaml", "recipes/pose.yaml", "recipes/super_resolution.yaml")


@dataclass(frozen=True)
class Property:
    """A kind of input, and the code that reads it in the current folder.

    Attributes:
        name: of the property.
        inputs: makes an input.
        read: is given it; raises UserError for what it refuses.
        share: of the cases, relative to the others.
        found: inputs that were once lost.
    """

    name: str
    inputs: st.SearchStrategy[Any]
    read: Callable[[Any], object]
    share: float = 1.0
    found: tuple[Any, ...] = field(default=(), repr=False)


def outcome(one: Property, value: Any, folder: Path) -> tuple[str, str]:
    """Give an input to a property; return what came of it, and why, if it is lost."""
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
    said = io.StringIO()
    try:
        with guarded(folder), redirect_stdout(said), redirect_stderr(said):
            status = command.run(lambda _: one.read(value), [])
    except (Forbidden, Exception) as error:  # noqa: BLE001, any of them is what this looks for
        return LOST, f"{type(error).__name__}: {str(error)[:200]}{place_of(error)}"
    except SystemExit as error:
        return LOST, f"SystemExit: {error}{place_of(error)}"
    text = said.getvalue()
    if (folder / CANARY).exists():
        return LOST, "the code in it ran"
    if len(text) > LONGEST:
        return LOST, f"printed {len(text)} characters: {text[:100]}"
    if status not in (0, 1) or (status == 1) != ("error: " in text):
        return LOST, f"exit status {status}: {text[-300:]}"
    return REFUSED if status else ACCEPTED, ""


def place_of(error: BaseException) -> str:
    """Return the last line of figura that an error went through."""
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if "/models/" in one.filename or one.filename.startswith(str(ROOT))
    ]
    own = [one for one in frames if "site-packages" not in one.filename and "/tests/" not in one.filename]
    return f" ({Path(own[-1].filename).relative_to(ROOT)}:{own[-1].lineno})" if own else ""


# What the inputs are made of, and what reads them


@cache
def recipe_text(name: str) -> Any:
    """Return the content of a recipe of this project, or of the toy one."""
    return toy.recipe() if name == "toy" else read_yaml(ROOT / name)


def recipes_mutated(*names: str) -> st.SearchStrategy[bytes]:
    """Return recipes with something hostile in them, and recipes whose bytes are damaged."""
    trees = [mutated_tree(recipe_text(name), YAML_FRAGMENTS) for name in names]
    texts = st.sampled_from([to_yaml(recipe_text(name)).encode() for name in names]).flatmap(mutated_bytes)
    return st.one_of(*(text_bytes(tree) for tree in trees), texts)


def write(name: str, content: bytes) -> Path:
    """Write a file below the current folder."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def read_schema(content: bytes) -> None:
    """Read a recipe as every command does first."""
    path = write("recipe.yaml", content)
    check_schema(read_yaml(path), path)


def read_recipe(content: bytes) -> None:
    """Read a recipe, and check types, arguments and names, as a training does."""
    path = write("recipe.yaml", content)
    read = read_yaml(path)
    check_schema(read, path)
    check_recipe(read, path)


def read_data_params(content: bytes) -> None:
    """Read the entry of a dataset."""
    path = write("data/params.yaml", content)
    for name in ("people", "pairs"):
        read_dataset(name, path)


def read_tolerance_file(content: bytes) -> None:
    """Read the tolerances of the gate."""
    read_tolerances(write("tolerances.yaml", content))


def read_option(assignment: str) -> None:
    """Read a `--set`."""
    content = overridden(recipe_text("toy"), [assignment], ("evaluate", "predict", "data", "seed"))
    check_schema(content, Path("recipe.yaml"))


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
    """Prepare a dataset in the current folder, without its plots."""
    from figura.data.preparation import pairs, people

    write("data/params.yaml", to_yaml({"datasets": {name: ENTRY | SECTIONS[name]}}).encode())
    for module, plot in ((people, "write_plots"), (people, "write_people"), (pairs, "write_sheet")):
        setattr(module, plot, lambda *_: None)
    prepare.main([name])


def read_coco(content: bytes) -> None:
    """Prepare four pictures of people with these annotations."""
    for number in (1, 2, 3, 4):
        write(f"raw/images/{number}.jpg", jpeg(number))
    write("raw/annotations.json", content)
    prepared("people")


def read_coco_picture(content: bytes) -> None:
    """Prepare people one of whose pictures is this."""
    for number in (1, 2, 3, 4):
        write(f"raw/images/{number}.jpg", content if number == 2 else jpeg(number))
    write("raw/annotations.json", json.dumps(COCO).encode())
    prepared("people")


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
    st.text(st.characters(exclude_characters="/\0", exclude_categories=()), min_size=1, max_size=60).map(
        lambda text: text.encode(
            "utf-8",
            "surrogateescape"
            if all(not 0xD800 <= ord(c) < 0xDC80 and not 0xDD00 <= ord(c) <= 0xDFFF for c in text)
            else "replace",
        ).decode("utf-8", "surrogateescape")
    ),
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


def read_annotated(content: bytes) -> None:
    """Cut out the annotated people of a photo."""
    path = write("annotations.json", content)
    photo = Photo(write("images/1.jpg", jpeg(1)), "1", 1)
    people = PersonPhotos(image_size=16, min_height=2, min_keypoints=1, annotations=str(path))
    for one in people.examples(photo):
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


def read_published(content: bytes) -> None:
    """Load published weights, as VGG, Inception and the linear layers of LPIPS do."""
    shapes = {name: tuple(tensor.shape) for name, tensor in STATE.items()}
    WeightFile("VGG", "fetch it").read(write("vgg.safetensors", content), shapes)


class Touching:
    """Pickled, it is code that runs when it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@cache
def pickles() -> list[bytes]:
    """Return files of PyTorch: weights, and whole objects that would run code."""
    import pickle

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


def write_toy_dump(changed: str, content: bytes) -> Path:
    """Write a dump one of whose files has another content, with checksums that fit it."""
    npy = io.BytesIO()
    np.save(npy, np.arange(27, dtype=np.float32).reshape(3, 3, 3))
    table = "mode,index,draw,dataset,name,loss.distance,file.image,file.y\n" + "".join(
        f"plain,{n},0,toy,n{n},0.{n},plain/{n}.image.png,inputs/{n}.npy\n" for n in range(3)
    )
    files = {
        "examples.csv": table.encode(), "grids.csv": b"grid,row,column,file.image\nall,0,1,plain/0.image.png\n",
        "facts.json": b'{"joints": 17}\n', "inputs/truth.json": b'[{"a": 1},\n{"b": [1, 2]}]\n', 
        "averages/mean.npy": npy.getvalue(),
    } | {f"plain/{n}.image.png": jpeg(n, ".png", 32) for n in range(3)} | {
        f"inputs/{n}.npy": npy.getvalue() for n in range(3)
    }  # fmt: skip
    files[changed] = content
    import hashlib

    lines = "".join(f"{hashlib.sha256(one).hexdigest()}  {name}\n" for name, one in files.items())
    for name, one in (files | {"SHA256SUMS": lines.encode()} if changed != "SHA256SUMS" else files).items():
        write(f"dump/{name}", one)
    return Path("dump")


def read_dump(damaged: tuple[str, bytes]) -> None:
    """Read everything in a dump, as metrics do."""
    dump = dumps.Dump(write_toy_dump(*damaged))
    _ = dump.facts, dump.trial, dump.average("mean"), dump.records("truth"), dump.grid("all").table
    for row in dump.mode("plain"):
        assert "image" not in row or row["image"].dtype == np.float32


@st.composite
def dumps_mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return the name of a file in a dump, and another content."""
    name = draw(st.sampled_from(["examples.csv", "grids.csv", "facts.json", "inputs/truth.json", "averages/mean.npy",
                                 "plain/1.image.png", "inputs/1.npy", "SHA256SUMS"]))  # fmt: skip
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            base = (write_toy_dump("try.txt", b"a try") / name).read_bytes()
        finally:
            os.chdir(here)
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


OPTIONS = st.one_of(
    st.builds(
        "{}={}".format,
        st.one_of(
            st.sampled_from(["evaluate.batch_size", "predict", "evaluate", "data.train", "seed",
                             "evaluate.modes.plain.save",
                             "predict.data.people", "runtime.workers", "evaluate..x", ".",
                             "evaluate." + "a." * 2000 + "b"]),
            st.lists(TEXTS, max_size=5).map(lambda names: ".".join(["evaluate", *names])),
        ),
        st.one_of(st.sampled_from(YAML_FRAGMENTS), st.sampled_from(JSON_FRAGMENTS), st.text(max_size=30)),
    ),
    st.text(max_size=40),
)  # fmt: skip

DATA = mutated_tree(read_yaml(ROOT / "data/params.yaml"), YAML_FRAGMENTS)
TOLERANCES = mutated_tree(read_yaml(ROOT / "metrics/tolerances.yaml"), YAML_FRAGMENTS)
CHECKPOINTS = st.deferred(lambda: st.sampled_from(pickles())).flatmap(
    lambda one: st.one_of(st.just(one), mutated_bytes(one))
)
LOCKS = st.one_of(st.just(json.dumps(LOCK)), mutated_tree(LOCK, YAML_FRAGMENTS))
PROPERTIES = [
    Property("recipe, schema", recipes_mutated(*RECIPES, "toy"), read_schema, 1.5),
    Property("recipe, whole", recipes_mutated("toy"), read_recipe, 1.0),
    Property("recipe, whole, of super_resolution", recipes_mutated("recipes/super_resolution.yaml"), read_recipe, 0.1),
    Property("data/params.yaml", text_bytes(DATA), read_data_params),
    Property("tolerances", text_bytes(TOLERANCES), read_tolerance_file),
    Property("--set", OPTIONS, read_option, found=(f"evaluate.x={'[' * 6000}",)),
    Property("COCO", text_bytes(mutated_tree(COCO, JSON_FRAGMENTS)), read_coco),
    Property("COCO, pictures", pictures_mutated(), read_coco_picture, 0.4),
    Property("pairs", st.tuples(pictures_mutated(), NAMES, NODES), read_pairs, 0.6),
    Property("photos", st.tuples(pictures_mutated(), NAMES, NODES), read_photo),
    Property("people.json", text_bytes(mutated_tree(PEOPLE, JSON_FRAGMENTS)), read_people),
    Property("annotations of photos", text_bytes(mutated_tree(COCO, JSON_FRAGMENTS)), read_annotated),
    Property("dump", dumps_mutated(), read_dump),
    Property("weights", weights_mutated(), read_weights),
    Property("published weights", weights_mutated(), read_published, 0.5),
    Property("checkpoints of OpenPifPaf", CHECKPOINTS, read_checkpoint),
    Property(
        "metrics of the gate",
        st.tuples(text_bytes(mutated_tree(METRICS, JSON_FRAGMENTS)), text_bytes(LOCKS)),
        read_metrics,
    ),
]  # fmt: skip


def tested(
    one: Property, folder: Path, cases: int, hear: Callable[[Any, str, str], None], **options: Any
) -> Callable[[], None]:
    """Return a function that makes so many inputs and tells `hear` each with its outcome and why."""

    @settings(
        max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate], **options,
    )  # fmt: skip
    @given(one.inputs)
    def test(value: Any) -> None:
        hear(value, *outcome(one, value, folder))

    for value in one.found:
        test = example(value)(test)
    return test


# The long form


def worked(one: Property, cases: int, number: int, log: Path, coverage: float = 0) -> None:
    """Do the cases of a property; the log has a line for each that begins, and its outcome when it ends."""
    with tempfile.TemporaryDirectory() as folder, log.open("a") as file:

        def hear(value: Any, result: str, why: str) -> None:
            file.write(
                json.dumps([result, why if result == LOST else "", repr(value)[:20_000] if result == LOST else ""])
                + "\n"
            )
            file.flush()

        test = tested(one, Path(folder).resolve(), cases, hear)
        if coverage:
            guided(test, coverage)
        else:
            seed(number)(test)()


def guided(test: Any, seconds: float) -> None:
    """Fuzz a property by coverage."""
    import atheris

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("models", "data", "stages", "ci"):
            for function in (one for one in vars(module).values() if isfunction(one) and one.__module__ == name):
                atheris.instrument_func(function)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={int(seconds)}",
            "-rss_limit_mb=0",
            "-max_len=65536",
            "-timeout=60",
            "-verbosity=0",
        ],
        lambda content: test.hypothesis.fuzz_one_input(content),
    )
    atheris.Fuzz()


def in_child(one: Property, cases: int, number: int, coverage: float = 0) -> list[tuple[str, str, str]]:
    """Do the cases of a property in a child, so that a crash of it is a lost case; return outcome, why, input."""
    with tempfile.NamedTemporaryFile("r") as log:
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries that read pictures complain there
                worked(one, cases, number, Path(log.name), coverage)
                status = 0
            except BaseException:  # noqa: BLE001, this process ends here
                traceback.print_exc()
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        done = [tuple(json.loads(line)) for line in log.read().splitlines()]
    code = os.waitstatus_to_exitcode(ended)
    if code and not coverage:
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        done.append((LOST, f"the process ended by {how} in case {len(done)}", f"seed {number}"))
    return done


def row_of(name: str, *cells: object) -> str:
    """Return a line of the table."""
    return f"{name:<36}" + "".join(f"{cell:>10}" for cell in cells)


def main(arguments: list[str] | None = None) -> int:
    """Do all properties and print the table; return 1 if any case is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.hostile", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="NAME", help="of a property, or its beginning")
    parser.add_argument("--coverage", type=float, default=0, metavar="SECONDS", help="for each property, with atheris")
    args = parser.parse_args(arguments)
    chosen = [one for one in PROPERTIES if one.name.startswith(args.only or "")]
    whole, began = sum(one.share for one in chosen), time.monotonic()
    print(row_of("input", "cases", ACCEPTED, REFUSED, LOST, "s"), flush=True)
    total: Counter[str] = Counter()
    losses: list[str] = []
    for one in chosen:
        start = time.monotonic()
        done = in_child(one, round(args.cases * one.share / whole), args.seed, args.coverage)
        counts = Counter(result for result, *_ in done)
        total += counts
        print(
            row_of(one.name, len(done), *(counts[result] for result in OUTCOMES), round(time.monotonic() - start)),
            flush=True,
        )
        kinds: dict[str, list[str]] = {}
        for result, why, value in done:
            if result == LOST:
                kind = why[:40] + why[why.rindex("(") :] if "(" in why else why
                kinds.setdefault(kind, []).append(f"{why}\n    {value}")
        losses += [f"LOST {len(same)} x {one.name}: {min(same, key=len)[:1200]}" for same in kinds.values()]
    print(row_of("all", total.total(), *(total[result] for result in OUTCOMES), round(time.monotonic() - began)))
    print(*losses, sep="\n")
    return int(total[LOST] > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())

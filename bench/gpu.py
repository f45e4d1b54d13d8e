"""A visit to a borrowed GPU, in nine minutes: tests, steps, equality with the CPU, the originals, and facades.

`machines/gpu/visit.sh` runs it where nothing is installed; docs/speed.md says what to bring. The parts run one after
another, each in a process that is killed when its time is over, the last for the rest of the time. OUTPUT gets each
result at once, as a line of results.jsonl; then table.txt, log.txt, and sheets and curves of facades, 7 files in all.
`--small` has tiny networks: without a GPU, it shows that everything works.

| part | what it does |
| --- | --- |
| data | names the card and versions; draws the data of `steps` to `resume` |
| tests | the tests that need a GPU (`pytest -m gpu`): an iteration waits where it is listed, and nowhere else |
| steps | an iteration of the published recipes: fp32, TF32, bf16, fp16; bf16 also channels-last and compiled |
| equality | the losses of `recipes/pose.yaml`, which draws no noise, on the GPU beside those on the CPU |
| resume | weights of a training that was killed, beside those of one that was not |
| ranks | an iteration of two ranks on one GPU, by NCCL if that lets them, else by gloo |
| originals | runs each `step.py` in the folders of `--originals`; a line of JSON that it prints is a row |
| facades | pix2pix at 256 px in bf16, in batches of 1, then 16: Frechet distance of random features, sheets, curves |

`loss` is the weighted total after `--steps` iterations on one batch, relative to fp32; `skipped` are updates in search
of fp16's scale. `MiB` is the peak above that before the networks were built: of the allocator on a GPU, resident on a
CPU. `estimated` is what `figura describe` prints for the batch in fp32. `of peak` is the rate of multiply-adds over
that of a large matrix product in the same precision. Perceptual losses have random weights, which cost the same.
"""

import argparse
import gc
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from accelerate.state import AcceleratorState
from accelerate.utils import InitProcessGroupKwargs
from safetensors.torch import load_file

from bench.scaling import run_cell
from bench.table import most_resident, seconds, show
from bench.trainings import PUBLISHED, QUIET, ROOT, SECTIONS, Case, pix2pix, start
from figura.base.errors import UserError
from figura.base.yaml12 import read_yaml, to_yaml
from figura.commands.describe.dry_run import meta_networks, run_training
from figura.commands.describe.footprint import footprint
from figura.engine.checkpointing import checkpoint_modules
from figura.recipe.assignments import overridden
from figura.recipe.schema import Recipe

KINDS = {"fp32": ("no", False), "TF32": ("no", True), "bf16": ("bf16", True), "fp16": ("fp16", True)}
"""`train.precision`, and whether float32 is computed in TF32."""
ON_CPU = ("fp32", "bf16")
BATCHES = {1: 0.6, 16: 0.4}
"""Batches of facades, and the share of the time that each has."""
Row = dict[str, Any]


def sized(case: Case, precision: str, *more: str, small: bool) -> Recipe:
    """Return the recipe of a case in a precision, at the paper's size or tiny."""
    keys = (*(case.small if small else ()), f'train.precision="{precision}"', *more)
    return case.recipe(*keys)


def checkpointed(recipe: Recipe) -> list[str]:
    """Return the keys that checkpoint every network that can be."""
    keys = []
    for name, network in meta_networks(recipe).items():
        with suppress(UserError):
            checkpoint_modules(network, True, name)
            keys.append(f"networks.{name}.checkpointing=true")
    return keys


def finished(call: Callable[[], object]) -> Callable[[], None]:
    """Return a call that waits until the GPU has done its work."""

    def waiting() -> None:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return waiting


def peak(kind: str, small: bool) -> float:
    """Return the multiply-adds a second of a large matrix product."""
    size, types = 512 if small else 8192, {"bf16": torch.bfloat16, "fp16": torch.float16}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix = torch.rand(size, size, device=device, dtype=types.get(kind, torch.float32))
    return float(size**3 / seconds(finished(lambda: matrix @ matrix), budget=0.5, at_least=3))


def measure(recipe: Recipe, args: argparse.Namespace, layout: torch.memory_format = torch.contiguous_format) -> Row:
    """Train on one batch, with the networks in a layout, then time an iteration."""
    networks = meta_networks(recipe)
    costs = run_training(recipe, networks)
    estimated = (footprint(recipe, networks).total + costs.fixed + costs.peak) / 2**20
    flops = sum(costs.forward.values()) + sum(costs.backward.values())
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() / 2**20 if cuda else most_resident()
    with tempfile.TemporaryDirectory() as folder:
        training = start(recipe, Path(folder))
        for network in training.trainer.networks.live.values():
            network.to(memory_format=layout)  # type: ignore[call-overload]
        for _ in range(args.steps):
            training.step()
        rows = pd.DataFrame(training.trainer.loss_log.state_dict()["window"])
        loss = float(rows.filter(regex=r"^[^.]+\.weighted$").iloc[-1].sum())
        skipped = int(rows.filter(regex=r"\.skipped$").sum().sum())
        time = seconds(finished(training.step), budget=0.0 if args.small else 1.0, at_least=5)
    most = torch.cuda.max_memory_allocated() / 2**20 if cuda else most_resident()
    return {
        "batch": recipe.data.batch_size, "ms": time * 1e3, "MiB": most - before, "estimated": estimated,
        "rate": flops / 2 / time, "loss": loss, "skipped": skipped,
    }  # fmt: skip


def steps(args: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each recipe, precision and way to run it."""
    kinds = [kind for kind in KINDS if torch.cuda.is_available() or kind in ON_CPU]
    peaks = {}
    for kind in kinds:
        set_tf32(KINDS[kind][1])
        peaks[kind] = peak(kind, args.small)
        yield {"kind": kind, "peak, 1/s": peaks[kind]}
    base: dict[str, float] = {}
    for way in args.ways:
        for kind in kinds if way == "plain" else ["bf16"]:
            for name in PUBLISHED:
                row: Row = {"case": name, "kind": kind, "way": way}
                precision, tf32 = KINDS[kind]
                set_tf32(tf32)
                try:
                    keys = [f"train.record_every={10**6}", f"train.compile={str(way == 'compiled').lower()}"]
                    if way == "checkpointed":
                        keys += checkpointed(sized(PUBLISHED[name], precision, small=args.small))
                    layout = torch.channels_last if way == "channels-last" else torch.contiguous_format
                    row |= measure(sized(PUBLISHED[name], precision, *keys, small=args.small), args, layout)
                    row["of peak"] = row.pop("rate") / peaks[kind]
                    row["loss"] /= base.setdefault(name, row["loss"])
                except (UserError, RuntimeError) as error:  # memory, or what cannot be compiled
                    row["failed"] = str(error).strip().partition("\n")[0][:200]
                AcceleratorState._reset_state(reset_partial_state=True)
                gc.collect()
                yield row


def set_tf32(allowed: bool) -> None:
    """Compute products and convolutions of float32 in TF32, or do not."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def tests(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the last line of the tests that need a GPU."""
    files = sorted({str(path) for path in (ROOT / "tests").rglob("*.py") if "pytest.mark.gpu" in path.read_text()})
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *files]
    there = os.environ | {"FIGURA_TEST_GPU": "1"}
    done = subprocess.run(command, cwd=ROOT, env=there, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    yield {"exit status": done.returncode, "said": done.stdout.strip().rpartition("\n")[2]}


def data(args: argparse.Namespace) -> Iterator[Row]:
    """Yield what the machine is, and draw people and pairs, enough for a batch."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"
    versions = {"torch": torch.__version__, "CUDA": torch.version.cuda, "python": platform.python_version()}
    yield {"card": card} | versions
    asked = read_yaml(ROOT / "data/params.yaml")
    count = 8 if args.small else 64
    few = {"train": count, "validation": 4, "test": 4}
    for name, sizes in {"people": {"scenes": few, "identities": few}, "pairs": {"pairs": few}}.items():
        dataset = asked["datasets"][name]
        dataset[dataset["kind"]] |= sizes
    Path("data/raw/drawn").mkdir(parents=True, exist_ok=True)
    Path("data/params.yaml").write_text(to_yaml(asked))
    for name in ("people", "pairs"):
        subprocess.run([sys.executable, "-m", "figura.launch", "prepare", name], check=True)


def originals(args: argparse.Namespace) -> Iterator[Row]:
    """Yield what the scripts of the folder print, each in its own folder."""
    scripts = sorted(args.originals.glob("*/step.py"))
    if not scripts:
        yield {"failed": f"{args.originals}: no */step.py"}
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # they have their `models`
    for script in scripts:
        command = [sys.executable, script.name]
        done = subprocess.run(command, cwd=script.parent, env=alone, stdout=subprocess.PIPE, text=True, check=False)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        yield from ({"original": script.parent.name, **row} for row in found or [{"failed": "see the log"}])


def ranks(args: argparse.Namespace) -> Iterator[Row]:
    """Yield the times of one rank, and of two with half of the batch each."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as torch.distributed.run sets it for several ranks
    backends = ("nccl", "gloo") if torch.cuda.is_available() else ("gloo",)
    for count, backend in ((1, backends[0]), *((2, backend) for backend in backends)):
        command = [*run, f"{count}", "-m", "bench.gpu", "--rank", backend, "--steps", f"{args.steps}"]
        row = {"ranks": count, "backend": backend}
        try:
            done = subprocess.run(command, env=one_thread, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            yield row | {"failed": "killed after 60 s"}
            continue
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        yield row | ({"case": "pose", **found[0]["pose"]} if found else {"failed": "see the log"})
        if found and count == 2:
            return


def rank(args: argparse.Namespace) -> None:
    """Be a rank of `ranks`, on the first GPU."""
    with patch("figura.engine.build.InitProcessGroupKwargs", partial(InitProcessGroupKwargs, backend=args.rank)):
        run_cell(["pose"], args.steps)


def train(folder: Path, run: str, keys: list[str], kill: bool = False, **variables: str) -> Path:
    """Train `recipes/pose.yaml` by the product's command; `kill` it after its first resume point. Return the run."""
    recipe = folder / "pose.yaml"
    file = ROOT / "recipes/pose.yaml"
    recipe.write_text(to_yaml(overridden(read_yaml(file), [*QUIET, *keys], SECTIONS, file)))
    command = [sys.executable, "-m", "figura.launch", "train", str(recipe), str(folder / run)]
    alone = os.environ | {"FIGURA_STATES": "off"} | variables  # else one training begins with the state of another
    log = folder / f"{run}.txt"
    with (
        log.open("w") as said,
        subprocess.Popen(command, env=alone, start_new_session=True, stdout=said, stderr=said) as process,
    ):
        while kill and process.poll() is None and not list((folder / run / "resume").glob("[0-9]*/SHA256SUMS")):
            time.sleep(0.02)
        if kill and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        elif kill:
            raise RuntimeError(f"the training {run} ended before it was killed")
        elif process.wait():
            last = log.read_text().strip().splitlines()[-3:]
            raise RuntimeError(f"the training {run} ended with {process.returncode}: {' | '.join(last)}")
    return folder / run


def short(args: argparse.Namespace, steps: int) -> list[str]:
    """Return the keys of a training of a few steps, the same on all devices."""
    small = ["data.common.side=65", "networks.network.backbone.widths=[4,4,8,8]"] if args.small else []
    schedule = [f"steps.network.lr_schedule.{key}={steps // 5}" for key in ("steps", "then.start")]
    return [f"train.{key}={steps}" for key in ("steps", "evaluate_every")] + ["train.record_every=1", *schedule, *small]


def equality(args: argparse.Namespace) -> Iterator[Row]:
    """Yield how far losses of the GPU are from those of the CPU, in the first and the last iteration."""
    keys = short(args, 5 if args.small else 20)
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            train(Path(folder), "cpu", keys, CUDA_VISIBLE_DEVICES=""),
            train(Path(folder), "gpu", keys, NVIDIA_TF32_OVERRIDE="0"),
        ]
        histories = [pd.read_csv(run / "history/train.csv").filter(regex=r"^[^.]+\.weighted$") for run in runs]
    far = ((histories[1] - histories[0]).abs().sum(axis=1) / histories[0].abs().sum(axis=1)).tolist()
    yield {"first": far[0], "last": far[-1], "equal": far[0] < 1e-4 and far[-1] < 1e-2}


def resume(args: argparse.Namespace) -> Iterator[Row]:
    """Yield whether a killed training ends in the same weights, and otherwise how far they are."""
    count = 12 if args.small else 60
    keys = [*short(args, count), f"runtime.resume_every={count // 6}"]
    with tempfile.TemporaryDirectory() as folder:
        files = [train(Path(folder), run, keys) / "model/network.safetensors" for run in ("whole", "again")]
        train(Path(folder), "killed", keys, kill=True)
        files.append(train(Path(folder), "killed", keys) / "model/network.safetensors")
        whole, *others = map(load_file, files)
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    for name, digest, other in zip(("run again", "killed"), digests[1:], others, strict=True):
        far = max(float((whole[key].float() - other[key].float()).abs().max()) for key in whole)
        yield {"training": name, "same bytes": digest == digests[0], "largest difference": far}


def facades(args: argparse.Namespace) -> Iterator[Row]:
    """Train in batches of 1 and 16; yield figures, of which `of x` is the input's Frechet distance."""
    if not args.facades.is_dir():
        yield {"failed": f"{args.facades}: no facades"}
        return
    begin = time.monotonic()
    asked = {"kind": "paired", "source": str(args.facades), "seed": 7, "max_rejected": 0.0}
    asked["paired"] = {"train": "train", "validation": "val"}
    Path("facades/data").mkdir(parents=True)
    Path("facades/data/params.yaml").write_text(to_yaml({"datasets": {"pairs": asked}}))
    os.chdir("facades")
    stage("prepare", "pairs")
    left = args.seconds - (time.monotonic() - begin)
    for batch, share in BATCHES.items():
        yield facades_in(batch, share * left, args)


def stage(*words: str) -> None:
    """Run a stage as the pipeline does."""
    subprocess.run([sys.executable, "-m", "figura.launch", *words], check=True)


def facades_in(batch: int, limit: float, args: argparse.Namespace) -> Row:
    """Train for some 60 % of `limit` seconds, evaluate, and keep a sheet and the curves."""
    case, name = pix2pix(batch), f"batch_{batch}"
    small = case.small if args.small else ()
    keys = [*case.keys, *QUIET, *small, 'train.precision="bf16"']
    set_tf32(True)
    time = measure(case.recipe(*keys), args)["ms"] / 1e3
    count = 50 if args.small else max(50, int(0.6 * limit / time))
    keys += ["evaluate.data.pairs.split=validation"]  # the sample has no test
    keys += [f"steps.{step}.lr_schedule.{end}={share}" for step in ("G", "D") for end, share in
        (("start", count // 2), ("end", count))]  # fmt: skip
    keys += [f"train.steps={count}", f"train.evaluate_every={count}", f"runtime.resume_every={count}",
        f"runtime.workers={0 if args.small else min(12, (os.cpu_count() or 1) - 1)}"]  # fmt: skip
    file = ROOT / case.file
    Path(f"{name}.yaml").write_text(to_yaml(overridden(read_yaml(file), keys, SECTIONS, file)))
    run = [f"{name}.yaml", name]
    for words in (["train", *run], ["eval_dump", *run], ["metrics", *run, f"{name}.json", f"plots/{name}"]):
        stage(*words)
    pictures = Path(f"plots/{name}/pictures")
    sheets = [path for path in sorted(pictures.iterdir()) if path.stem != "losses"]
    for path in (pictures / "losses.png", *sheets[:1]):
        shutil.copy(path, args.output / f"facades_{name}_{path.name}")
    figures = json.loads(Path(f"full/{name}.json").read_text())
    psnr, frechet, of_x = figures["translation"]["psnr"], figures["frechet"], figures["frechet_identity"]
    found = {"psnr": psnr["value"], "frechet": frechet["value"], "of x": of_x["value"]}
    return {"batch": batch, "steps": count, "ms": time * 1e3, **found}


PARTS: Mapping[str, tuple[Callable[[argparse.Namespace], Iterator[Row]], float]] = {
    "data": (data, 30), "tests": (tests, 60), "steps": (steps, 150), "equality": (equality, 20), "resume": (resume, 30),
    "ranks": (ranks, 30), "originals": (originals, 60), "facades": (facades, 1e9),
}  # fmt: skip
"""What yields the rows of each part, and the seconds that it may take."""


def main() -> None:
    """Run the parts, or one of them in this process, or a rank."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument(
        "--minutes", type=float, default=9, help="of all parts; with --small, no part has another limit"
    )
    parser.add_argument("--output", type=folder, default="gpu", metavar="FOLDER")
    parser.add_argument(
        "--facades", type=folder, default="build/facades", metavar="FOLDER", help="pairs in train and val"
    )
    parser.add_argument("--originals", type=folder, default="build/originals", metavar="FOLDER")
    ways = ["plain", "channels-last", "compiled", "checkpointed"]
    parser.add_argument("--ways", nargs="+", default=ways[:3], choices=ways)
    parser.add_argument("--steps", type=int, default=20, help="before an iteration is timed")
    parser.add_argument("--small", action="store_true", help="tiny networks: to see that it works")
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)  # of the only part, which runs here
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.steps = min(args.steps, 3) if args.small else args.steps
    if args.rank:
        rank(args)
    elif args.seconds:
        for row in PARTS[args.parts[0]][0](args):
            write(args, {"part": args.parts[0], **row})
    else:
        args.output.mkdir(parents=True, exist_ok=True)
        for name in ("results.jsonl", "table.txt", "log.txt"):
            (args.output / name).write_text("")
        with tempfile.TemporaryDirectory() as work:
            run_parts(args, Path(work))


def folder(text: str) -> Path:
    """Return a path that holds in any working folder."""
    return Path(text).absolute()


def write(args: argparse.Namespace, row: Row) -> None:
    """Append a result."""
    with (args.output / "results.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def run_parts(args: argparse.Namespace, work: Path) -> None:
    """Run each part in a process, in the folder `work`; print the table."""
    end = time.monotonic() + 60 * args.minutes
    there = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    options = [f"--{name}={getattr(args, name)}" for name in ("output", "facades", "originals")]
    for part in args.parts:
        begin = time.monotonic()
        limit = 60 * args.minutes if args.small else max(1.0, min(PARTS[part][1], end - begin))
        own = [*sys.argv[1:], *options, "--parts", part, "--seconds", f"{limit}"]
        with (args.output / "log.txt").open("a") as log:
            print(f"\n== {part}", file=log, flush=True)
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.gpu", *own], cwd=work, env=there, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            try:
                process.wait(limit)
                last = (args.output / "log.txt").read_text().strip().rpartition("\n")[2]
                why = f"exit status {process.returncode}: {last}" if process.returncode else ""
            except subprocess.TimeoutExpired:
                why = f"killed after {limit:.0f} s"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if why:
            write(args, {"part": part, "failed": why})
        results = map(json.loads, (args.output / "results.jsonl").read_text().splitlines())
        rows = [row for row in results if row["part"] == part]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        for file in (sys.stdout, (args.output / "table.txt").open("a")):
            with redirect_stdout(file):
                print(f"\n{part}, {time.monotonic() - begin:.0f} s")
                show([columns, *([row.get(column, "") for column in columns] for row in rows)])


if __name__ == "__main__":
    main()

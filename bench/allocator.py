"""Speed of a forward pass and of training steps on a CPU under several memory allocators.

Each cell is a new process, because the settings must be in place before it starts; each round measures all settings in
turn. `launch.py` are the thresholds that figura/launch sets. Libraries are preloaded where they are installed (Debian:
libjemalloc2, libtcmalloc-minimal4); `keeping` tells them to return no memory to the system. `huge` asks for pages of
2 MiB for large tensors, which the kernel must allow (/sys/kernel/mm/transparent_hugepage/enabled).

Columns: medians over rounds of wall and CPU time for a step; their ratios default / setting in the same round; page
faults for a step; peak resident memory; and whether the numbers after some steps equal those of the default bit for
bit. CPU time counts all threads. On a shared machine use `--threads 1`: threads that wait for a preempted one spin.

`python -m bench.allocator [--rounds 5] [--seconds 5] [--threads 2]`, after `dvc repro prepare@people prepare@pairs`.
"""

import argparse
import ctypes.util
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.scaling import RECIPES, start
from bench.table import show
from figura.base.yaml12 import read_yaml
from figura.engine.build import build_networks
from figura.launch import ALLOCATOR
from figura.recipe.load import check_recipe

FORWARD, SIDE, BACKBONE = "forward 385 px", 385, "shufflenetv2k16"
WORKS = (FORWARD, *RECIPES)
DEFAULT = "glibc default"
WARM_UP = 3  # steps that are not timed
# allocator settings that the environment may already contain
CLEARED = (*ALLOCATOR, "LD_PRELOAD", "MALLOC_CONF", "TCMALLOC_RELEASE_RATE", "GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE")
Made = tuple[Callable[[], object], Callable[[], Iterable[torch.Tensor]]]  # a step, and what it results in
FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", f"/usr/lib/{os.uname().machine}-linux-gnu")


def library(*names: str) -> str | None:
    """Return the file of the first of some shared libraries that is installed."""
    for name in names:
        found = ctypes.util.find_library(name)
        for folder in FOLDERS if found else ():
            if (file := Path(folder, str(found))).exists():
                return str(file)
    return None


def settings() -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the environment variables of each setting, and what is left out, with the reason."""
    found = {DEFAULT: {}, "launch.py": dict(ALLOCATOR)}
    found["launch.py, huge"] = ALLOCATOR | {"THP_MEM_ALLOC_ENABLE": "1"}
    missing: list[str] = []
    never_purge = {"MALLOC_CONF": "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1"}
    for name, files, keeping in (
        ("jemalloc", ("jemalloc",), never_purge),
        ("tcmalloc", ("tcmalloc_minimal", "tcmalloc"), {"TCMALLOC_RELEASE_RATE": "0"}),
    ):
        if (file := library(*files)) is None:
            missing.append(f"{name} left out: no lib{' or lib'.join(files)} is installed")
            continue
        found[name] = {"LD_PRELOAD": file}
        found[f"{name}, keeping"] = found[name] | keeping
    return found, missing


def forward() -> Made:
    """Return a forward pass of recipes/pose.yaml's network on one image at OpenPifPaf's size, and its outputs."""
    path = Path("recipes/pose.yaml")
    content: dict[str, Any] = read_yaml(path)
    content["networks"]["network"]["backbone"] = {"name": BACKBONE}
    torch.manual_seed(0)
    network = build_networks(check_recipe(content, path))["network"].eval()
    image = torch.rand(1, 3, SIDE, SIDE) * 2 - 1
    with torch.inference_mode():
        fields = network(image)
    return partial(_without_gradients, network, image), fields.values


def training(name: str, folder: Path) -> Made:
    """Return a training iteration of a recipe, and a function that returns the parameters."""
    work = start(name, folder)
    return work.step, work.results


@torch.inference_mode()
def _without_gradients(network: Callable[[torch.Tensor], object], image: torch.Tensor) -> object:
    return network(image)


def measure(name: str, seconds: float) -> dict[str, float | str]:
    """Return the measurements of one workload in this process, times in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        step, results = forward() if name == FORWARD else training(name, Path(folder))
        for _ in range(WARM_UP):
            step()
        digest = hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in results()))
        wall, before, steps = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF), 0
        end = time.process_time() + seconds
        while steps < 3 or time.process_time() < end:
            step()
            steps += 1
        wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "wall": wall / steps, "cpu": cpu / steps, "faults": (after.ru_minflt - before.ru_minflt) / steps,
        "peak": after.ru_maxrss / 1024, "digest": digest.hexdigest(),
    }  # fmt: skip


def cell(name: str, variables: Mapping[str, str], seconds: float, threads: int) -> dict[str, Any]:
    """Measure one workload in a new process with these environment variables."""
    environment = {key: value for key, value in os.environ.items() if key not in CLEARED} | dict(variables)
    environment["CUDA_VISIBLE_DEVICES"] = ""  # allocators of the CPU, whatever else there is
    command = [
        sys.executable,
        "-m",
        "bench.allocator",
        "--cell",
        name,
        "--seconds",
        f"{seconds}",
        "--threads",
        f"{threads}",
    ]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(name: str, setting: str, found: list[dict[str, Any]], base: list[dict[str, Any]]) -> list[object]:
    """Return a table row from a setting's rounds and the default's."""
    middle = {key: statistics.median(one[key] for one in found) for key in ("wall", "cpu", "faults", "peak")}
    faster = [statistics.median(b[key] / f[key] for f, b in zip(found, base, strict=True)) for key in ("wall", "cpu")]
    same = all(f["digest"] == b["digest"] for f, b in zip(found, base, strict=True))
    cells = (middle["wall"] * 1e3, middle["cpu"] * 1e3, *faster, round(middle["faults"]), round(middle["peak"]))
    return [name, setting, *cells, "yes" if same else "no"]


def main() -> None:
    """Print the table, workload by workload."""
    parser = argparse.ArgumentParser(prog="python -m bench.allocator")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU time measured in each cell")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS)
    parser.add_argument("--cell", choices=WORKS, help="measure one work in this process, print JSON")
    args = parser.parse_args()
    if args.cell:
        torch.set_num_threads(args.threads)
        print(json.dumps(measure(args.cell, args.seconds)))
        return
    chosen, missing = settings()
    head: list[object] = [
        "work",
        "setting",
        "ms",
        "CPU ms",
        "default/this",
        "CPU",
        "faults",
        "peak MiB",
        "same numbers",
    ]
    rows = [head]
    for name in args.works:
        found: dict[str, list[dict[str, Any]]] = {setting: [] for setting in chosen}
        for turn in range(args.rounds):
            for setting in list(chosen)[:: 1 if turn % 2 == 0 else -1]:
                found[setting].append(cell(name, chosen[setting], args.seconds, args.threads))
                now = ", ".join(f"{key} {value:.4g}" for key, value in found[setting][-1].items() if key != "digest")
                print(f"{name}, {setting}: {now}", file=sys.stderr, flush=True)
        rows += [row(name, setting, rounds, found[DEFAULT]) for setting, rounds in found.items()]
    show(rows)
    print("", *missing, sep="\n")


if __name__ == "__main__":
    main()

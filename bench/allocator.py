"""What memory settings pay on a CPU: a forward pass and training steps under several allocators.

Each cell is a new process, as the settings must stand before it starts; rounds go through all settings in turn. `launch.py` are
the thresholds that stages/launch sets. Libraries are preloaded where they are installed (Debian: libjemalloc2,
libtcmalloc-minimal4); `keeping` tells them to give nothing back to the system either. `huge` asks for pages of 2 MiB for
large tensors, which the kernel must allow (/sys/kernel/mm/transparent_hugepage/enabled).

Columns: medians over rounds of wall and CPU time a step, their ratios default / setting in the same round, faults (pages that the system
had to map) a step, peak resident memory, and whether the numbers after some steps are those of the default, bit for bit.
CPU time counts all threads. On a machine that others use, take `--threads 1`: threads that wait for a preempted one spin.

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
from models.base.yaml12 import read_yaml
from models.engine.build import build_networks
from models.recipe.load import check_recipe
from stages.launch import ALLOCATOR

FORWARD, SIDE, BACKBONE = "forward 385 px", 385, "shufflenetv2k16"
WORKS = (FORWARD, *RECIPES)
DEFAULT = "glibc default"
WARM_UP = 3  # steps that are not timed
# settings of allocators that may be there from outside
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
    """Return a forward pass of recipes/pose.yaml's network at OpenPifPaf's size, one picture, and what gives its fields."""
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
    """Return an iteration of a recipe's training, and what gives the parameters."""
    work = start(name, folder)
    return work.step, work.results


@torch.inference_mode()
def _without_gradients(network: Callable[[torch.Tensor], object], image: torch.Tensor) -> object:
    return network(image)


def measure(name: str, seconds: float) -> dict[str, float | str]:
    """Return the figures of one work in this process, times in seconds."""
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
    """Measure one work in a new process with these environment variables."""
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
    """Return a row of the table from the rounds of a setting and those of the default."""
    middle = {key: statistics.median(one[key] for one in found) for key in ("wall", "cpu", "faults", "peak")}
    faster = [statistics.median(b[key] / f[key] for f, b in zip(found, base, strict=True)) for key in ("wall", "cpu")]
    same = all(f["digest"] == b["digest"] for f, b in zip(found, base, strict=True))
    cells = (middle["wall"] * 1e3, middle["cpu"] * 1e3, *faster, round(middle["faults"]), round(middle["peak"]))
    return [name, setting, *cells, "yes" if same else "no"]


def main() -> None:
    """Print the table, work by work."""
    parser = argparse.ArgumentParser(prog="python -m bench.allocator")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU time measured in each cell")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS)
    parser.add_argument("--cell", choices=WORKS, help="measure one work in this process, print JSON")
    given = parser.parse_args()
    if given.cell:
        torch.set_num_threads(given.threads)
        print(json.dumps(measure(given.cell, given.seconds)))
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
    for name in given.works:
        found: dict[str, list[dict[str, Any]]] = {setting: [] for setting in chosen}
        for turn in range(given.rounds):
            for setting in list(chosen)[:: 1 if turn % 2 == 0 else -1]:
                found[setting].append(cell(name, chosen[setting], given.seconds, given.threads))
                now = ", ".join(f"{key} {value:.4g}" for key, value in found[setting][-1].items() if key != "digest")
                print(f"{name}, {setting}: {now}", file=sys.stderr, flush=True)
        rows += [row(name, setting, rounds, found[DEFAULT]) for setting, rounds in found.items()]
    show(rows)
    print("", *missing, sep="\n")


if __name__ == "__main__":
    main()

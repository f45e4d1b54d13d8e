"""What DVC makes of many pictures: a dataset as `prepare` writes it, in archives, beside the same, unpacked.

    python -m bench.many_files [--pairs 10000]

Draws pairs of 32 x 16 pixels, prepares them, and does the same with both layouts in a repository of its own: `dvc
commit` of new files, `dvc repro` and `dvc status` with nothing to do, `dvc push` to a folder, `dvc pull` in a second
clone, `dvc checkout` after the dataset was lost, and a first batch. Seconds of processor time of the whole command, so
that other work matters little, and the largest resident size, MiB.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from bench.table import show
from figura.base.files import sha256
from figura.base.yaml12 import to_yaml

ROOT = Path(__file__).parents[1]
DATASET = "data/prepared/pairs"
LAYOUTS = ("archives", "files")
FIRST_BATCH = f"""
from models.images.pairs import ImagePairs
pairs = ImagePairs(root={DATASET!r}, split="train", direction="a_to_b", crop_size=16)
[pairs[place] for place in range(8)]
"""


class Spent(NamedTuple):
    """What a command took: processor seconds and MiB."""

    seconds: float
    resident: float


def spent(folder: Path, *command: str) -> Spent:
    """Run `python` with arguments in a folder."""
    own = {"PYTHONPATH": str(ROOT), "DVC_SITE_CACHE_DIR": str(folder.parent / "site"), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen([sys.executable, *command], cwd=folder, env=os.environ | own, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {child.returncode}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def draw(folder: Path, pairs: int) -> None:
    """Draw pairs that are all different, a tenth of them for validation; write the settings that prepare them."""
    random = np.random.default_rng(0)
    for split, count in {"train": pairs - pairs // 10, "val": pairs // 10}.items():
        (folder / "data/raw/drawn" / split).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (16, 32, 3), dtype=np.uint8)
            cv2.imwrite(str(folder / f"data/raw/drawn/{split}/{number:06}.png"), pixels)
    paired = {"paired": {"train": "train", "validation": "val"}}
    settings = {"kind": "paired", "source": "data/raw/drawn", "seed": 7, "max_rejected": 0.0} | paired
    (folder / "data/params.yaml").write_text(to_yaml({"datasets": {"pairs": settings}}))


def unpack(dataset: Path) -> None:
    """Replace archives by their files, as earlier versions wrote them."""
    for archive in sorted(dataset.glob("*.zip")):
        shutil.unpack_archive(archive, dataset)
        archive.unlink()
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_text())
    files = [file for file in dataset.rglob("*") if file.is_file() and file != path]
    manifest["hashes"] = {str(file.relative_to(dataset)): sha256(file) for file in sorted(files)}
    path.write_text(json.dumps(manifest))


def measured(prepared: Path, folder: Path) -> Mapping[str, Spent]:
    """Return what each command takes with a prepared dataset, in repositories below a folder."""
    mine, second = folder / "mine", folder / "second"
    shutil.copytree(prepared, mine / DATASET)
    stage = {"cmd": "true", "outs": [DATASET]}
    (mine / "dvc.yaml").write_text(to_yaml({"stages": {"prepare": stage}}))
    subprocess.run(["git", "init", "-q"], cwd=mine, check=True)
    for command in ("init -q", f"remote add -q -d here {folder / 'remote'}"):
        spent(mine, "-m", "dvc", *command.split())
    took = {"commit": spent(mine, "-m", "dvc", "commit", "-f", "-q")}
    for name in ("repro", "status", "push"):
        took[name] = spent(mine, "-m", "dvc", name, "-q")
    (second / ".dvc").mkdir(parents=True)
    for file in (".dvc/config", "dvc.yaml", "dvc.lock"):
        shutil.copy(mine / file, second / file)
    subprocess.run(["git", "init", "-q"], cwd=second, check=True)
    took["pull"] = spent(second, "-m", "dvc", "pull", "-q")
    shutil.rmtree(mine / DATASET)
    took["checkout"] = spent(mine, "-m", "dvc", "checkout", "-q")
    took["first batch"] = spent(mine, "-c", FIRST_BATCH)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many_files", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as scratch:
        project, took = Path(scratch, "project"), {}
        draw(project, pairs)
        prepare = spent(project, "-m", "stages.prepare", "pairs")
        for layout in LAYOUTS:
            if layout == "files":
                unpack(project / DATASET)
            files = sum(file.is_file() for file in (project / DATASET).rglob("*"))
            print(f"{layout}: {files} files of {pairs} pairs", flush=True)
            took[layout] = measured(project / DATASET, Path(scratch, layout))
    rows: list[list[object]] = [["", *(f"{one}, s" for one in LAYOUTS), "ratio", *(f"{one}, MiB" for one in LAYOUTS)]]
    rows.append(["prepare", prepare.seconds, "", "", round(prepare.resident), ""])
    for name in took["archives"]:
        one, other = (took[layout][name] for layout in LAYOUTS)
        rows.append([name, *(round(each.seconds, 2) for each in (one, other)), other.seconds / one.seconds,
                     round(one.resident), round(other.resident)])  # fmt: skip
    show(rows)


if __name__ == "__main__":
    main()

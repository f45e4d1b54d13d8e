"""Modules that no manifest has change no result: stages write the same bytes with all of them corrupted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy

from figura.base.yaml12 import read_yaml
from figura.pipeline.closure import code_of, find
from figura.pipeline.relevance import WITHOUT_EFFECT

ROOT = Path(__file__).parents[2]
STAGES = """
from figura import launch
from stages import metrics, prepare
prepare.main(["people"])
assert launch.main(["train", "toy.yaml", "run"]) == 0
assert launch.main(["eval_dump", "toy.yaml", "run"]) == 0
metrics.main(["toy.yaml", "run", "metrics.json", "plots"])
from models.people.persons import Persons
from pathlib import Path
from figura.formats.prepared import MANIFEST, REJECTED
for name in (MANIFEST, REJECTED):
    Path("data/prepared/people", name).unlink()  # so that each annotation is checked
persons = Persons(Path("data/prepared/people"), "train", min_keypoints=1, min_height=1)
Path("persons.txt").write_text(f"{persons.ids.tolist()} {persons.boxes.tolist()} {persons.keypoints.tolist()}")
"""
CORRUPTED = f"import corrupted\ncorrupted.install()\n{STAGES}\nprint('used:', *sorted(corrupted.called))"
RESULTS = ("data/prepared/people", "run/model", "run/history", "run/dump", "metrics.json", "plots", "persons.txt")
NOT_USED = {"figura.base.exit_status", "figura.formats.split_advice", "figura.recipe.other_systems"}
"""They end a stage, or word an error."""


def results(folder: Path, code: str) -> tuple[dict[str, bytes], str]:
    """Run stages in a folder; return the bytes of their outputs, and what was printed."""
    folder.mkdir()
    synthetic = read_yaml(ROOT / "data/params.yaml")["datasets"]["people"]["synthetic"]
    counts = {"train": 4, "validation": 2, "test": 2}
    drawn = synthetic | {"image_size": 64, "scenes": counts, "identities": dict.fromkeys(counts, 6)}
    people = {"kind": "synthetic", "source": "data", "seed": 1, "max_rejected": 0.5, "synthetic": drawn}
    (folder / "data").mkdir()
    (folder / "data/params.yaml").write_text(json.dumps({"datasets": {"people": people}}))
    (folder / "toy.yaml").write_text(json.dumps(toy.changed({"train.ema": None, "runtime.timing": False}, toy.gan())))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    here = {"LD_PRELOAD": "", "FIGURA_PROCESSES": "1", "FIGURA_CORES": "", "FIGURA_DEVICES": ""}
    # the launcher then runs stages in its own process
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=inherited | here | {"PYTHONPATH": paths}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    files = [path for result in RESULTS for path in [folder / result, *(folder / result).rglob("*")] if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}, done.stdout


@pytest.mark.slow
def test_stages_give_the_same_results_with_modules_without_effect_corrupted(tmp_path: Path) -> None:
    right, _ = results(tmp_path / "right", STAGES)
    corrupted, printed = results(tmp_path / "corrupted", CORRUPTED)
    assert len(right) > 20
    assert [path for path in right if corrupted.get(path) != right[path]] == []
    used = set(printed.rpartition("used: ")[2].split())
    assert used == WITHOUT_EFFECT.keys() - NOT_USED


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_modules_without_effect_exist_and_are_in_no_manifest(name: str) -> None:
    found = find(name)
    assert found is not None
    assert code_of([name]).files == {}

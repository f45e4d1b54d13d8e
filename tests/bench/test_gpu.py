"""The visit to a GPU, in small on CPUs: every part is reached and gives its results."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bench.gpu import PARTS
from bench.trainings import PUBLISHED, ROOT
from figura.base.pictures import write_png


@pytest.mark.slow
def test_every_part_is_reached_in_an_empty_folder(tmp_path):
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        (tmp_path / "facades" / split).mkdir(parents=True)
        for number in range(4):
            pair = random.integers(0, 256, (48, 96, 3), dtype=np.uint8)
            write_png(tmp_path / f"facades/{split}/{number}.png", pair)
    (tmp_path / "originals/theirs").mkdir(parents=True)
    (tmp_path / "originals/theirs/step.py").write_text('print("started\\n{\\"ms\\": 1.5}")\n')
    words = ["--small", "--minutes", "5", "--ways", "plain", "channels-last", "--output", "out"]
    folders = ["--facades", "facades", "--originals", "originals"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", *words, *folders], cwd=tmp_path, check=True, stdout=subprocess.PIPE,
        text=True, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert not [row for row in rows if "failed" in row], (tmp_path / "out/log.txt").read_text()
    of = {part: [row for row in rows if row["part"] == part] for part in PARTS}
    assert of["tests"][0]["exit status"] == 0
    steps = {(row["case"], row["kind"], row["way"]) for row in of["steps"] if "case" in row}
    kinds = (("fp32", "plain"), ("bf16", "plain"), ("bf16", "channels-last"))
    assert steps == {(case, *kind) for case in PUBLISHED for kind in kinds}
    assert [row["equal"] for row in of["equality"]] == [True]  # a CPU beside itself
    assert [row["same bytes"] for row in of["resume"]] == [True, True]
    assert [row["ranks"] for row in of["ranks"]] == [1, 2]
    assert of["originals"] == [{"part": "originals", "original": "theirs", "ms": 1.5}]
    assert [row["batch"] for row in of["facades"]] == [1, 16]
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"results.jsonl", "table.txt", "log.txt", "facades_batch_1_losses.png"} < files
    assert len(files) == 7
    assert (tmp_path / "out/table.txt").read_text() == done.stdout

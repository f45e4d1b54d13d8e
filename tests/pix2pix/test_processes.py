"""Two processes with half the batch each against one with the whole of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy_pairs
from safetensors.torch import load_file

from models.engine.trainer import Trainer

ROOT = Path(__file__).parents[2]
# no dropout: its noise is each process' own
CHANGES = toy_pairs.GRADIENT_DESCENT | {"networks.generator.dropout": 0.0, "train.steps": 4,
           "runtime.samples": None}  # fmt: skip
SCRIPT = """
import sys
from pathlib import Path
import toy_pairs
from models.engine.trainer import Trainer
Trainer(toy_pairs.recipe(%r), Path(sys.argv[1])).fit()
"""


@pytest.mark.parametrize("norm", ["instance", "none"])
def test_two_processes_give_the_same_update(tmp_path, norm):
    changes = CHANGES | {"networks.generator.norm": norm, "networks.discriminator.norm": norm}
    script = tmp_path / "two.py"
    script.write_text(SCRIPT % changes)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(
        [*command, str(tmp_path / "two")],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    one = Trainer(toy_pairs.recipe(changes), tmp_path / "one")
    one.fit()
    for name in ("generator", "discriminator"):
        found = load_file(tmp_path / "two/model" / f"{name}.safetensors")
        for key, value in load_file(tmp_path / "one/model" / f"{name}.safetensors").items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=1e-5, msg=f"{name}.{key}")
    ours, theirs = ((tmp_path / n / "live/losses.csv").read_text().splitlines() for n in ("one", "two"))
    for row, other in zip(ours[1:], theirs[1:], strict=True):  # means over all processes
        assert row.split(",")[:2] == other.split(",")[:2]
        assert float(row.split(",")[2]) == pytest.approx(float(other.split(",")[2]), rel=1e-4)

"""Two ranks with half the batch each against one with the whole of it."""

import pytest
import torch
import toy_pairs
from safetensors.torch import load_file
from two_processes import run_in_two

from figura.training.trainer import Trainer

# no dropout: its noise is each rank's own
CHANGES = toy_pairs.GRADIENT_DESCENT | {"networks.generator.dropout": 0.0, "train.steps": 4,
           "runtime.samples": None}  # fmt: skip


@pytest.mark.parametrize("norm", ["instance", "none"])
def test_two_ranks_give_the_same_update(tmp_path, norm):
    changes = CHANGES | {"networks.generator.norm": norm, "networks.discriminator.norm": norm}
    run_in_two(lambda: Trainer(toy_pairs.recipe(changes), tmp_path / "two").fit())
    one = Trainer(toy_pairs.recipe(changes), tmp_path / "one")
    one.fit()
    for name in ("generator", "discriminator"):
        shared = load_file(tmp_path / "two/model" / f"{name}.safetensors")
        for key, value in load_file(tmp_path / "one/model" / f"{name}.safetensors").items():
            torch.testing.assert_close(shared[key], value, rtol=0, atol=1e-5, msg=f"{name}.{key}")
    ours, theirs = ((tmp_path / n / "live/losses.csv").read_text().splitlines() for n in ("one", "two"))
    for row, other in zip(ours[1:], theirs[1:], strict=True):  # means over all ranks
        assert row.split(",")[:2] == other.split(",")[:2]
        assert float(row.split(",")[2]) == pytest.approx(float(other.split(",")[2]), rel=1e-4)

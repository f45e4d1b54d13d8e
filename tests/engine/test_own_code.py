"""The example of docs/your_own_code.md: all that a recipe can name, from a file that the project does not know."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from stages import eval_dump, metrics, train

DOCUMENT = Path(__file__).parents[2] / "docs/your_own_code.md"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with the document's two files, the code's on the path of imports."""
    (code,) = re.findall(r"^`brighten.py`.*?```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    (recipe,) = re.findall(r"^`brighten.yaml`.*?```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/brighten.py").write_text(code)
    (tmp_path / "brighten.yaml").write_text(recipe)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    monkeypatch.delitem(sys.modules, "brighten", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_own_dataset_network_injector_loss_score_and_picture(project):
    train.main(["brighten.yaml", "runs/brighten"])
    eval_dump.main(["brighten.yaml", "runs/brighten"])
    metrics.main(["brighten.yaml", "runs/brighten", "metrics/brighten.json", "plots/brighten"])
    # what undoes a factor 0.5 is twice the identity
    weights = load_file(project / "runs/brighten/model/curve.safetensors")["colours.weight"].reshape(3, 3)
    np.testing.assert_allclose(weights, 2 * np.eye(3), atol=0.02)
    # the figure, from the weights and the pictures alone
    pictures = [np.random.default_rng([2, i]).uniform(-1, 1, (3, 8, 8)).astype(np.float32) for i in range(12)]
    errors = [np.abs(np.einsum("ij,jhw->ihw", weights, 0.5 * p) - p).max() for p in pictures]
    found = json.loads((project / "metrics/full/brighten.json").read_text())["brightness"]["largest"]
    assert found["value"] == pytest.approx(np.mean(errors), rel=1e-3, abs=1e-6)
    assert found["low"] <= found["value"] <= found["high"]
    # the loss, in validation: Charbonnier of the same errors
    rows = (project / "runs/brighten/dump/examples.csv").read_text().splitlines()
    column = rows[0].split(",").index("loss.colours")
    p = pictures[0]
    difference = np.einsum("ij,jhw->ihw", weights, 0.5 * p) - p
    assert float(rows[1].split(",")[column]) == pytest.approx(np.sqrt(difference**2 + 1e-6).mean(), rel=1e-3)
    assert (project / "plots/brighten/pictures/errors.png").stat().st_size > 1000

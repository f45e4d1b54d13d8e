"""A recipe that is checked for a part loads the code of that part alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = ["params.yaml", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("recipes/*.yaml"))]
SCRIPT = """
import json, os, sys
import accelerate, cv2, matplotlib.pyplot, numba, pandas, pydantic, torch, torchmetrics  # once, for all that is forked


def modules_loaded_by(call):
    read, write = os.pipe()
    if os.fork() == 0:
        call()
        with os.fdopen(write, "w") as file:
            json.dump([name for name in sys.modules if name.partition(".")[0] in ("models", "stages", "tools")], file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        names = json.load(file)
    os.wait()
    return names


def find_l1():
    from pathlib import Path
    from models.base.error_collector import ErrorCollector
    from models.recipe.types import LOSS, find_type
    assert find_type("images.L1", LOSS, "", ErrorCollector(Path())).__name__ == "L1"


def check(recipe, part):
    from pathlib import Path
    from models.recipe.load import load_recipe
    load_recipe(Path(recipe), [part], {"stride": 8} if part == "metrics" else None)  # these facts come from the dump


loaded = {f"{part} of {name}": modules_loaded_by(lambda: check(name, part))
          for name in sys.argv[1:] for part in ("metrics", "evaluate")}
print(json.dumps(loaded | {"images.L1": modules_loaded_by(find_l1)}))
"""


@pytest.fixture(scope="module")
def loaded():
    """Modules that are loaded by checking each recipe for `metrics` or `evaluate`, and by looking `images.L1` up."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *RECIPES], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def matching(pattern, names):
    return [name for name in names if re.match(pattern, name)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_for_metrics_neither_the_engine_nor_training_nor_a_systems_networks_are_loaded(recipe, loaded):
    names = loaded[f"metrics of {recipe}"]
    assert "models.recipe.check_metrics" in names
    assert (
        matching(r"models\.(engine|training|ops|optimizers|evaluation|live)\b|models\.\w+\.(train|decode)\b", names)
        == []
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_for_evaluation_neither_training_nor_optimizers_nor_reports_are_loaded(recipe, loaded):
    names = loaded[f"evaluate of {recipe}"]
    assert "models.recipe.check" in names
    assert matching(r"models\.(training|optimizers|report|live)\b|models\.\w+\.report\b", names) == []


def test_looking_a_class_up_loads_the_module_that_defines_it_alone(loaded):
    assert matching(r"models\.images\b", loaded["images.L1"]) == [
        "models.images", "models.images.losses", "models.images.losses.pixel",
    ]  # fmt: skip

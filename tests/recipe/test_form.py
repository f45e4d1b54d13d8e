"""DVC reads every file of recipes, and `dvc exp run -S key=value` changes only the line of that value."""

from difflib import ndiff
from pathlib import Path

import pytest
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import load_yaml

from figura.base.dotted_keys import leaves
from figura.base.yaml12 import read_yaml

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "params.yaml", ROOT / "data/params.yaml", *sorted((ROOT / "recipes").rglob("*.yaml"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_setting_changes_one_line(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "recipe.yaml"
    copy.write_text(file.read_text())
    key, _ = next((key, value) for key, value in leaves(read_yaml(file)) if type(value) is int)
    assert load_yaml(file) == read_yaml(file)
    apply_overrides(copy, [f"{key}=77"])
    changes = [line for line in ndiff(file.read_text().splitlines(), copy.read_text().splitlines()) if line[0] in "+-"]
    assert [line[0] for line in changes] == ["-", "+"]
    assert f"{key.rpartition('.')[2]}: 77" in changes[1]

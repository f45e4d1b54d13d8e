"""docs/api.md: all its examples run, in their order, as in a notebook."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from figura.prediction.predictor import Predictor

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/api.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PHOTOS = sorted((ROOT / "data/prepared/people/images/validation").glob("*"))[:3]
NEEDED = ("pose", "pix2pix", "super_resolution", "vunet")
MISSING = [name for name in NEEDED if not (ROOT / f"runs/{name}/model").is_dir()]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING or not PHOTOS), reason=f"needs trained runs (`dvc repro`), here none of {MISSING}")
def test_examples_run(tmp_path, monkeypatch, capsys):
    for name in ("runs", "recipes", "dvc.yaml", "params.yaml"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "photos").mkdir()
    for number, file in enumerate(PHOTOS):
        cv2.imwrite(str(tmp_path / f"photos/{number}.jpg"), cv2.imread(str(file)))
    writer = cv2.VideoWriter(str(tmp_path / "clip.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, (160, 120))
    for _ in range(4):
        writer.write(cv2.resize(cv2.imread(str(PHOTOS[0])), (160, 120)))
    writer.release()
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/api.md", "exec"), names)  # noqa: S102  # the page's own examples
    assert len(BLOCKS) >= 9
    assert isinstance(names["poses"], Predictor)
    overlay = cv2.imread("overlay.png")
    assert np.array_equal(overlay[..., ::-1], names["results"][0].draw())
    assert Path("drawn.mp4").stat().st_size > 0
    assert len(names["frames"].images) == 2
    assert names["enlarged"].shape == (96, 128, 3)
    assert "transfer.image" in names["dressed"].sheets
    assert "{'people': 'records'" in capsys.readouterr().out

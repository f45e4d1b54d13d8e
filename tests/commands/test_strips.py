"""One picture a recipe for the README: which examples, where they stand, how large."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from dumps_by_hand import sealed

from figura.base.errors import UserError
from figura.base.pictures import write_png
from figura.commands.strips import LARGEST, WIDTH, main

RECIPE = """
metrics:
  pictures:
    pairs: {type: images.Sheet, mode: drawn, columns: [x, y_hat], count: 8, where: chosen}
    found: {type: pose.FoundImages, mode: drawn, image: y_hat, count: 8, where: chosen}
    worst: {type: images.Extremes, mode: drawn}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose dump has 18 examples, every second one chosen; example n is of the level 10 n."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text("vars:\n  - recipes:\n      toy: {params: toy.yaml}\n")
    (tmp_path / "toy.yaml").write_text(RECIPE)
    dump, rows = tmp_path / "runs/toy/dump", ["mode,draw,index,chosen,file.x,file.y_hat"]
    for number in range(18):
        for name in ("x", "y_hat"):
            pixels = np.full((32, 32, 3), 10 * number, np.uint8)
            write_png(dump / f"drawn/{number}.{name}.image.png", pixels)
        files = [f"drawn/{number}.{name}.image.png" for name in ("x", "y_hat")]
        rows.append(f"drawn,0,{number},{number % 2},{','.join(files)}")
    (dump / "examples.csv").write_text("\n".join(rows) + "\n")
    sealed(dump)
    return tmp_path


def test_examples_are_spread_evenly_over_those_of_the_sheet(project: Path) -> None:
    main(["docs/pictures", "toy/pairs"])
    strip = cv2.imread(str(project / "docs/pictures/toy.webp"))
    assert WIDTH - 6 < strip.shape[1] <= WIDTH
    row = strip[strip.shape[0] // 2, :, 0].astype(int)
    # three examples of two pictures; of the nine that are chosen, 1, 3, 5, ..., every third
    levels = [row[x] for x in (100, 300, 500, 700, 900, 1100)]
    assert levels == pytest.approx([10, 10, 70, 70, 130, 130], abs=3)


def test_a_sheet_of_one_saved_image_is_a_column(project: Path) -> None:
    main(["docs/pictures", "toy/found"])
    strip = cv2.imread(str(project / "docs/pictures/toy.webp"))
    levels = strip[strip.shape[0] // 2, 100::200, 0]
    assert levels == pytest.approx([10, 30, 70, 90, 130, 150], abs=3)  # six of the nine that are chosen


def test_a_strip_that_a_readme_should_not_load_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (600, WIDTH, 3), dtype=np.uint8)
    monkeypatch.setattr("figura.commands.strips.strip_of", lambda *_: noise)
    with pytest.raises(UserError, match=f"toy\\.webp: .* allowed are {LARGEST:,}"):
        main(["docs", "toy/pairs"])
    assert not (project / "docs").exists()

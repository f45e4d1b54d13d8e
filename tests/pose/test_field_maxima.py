"""The score of field maxima against distances by hand."""

import numpy as np
import pytest
from dumps_by_hand import dump_of

from figura.report.interfaces import Bootstrap, NotApplicableError
from models.pose.field_scores import FieldMaxima, maxima

STRIDE = 8


def field(peaks: dict[tuple[int, int], float], offset: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """A decoded field of 6 x 7 cells with confidences at (column, row); vectors point `offset` cells away."""
    found = np.zeros((5, 6, 7), np.float32)
    for (column, row), confidence in peaks.items():
        found[1, row, column] = confidence
    found[2], found[3] = np.mgrid[:6, :7][::-1] + np.array(offset, np.float32)[:, None, None]
    return found


def test_maxima_are_confident_cells_that_no_neighbour_exceeds():
    one = field({(1, 1): 0.9, (2, 1): 0.8, (5, 4): 0.5, (0, 5): 0.2}, offset=(0.25, -0.5))
    assert sorted(maxima(one, 0.3).tolist()) == [[1.25, 0.5], [5.25, 3.5]]
    assert maxima(one, 0.95).tolist() == [[1.25, 0.5]]  # none is: the most confident alone


def dump(folder, images):
    cif, joints, heights = zip(*images, strict=True)
    return dump_of(folder, mode="fields", columns={"height": heights}, cif=np.stack(cif), joints=np.stack(joints))


SCORE = FieldMaxima("fields", "cif", "joints", "height", 0.3, STRIDE)


def test_distances_in_heights(tmp_path):
    near = np.stack([field({(2, 3): 0.9}), field({(4, 1): 0.1})])
    joints = np.array([[16.0, 21.0, 2.0], [32.0, 8.0, 2.0]], np.float32)  # 3 px from (16, 24); on the cell
    hidden = np.array([[0.0, 0.0, 1.0], [32.0, 14.0, 2.0]], np.float32)  # hidden ones do not count; 6 px
    several = np.zeros((2, 3), np.float32)
    score = SCORE(
        dump(tmp_path, [(near, joints, 30.0), (near, hidden, 60.0), (near, several, 0.0)]), Bootstrap(20, 0.9, 0)
    )
    assert score["distance"]["value"] == pytest.approx(((3 / 30 + 0) / 2 + 6 / 60) / 2)
    assert score["confident"] == pytest.approx(1 / 3)
    assert (score["joints"], score["images"]) == (3, 2)


def test_no_image_with_one_person(tmp_path):
    empty = np.zeros((2, 3), np.float32)
    with pytest.raises(NotApplicableError, match="no image shows exactly one person"):
        SCORE(dump(tmp_path, [(np.stack([field({})] * 2), empty, 0.0)]), Bootstrap(20, 0.9, 0))

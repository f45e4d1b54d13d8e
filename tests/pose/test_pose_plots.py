"""Plots of poses: what they draw, from people at known places."""

import cv2
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from people_by_hand import SKELETON, dump, oks, person, pose

from figura.base.errors import UserError
from figura.report.interfaces import NotApplicableError
from models.pose import plots as pose_plots
from models.pose.coco_evaluation import ImageMatches
from models.pose.plots import OKSHistogram, PrecisionRecall, WorstImages, image_score


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, which still are."""
    saved, save = [], pose_plots.save_figure
    monkeypatch.setattr(pose_plots, "save_figure", lambda figure, path: (saved.append(figure), save(figure, path)))
    return saved


def test_precision_over_recall(tmp_path, figures):
    truth = [person(1, 30), person(2, 30, number=2)]
    results = [pose(1, 30, 0.9, off=10), pose(3, 30, 0.8), pose(2, 30, 0.7)]
    assert 0.75 < oks(10) < 0.8
    rows, path = dump(tmp_path / "dump", [1, 2, 3], truth, results), tmp_path / "plots" / "pr.png"
    PrecisionRecall("poses", "people", "truth", skeleton=SKELETON)(rows, path)
    axis = figures[0].axes[0]
    lines = {line.get_label().split(":")[0]: line.get_ydata() for line in axis.lines}
    assert list(lines) == ["OKS 0.5", "OKS 0.75", "OKS 0.9", "mean of 0.5 to 0.95"]
    loose = np.array([1.0] * 51 + [2 / 3] * 50)  # hit, false, hit
    strict = np.array([1 / 3] * 51 + [0.0] * 50)  # false, false, hit
    for name, expected in zip(lines, (loose, loose, strict, 0.6 * loose + 0.4 * strict), strict=True):
        assert lines[name] == pytest.approx(expected)
    assert axis.lines[0].get_label() == f"OKS 0.5: AP {loose.mean():.3f}"
    assert cv2.imread(str(path)) is not None
    first = path.read_bytes()
    PrecisionRecall("poses", "people", "truth", skeleton=SKELETON)(rows, path)
    assert path.read_bytes() == first
    PrecisionRecall("poses", "people", "truth", kind="bbox")(rows, path)
    assert figures[-1].axes[0].lines[0].get_label().startswith("IoU 0.5")
    assert pyplot.get_fignums() == []


def test_overlaps_of_found_and_missed(tmp_path, figures):
    truth = [person(1, 30), person(1, 300, number=2), person(1, 600, number=3), person(1, 900, flags=(0, 0), number=4)]
    results = [pose(1, 30, 0.9, off=10), pose(1, 300, 0.8, off=20), pose(1, 900, 0.7)]
    assert 0.35 < oks(20) < 0.4
    OKSHistogram("poses", "people", "truth", skeleton=SKELETON)(
        dump(tmp_path, [1], truth, results), tmp_path / "oks.png"
    )
    axis = figures[0].axes[0]
    found, missed = ({round(bar.get_x() + bar.get_width() / 2, 3): bar.get_height() for bar in c if bar.get_height()}
                     for c in axis.containers)  # fmt: skip
    assert found == {0.775: 1}
    assert missed == {0.375: 1, 0.025: 1}
    labels = [text.get_text() for text in axis.get_legend().get_texts()]
    assert labels == [f"found: 1, mean OKS {oks(10):.3f}", "missed: 2, 1 of them with nobody near"]


def test_nothing_to_find_is_no_picture(tmp_path):
    rows = dump(tmp_path, [1], [], [pose(1, 30, 0.9)], images=[plain([0.0] * 3, 20, 20)])
    for picture in (
        PrecisionRecall("poses", "people", "truth", skeleton=SKELETON),
        OKSHistogram("poses", "people", "truth", skeleton=SKELETON),
        WorstImages("poses", "people", "truth", "overlay", 1, skeleton=SKELETON),
    ):
        with pytest.raises(NotApplicableError, match="no annotated person has a labelled keypoint"):
            picture(rows, tmp_path / "plot.png")
    with pytest.raises(NotApplicableError, match="no annotation has a box"):
        PrecisionRecall("poses", "people", "truth", kind="bbox")(rows, tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


def found(overlaps, false):
    overlaps = np.array(overlaps, dtype=float)
    results = np.where(overlaps > 0, np.arange(len(overlaps)), -1)
    return ImageMatches(np.arange(len(overlaps)), results, overlaps, 0 * overlaps, np.arange(false))


def test_the_score_of_an_image():
    assert image_score(found([0.9, 0.7], 0)) == pytest.approx(0.8)
    assert image_score(found([0.9, 0.0], 1)) == pytest.approx(0.45 - 0.5)
    assert image_score(found([0.0], 3)) == -1
    assert image_score(found([0.0], 0)) == 0
    assert image_score(found([], 0)) == 1
    assert image_score(found([], 2)) == 0


def plain(colour, height, width):
    return torch.tensor(colour, dtype=torch.float32)[:, None, None].expand(3, height, width)


def test_worst_images_first(tmp_path):
    red, green, blue = [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]
    images = [plain(green, 40, 60), plain(red, 200, 100), plain(blue, 50, 50), None]
    truth = [person(image, 30, number=image) for image in (4, 5, 6, 7)]
    results = [pose(4, 30, 0.9, off=10), pose(5, 900, 0.9), pose(6, 30, 0.9)]  # OKS 0.78; missed and false; 1; unsaved
    rows = dump(tmp_path / "dump", [4, 5, 6, 7], truth, results, images=images)
    path = tmp_path / "worst.png"
    WorstImages("poses", "people", "truth", "overlay", 2, cell=100, skeleton=SKELETON)(rows, path)
    pixels = cv2.imread(str(path))[..., ::-1]
    assert pixels.shape == (6 + 100 + 40 + 6, 6 + 2 * 106, 3)
    first, second = pixels[6:106, 6:106], pixels[6:106, 112:212]
    assert first[50, 50].tolist() == [255, 0, 0]  # 200 x 100: from 25 to 75 in x
    assert (first[50, :24] == 235).all()
    assert (first[:, 26:74] == [255, 0, 0]).all()
    assert second[50, 50].tolist() == [0, 255, 0]  # enlarged to 67 x 100
    assert (second[:15] == 235).all()
    assert (pixels[106:146, 6:106] < 128).any()
    assert (pixels[106:146, 112:212] < 128).any()
    with pytest.raises(UserError, match="no image 'pictures'"):
        WorstImages("poses", "people", "truth", "pictures", 2, skeleton=SKELETON)(rows, path)


def test_weak_results_may_be_left_out_of_the_worst(tmp_path):
    images = [plain([shade] * 3, 20, 20) for shade in (-1.0, 0.0)]
    truth = [person(1, 30), person(2, 30, number=2)]
    results = [pose(1, 30, 0.9), pose(1, 900, 0.1), pose(1, 700, 0.1), pose(2, 30, 0.9, off=5)]
    rows = dump(tmp_path / "dump", [1, 2], truth, results, images=images)
    for least_score, shade in ((0.0, 0), (0.2, 128)):  # two weak false ones in the first; the second is a little off
        worst = WorstImages("poses", "people", "truth", "overlay", 1, least_score=least_score, skeleton=SKELETON)
        worst(rows, tmp_path / "worst.png")
        assert cv2.imread(str(tmp_path / "worst.png"))[160, 160].tolist() == [shade] * 3

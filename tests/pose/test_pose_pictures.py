"""Pictures of people, annotations, fields and evaluations: which pixels change, for records made by hand."""

import json

import cv2
import drawn_scenes
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from people_by_hand import SKELETON, dump, oks, person, pose
from skeletons_by_hand import STAR

from figura.base.errors import UserError
from figura.engine.build import build_datasets
from figura.formats.skeletons import COCO
from figura.interfaces import Networks, State
from figura.report.interfaces import NotApplicableError
from figura.show.drawing import drawing_of
from models.pose import plots
from models.pose import plots as pose_plots
from models.pose.coco_evaluation import ImageMatches
from models.pose.decode.field_images import COLOURS as FIELD_COLOURS
from models.pose.decode.field_images import Field, confidence_picture, predicted_field, target_field, vectors_picture
from models.pose.decode.injectors import FieldPictures, HeadFields
from models.pose.decode.overlays import COLOURS, OverlayStyle, overlay
from models.pose.drawing import SceneDrawing
from models.pose.plots import FoundImages, OKSHistogram, PrecisionRecall, WorstImages, image_score

SIDE = 400  # large enough not to be enlarged
GREY = np.full((SIDE, SIDE, 3), 120, np.uint8)
PLAIN = OverlayStyle(scores=False)
SHOULDER, ELBOW, WRIST, HIP, KNEE = 5, 7, 9, 11, 13  # on the left
ARM = {SHOULDER: (100, 100), ELBOW: (200, 100), WRIST: (300, 200)}


def of_joints(joints, confidence=0.9, **more):
    keypoints = np.zeros((17, 3))
    for joint, place in joints.items():
        keypoints[joint] = (*place, confidence)
    return {"keypoints": keypoints.ravel().tolist(), **more}


def changed(picture, before=GREY):
    return (picture != before).any(axis=2)


def test_each_connection_has_its_colour_or_each_person_has_one():
    # Connections 8 and 10 of COCO's skeleton are shoulder-elbow and elbow-wrist.
    several = overlay(GREY, [of_joints(ARM)], [], COCO, PLAIN)
    assert tuple(several[100, 150]) == COLOURS[8]
    assert tuple(several[150, 250]) == COLOURS[10]
    other = {joint: (x, y + 150) for joint, (x, y) in ARM.items()}
    single = overlay(GREY, [of_joints(ARM), of_joints(other)], [], COCO, OverlayStyle(scores=False, colours="instance"))
    assert tuple(single[100, 150]) == tuple(single[150, 250]) == COLOURS[0]
    assert tuple(single[250, 150]) == COLOURS[1]
    assert tuple(single[100, 100]) == tuple(single[250, 100]) == (255, 255, 255)  # joints


def test_truth_is_grey_and_small_pictures_are_enlarged_by_a_whole_factor():
    small = np.full((96, 192, 3), 120, np.uint8)
    joints = {SHOULDER: (50, 40), ELBOW: (100, 40)}
    crowd, thing = {"bbox": [5, 60, 40, 30], "iscrowd": 1}, {"bbox": [150, 60, 30, 30]}
    ball = {"bbox": [150, 5, 30, 30], "score": 0.25, "category": "ball"}
    picture = overlay(small, [], [ball], COCO, PLAIN, truth=[of_joints(joints, 2), crowd, thing])
    assert picture.shape == (192, 384, 3)
    assert picture[81, 150].min() == picture[81, 150].max() > 180  # grey; row 40 lies between rows 80 and 81
    dotted, whole, coloured = (changed(picture, np.full_like(picture, 120))[row, a:b] for row, a, b in (
        (120, 20, 80), (120, 310, 350), (11, 310, 350),
    ))  # fmt: skip
    assert whole.all()
    assert coloured.all()
    assert 0 < dotted.mean() < 1
    hidden = overlay(small, [], [], COCO, PLAIN, truth=[of_joints(joints, 1)])
    assert 0.2 < changed(hidden, np.full_like(picture, 120))[81, 110:190].mean() < 0.9


def test_pictures_may_be_whitened():
    white = overlay(GREY, [], [], COCO, OverlayStyle(whiten=0.5))
    np.testing.assert_allclose(white, 255 - 0.5 * (255 - 120), atol=1)


def test_places_and_numbers_out_of_bounds_do_no_harm():
    far = of_joints({SHOULDER: (-1e9, 50), ELBOW: (200, 100), WRIST: (1e30, -1e30), HIP: (np.nan, 10)})
    far |= {"bbox": [-1e9, 0, 2e9, 50], "score": 1.0}
    broken = of_joints({SHOULDER: (np.inf, 5)}, bbox=[np.nan, 0, 1, 1], score=0.5)
    style = OverlayStyle(boxes=True, joint_scales=True)
    picture = overlay(GREY, [far, broken], [{"bbox": [390, 390, 500, 500], "score": 0.1, "category": "x"}], COCO, style)
    assert picture.shape == GREY.shape
    assert picture.dtype == np.uint8
    assert changed(picture)[100, 200]


def test_a_line_is_dashed_where_an_end_is_not_confident():
    def covered(confidence, threshold=0.5):
        style = OverlayStyle(scores=False, solid_threshold=threshold)
        return changed(overlay(GREY, [of_joints(ARM, confidence)], [], COCO, style))[100, 110:190]

    assert covered(0.51).all()
    assert 0.4 < covered(0.5).mean() < 0.8
    assert covered(0.01, threshold=0.0).all()
    gaps = np.flatnonzero(np.diff(covered(0.3).astype(int)))
    assert len(gaps) >= 8  # dash, gap, dash, ...


BLACK = np.zeros((33, 41, 3), dtype=np.uint8)
ZOOM = 4


def canvas(x, y):
    """Row and column of the middle of a pixel on a picture four times as large: the third of 0, 1, 2, 3."""
    return round((y + 0.5) * ZOOM - 0.5), round((x + 0.5) * ZOOM - 0.5)


def test_confidence_colours_cells_around_their_pixel():
    confidence = np.zeros((5, 6))
    confidence[1, 2], confidence[3, 4], confidence[4, 0] = 1.0, 0.5, np.nan
    grey = np.full_like(BLACK, 100)
    picture = confidence_picture(grey, Field("caf", confidence, ()), 8, ZOOM)
    full = np.array(FIELD_COLOURS["caf"][0])
    np.testing.assert_allclose(picture[canvas(16, 8)], 10 + 0.9 * full, atol=1)
    np.testing.assert_allclose(picture[canvas(32, 24)], 55 + 0.45 * full, atol=1)
    np.testing.assert_allclose(picture[canvas(0, 32)], 50 + 127.5, atol=1)
    # The cell at pixel (16, 8) reaches from 12 to 20 and from 4 to 12.
    lit = np.argwhere((picture[: 15 * ZOOM] != 100).any(axis=2))
    np.testing.assert_allclose(lit.min(axis=0), np.array(canvas(12, 4)), atol=2)
    np.testing.assert_allclose(lit.max(axis=0), np.array(canvas(20, 12)), atol=2)
    assert (picture[canvas(5, 16)] == 100).all()


def test_arrows_from_confident_cells_to_where_they_point():
    target = np.full((5, 5, 6), np.nan)
    target[0] = 0
    target[:, 1, 1] = 1, 2.0, 0.0, 0.01, np.nan  # from pixel (8, 8) to (24, 8)
    target[:, 3, 1] = 0, 2.0, 0.0, 0.01, np.nan  # below the threshold
    picture = vectors_picture(BLACK, target_field("cif", target), 8, ZOOM)
    assert not (picture[canvas(16, 8)] == 128).all()
    np.testing.assert_allclose(picture[canvas(30, 8)], 128)
    np.testing.assert_allclose(picture[canvas(16, 24)], 128)  # whitened black
    target[4, 1, 1] = 1.0  # a circle 8 pixels wide around (24, 8)
    with_scale = vectors_picture(BLACK, target_field("cif", target), 8, ZOOM)
    rows, columns = np.nonzero((with_scale != picture).any(axis=2))
    np.testing.assert_allclose([rows.min(), columns.max()], [canvas(24, 4)[0], canvas(28, 8)[1]], atol=2)


def test_target_and_the_same_prediction_look_alike():
    random = np.random.default_rng(3)
    x, y = np.meshgrid(np.arange(6), np.arange(5))
    shape = (2, 5, 6)
    first, second, scales = random.normal(size=shape), random.normal(size=shape), random.uniform(size=shape)
    ones, grid = np.ones((1, 5, 6)), np.stack([x, y])
    layouts = {
        "cif": ([ones, first, ones, scales[:1]], [ones, ones, first + grid, scales[:1]]),
        "caf": ([ones, first, second, ones, ones, scales], [ones, ones, first + grid, second + grid, scales]),
        "cifdet": ([ones, first, 2 + second, ones, ones], [ones, ones, first + grid, 2 + second]),
    }
    for kind, (target, prediction) in layouts.items():
        pictures = [
            vectors_picture(BLACK, field, 8, ZOOM)
            for field in (target_field(kind, np.concatenate(target)), predicted_field(kind, np.concatenate(prediction)))
        ]
        np.testing.assert_array_equal(*pictures)
        assert (pictures[0] != 128).any()


# --- drawings of scenes ---


@pytest.fixture
def scenes(tmp_path):
    drawn_scenes.write(tmp_path)
    return build_datasets(drawn_scenes.checked(tmp_path, {}), "train")["scenes"]


def test_pictures_of_an_example(scenes):
    drawing = drawing_of(scenes, {})
    assert isinstance(drawing, SceneDrawing)
    example = scenes.example(1, np.random.default_rng(0))
    pictures = drawing.pictures(example)
    targets = [f"{head}_target{more}" for head in ("cif", "caf", "cifdet") for more in ("", " vectors")]
    assert list(pictures) == ["image", *targets]
    np.testing.assert_array_equal(pictures["image"], scenes.view(1, np.random.default_rng(0)).picture)
    zoom = 6  # 384 of 65 pixels, in whole multiples
    assert {one.shape for name, one in pictures.items() if name != "image"} == {(65 * zoom, 65 * zoom, 3)}
    annotated = drawing.annotated(1, np.random.default_rng(0))["annotated"]
    assert annotated.shape == (65 * zoom, 65 * zoom, 3)
    coloured = (annotated == COLOURS[8]).all(axis=2) | (annotated == COLOURS[10]).all(axis=2)  # an arm
    x, y, width, height = scenes.view(1, np.random.default_rng(0)).people.boxes[0] * zoom
    rows, columns = np.nonzero(coloured)
    assert coloured.any()
    assert ((rows > y) & (rows < y + height) & (columns > x - zoom) & (columns < x + width + zoom)).all()


# --- pictures of fields in a dump ---


def test_field_pictures_show_target_and_prediction():
    target = np.full((1, 1, 5, 6, 7), np.nan, np.float32)
    target[:, :, 0] = 0
    target[0, 0, :, 2, 3] = (1, 0.2, 0.1, 0.01, 1.5)
    prediction = np.zeros((1, 1, 5, 6, 7), np.float32)
    prediction[0, 0, 1, 2, 3] = 0.8
    prediction[0, 0, 2:4] = np.mgrid[:6, :7][::-1]
    state = State(
        {
            "index": torch.tensor([40]),
            "images": torch.tensor([100]),
            "image": torch.zeros(1, 3, 41, 49),
            "cif": torch.from_numpy(prediction),
            "cif_target": torch.from_numpy(target),
        }
    )

    def drawn(output, **options):
        heads = {"cif": HeadFields(fields=["head"])}
        FieldPictures("image", heads, output, 8, skeleton=SKELETON, **options)(state, Networks({}, {}), 0)
        (picture,) = state[output]
        return picture

    picture = drawn("picture")
    assert picture.shape == (3, 82, 4 * 98)
    assert picture.abs().max() <= 1
    confidence = picture[:, :, : 2 * 98].unflatten(2, (2, 98))
    blank = confidence[:, 70, :, 5]
    for index in range(2):  # the cell at (24, 16) px is coloured in both, a corner in neither
        assert (confidence[:, 32, index, 48] - blank[:, index]).abs().max() > 0.3
    # 100 examples: of 5 evenly spaced ones, 40 is one; of 3, which are 0, 33 and 66, it is none
    assert torch.equal(drawn("few", count=5), picture)
    assert drawn("fewer", count=3) is None
    assert [state[f"{name}_drawn"].item() for name in ("few", "fewer")] == [1, 0]


def test_fields_of_any_skeleton_are_shown_by_name():
    """Rows for two of three joints, one of two pairs (in either direction), and a category."""
    things = [{"id": 7, "name": "star"}, {"id": 90, "name": "moon"}]

    def shown(**heads):
        settings = {name: HeadFields.model_validate_json(json.dumps(one), strict=True) for name, one in heads.items()}
        injector = FieldPictures("image", settings, "picture", 8, skeleton=STAR, categories=things)
        return [(kind, field, title) for _, kind, field, title in injector.shown]

    assert shown(cif={}, caf={}, cifdet={}) == [
        ("cif", 0, "tip"), ("cif", 1, "left_end"), ("caf", 0, "tip to left_end"), ("cifdet", 0, "star"),
    ]  # fmt: skip
    assert shown(links={"kind": "caf", "fields": [("right_end", "tip")]}) == [("caf", 1, "tip to right_end")]
    assert shown(cifdet={"fields": ["moon"]}) == [("cifdet", 1, "moon")]
    with pytest.raises(ValueError, match=r"heads\.cif\.fields: no field 'left_en' \(did you mean 'left_end'"):
        shown(cif={"fields": ["left_en"]})
    with pytest.raises(ValueError, match=r"heads\.links\.kind 'links'"):
        shown(links={})
    with pytest.raises(ValueError, match="stride: missing, and the training data tell none, or several; write it"):
        FieldPictures("image", {"cif": HeadFields()}, "picture")


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
    nobody = dump(tmp_path / "nobody", [1], [], results)
    with pytest.raises(NotApplicableError, match="no annotated person has a labelled keypoint"):
        PrecisionRecall("poses", "people", "truth", skeleton=SKELETON)(nobody, path)


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


def plain(colour, height, width):
    return torch.tensor(colour, dtype=torch.float32)[:, None, None].expand(3, height, width)


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


@pytest.mark.parametrize(("seen", "told"), [(True, "1 of 3 found, 1 false"), (False, "0 of 3 found, 0 false")])
def test_a_sheet_says_how_many_were_found_and_which_colour_is_the_truth(seen, told, tmp_path, monkeypatch):
    truth = [person(image, 30, number=image) for image in (4, 5, 6)]
    results = [pose(5, 900, 0.9), pose(6, 30, 0.9)] if seen else [pose(4, 30, 0.1)]  # too weak to be drawn
    rows = dump(tmp_path, [4, 5, 6], truth, results, images=[plain([0.0] * 3, 40, 60)] * 3)
    headings = []
    monkeypatch.setattr(plots, "with_header", lambda picture, text: headings.append(text) or picture)
    found = FoundImages("poses", "people", "truth", "overlay", 2, least_score=0.2, skeleton=SKELETON)
    found(rows, tmp_path / "found.png")
    assert [text.partition(":")[0] for text in headings] == ["image 4", "image 5", "all images"]
    assert headings[-1] == f"all images: {told}  light grey: the truth; in colours: what was found"


def test_worst_images_first(tmp_path):
    red, green, blue = [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]
    images = [plain(green, 40, 60), plain(red, 200, 100), plain(blue, 50, 50), None]
    truth = [person(image, 30, number=image) for image in (4, 5, 6, 7)]
    results = [pose(4, 30, 0.9, off=10), pose(5, 900, 0.9), pose(6, 30, 0.9)]  # OKS 0.78; missed and false; 1; unsaved
    rows = dump(tmp_path / "dump", [4, 5, 6, 7], truth, results, images=images)
    path = tmp_path / "worst.png"
    WorstImages("poses", "people", "truth", "overlay", 2, cell=100, skeleton=SKELETON)(rows, path)
    pixels = cv2.imread(str(path))[..., ::-1]
    places = {name: np.argwhere((pixels == colour).all(axis=2)) for name, colour in (
        ("red", (255, 0, 0)), ("green", (0, 255, 0)), ("blue", (0, 0, 255)),
    )}  # fmt: skip
    assert np.ptp(places["red"], axis=0).tolist() == [99, 49]  # of 200 x 100
    assert np.ptp(places["green"], axis=0).tolist() == [66, 99]  # of 40 x 60
    assert places["red"][:, 1].max() < places["green"][:, 1].min()
    assert not len(places["blue"])  # two were asked for
    for name in ("red", "green"):
        top, left = places[name].min(axis=0)
        assert (pixels[:top, left : left + 50] < 128).any()  # its label
    weak = [pose(6, 900, 0.1), pose(6, 700, 0.1)]  # two weak false ones in the best image
    rows = dump(tmp_path / "weak", [4, 6], [truth[0], truth[2]], [results[0], results[2], *weak], images=images[::2])
    for least_score, missing in ((0.0, (0, 255, 0)), (0.2, (0, 0, 255))):
        worst = WorstImages("poses", "people", "truth", "overlay", 1, least_score=least_score, skeleton=SKELETON)
        worst(rows, path)
        assert not (cv2.imread(str(path))[..., ::-1] == missing).all(axis=2).any()
    with pytest.raises(UserError, match="no image 'pictures'"):
        WorstImages("poses", "people", "truth", "pictures", 2, skeleton=SKELETON)(rows, path)

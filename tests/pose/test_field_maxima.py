"""The score of field maxima against distances by hand."""

import numpy as np
import pytest
import torch
from dumps_by_hand import sealed
from people_by_hand import SKELETON
from skeletons_by_hand import STAR

from figura.dump import Dump, Table, write_value
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
    table = Table(folder / "examples.csv")
    for index, (fields, joints, height) in enumerate(images):
        files = {}
        for name, value in (("cif", fields), ("joints", joints)):
            files[f"file.{name}"] = f"fields/{index}.{name}.npy"
            write_value(folder / files[f"file.{name}"], torch.from_numpy(value))
        table.add({"mode": "fields", "index": index, "height": height, **files})
    table.close()
    return Dump(sealed(folder))


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


def test_field_pictures_show_target_and_prediction():
    from figura.interfaces import Networks, State
    from models.pose.decode.injectors import FieldPictures, HeadFields

    target = np.full((1, 1, 5, 6, 7), np.nan, np.float32)
    target[:, :, 0] = 0
    target[0, 0, :, 2, 3] = (1, 0.2, 0.1, 0.01, 1.5)
    prediction = field({(3, 2): 0.8})[None, None]
    state = State(
        {
            "index": torch.tensor([40]),
            "images": torch.tensor([100]),
            "image_id": torch.tensor([7]),
            "image": torch.zeros(1, 3, 41, 49),
            "cif": torch.from_numpy(prediction),
            "cif_target": torch.from_numpy(target),
        }
    )

    def drawn(output, **options):
        heads = {"cif": HeadFields(fields=["head"])}
        FieldPictures("image", heads, output, STRIDE, skeleton=SKELETON, **options)(state, Networks({}, {}), 0)
        (picture,) = state[output]
        return picture

    picture = drawn("picture", zoom=2)
    assert picture.shape == (3, 82, 4 * 98)
    assert picture.abs().max() <= 1
    confidence = picture[:, :, : 2 * 98].unflatten(2, (2, 98))
    blank = confidence[:, 70, :, 5]
    for place in range(2):  # the cell at (24, 16) px is coloured in both, a corner in neither
        assert (confidence[:, 32, place, 48] - blank[:, place]).abs().max() > 0.3
    # 100 examples: of 5 evenly spaced ones, 40 is one; of 3, which are 0, 33 and 66, it is none
    assert torch.equal(drawn("few", count=5), picture)
    assert drawn("fewer", count=3) is None
    assert torch.equal(drawn("asked", count=3, image_ids=(7,)), picture)
    assert drawn("other", image_ids=(8,)) is None
    assert [state[f"{name}_drawn"].item() for name in ("few", "fewer", "asked", "other")] == [1, 0, 1, 0]


def test_fields_of_any_skeleton_are_shown_by_name():
    """Rows for two of three joints, one of two pairs (in either direction), and a category."""
    from models.pose.decode.injectors import FieldPictures, HeadFields

    things = [{"id": 7, "name": "star"}, {"id": 90, "name": "moon"}]

    def shown(**heads):
        settings = {name: HeadFields(**one) for name, one in heads.items()}
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

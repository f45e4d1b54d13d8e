import json
import pickle
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as run_lengths
from skeletons_by_hand import DOG

from figura.base.errors import UserError
from figura.formats.coco import KEYPOINTS
from figura.formats.skeletons import COCO as COCO_PERSON
from figura.formats.skeletons import skeleton_from
from models.people.drawing import BOX, CROP, PersonDrawing
from models.people.pairs import PersonPairs
from models.people.persons import people_category

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # by pycocotools

HEIGHT, WIDTH = 60, 80
BASIC = {"min_keypoints": 1, "min_height": 10, "appearance": "other_view", "background": None}


def rle(mask):
    encoded = run_lengths.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(mask.shape), "counts": encoded["counts"].decode()}


def rectangle(left, top, right, bottom):
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[top:bottom, left:right] = 1
    return mask


def person(number, image, box, *, joints=((30, 20),), count=17, **extra):
    flat = [0] * 3 * count
    for index, (x, y) in enumerate(joints):
        flat[3 * index : 3 * index + 3] = x, y, 2
    return {
        "id": number, "image_id": image, "category_id": 1, "bbox": list(box), "iscrowd": 0, "keypoints": flat, **extra
    }  # fmt: skip


def write(root, annotations, pictures, split="train", people=None):
    """A prepared folder by hand; `pictures` are RGB uint8 arrays, image ids count from 1, `people` is a category."""
    (root / "images" / split).mkdir(parents=True)
    images = []
    for number, picture in enumerate(pictures, start=1):
        name = f"{split}/{number}.png"
        Image.fromarray(picture).save(root / "images" / name)
        images.append({"id": number, "file_name": name, "height": picture.shape[0], "width": picture.shape[1]})
    person = {"id": 1, "name": "person", "keypoints": list(KEYPOINTS)}
    categories = [people or person, {"id": 2, "name": "ball"}]
    text = json.dumps({"categories": categories, "images": images, "annotations": annotations})
    (root / f"{split}.json").write_text(text)
    (root / "manifest.json").write_text(json.dumps({"sha256": "1"}))
    return root


def noise(seed, height=HEIGHT, width=WIDTH):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    mask = rectangle(12, 6, 28, 40)
    annotations = [
        person(
            1, 1, (8, 4, 24, 40), person_id=50, segmentation=rle(mask), parts={"top": rle(rectangle(12, 6, 28, 20))}
        ),
        person(
            2,
            2,
            (40, 0, 30, 48),
            joints=((50, 20), (58, 14)),
            person_id=50,
            segmentation=[[40, 0, 70, 0, 70, 48, 40, 48]],
        ),
        person(3, 3, (0, 0, 80, 60), person_id=50),
        person(5, 3, (10, 10, 20, 30), person_id=60),
        person(6, 1, (60, 20, 20, 40)),
    ]
    unused = [
        person(7, 1, (0, 0, 20, 40), iscrowd=1),
        person(8, 1, (0, 0, 20, 9)),
        person(9, 1, (0, 0, 20, 40), joints=()),
        person(10, 1, (0, 0, 20, 40), category_id=2) | {"category_id": 2},
        {"id": 11, "image_id": 1, "category_id": 1, "bbox": [0, 0, 20, 40]},
    ]
    return write(tmp_path / "people", annotations + unused, [noise(1), noise(2), noise(3)])


def pairs(folder, **changes):
    return PersonPairs(**{"root": str(folder), "split": "train", "image_size": 16, **BASIC, **changes})


def draw(dataset, index, seed=0):
    return dataset.example(index, np.random.default_rng(seed))


def expected_crop(picture, left, top, side, size, fill=0.0, keep=None):
    """Pad, replace, average blocks: float64, for sides that are multiples of the size. CHW in [-1, 1]."""
    values = picture.astype(np.float64) / 127.5 - 1
    if keep is not None:
        values[keep == 0] = fill
    big = np.full((side, side, 3), fill)
    for row in range(side):
        for column in range(side):
            y, x = top + row, left + column
            if 0 <= y < picture.shape[0] and 0 <= x < picture.shape[1]:
                big[row, column] = values[y, x]
    block = side // size
    return big.reshape(size, block, size, block, 3).mean(axis=(1, 3)).transpose(2, 0, 1)


def test_rows_tell_of_examples_without_their_pictures(folder):
    dataset = pairs(folder)
    for picture in (folder / "images").rglob("*.png"):
        picture.unlink()
    rows = [dataset.row(index) for index in range(len(dataset))]
    assert rows[1] == {
        "annotation_id": 2, "person_id": 50, "file": "train/2.png", "joints": 2, "height": 48.0, "other_views": 2
    }  # fmt: skip
    assert [(row["annotation_id"], row["other_views"]) for row in rows] == [(1, 2), (2, 2), (3, 2), (5, 0), (6, 0)]


def test_crop_is_the_mean_over_pixels(folder):
    dataset = pairs(folder, margin=0.1, min_height=20, parts=True, appearance="self")
    example = draw(dataset, 0)
    # Box (8, 4, 24, 40): side 40 * 1.2 = 48 around (20, 24), so from (-4, 0): four columns lie outside.
    np.testing.assert_allclose(example["target"], expected_crop(noise(1), -4, 0, 48, 16), atol=2e-6)
    assert (example["target"][:, :, 0] == 0).all()
    np.testing.assert_array_equal(example["appearance"], example["target"])
    for name, bottom in (("mask", 40), ("top", 20)):
        mask = np.pad(rectangle(12, 6, 28, bottom), ((0, 0), (4, 0)))[:48, :48]
        np.testing.assert_allclose(example[name][0], mask.reshape(16, 3, 16, 3).mean(axis=(1, 3)), atol=1e-6)
    np.testing.assert_array_equal(example["appearance_top"], example["top"])
    assert not example["bottom"].any()


def test_background_is_replaced_before_scaling(folder):
    example = draw(pairs(folder, margin=0.1, background=-0.25), 0)
    expected = expected_crop(noise(1), -4, 0, 48, 16, fill=-0.25, keep=rectangle(12, 6, 28, 40))
    np.testing.assert_allclose(example["target"], expected, atol=2e-6)
    bare = example["mask"][0] == 0
    assert bare.any()
    assert (example["target"][:, bare] == np.float32(-0.25)).all()


def test_polygons_and_missing_masks(folder):
    dataset = pairs(folder, margin=0.0)
    polygon = draw(dataset, 1)["mask"][0]  # box (40, 0, 30, 48): side 48 from (31, 0)
    truth = run_lengths.decode(run_lengths.frPyObjects([[40, 0, 70, 0, 70, 48, 40, 48]], HEIGHT, WIDTH))[..., 0]
    np.testing.assert_allclose(polygon, truth[:48, 31:79].reshape(16, 3, 16, 3).mean(axis=(1, 3)), atol=1e-6)
    missing = draw(pairs(folder, margin=0.0, image_size=15), 3)["mask"][0]  # box (10, 10, 20, 30): side 30 from (5, 10)
    box = np.zeros((30, 30))
    box[:, 5:25] = 1
    np.testing.assert_allclose(missing, box.reshape(15, 2, 15, 2).mean(axis=(1, 3)), atol=1e-6)


def test_joints_lie_where_the_picture_shows_them(tmp_path):
    picture = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    x, y = 37, 22
    picture[y, x] = 255
    folder = write(tmp_path / "people", [person(1, 1, (20, 10, 30, 32), joints=[(x, y)])], [picture])
    for size, block in ((32, 1), (96, 3)):
        example = draw(pairs(folder, margin=0.0, image_size=size), 0)
        brightest = np.argwhere(example["target"][0] == example["target"][0].max()).mean(axis=0)
        dot = np.argwhere(example["pose"][1] > 0).mean(axis=0)  # the nose, green
        np.testing.assert_allclose(dot, brightest, atol=0.01)
        np.testing.assert_allclose(dot, ((y - 10) * block + (block - 1) / 2, (x - 19) * block + (block - 1) / 2))


def test_other_view_is_uniform_over_the_others(folder):
    dataset = pairs(folder)
    for index, others in ((0, (2, 3)), (3, (5,))):
        drawn = Counter(draw(dataset, index, seed)["appearance_id"] for seed in range(60))
        assert set(drawn) == set(others)
        for count in drawn.values():
            assert abs(count - 60 / len(others)) < 20  # 5 standard deviations
    assert [example["has_other_view"] for example in dataset] == [1, 1, 1, 0, 0]
    assert not any(example["has_other_view"] for example in pairs(folder, appearance="self"))
    example = draw(dataset, 0, seed=1)
    twin = draw(pairs(folder, appearance="self"), example["appearance_id"] - 1)
    np.testing.assert_array_equal(example["appearance"], twin["target"])


def test_a_list_of_pairs(folder):
    (folder / "train.pairs.csv").write_text("appearance_id,annotation_id\n3,1\n1,3\n8,2\n5,5\n3,1\n")
    dataset = pairs(folder, appearance="pairs", foreign=True)  # 8 is too small
    rows = [draw(dataset, index) for index in range(len(dataset))]
    assert [(row["appearance_id"], row["annotation_id"]) for row in rows] == [(3, 1), (1, 3), (5, 5), (3, 1)]
    assert dataset.row(1).items() > {"appearance_id": 1, "annotation_id": 3}.items()
    assert [row["has_other_view"] for row in rows] == [1, 1, 0, 1]
    twins = pairs(folder, appearance="self")
    np.testing.assert_array_equal(rows[0]["appearance"], draw(twins, 2)["target"])
    np.testing.assert_array_equal(rows[0]["target"], draw(twins, 0)["target"])
    np.testing.assert_array_equal(rows[0]["pose"], draw(twins, 0)["pose"])
    assert all(row["foreign_id"] in (5, 6) for row in rows if row["person_id"] == 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"train\.pairs\.csv: no such file; `appearance: pairs` needs this list, appearance_id,annotation_id"),
        ("from,to\n1,2\n", r"line 1: found 'from,to'; expected appearance_id,annotation_id"),
        ("appearance_id,annotation_id\n1,2\n1\n", "line 3: found '1'; expected two annotation ids"),
        ("appearance_id,annotation_id\n", r"pairs\.csv: the list is empty"),
        ("appearance_id,annotation_id\n1,2\n2,77\n", "line 3: annotation_id 77 is no person of the split"),
        ("appearance_id,annotation_id\n8,9\n", "in none of its 1 pairs both persons have min_keypoints and min_height"),
    ],
)
def test_lists_that_cannot_be_used(folder, text, message):
    if text is not None:
        (folder / "train.pairs.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        pairs(folder, appearance="pairs")


CATEGORIES = [{"id": 2, "name": "ball"}, {"id": 7, "name": "dog"}]


@pytest.fixture
def dogs(tmp_path):
    """Two dogs with five joints; the first has three of them."""
    category = {"id": 7, "name": "dog", "keypoints": DOG["keypoints"], "skeleton": [[1, 4], [1, 2], [1, 3]]}
    joints = [(40, 5), (30, 30), (50, 30), (40, 40), (40, 20)]
    annotations = [
        person(1, 1, (20, 0, 40, 48), joints=joints[:3], count=5, person_id=4) | {"category_id": 7},
        person(2, 2, (20, 0, 40, 48), joints=joints, count=5, person_id=4) | {"category_id": 7},
        person(3, 2, (20, 0, 40, 48), joints=joints[:2], count=5, person_id=4) | {"category_id": 7},
    ]
    folder = write(tmp_path / "dogs", annotations, [noise(1), noise(2)], people=category)
    (folder / "facts.json").write_text(json.dumps({"people": "dog", "skeleton": DOG, "categories": CATEGORIES}))
    return folder


def test_own_joints(dogs):
    dataset = pairs(dogs, min_keypoints=0.6, margin=0.0, image_size=48)  # three of five, or more
    assert dataset.persons.ids.tolist() == [1, 2]
    assert dataset.persons.keypoints.shape == (2, 5, 3)
    pose = (draw(dataset, 1)["pose"].transpose(1, 2, 0) + 1) * 127.5
    assert pose[30, 30 - 16].argmax() == 2  # left: blue; the crop begins at x = 16
    assert pose[30, 50 - 16].argmax() == 0  # right: red
    assert pose[20:39, 40 - 16].any(axis=1).all()  # the line from head to tail
    assert not (draw(dataset, 0)["pose"][:, 38:, 40 - 16] > -1).any()  # whose end the first dog lacks


def test_other_joints_than_in_training_are_refused(dogs, folder):
    for skeleton in (None, DOG, DOG | {"sigmas": [0.1] * 5}):
        dataset = pairs(dogs, skeleton=skeleton)
        assert len(dataset) == 3
    bare = pairs(dogs, skeleton=DOG | {"connections": [["head", "collar"]]})
    assert not np.array_equal(draw(bare, 1)["pose"], draw(dataset, 1)["pose"])  # drawn as in training
    with pytest.raises(UserError, match=r"train\.json: its people have 17 keypoints, nose, .* has 5, head, left_paw, "):
        pairs(folder, skeleton=DOG)


def test_facts(dogs, folder):
    arguments = {"root": str(dogs), "split": "train", **BASIC}
    expected = {"image_size": 64, "margin": 0.1, "background": None, "min_keypoints": 1}
    assert PersonPairs.facts(arguments) == expected | {"skeleton": DOG, "category": 7}
    assert PersonPairs.facts(arguments | {"root": str(folder), "image_size": 32}) == expected | {"image_size": 32}
    assert PersonPairs.facts(arguments | {"root": "nowhere"}) == expected
    assert PersonPairs.facts(arguments | {"skeleton": COCO_PERSON.settings()})["skeleton"] == COCO_PERSON.settings()


def test_one_category_has_the_skeleton(dogs):
    (dogs / "facts.json").write_text(json.dumps({"people": "cat", "skeleton": DOG}))
    with pytest.raises(UserError, match="categories: found ball, dog; one 'cat' with the 5 joints head, left_paw"):
        pairs(dogs)
    both = [{"id": number, "name": name, "keypoints": DOG["keypoints"]} for number, name in ((7, "dog"), (9, "cat"))]
    with pytest.raises(UserError, match=r"categories: 2 have the 5 joints head, left_paw.*: cat, dog; leave one"):
        people_category(dogs / "train.json", both, skeleton_from(DOG))


def test_foreign_is_another_person(folder):
    dataset = pairs(folder, foreign=True)
    for index, others in ((0, (5, 6)), (3, (1, 2, 3, 6))):
        drawn = Counter(draw(dataset, index, seed)["foreign_id"] for seed in range(80))
        assert set(drawn) == set(others)
        for count in drawn.values():
            assert abs(count - 80 / len(others)) < 20


def test_baselines_are_flat_colours_and_unrelated_people(folder, tmp_path):
    """Medians of the appearance in its masks, in the target's masks; crops of the other split in turn."""
    top = {"parts": {"top": rle(rectangle(0, 0, 16, 16))}}
    people = [person(1, 1, (0, 0, 16, 32), person_id=1, segmentation=rle(rectangle(0, 0, 16, 32)), **top),
              person(2, 2, (32, 0, 16, 32), person_id=1, segmentation=rle(rectangle(32, 0, 48, 24)))]  # fmt: skip
    root = write(tmp_path / "two", people, [noise(4), noise(5)], split="test")
    (folder / "images/train").rename(root / "images/train")
    (folder / "train.json").rename(root / "train.json")
    chosen = {"split": "test", "parts": True, "margin": 0.0, "background": 0.25, "baselines": "train"}
    dataset = pairs(root, **chosen)
    assert {"flat", "other"} <= set(dataset.names) == set(PersonPairs.provides(chosen))
    first, second = (draw(dataset, index) for index in (0, 1))
    assert (first["annotation_id"], first["appearance_id"]) == (1, 2)
    for one, parts in ((first, ["mask"]), (second, ["mask", "top"])):  # the first has an appearance without a top
        expected = np.full((3, 16, 16), 0.25)
        for name in parts:
            other = second if one is first else first  # its target is this appearance
            colour = np.median(other["target"][:, other[name][0] > 0.5].astype(float), axis=1)
            expected += one[name] * (colour[:, None, None] - expected)
        np.testing.assert_allclose(one["flat"], expected, atol=1e-6)
    there = [draw(pairs(root, margin=0.0, background=0.25), index)["target"] for index in range(5)]
    for one, place in ((first, 2), (second, 4)):  # five people: 0 + 5 // 2, then 5 // 2 + 5 // 2
        np.testing.assert_array_equal(one["other"], there[place])


def test_same_seed_same_example(folder):
    dataset = pairs(folder, parts=True, foreign=True)
    again = pickle.loads(pickle.dumps(dataset))  # as data loaders hand it to their processes
    for index in range(len(dataset)):
        one, two = draw(dataset, index, 5), draw(again, index, 5)
        assert all(np.array_equal(one[name], two[name]) for name in dataset.names)


def test_exif_orientation_is_ignored(tmp_path):
    picture = noise(1, 40, 80)
    folder = write(tmp_path / "people", [person(1, 1, (40, 0, 40, 40))], [picture])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture).save(folder / "images/train/1.png", exif=exif)
    example = draw(pairs(folder, margin=0.0, image_size=40), 0)
    np.testing.assert_allclose(example["target"], expected_crop(picture, 40, 0, 40, 40), atol=1e-6)


# --- bad input ---

TOO_HIGH = (
    r"train\.json: none of its 8 persons has 1 labelled keypoints and a height of 100 pixels: 6 have so many keypoints "
    r"\(of 17\), 0 are so high; half of both, min_keypoints 1 and min_height 50, would leave 1$"
)


def test_splits_without_examples(folder, tmp_path):
    with pytest.raises(
        UserError, match=r"test\.json: no such file; .*people has the splits train; bring 'test' to `dat"
    ):
        pairs(folder, split="test")
    with pytest.raises(UserError, match=TOO_HIGH):
        pairs(folder, min_height=100)
    with pytest.raises(UserError, match=r"train\.json: it has no annotated persons"):
        pairs(write(tmp_path / "none", [], [noise(1)]))
    with pytest.raises(UserError, match="all usable annotations show one person"):
        pairs(write(tmp_path / "one", [person(1, 1, (0, 0, 20, 40))], [noise(1)]), foreign=True)
    annotations = [person(2, 1, (0, 0, 20, 40)), person(1, 1, (0, 0, 20, 40))]
    with pytest.raises(UserError, match="not in the order of their ids"):
        pairs(write(tmp_path / "unsorted", annotations, [noise(1)]))


def test_damaged_images(folder):
    image = folder / "images/train/1.png"
    Image.fromarray(noise(1, 30, 30)).save(image)
    dataset = pairs(folder)
    with pytest.raises(
        UserError, match=r"1\.png: is 30 x 30 pixels, .* promise 80 x 60; run `dvc repro --force prepare@people`"
    ):
        draw(dataset, 0)
    image.unlink()
    with pytest.raises(UserError, match=r"1\.png: no such file"):
        draw(dataset, 0)


# --- drawings ---


def is_colour(pixels, colour):
    return (pixels == colour).all(axis=-1)


def test_the_drawn_scene_shows_box_and_crop(folder):
    dataset = pairs(folder)
    drawing = PersonDrawing(dataset, {})
    scene = drawing.annotated(1, np.random.default_rng(0))["annotated scene"]
    x, y, width, height = (round(float(one)) for one in dataset.persons.boxes[dataset.target(1)])
    rows, columns = is_colour(scene, BOX).nonzero()
    assert (columns.min(), rows.min()) >= (x, y)
    assert (columns.max(), rows.max()) <= (x + width - 1, y + height - 1)
    assert is_colour(scene, CROP).any()
    pictures = drawing.pictures(draw(dataset, 1))
    assert {"pose", "target", "joints"} <= pictures.keys()
    assert "joints" not in drawing.pictures({"target": draw(dataset, 1)["target"]})


def test_the_truth_is_the_annotation_in_pixels_of_the_crop(folder):
    """Person 1: its box (8, 4, 24, 40) and a margin of 0.1 give the window from (-4, 0), 48 wide; at 96 px, twice."""
    data = PersonPairs(root=str(folder), split="train", image_size=96, margin=0.1, truth=True, foreign=True, **BASIC)
    assert data.names[-1] == "truth"
    (truth,) = data[0]["truth"]
    assert (truth["id"], truth["image_id"], truth["category_id"], truth["num_keypoints"]) == (1, 0, 1, 1)
    assert truth["keypoints"][:3] == [(30 + 4 + 0.5) * 2 - 0.5, (20 + 0.5) * 2 - 0.5, 2]
    assert truth["bbox"] == [24, 8, 48, 80]
    assert truth["area"] == pytest.approx(16 * 34 * 4, rel=0.01)  # of the mask, twice as wide and high
    assert "truth" not in PersonPairs(root=str(folder), split="train", **BASIC)[0]

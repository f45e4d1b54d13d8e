"""The archive for COCO's server: names, fields and order as its upload rules have them, and records it would refuse."""

import json
import zipfile

import pandas as pd
import pytest
from dumps_by_hand import sealed

from figura.base.exit_status import run
from models.pose.submit import main


def person(image, score, **changes):
    return {
        "image_id": image,
        "category_id": 1,
        "keypoints": [10.5, 20.25, 0.9] * 16 + [0.0, 0.0, 0.0],
        "bbox": [1.0, 2.0, 3.0, 4.0],
        "score": score,
        **changes,
    }


def thing(image, score, **changes):
    return {"image_id": image, "category_id": 18, "bbox": [1.5, 2, 0, 4.25], "score": score, **changes}


PEOPLE = [person(581929, 0.5), person(9, 0.25), person(581929, 0.75), person(9, 1)]
THINGS = [thing(581929, 0.5), thing(9, 0.25, category_id=1)]


def write_dump(folder, people=PEOPLE, objects=THINGS, rows=((9, 0), (581929, 0), (7, 0))):
    (folder / "poses").mkdir(parents=True)
    (folder / "poses/people.json").write_text(json.dumps(people))
    (folder / "poses/objects.json").write_text(json.dumps(objects))
    table = [{"mode": "poses", "index": i, "draw": draw, "image_id": image} for i, (image, draw) in enumerate(rows)]
    pd.DataFrame([*table, {"mode": "fields", "index": 0, "draw": 0, "image_id": 5}]).to_csv(
        folder / "examples.csv", index=False
    )
    return sealed(folder)


def submit(dump, folder, *options):
    words = [dump, folder, "--testset", "test-dev2017", "--algorithm", "figura-1", *options]
    return run(main, list(map(str, words)))


def content(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        (name,) = archive.namelist()
        return name, json.loads(archive.read(name))


def test_keypoints_by_the_rules(tmp_path, capsys):
    assert submit(write_dump(tmp_path / "dump"), tmp_path / "out") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [
        "person_keypoints_test-dev2017_figura-1_results.zip"
    ]
    path = tmp_path / "out/person_keypoints_test-dev2017_figura-1_results.zip"
    name, found = content(path)
    assert name == "person_keypoints_test-dev2017_figura-1_results.json"
    for one in found:
        assert set(one) == {"image_id", "category_id", "keypoints", "score"}
        assert isinstance(one["image_id"], int)
        assert one["category_id"] == 1
        assert one["keypoints"] == [10.5, 20.25, 0.9] * 16 + [0.0] * 3
    assert [(one["image_id"], one["score"]) for one in found] == [(9, 1), (9, 0.25), (581929, 0.75), (581929, 0.5)]
    assert "4 results of 2 images" in capsys.readouterr().out
    first = path.read_bytes()
    path.unlink()
    assert submit(tmp_path / "dump", tmp_path / "out") == 0
    assert path.read_bytes() == first


def test_detections_by_the_rules(tmp_path):
    assert submit(write_dump(tmp_path / "dump"), tmp_path / "out", "--kind", "detections") == 0
    name, found = content(tmp_path / "out/detections_test-dev2017_figura-1_results.zip")
    assert name == "detections_test-dev2017_figura-1_results.json"
    assert found == [
        {"image_id": 9, "category_id": 1, "bbox": [1.5, 2, 0, 4.25], "score": 0.25},
        {"image_id": 581929, "category_id": 18, "bbox": [1.5, 2, 0, 4.25], "score": 0.5},
    ]


@pytest.mark.parametrize(
    ("kind", "record", "message"),
    [
        ("keypoints", person(5, 0.5), "image_id 5: not an image of the dump's table"),  # of another mode
        ("keypoints", person(9, 0.5, category_id=2), "category_id 2: COCO has 1, person"),
        ("keypoints", person(9, 0.5, keypoints=[1.0] * 50 + [float("nan")]), "expected 51 and 1 finite numbers"),
        ("keypoints", {"image_id": 9, "category_id": 1, "score": 1.0}, "has no keypoints"),
        ("detections", thing(9, 0.5, bbox=[1.0, 2.0, -3.0, 1.0]), "bbox: width -3.0"),
        ("detections", thing(9, 0.5, category_id=91), "category_id 91: COCO has 1 to 90"),
    ],
)
def test_records_that_would_be_refused(tmp_path, capsys, kind, record, message):
    dump = write_dump(tmp_path / "dump", people=[person(9, 0.5), record], objects=[thing(9, 0.5), record])
    assert submit(dump, tmp_path / "out", "--kind", kind) == 1
    error = capsys.readouterr().err
    assert ": record 1 (counted from 0): " in error
    assert message in error
    assert not (tmp_path / "out").exists()


def test_dumps_and_words_that_will_not_do(tmp_path, capsys):
    def refused(dump, *options):
        assert submit(dump, tmp_path / "out", *options) == 1
        return capsys.readouterr().err

    good = write_dump(tmp_path / "good")
    assert "no list with results" in refused(write_dump(tmp_path / "empty", people=[]))
    assert "image 9 was evaluated more than once" in refused(write_dump(tmp_path / "twice", rows=((9, 0), (9, 1))))
    assert "no such file" in refused(good, "--records", "others")
    assert "no rows of mode 'other'; there are fields, poses" in refused(good, "--mode", "other")
    assert "--algorithm '../x': is part of a file name" in refused(good, "--algorithm", "../x")
    (write_dump(tmp_path / "cut") / "poses/people.json").write_text("[{")
    assert "people.json: damaged: its checksum differs; run eval-dump again" in refused(tmp_path / "cut")
    assert "people.json: no readable JSON" in refused(sealed(tmp_path / "cut"))
    trial = write_dump(tmp_path / "trial")
    (trial / "try.txt").write_text("TRY of 10 steps, no result\n")
    assert "trial: TRY of 10 steps, no result; dump a trained model" in refused(sealed(trial))
    (good / "examples.csv").write_text("mode,index\nposes,0\n")
    sealed(good)
    assert "no column `image_id`" in refused(good)
    assert not (tmp_path / "out").exists()


def test_joints_that_are_not_coco_s(tmp_path, capsys):
    dump = write_dump(tmp_path / "dump")
    (dump / "facts.json").write_text(json.dumps({"skeleton": {"keypoints": ["snout", "left_paw", "right_paw"]}}))
    sealed(dump)
    assert submit(dump, tmp_path / "out") == 1
    assert "the people have 3 joints, snout, left_paw, right_paw" in capsys.readouterr().err
    assert submit(dump, tmp_path / "out", "--kind", "detections") == 0

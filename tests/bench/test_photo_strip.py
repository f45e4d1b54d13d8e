"""The picture of enlarged photos: its usage."""

import pytest

from bench import photo_strip


@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("photos_pose", 2)])
def test_words_that_are_no_model_that_enlarges(word, status, monkeypatch):
    monkeypatch.setattr("sys.argv", ["photo_strip", word])
    with pytest.raises(SystemExit) as ended:
        photo_strip.main()
    assert ended.value.code == status

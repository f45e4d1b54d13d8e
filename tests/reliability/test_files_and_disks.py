"""Short forms of the parts about files: disks that fail, damaged files, hostile input."""

import pytest

pytestmark = pytest.mark.slow


def test_disks_that_fail_lose_nothing(capsys):
    from reliability.disk import main  # imports all of figura

    assert main(["--cases", "32"]) == 0, capsys.readouterr().out


def test_damaged_files_give_no_other_result(capsys):
    from reliability.damage import main

    assert main(["--cases", "36", "--recipes", "pix2pix"]) == 0, capsys.readouterr().out


def test_hostile_input_is_refused_in_words(capsys):
    from reliability.hostile import main

    assert main(["--cases", "340"]) == 0, capsys.readouterr().out

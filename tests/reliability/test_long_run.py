"""The short form of the long run: nothing grows, by the same rules, more loosely; broken rules are seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from reliability.long_run import LongRun, Sample, judged

FLAT = Sample(0, 0, 20, 5, 2, 700.0, 400.0, 1.0, 3, 0.0, 0.0)


def flat(count: int) -> list[Sample]:
    """Return the samples of a training that grows in nothing but what it keeps."""
    return [replace(FLAT, seconds=5.0 * n, iteration=50 * n, kept=0.5 * n, cpu=4.0 * n) for n in range(count)]


@pytest.mark.parametrize(
    ("column", "growth", "said"),
    [
        ("descriptors", 0.01, "descriptors rose"), ("memory", 0.1, "memory rose"),
        ("processes", 0.01, "processes rose"), ("scratch", 0.01, "scratch rose"),
        ("cpu", 0.005, "ms/iteration"), ("kept", 0.0005, "KiB/iteration"),
    ],
)  # fmt: skip
def test_what_grows_is_seen(column: str, growth: float, said: str) -> None:
    rows = flat(1000)
    assert judged(rows)[1] == []
    power = 2 if column in ("cpu", "kept") else 1  # these are sums
    worse = [replace(row, **{column: getattr(row, column) + growth * n**power}) for n, row in enumerate(rows)]
    (line,) = judged(worse)[1]
    assert line.startswith(said)


@pytest.mark.slow
def test_a_training_grows_in_nothing_and_outlives_its_trackers(tmp_path: Path) -> None:
    training = LongRun(tmp_path / "run", "pix2pix")
    rows = training.samples(seconds=15, every=0.2)
    table, broken = judged(rows, looser=4)
    assert broken == [], table
    assert training.said().count("warning: the tracker failing failed, and gets nothing more") == 1
    assert len(list((training.run / "live").rglob("events.out.tfevents.*"))) >= 1
    assert (training.run / "live/dvclive").is_dir()

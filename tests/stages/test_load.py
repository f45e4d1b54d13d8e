"""How busy others keep the cores, from the kernel's counts, and what threads do then."""

from pathlib import Path

import pytest

from figura.launch import load

CPU = "cpu  900 0 100 5000 0 0 0 0 0 0"


@pytest.fixture(autouse=True)
def _three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "available_cores", lambda: {0, 1, 3})


def statistics(*cores: str) -> str:
    return "\n".join([CPU, *(f"cpu{number} {columns}" for number, columns in enumerate(cores)), "intr 5 6"])


def test_what_counts_as_busy_and_idle() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice; core 2 is not ours
    text = statistics("10 1 2 30 4 5 6 7 8 9", "0 0 0 50 0 0 0 0 0 0", "9 9 9 9 9 9 9 9 9 9", "1 0 0 0 0 0 0 0 0 0")
    assert load.ticks(text) == {0: (31, 34), 1: (0, 50), 3: (1, 0)}


def test_cores_are_busy_by_the_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "stat"
    file.write_text(statistics("100 0 0 100 0", "100 0 0 100 0", "0 0 0 0 0", "7 0 0 7 0"))

    def sleep(seconds: float) -> None:
        assert seconds == 0.25
        file.write_text(statistics("110 0 0 100 0", "104 0 1 105 0", "50 0 0 0 0", "7 0 0 17 0"))

    monkeypatch.setattr(load.time, "sleep", sleep)
    assert load.busy_cores(file, 0.25) == pytest.approx(1 + 0.5 + 0)


@pytest.mark.parametrize("content", [None, "", "cpu0 a b c d e", "cpu0 1"])
def test_without_counts_nobody_is_busy(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    assert load.busy_cores(tmp_path / "stat", 0) == 0


@pytest.mark.parametrize(
    ("cores", "busy", "wait"), [(2, 0.4, load.SPIN), (2, 0.5, load.SLEEP), (20, 1.9, load.SPIN), (20, 2.0, load.SLEEP)]
)
def test_threads_sleep_beside_other_work(monkeypatch: pytest.MonkeyPatch, cores: int, busy: float, wait: dict) -> None:
    monkeypatch.setattr(load, "busy_cores", lambda *_: busy)
    monkeypatch.setattr(load, "available_cores", lambda: set(range(cores)))
    chosen, remarks = load.waiting({})
    assert chosen == wait
    assert remarks == ([] if wait == load.SPIN else [f"{busy:.1f} of {cores} cores are busy with other work"])
    assert load.waiting({"GOMP_SPINCOUNT": "1"}) == load.waiting({"OMP_WAIT_POLICY": "active"}) == ({}, [])

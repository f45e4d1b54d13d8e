"""requirements.lock: a version of all that the project needs, on every Python that it is for, and of nothing else."""

import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_GPUS = ("cuda-", "nvidia-", "triton")  # needed by PyTorch's builds for GPUs alone, which pin them
LINES = (ROOT / "requirements.lock").read_text().splitlines()
LOCKED = {canonicalize_name(one.name): one for one in map(Requirement, (x for x in LINES if not x.startswith("#")))}


def needed(requirements: list[str], python: str, extras: set[str]) -> list[Requirement]:
    """Return those of some requirements that hold on a Python, for any of the extras or none."""
    places = [
        {"python_version": python, "python_full_version": f"{python}.0", "extra": extra} for extra in ("", *extras)
    ]
    read = map(Requirement, requirements)
    return [one for one in read if one.marker is None or any(one.marker.evaluate(place) for place in places)]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_what_is_needed_is_locked_and_nothing_else(python: str) -> None:
    left = needed(PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"], python, set())
    done: set[tuple[str, frozenset[str]]] = set()
    while left:
        one = left.pop()
        name, extras = canonicalize_name(one.name), one.extras
        if (name, frozenset(extras)) in done:
            continue
        done.add((name, frozenset(extras)))
        assert name in LOCKED, f"{name} is missing"
        (pin,) = LOCKED[name].specifier
        assert one.specifier.contains(pin.version, prereleases=True), f"{name}{pin}, but {one} is needed"
        more = needed(requires(name) or [], python, extras)
        left += [one for one in more if name != "torch" or not one.name.startswith(OF_GPUS)]
    assert LOCKED.keys() == {name for name, _ in done}

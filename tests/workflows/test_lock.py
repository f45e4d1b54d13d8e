"""Lock files: what the project needs and nothing else, with hashes, audited, and under licences that allow its use."""

import csv
import io
import re
import subprocess
import tomllib
import urllib.request
from importlib.metadata import requires
from pathlib import Path

import pytest
from hatchling import build
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pipeline.project import ENVIRONMENT
from workflows.workflow import ROOT, stand_in

from figura.base.errors import UserError
from locks.renew import CUDA, DEV, PURPOSES, USE, compiled, cpu_builds, entries, hashes_of, with_cpu_builds

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"] | PROJECT["dependency-groups"]
OF_GPUS = ("cuda-", "nvidia-", "triton")  # needed by PyTorch's builds for GPUs alone, which pin them
TEXTS = {path: (ROOT / path).read_text() for path in PURPOSES}


def pins(*paths: Path) -> dict[str, Requirement]:
    """Return what lock files pin, by the name in its canonical form."""
    read = [Requirement(text.split(" \\")[0]) for path in paths for text in entries(TEXTS[path]).values()]
    assert len({one.name for one in read}) == len(read), "a package is in two lock files"
    return {canonicalize_name(one.name): one for one in read}


def needed(requirements: list[str], python: str, extras: set[str]) -> list[Requirement]:
    """Return those of some requirements that hold on a Python, for any of the extras or none."""
    places = [
        {"python_version": python, "python_full_version": f"{python}.0", "extra": extra} for extra in ("", *extras)
    ]
    read = map(Requirement, requirements)
    return [one for one in read if one.marker is None or any(one.marker.evaluate(place) for place in places)]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize(
    ("paths", "extras"),
    [((USE,), ("train", "s3", "build")), ((USE, DEV), ("train", "s3", "build", "dev", "audit", "docs"))],
    ids=["make run", "make test"],
)
def test_what_is_needed_is_locked_and_nothing_else(python: str, paths: tuple[Path], extras: tuple[str]) -> None:
    locked = pins(*paths)
    wanted = PROJECT["project"]["dependencies"] + [one for extra in extras for one in EXTRAS[extra]]
    left = needed(wanted, python, set())
    done: set[tuple[str, frozenset[str]]] = set()
    while left:
        one = left.pop()
        name, with_extras = canonicalize_name(one.name), one.extras
        if (name, frozenset(with_extras)) in done:
            continue
        done.add((name, frozenset(with_extras)))
        assert name in locked, f"{name} is missing"
        (pin,) = locked[name].specifier
        assert one.specifier.contains(pin.version, prereleases=True), f"{name}{pin}, but {one} is needed"
        more = needed(requires(name) or [], python, with_extras)
        left += [one for one in more if name != "torch" or not one.name.startswith(OF_GPUS)]
    assert locked.keys() == {name for name, _ in done}


@pytest.mark.parametrize("path", PURPOSES, ids=str)
def test_each_entry_is_one_version_with_hashes(path: Path) -> None:
    comment, _, rest = TEXTS[path].partition("\n")
    assert comment.startswith("# ")
    assert "".join(entries(TEXTS[path]).values()) == rest  # nothing stands between the entries, options of pip either
    for text in entries(TEXTS[path]).values():
        first, *hashes = text.removesuffix("\n").split(" \\\n")
        assert re.fullmatch(r"[\w.-]+==[\w.]+", first)
        assert hashes
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", one) for one in hashes)


def test_pytorch_is_locked_for_every_python_and_system() -> None:
    """PyPI's files for Linux (x86_64, aarch64) and macOS, and PyTorch's builds for CPUs, which lack Python 3.14.

    What its builds for GPUs need is locked apart.
    """
    assert len(hashes_of(entries(TEXTS[USE])["torch"])) >= 4 * 3 + 3 * 2
    assert all(name.startswith(OF_GPUS) for name in pins(USE, CUDA).keys() - pins(USE).keys())
    assert {"nvidia-cudnn-cu13", "triton"} <= pins(CUDA).keys()


def test_uv_is_asked_for_all_hashes_of_a_version_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the hashes of an entry that has any, so that files of other systems would stay away for good."""
    stand_in(tmp_path / "uv", f'#!/bin/sh\nfor last; do :; done\ncp "$last" {tmp_path}/preferred\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    locked = {"numpy": f"numpy==2.4.1 \\\n    --hash=sha256:{'a' * 64}\n", "six": "six==1.17.0\n"}
    compiled(["pyproject.toml"], locked)
    assert (tmp_path / "preferred").read_text() == "numpy==2.4.1\nsix==1.17.0\n"
    stand_in(tmp_path / "uv", '#!/bin/sh\necho "error: No solution found: numpy>99" >&2\nexit 1\n')
    with pytest.raises(UserError, match=r"^No solution found: numpy>99$"):
        compiled(["pyproject.toml"], {})


PAGE = """
<a href="/whl/cpu/torch-2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl#sha256={a}">torch</a><br/>
<a href="https://x/whl/cpu/torch-2.13.0+cpu-cp313-cp313-manylinux_2_28_aarch64.whl#sha256={b}" data-x="y">torch</a><br/>
<a href="/whl/cpu/torch-2.13.0%2Bcpu-cp312-cp312-win_amd64.whl#sha256={c}">of another system</a><br/>
<a href="/whl/cpu/torch-2.13.0%2Bcpu-cp313-cp313t-manylinux_2_28_x86_64.whl#sha256={c}">of another Python</a><br/>
<a href="/whl/cpu/torch-2.13.1%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl#sha256={d}">torch</a><br/>
""".format(**{letter: letter * 64 for letter in "abcd"})


def test_the_builds_for_cpus_stay_while_the_version_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(version: str, *letters: str) -> str:
        return " \\\n    --hash=sha256:".join([f"torch=={version}", *(letter * 64 for letter in letters)]) + "\n"

    assert cpu_builds(PAGE, "2.13.0") == {"a" * 64, "b" * 64}
    with pytest.raises(UserError, match=r"no build of PyTorch 2\.13 for Linux"):
        cpu_builds(PAGE, "2.13")
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: io.BytesIO(PAGE.encode()))
    assert with_cpu_builds(entry("2.13.0", "e"), entry("2.13.0", "e", "f")) == entry("2.13.0", "e", "f")
    assert with_cpu_builds(entry("2.13.1", "e"), entry("2.13.0", "f")) == entry("2.13.1", "d", "e")


def test_the_project_itself_is_installed_by_what_is_locked() -> None:
    """`--no-build-isolation`: pip fetches neither the backend nor what that asks for."""
    backend = PROJECT["build-system"]["requires"] + build.get_requires_for_build_editable()
    assert len(backend) > 1
    for one in map(Requirement, backend):
        (pin,) = pins(USE)[canonicalize_name(one.name)].specifier
        assert one.specifier.contains(pin.version)


def test_every_install_of_the_makefile_checks_hashes(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "environment", "audit", "licences", "sbom", "docs", f"VENV={tmp_path}"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = re.findall(r"/pip install (.+)", printed)
    locks = [one.removeprefix("--no-compile --no-deps --require-hashes --requirement ") for one in installs]
    assert sorted(locks) == sorted([*map(str, PURPOSES), "--no-deps --no-build-isolation --editable ."])


LOCKS = set(map(str, PURPOSES))
PIP_AUDIT = """#!/bin/sh
# Stands in for pip-audit, which asks a database on the internet.
echo "$*" > "$RECORD/pip-audit.txt"
[ -z "$FOUND" ] || { echo "$FOUND"; exit 1; }
"""
PERMISSIVE = {
    *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "FreeBSD", "MIT", "MIT-0"),
    *("MIT-CMU", "PSF-2.0", "Zlib", "Apache-2.0 WITH LLVM-exception"),
    *("Apache License 2.0", "Apache Software License", "BSD License", "MIT License"),
    *("Python Software Foundation License", "Zope Public License"),
}
# Their source stays open where they are changed or, of the last three, linked into a program that is given away.
NOTED = {
    "certifi": "Mozilla Public License 2.0 (MPL 2.0)",
    "orjson": "MPL-2.0 AND (Apache-2.0 OR MIT)",
    "pathspec": "Mozilla Public License 2.0 (MPL 2.0)",
    "shtab": "MPL-2.0",
    "tqdm": "MPL-2.0 AND MIT",
    "asyncssh": "EPL-2.0 OR GPL-2.0-or-later",
    "grandalf": "GNU General Public License v2 (GPLv2)",
    "pygit2": "GPLv2 with linking exception",
}


def audit(folder: Path, found: str = "") -> tuple[subprocess.CompletedProcess[str], str]:
    """Run `make audit` with a stand-in for pip-audit that finds something or nothing; return what it was told, too."""
    stand_in(folder / "venv/bin/pip-audit", PIP_AUDIT)
    environment = ENVIRONMENT | {"RECORD": str(folder), "FOUND": found}
    command = ["make", "audit", f"VENV={folder / 'venv'}", "--old-file=environment"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done, (folder / "pip-audit.txt").read_text()


def test_the_audit_asks_for_every_lock_file_and_takes_no_silence_for_an_answer(tmp_path: Path) -> None:
    done, told = audit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"--requirement (\S+)", told)) == LOCKS
    assert {"--strict", "--require-hashes", "--disable-pip"} <= set(told.split())


def licences() -> dict[str, tuple[str, str]]:
    """Return version and licence of each package in locks/LICENSES.csv."""
    with (ROOT / "locks/LICENSES.csv").open(newline="") as file:
        return {canonicalize_name(one["Name"]): (one["Version"], one["License"]) for one in csv.DictReader(file)}


def permissive(licence: str) -> bool:
    """Whether a licence asks for a notice alone: of several, each of AND and `;`, one of OR."""
    inner = licence.strip().removeprefix("(").removesuffix(")")
    if licence in PERMISSIVE or inner in PERMISSIVE:
        return True
    for mark, judge in (("; ", all), (" AND ", all), (" OR ", any)):
        if mark in inner:
            return judge(map(permissive, inner.split(mark)))
    return False


def test_licences_are_those_of_the_locked_versions() -> None:
    listed = {name: f"=={version}" for name, (version, _) in licences().items()}
    locked = {name: str(pin.specifier) for name, pin in pins(USE, DEV).items()}
    assert listed == locked, "`make licences` renews locks/LICENSES.csv"


def test_what_users_install_is_permissive_but_for_what_is_noted() -> None:
    users = pins(USE)
    used = {name: licence for name, (_, licence) in licences().items() if name in users}
    assert {name: licence for name, licence in used.items() if not permissive(licence)} == NOTED

"""Renew the lock files: exact versions of all packages, with the hash of every file that PyPI has of them.

Usage: make lock [OPTIONS="--upgrade-package numpy"], which runs python locks/renew.py [OPTION OF uv pip compile ...]

Reads pyproject.toml and the lock files, asks PyPI by `uv`, and writes

    locks/requirements.lock        what `make run` installs: the dependencies, and a DVC remote on S3
    locks/requirements-cuda.lock   what PyTorch's build for CUDA needs beside it
    locks/requirements-dev.lock    what tests, the site and the commands of docs/supply_chain.md need beside it

Versions stay what they are unless an option says otherwise (`--upgrade`, `--upgrade-package NAME`). For Linux, PyPI has
PyTorch's build for CUDA; the build for CPUs alone is on PyTorch's own index, and the lock has the hashes of both.
"""

import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import write_text

USE, CUDA, DEV = (Path(f"locks/requirements{part}.lock") for part in ("", "-cuda", "-dev"))
PURPOSES = {
    USE: "What `make run` installs",
    CUDA: "What PyTorch's build for CUDA needs beside locks/requirements.lock",
    DEV: "What `make test`, `make docs`, `make lock` and `make audit` install beside locks/requirements.lock",
}
CPU_INDEX = "https://download.pytorch.org/whl/cpu/torch/"
UV = [
    *("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes"),
    *("--default-index", "https://pypi.org/simple", "--python-version", "3.11"),
]
Entries = dict[str, str]  # by package: its lines, `NAME==VERSION` and the hash of each file


def main(options: list[str]) -> None:
    """Renew all lock files; `options` go to `uv pip compile`. Raises UserError with what uv or an index says."""
    before = {path: entries(path.read_text()) for path in PURPOSES}
    locked = before[USE] | before[CUDA] | before[DEV]
    groups = ["--group", "audit", "--group", "docs"]
    extras = ["--extra", "train", "--extra", "s3", "--extra", "build"]
    everything = compiled(["pyproject.toml", *extras, "--extra", "dev", *groups, *options], locked)
    used = compiled(["pyproject.toml", *extras], everything)
    # for Windows, PyPI has PyTorch's build for CPUs
    linux, windows = (compiled(["-"], everything, "torch", platform) for platform in ("linux", "windows"))
    cuda = linux.keys() - windows.keys()
    everything["torch"] = with_cpu_builds(everything["torch"], before[USE]["torch"])
    write(USE, everything, used.keys() - cuda)
    write(CUDA, everything, cuda)
    write(DEV, everything, everything.keys() - used.keys())


def entries(lock: str) -> Entries:
    """Return the entries of a lock file."""
    return {one[1]: one[0] for one in re.finditer(r"^([\w.-]+)==.*\n(?:[ \t].*\n)*", lock, re.MULTILINE)}


def version_of(entry: str) -> str:
    """Return an entry without its hashes: `NAME==VERSION`."""
    return entry.partition("\n")[0].removesuffix(" \\")


def compiled(arguments: list[str], preferred: Entries, requirement: str = "", platform: str = "linux") -> Entries:
    """Return what uv locks, of `preferred` versions where they fit; "-" among the arguments is `requirement`.

    Raises UserError with what uv says.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "requirements.lock"
        # uv keeps the versions of what it overwrites, and would keep its hashes, too, however few
        output.write_text("".join(f"{version_of(entry)}\n" for entry in preferred.values()))
        command = [*UV, *arguments, "--python-platform", platform, "--output-file", str(output)]
        done = subprocess.run(command, input=requirement, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(done.stderr.strip().removeprefix("error: "))
        return entries(output.read_text())


def with_cpu_builds(entry: str, before: str) -> str:
    """Return PyTorch's entry with the hashes of its builds for CPUs: those in `before` if that is the same version.

    Raises UserError if PyTorch's index, which is asked for another version, does not answer or has no build.
    """
    version = version_of(entry).removeprefix("torch==")
    if version_of(before) == version_of(entry):
        cpu = hashes_of(before)
    else:
        try:
            with urllib.request.urlopen(CPU_INDEX, timeout=60) as page:
                cpu = cpu_builds(page.read().decode(), version)
        except OSError as error:
            raise UserError(f"{CPU_INDEX}: {error}; its hashes of PyTorch {version} are needed") from None
    return " \\\n    --hash=sha256:".join([f"torch=={version}", *sorted(cpu | hashes_of(entry))]) + "\n"


def cpu_builds(page: str, version: str) -> set[str]:
    """Return the hashes of a version's wheels for Linux on a page of PyTorch's index; without any, raises UserError."""
    wheel = rf"torch-{re.escape(version)}(?:%2B|\+)cpu-(cp31[1-4])-\1-manylinux[\w.]*\.whl#sha256=([0-9a-f]{{64}})"
    hashes = {one[2] for one in re.finditer(wheel, page)}
    if not hashes:
        raise UserError(f"{CPU_INDEX} has no build of PyTorch {version} for Linux; lock another version of torch")
    return hashes


def hashes_of(entry: str) -> set[str]:
    """Return the hashes of an entry."""
    return set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))


def write(path: Path, locked: Entries, packages: Iterable[str]) -> None:
    """Write a lock file of some packages."""
    header = f"# {PURPOSES[path]}, for Python 3.11 to 3.14 on Linux and macOS. `make lock` renews it: locks/renew.py.\n"
    write_text(path, header + "".join(locked[name] for name in sorted(packages)))


if __name__ == "__main__":
    sys.exit(run(main))

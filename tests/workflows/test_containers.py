"""No container engine is asked: what Dockerfile and Apptainer definition name is there, and both install the same.

The Dockerfile's entry point is run as it stands, outside of a container.
"""

import fnmatch
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from pipeline.project import ENVIRONMENT, Project
from workflows.workflow import ROOT, named

DOCKERFILE = (ROOT / "machines/Dockerfile").read_text()
DEFINITION = (ROOT / "machines/apptainer/figura.def").read_text()
PATTERNS = (ROOT / "machines/Dockerfile.dockerignore").read_text()  # found by its name, beside the Dockerfile
IGNORED = [line for line in PATTERNS.splitlines() if line and not line.startswith("#")]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile and their arguments, continued lines joined."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def sections() -> dict[str, list[str]]:
    """Return the sections of the definition, stripped lines each; the header is ''."""
    lines: dict[str, list[str]] = {"": []}
    for line in DEFINITION.splitlines():
        if line.startswith("%"):
            lines[line[1:]] = []
        elif line.strip() and not line.startswith("#"):
            lines[list(lines)[-1]].append(line.strip())
    return lines


def left_out(path: str) -> bool:
    """Whether the builder does not get a file: the last pattern that fits it or a folder above decides."""
    folders = [path.rsplit("/", depth)[0] for depth in range(path.count("/") + 1)]
    verdict = False
    for line in IGNORED:
        pattern = line.removeprefix("!").removeprefix("**/")
        candidates = [name for one in folders for name in (one, one.rsplit("/", 1)[-1] if "**/" in line else one)]
        if any(fnmatch.fnmatchcase(name, pattern) for name in candidates):
            verdict = not line.startswith("!")
    return verdict


def installs(text: str) -> list[str]:
    """Return what each `pip install` of the environment is told, caching aside and build arguments named alike."""
    commands = re.findall(r"pip install ([^\n\\]+)", text)
    alike = [re.sub(r"\$\{(\w+)\}|\{\{ (\w+) \}\}", r"<\1\2>", one) for one in commands]
    return [one.replace("--no-cache-dir ", "").rstrip(" &;") for one in alike if "--editable" not in one]


def test_both_install_the_lock_file_in_the_same_way() -> None:
    assert installs(DOCKERFILE) == installs(DEFINITION)
    torch, rest = installs(DOCKERFILE)
    assert "--index-url" in torch
    assert "<ACCELERATOR>" in torch
    cpu = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert rest == f"--no-deps --require-hashes {cpu} --requirement locks/requirements.lock"
    for text in (DOCKERFILE, DEFINITION):  # where the lock's hashes are those of PyTorch's builds for CPUs
        assert re.search(r'if \[ "(\$\{ACCELERATOR\}|\{\{ ACCELERATOR \}\})" != cpu \]; then', text)
    pattern = re.search(r"\$\((grep .+ locks/requirements\.lock)\)", torch)
    assert pattern is not None
    done = subprocess.run(["bash", "-c", pattern[1]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"torch==[\d.]+\n", done.stdout)


def test_both_start_from_the_same_python_which_the_tests_run() -> None:
    (python,) = re.findall(r"^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE)
    assert f"PYTHON={python}" in sections()["arguments"][0]
    assert python in named("nightly")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    (docker,) = (rest for word, rest in instructions() if word == "FROM")
    assert f"From: {docker.replace('${PYTHON}', '{{ PYTHON }}')}" in sections()[""]


def test_the_image_gets_every_file_git_knows_and_nothing_else() -> None:
    copied = [rest.split()[-2] for word, rest in instructions() if word == "COPY"]
    copied += [line.split()[0] for line in sections()["files"]]
    assert all((ROOT / name).exists() and (name == "." or not left_out(name)) for name in copied)
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    assert [name for name in known if name and left_out(name)] == []
    for name in (
        "data/prepared/people/train.json", "runs/vunet/model/generator.safetensors", ".venv/bin/python", ".dvc/cache/x",
        "weights/vunet/start/mine.safetensors", ".dvc/config.local", "models/__pycache__/x.pyc", "data/raw/mine/1.jpg",
    ):  # fmt: skip
        assert left_out(name), name


def test_the_image_runs_the_pipeline_and_not_as_root() -> None:
    words = dict(instructions())
    assert words["USER"] == "${UID}"
    assert re.search(r"^ARG UID=[1-9]\d*$", DOCKERFILE, re.MULTILINE)
    assert words["CMD"] == '["repro"]'
    order = [word for word, _ in instructions()]
    assert order.index("USER") > max(index for index, word in enumerate(order) if word in ("RUN", "COPY"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tini") is None, reason="tini is not installed")
def test_stopping_a_container_leaves_a_resume_point_and_no_lock(finished: Project, tmp_path: Path) -> None:
    """`docker stop` sends SIGTERM to the entry point."""
    project = finished.copy(tmp_path / "figura")
    project.set("params.yaml", {"train.steps": 2000, "train.evaluate_every": 1000, "runtime.resume_every": 1000})
    *init, name = json.loads(dict(instructions())["ENTRYPOINT"])
    (script,) = (rest.split()[-2] for word, rest in instructions() if rest.endswith(f"/bin/{name}"))
    entry = [*init, str(ROOT / script)]
    run = project.folder / "runs/vunet"
    shutil.rmtree(run)
    log = run / "live/log.jsonl"
    with subprocess.Popen(
        [*entry, "repro", "train@vunet"], cwd=project.folder, env=ENVIRONMENT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as container:  # fmt: skip
        try:
            deadline = time.monotonic() + 90
            while not (log.exists() and '"step": 5,' in log.read_text()):
                assert container.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            container.terminate()
        printed, _ = container.communicate(timeout=60)
    assert container.returncode == 255  # DVC's, of a stage that failed
    (stopped,) = re.findall(r"interrupted: SIGTERM; stopped after iteration (\d+) of 2000", printed)
    assert [int(point.name) for point in (run / "resume").glob("[0-9]*")] == [int(stopped)]
    assert json.loads((project.folder / ".dvc/tmp/rwlock").read_text()) == {}

"""Provenance of a result: recipe, code, packages, data and environment, as text that is equal exactly if they are."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from figura.base.errors import REPRO, UserError
from figura.base.files import sha256
from figura.base.manifest import MANIFEST, read_manifest
from figura.pipeline.closure import code_for
from figura.recipe.resolved import named_files, resolved
from figura.recipe.schema import RESULT_SECTIONS, DatasetEntry, Recipe

PACKAGES = ("accelerate", "numba", "numpy", "opencv-python-headless", "pillow", "pycocotools", "torch")
ARITHMETIC = (
    "ATEN_CPU_CAPABILITY", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "GLIBC_TUNABLES",
    "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_NUM_THREADS", "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES", "NUMBA_CPU_FEATURES", "NUMBA_CPU_NAME", "NUMBA_DISABLE_JIT", "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS",
    "OPENCV_CPU_DISABLE", "OPENCV_IPP", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)  # fmt: skip
"""Environment variables that change rounding.

Those that the launcher derives from the number of processes and GPUs are excluded (`OMP_NUM_THREADS`): a training may
resume with another number.
"""


def provenance(recipe: Recipe, modules: Iterable[str]) -> dict[str, str]:
    """Return everything the state of a training depends on, as text.

    It covers recipe, code, packages, data, files named in the recipe (initial weights and weights of losses), and
    environment variables that change arithmetic.

    The state does not depend on the number of ranks. `modules` are those of the trainer and its hooks.
    """
    entries = [*recipe.data.train.values(), *recipe.data.validation.values()]
    content = recipe.model_dump(include=set(RESULT_SECTIONS), by_alias=True)
    return {
        "recipe": resolved(recipe), "code": code_version(modules, content),
        "packages": str(package_versions()), "data": data_version(_roots(entries)),
        "start": file_versions(path for _, path in named_files(recipe, RESULT_SECTIONS)),
        "environment": json.dumps(arithmetic_variables()),
    }  # fmt: skip


def drawn_data(recipe: Recipe) -> str:
    """Return the training datasets if figura drew all of them, else an empty string."""
    roots = [Path(one) for one in dict.fromkeys(_roots(recipe.data.train.values()))]
    drawn = [one for one in roots if (one / MANIFEST).is_file() and read_manifest(one).get("drawn")]
    return ", ".join(map(str, drawn)) if drawn == roots else ""


def _roots(entries: Iterable[DatasetEntry]) -> list[str]:
    return [entry.arguments["root"] for entry in entries if "root" in entry.arguments]


def code_version(modules: Iterable[str], content: Mapping[str, Any]) -> str:
    """Return the digests of the files that `modules` import for a recipe's content, by path, as JSON."""
    return json.dumps(code_for(modules, content).files, sort_keys=True)


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of packages that affect results."""
    return {"python": platform.python_version()} | {package: version(package) for package in PACKAGES}


def arithmetic_variables() -> dict[str, str]:
    """Return the variables of `ARITHMETIC` that are set."""
    return {name: os.environ[name] for name in ARITHMETIC if name in os.environ}


def file_versions(paths: Iterable[str]) -> str:
    """Return the SHA-256 of each file that exists, by path, as text."""
    return json.dumps({path: sha256(Path(path)) for path in sorted(paths) if Path(path).is_file()})


def data_version(roots: Iterable[str]) -> str:
    """Return the content hashes of prepared datasets, by root, from their manifests.

    For a folder without a manifest, names, sizes and modification times of its files are hashed.

    Raises:
        UserError: a dataset is missing, or its `manifest.json` is not a manifest.
    """
    versions = {}
    for root in sorted(set(roots)):
        manifest = Path(root, MANIFEST)
        if manifest.is_file():
            versions[root] = read_manifest(Path(root))["sha256"]
        elif Path(root).is_dir():
            versions[root] = _files_version(Path(root))
        else:
            raise UserError(f"{manifest}: no such file; run `{REPRO} prepare@{Path(root).name}` first")
    return json.dumps(versions)


def _files_version(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        stat = path.stat()
        total.update(f"{path.relative_to(root)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return total.hexdigest()

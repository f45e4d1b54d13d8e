"""Prepare a dataset: draw or read it, drop unusable records, write images, records, statistics and plots.

People and plain pictures are written as images with canonical COCO JSON. Image pairs keep their layout: each split is a
folder of A|B images, or of folders a and b; archives hold the pictures of a split (docs/guide.md). Usage: python -m
stages.prepare <dataset>, where <dataset> is one of `datasets` in data/params.yaml; writes data/prepared/<dataset>.
"""

import argparse
import sys
from pathlib import Path

from figura.base.errors import UserError
from figura.base.exit_status import run
from figura.base.files import read_json
from figura.base.manifest import MANIFEST
from figura.pipeline.causes import print_causes
from figura.preparation.datasets import PARAMS, dataset_names, read_dataset
from figura.preparation.prepare import prepare

KINDS = ("figura.preparation.kinds",)
"""The package of which it loads the module that the dataset's `kind` names."""


def main(arguments: list[str]) -> None:
    """Prepare the dataset that the command line names; the current folder is the project's root."""
    parser = argparse.ArgumentParser(prog="python -m stages.prepare", description=__doc__.splitlines()[0])
    parser.add_argument("dataset", nargs="?", help=f"one of `datasets` in {PARAMS}")
    name = parser.parse_args(arguments).dataset
    if name is None:
        raise UserError(f"which dataset? {PARAMS} has {', '.join(dataset_names())}")
    print_causes()
    folder = prepare(read_dataset(name), name, Path(), progress=True)
    manifest = read_json(folder / MANIFEST)
    print(f"{folder}: {manifest['files']} files, sha256 {manifest['sha256']}")


if __name__ == "__main__":
    sys.exit(run(main))

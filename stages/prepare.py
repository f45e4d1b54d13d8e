"""Prepare a dataset: draw or read it, drop unusable records, write images, records, statistics and plots.

People are written as images with canonical COCO JSON. Image pairs keep their layout: each split is a folder of A|B
images, or of folders a and b. Usage: python -m stages.prepare <dataset>, where <dataset> is one of `datasets` in
data/params.yaml; writes data/prepared/<dataset>.
"""

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from data.preparation.people import Preparation, Raw, hashed_split
from data.preparation.validation import UnusableError, inside
from models.base.errors import UserError
from stages.command import run
from stages.datasets import PARAMS, SPLITS, Dataset, read_dataset

if TYPE_CHECKING:
    from data.preparation.pairs import PairPreparation

PREPARED = Path("data/prepared")


def main(argv: list[str]) -> None:
    """Prepare the dataset that the command line names; the current folder is the project's root."""
    parser = argparse.ArgumentParser(prog="python -m stages.prepare", description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help=f"one of `datasets` in {PARAMS}")
    name = parser.parse_args(argv).dataset
    folder = prepare(read_dataset(name), name, Path(), progress=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    print(f"{folder}: {manifest['files']} files, sha256 {manifest['sha256']}")


def prepare(entry: Dataset, name: str, root: Path, progress: bool = False) -> Path:
    """Write `data/prepared/<name>` below `root` and return its path.

    An earlier `data/prepared/<name>` is replaced at the very end.

    Raises:
        UserError: the source is unusable, a split is empty, or more than `max_rejected` of all records (images and
            annotations, or pairs) are rejected; `data/prepared/<name>.rejected.csv` then lists those.
    """
    final = root / PREPARED / name
    with _replacing_folder(final) as folder:
        preparation: Preparation | PairPreparation
        if entry.kind in ("synthetic", "coco"):
            preparation = Preparation(folder, progress)
            for raw in _drawn(entry, folder, progress) if entry.kind == "synthetic" else _files(entry, name, root):
                preparation.add(raw)
        else:
            preparation = _pairs(entry, name, root, folder, progress)
        _check_rejected(preparation, entry, name, final.with_name(f"{name}.rejected.csv"))
        preparation.finish()
    print("\n".join(preparation.lines()))
    return final


def _drawn(entry: Dataset, folder: Path, progress: bool) -> Iterator[Raw]:
    from data.synthetic import write_synthetic

    assert entry.synthetic is not None  # `Dataset` holds it
    write_synthetic(entry.synthetic, entry.seed, folder, progress)
    for split in SPLITS:
        yield Raw(
            annotations=folder / f"{split}.json",
            images=folder / "images",
            root=folder,
            splits=(split,),
            split_of=_always(split),
            in_place=True,
        )


def _always(split: str) -> Callable[[object], str]:
    return lambda _: split


def _files(entry: Dataset, name: str, root: Path) -> Iterator[Raw]:
    coco = entry.coco
    assert coco is not None  # `Dataset` holds it
    source = _source(entry, name, root)

    def below(key: str, path: str) -> Path:
        return _below(source, path, f"datasets.{name}.coco.{key}")

    if coco.validation_share is not None:
        yield Raw(
            annotations=below("annotations", coco.annotations.train),
            images=below("images", coco.images.train),
            root=source.resolve(),
            splits=SPLITS,
            split_of=hashed_split(entry.seed, coco.validation_share),
        )
        return
    for split in SPLITS:
        yield Raw(
            annotations=below("annotations", coco.annotations[split]),
            images=below("images", coco.images[split]),
            root=source.resolve(),
            splits=(split,),
            split_of=_always(split),
        )


def _source(entry: Dataset, name: str, root: Path) -> Path:
    source = root / entry.source
    if not source.is_dir():
        raise UserError(
            f"{PARAMS}: datasets.{name}.source: no folder {source}; bring the raw data there (see README.md)"
        )
    return source


def _below(source: Path, path: str, key: str) -> Path:
    try:
        return inside(source, path, source)
    except UnusableError as fault:
        raise UserError(f"{PARAMS}: {key}: {path} leaves the source {source}") from fault


def _pairs(entry: Dataset, name: str, root: Path, folder: Path, progress: bool) -> "PairPreparation":
    from data.formats.pair_files import LAYOUTS
    from data.preparation.pairs import PairPreparation

    preparation = PairPreparation(folder, progress)
    if entry.kind == "catalogue":
        from data.synthetic.catalogue import write_catalogue

        assert entry.catalogue is not None  # `Dataset` holds it
        write_catalogue(entry.catalogue, entry.seed, folder, progress)
        for split in SPLITS:
            preparation.add(split, folder / split, folder)
        return preparation
    paired = entry.paired
    assert paired is not None  # `Dataset` holds it
    source = _source(entry, name, root)
    for split in SPLITS:
        key = f"datasets.{name}.paired.{split}"
        pairs = _below(source, paired[split], key)
        if not pairs.is_dir():
            raise UserError(f"{PARAMS}: {key}: no folder {pairs}; it may hold {LAYOUTS}")
        preparation.add(split, pairs, source)
    return preparation


def _check_rejected(preparation: "Preparation | PairPreparation", entry: Dataset, name: str, listing: Path) -> None:
    """Raise UserError if too many records are rejected, or a split has no image left."""
    rejected, records = preparation.rejected, preparation.records
    listing.unlink(missing_ok=True)
    if len(rejected) > entry.max_rejected * records:
        preparation.list_rejected(listing)
        reasons = ", ".join(
            f"{count} {reason}" for reason, count in Counter(one.reason for one in rejected).most_common()
        )
        raise UserError(
            f"{PARAMS}: datasets.{name}.max_rejected: {len(rejected)} of {records} records cannot be used "
            f"({len(rejected) / records:.1%}, allowed {entry.max_rejected:.1%}): {reasons}. All are listed in {listing}"
        )
    for split, images in preparation.images.items():
        if not images:
            raise UserError(
                f"{PARAMS}: datasets.{name}: the split {split!r} has no image; it has {records} records in all"
            )


@contextmanager
def _replacing_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder beside `final`. It replaces `final` if the block succeeds, and is removed if it fails."""
    partial, old = final.with_name(f".{final.name}.partial"), final.with_name(f".{final.name}.old")

    def tidy() -> None:
        if old.exists() and not final.exists():  # stopped between the two renames below
            old.rename(final)
        for folder in (partial, old):
            shutil.rmtree(folder, ignore_errors=True)

    tidy()
    partial.mkdir(parents=True)
    try:
        yield partial
        if final.exists():
            final.rename(old)
        partial.rename(final)
    finally:
        tidy()


if __name__ == "__main__":
    sys.exit(run(main))

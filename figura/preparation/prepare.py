"""Prepare a dataset: draw or read it, drop unusable records, write images, records, statistics and plots."""

import importlib
from collections import Counter
from pathlib import Path

from figura.base.errors import UserError, printable
from figura.base.files import replacing_folder, tidy
from figura.base.lock import hold
from figura.base.pictures import left_out_line
from figura.preparation.datasets import PARAMS, Dataset
from figura.preparation.outcome import Outcome

PREPARED = Path("data/prepared")
KINDS = "figura.preparation.kinds"
"""The package of the modules that an entry's `kind` names; stages/prepare.py has it, too, for the manifest."""
DRAWN = ("synthetic", "catalogue", "day_night")  # kinds that need no raw data


def prepare(entry: Dataset, name: str, root: Path, progress: bool = False) -> Path:
    """Write `data/prepared/<name>` below `root` and return its path.

    An earlier `data/prepared/<name>` is replaced at the end.

    Raises:
        UserError: another process prepares it, the source is unusable, a split is empty, or more than `max_rejected` of
            all records (images and annotations, or pairs) are rejected; they are then listed in
            `data/prepared/<name>.rejected.csv`.
    """
    from figura.preparation.raw_folder import RawFolder

    final, section = root / PREPARED / name, entry.section
    kind = importlib.import_module(f"{KINDS}.{entry.kind}")
    source = RawFolder(root / entry.source, f"{PARAMS}: datasets.{name}.{entry.kind}", entry.seed)
    if not source.folder.is_dir() and entry.kind not in DRAWN:
        raise UserError(
            f"{PARAMS}: datasets.{name}.source: no folder {source.folder}; bring the raw data there (see "
            "data/raw/README.md)"
        )
    with hold(final, final.with_name(f".{name}.lock")), replacing_folder(final) as folder:
        preparation: Outcome = kind.PREPARATION.of(section, source.key, folder, progress)
        preparation.drawn = entry.kind in DRAWN
        for line in kind.add(preparation, section, source):
            print(printable(line))
        _check_rejected(preparation, entry, name, final.with_name(f"{name}.rejected.csv"))
        preparation.finish()
    print(printable("\n".join(preparation.lines())))
    return final


def _check_rejected(preparation: Outcome, entry: Dataset, name: str, listing: Path) -> None:
    """Raise UserError if too many records are rejected, or a split has no image left."""
    rejected, records = preparation.rejected, preparation.records
    tidy(listing)
    listing.unlink(missing_ok=True)
    if len(rejected) > entry.max_rejected * records:
        preparation.list_rejected(listing)
        reasons = ", ".join(
            f"{count} {reason}" for reason, count in Counter(one.reason for one in rejected).most_common()
        )
        raise UserError(
            f"{PARAMS}: datasets.{name}.max_rejected: {len(rejected)} of {records} records cannot be used "
            f"({len(rejected) / records:.1%}, allowed {entry.max_rejected:.1%}): {reasons}; the first: "
            f"{rejected[0].detail or rejected[0].file}. All are listed in {listing}"
        )
    for split, images in preparation.images.items():
        if not images:
            raise UserError(
                f"{PARAMS}: datasets.{name}: the split {split!r} has no image; the splits are "
                f"{', '.join(f'{one} ({count})' for one, count in preparation.images.items())}, of {records} records"
                + (f"; {left_out_line(preparation.left_out)}" if preparation.left_out else "")
            )

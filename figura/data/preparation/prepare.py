"""Prepare a dataset: draw or read it, drop unusable records, write images, records, statistics and plots."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError, printable
from figura.base.files import replacing_folder, tidy
from figura.base.lock import hold
from figura.data.preparation.datasets import PARAMS, Dataset
from figura.data.preparation.settings import Coco, DeepFashion, Market1501, PictureFolders
from figura.synthetic.randomness import SPLITS

if TYPE_CHECKING:
    from figura.data.preparation.pairs import PairPreparation
    from figura.data.preparation.people import Preparation
    from figura.data.preparation.sources import RawFolder

PREPARED = Path("data/prepared")


def prepare(entry: Dataset, name: str, root: Path, progress: bool = False) -> Path:
    """Write `data/prepared/<name>` below `root` and return its path.

    An earlier `data/prepared/<name>` is replaced at the end.

    Raises:
        UserError: another process prepares it, the source is unusable, a split is empty, or more than `max_rejected` of
            all records (images and annotations, or pairs) are rejected; they are then listed in
            `data/prepared/<name>.rejected.csv`.
    """
    final = root / PREPARED / name
    with hold(final, final.with_name(f".{name}.lock")), replacing_folder(final) as folder:
        preparation: Preparation | PairPreparation
        lines: list[str] = []
        if entry.kind == "synthetic":
            preparation = _drawn_people(entry, folder, progress)
        elif entry.kind == "catalogue":
            preparation = _drawn_pairs(entry, folder, progress)
        else:
            preparation, lines = _read(entry, _source(entry, name, root), folder, progress)
        for line in lines:
            print(printable(line))
        _check_rejected(preparation, entry, name, final.with_name(f"{name}.rejected.csv"))
        preparation.finish()
    print(printable("\n".join(preparation.lines())))
    return final


def _drawn_people(entry: Dataset, folder: Path, progress: bool) -> "Preparation":
    from figura.data.preparation.people import Preparation, Raw
    from figura.data.preparation.sources import always
    from figura.synthetic import write_synthetic

    assert entry.synthetic is not None  # `Dataset` holds it
    preparation = Preparation(folder, progress)
    write_synthetic(entry.synthetic, entry.seed, folder, progress)
    for split in SPLITS:
        preparation.add(
            Raw(
                annotations=folder / f"{split}.json",
                images=folder / "images",
                root=folder,
                splits=(split,),
                split_of=always(split),
                in_place=True,
            )
        )
    return preparation


def _drawn_pairs(entry: Dataset, folder: Path, progress: bool) -> "PairPreparation":
    from figura.data.preparation.pairs import PairPreparation
    from figura.data.preparation.sources import always
    from figura.synthetic.catalogue import write_catalogue

    assert entry.catalogue is not None  # `Dataset` holds it
    preparation = PairPreparation(folder, progress)
    write_catalogue(entry.catalogue, entry.seed, folder, progress)
    for split in SPLITS:
        preparation.add((split,), folder / split, folder, always(split))
    return preparation


def _source(entry: Dataset, name: str, root: Path) -> "RawFolder":
    from figura.data.preparation.sources import RawFolder

    folder = root / entry.source
    if not folder.is_dir():
        raise UserError(
            f"{PARAMS}: datasets.{name}.source: no folder {folder}; bring the raw data there (see data/raw/README.md)"
        )
    return RawFolder(folder, f"{PARAMS}: datasets.{name}.{entry.kind}", entry.seed)


def _read(
    entry: Dataset, source: "RawFolder", folder: Path, progress: bool
) -> "tuple[Preparation | PairPreparation, list[str]]":
    """Read the source; also return lines to print."""
    from figura.data.preparation import sources
    from figura.data.preparation.pairs import PairPreparation
    from figura.data.preparation.people import Preparation

    if entry.kind == "paired":
        assert entry.paired is not None  # `Dataset` holds it
        pairs = PairPreparation(folder, progress)
        sources.add_pairs(pairs, entry.paired, source)
        return pairs, []
    section, lines = entry.section, list[str]()
    preparation = Preparation(
        folder,
        progress,
        section.category if isinstance(section, Coco) else None,
        section.keypoints if isinstance(section, Coco | Market1501 | DeepFashion) else None,
        source.key,
    )
    match section:
        case Coco() as coco:
            lines = sources.add_coco(preparation, coco, source)
        case Market1501() as market:
            lines = sources.add_market1501(preparation, market, source)
        case DeepFashion() as fashion:
            lines = sources.add_deepfashion(preparation, fashion, source)
        case PictureFolders() as images:
            lines = sources.add_images(preparation, images, source)
    return preparation, lines


def _check_rejected(preparation: "Preparation | PairPreparation", entry: Dataset, name: str, listing: Path) -> None:
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
            )

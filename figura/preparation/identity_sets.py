"""Datasets of persons with identities: their pictures, joints, and lists of pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from figura.base.errors import UserError
from figura.preparation.categories import stated_names
from figura.preparation.identities import Picture, Reading
from figura.preparation.matching import Joints
from figura.preparation.pair_list import write_pair_list
from figura.preparation.people import Preparation
from figura.preparation.pictured import add_pictures
from figura.preparation.poses import PicturePoses, open_poses
from figura.preparation.raw_folder import RawFolder
from figura.preparation.settings import Identities
from figura.preparation.splits import TRAIN, drawn_split, in_order


def add_identities(
    preparation: Preparation,
    settings: Identities,
    reading: Reading,
    images: Path,
    splits: tuple[str, ...],
    source: RawFolder,
) -> list[str]:
    shares, lines = settings.shares, list[str]()
    pictures = [
        one._replace(split=drawn_split(source.seed, shares, f"person {one.group}"))
        if one.split == TRAIN and shares
        else one
        for one in reading.pictures
    ]
    preparation.left_out += reading.left_out
    every = (*splits, *shares)
    if settings.poses is None:
        add_pictures(preparation, pictures, every, images, source)
        lines.append(f"no person has joints; {source.key}.poses can bring them")
    else:
        names = stated_names(settings.keypoints)
        export = open_poses(source.path(settings.poses, "poses"), source.key, names, settings.min_confidence)
        poses = PicturePoses(export, Joints(export, names, source.key), images)
        add_pictures(preparation, pictures, every, images, source, poses, settings.min_confidence)
        if not poses.pictures:
            raise UserError(f"{source.key}.poses: nothing in {settings.poses} belongs to any picture")
        lines += [*poses.joints.notes, f"poses: {settings.poses} has {poses.pictures} of {len(pictures)} pictures"]
        reading.faults += [(in_order(every)[0], fault) for fault in poses.faults]
    for split, fault in reading.faults:
        preparation.add_rejected(split, fault)
    return lines + _also_in_train(pictures) + _add_pair_lists(preparation, settings.pairs, source)


def _also_in_train(pictures: Sequence[Picture]) -> list[str]:
    """Return a warning for each other split that shows persons, or items, of the split train."""
    known, lines = {one.group for one in pictures if one.split == TRAIN}, []
    for split in in_order({one.split for one in pictures} - {TRAIN}):
        again = [one for one in pictures if one.split == split and one.group in known]
        if again:
            line = f"{len({one.group for one in again})} persons of {split} are in train, too, such as {again[0].file}"
            lines.append(f"warning: {line}: scores on them say little about other people")
    return lines


def _add_pair_lists(preparation: Preparation, pairs: Mapping[str, str], source: RawFolder) -> list[str]:
    lines = []
    for split, listing in pairs.items():
        path = source.path(listing, f"pairs.{split}")
        count, faults = write_pair_list(path, preparation.folder, split)
        if not count:
            detail = f"; {faults[0].reason}: {faults[0].detail}" if faults else ""
            raise UserError(f"{source.key}.pairs.{split}: {path} has no pair of images of this split{detail}")
        preparation.records += count
        for fault in faults:
            preparation.add_rejected(split, fault)
        lines.append(f"{split}: {count} pairs of {listing}, {len(faults)} rejected")
    return lines

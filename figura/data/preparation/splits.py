"""Random split assignment by a hash, so that it does not depend on other records."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

TRAIN, VALIDATION = "train", "validation"


def in_order(splits: Iterable[str]) -> list[str]:
    """Return train, validation, then the others by name: independent of the order in the settings."""
    first = {TRAIN: 0, VALIDATION: 1}
    return sorted({*splits}, key=lambda split: (first.get(split, 2), split))


def drawn_split(seed: int, shares: Mapping[str, float], key: object) -> str:
    """Return the split of `key`, a name or a number.

    The SHA-256 of seed and key is mapped to [0, 1). Validation has the interval from 0 to its share, the others, by
    name, follow; the rest is `train`. So a record's split does not depend on other records, and further shares leave
    validation unchanged.
    """
    digest = hashlib.sha256(f"{seed}:{key}".encode(errors="surrogateescape")).digest()
    end = 0.0
    for split in in_order(shares):
        end += shares[split]
        if int.from_bytes(digest[:8]) < end * 2**64:
            return split
    return TRAIN


def identity_groups(annotations: Iterable[Any]) -> dict[int, int]:
    """Return image id -> group, for the images of annotations that have a `person_id`.

    Groups are the connected components of images and persons: images that share a person, directly or through others. A
    group is identified by its smallest `person_id`.
    """
    parents: dict[int, int] = {}  # of persons; the root of a component is its smallest person

    def root(person: int) -> int:
        while parents[person] != person:
            parents[person] = parents[parents[person]]
            person = parents[person]
        return person

    persons: dict[int, int] = {}  # one person of each image
    for record in annotations:
        if not isinstance(record, dict):
            continue
        image, person = record.get("image_id"), record.get("person_id")
        if type(image) is not int or type(person) is not int:
            continue
        parents.setdefault(person, person)
        low, high = sorted((root(person), root(persons.setdefault(image, person))))
        parents[high] = low
    return {image: root(person) for image, person in persons.items()}


def grouped_split(
    seed: int, shares: Mapping[str, float], groups: Mapping[int, int], files: Mapping[int, str], image: object
) -> str:
    """Return the split of an image id: that of its group, its file, if one is known, or its id; train for no id."""
    if not isinstance(image, int):
        return TRAIN
    if image in groups:
        return drawn_split(seed, shares, f"person {groups[image]}")
    return drawn_split(seed, shares, files.get(image, image))

"""Random split assignment by a hash, so that it does not depend on other records."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

TRAIN, VALIDATION = "train", "validation"
_WORDS = re.compile(r"(?i)(?<![a-z])(frames?|videos?|vid|clips?|cam|camera|seq|sequence|movie)(?![a-z]{2})")
"""Words in the names of frames; a letter may follow, as in `camA`."""
_LEAST = 5  # frames
OF_ONE_VIDEO = "put the frames of each video into the folder of one split"


def in_order(splits: Iterable[str]) -> list[str]:
    """Return train, validation, then the others by name: independent of the order in the settings."""
    first = {TRAIN: 0, VALIDATION: 1}
    return sorted({*splits}, key=lambda split: (first.get(split, 2), split))


def drawn_split(seed: int, shares: Mapping[str, float], key: object, rest: str = TRAIN) -> str:
    """Return the split of `key`, a name or a number.

    The SHA-256 of seed and key is mapped to [0, 1). Validation has the interval from 0 to its share, the others, by
    name, follow; what is left is `rest`. So a record's split does not depend on other records, and further shares leave
    validation unchanged.
    """
    if not shares:
        return rest
    digest = hashlib.sha256(f"{seed}:{key}".encode(errors="surrogateescape")).digest()
    end = 0.0
    for split in in_order(shares):
        end += shares[split]
        if int.from_bytes(digest[:8]) < end * 2**64:
            return split
    return rest


def video_of(name: str) -> str | None:
    """Return what the names of frames of one video have in common, by the name of a picture; None for other names."""
    head = re.sub(r"\d*\.\w+$", "", name)
    return head if _WORDS.search(head) else None


def drawn_apart(frames: Iterable[tuple[object, str]], cure: str) -> list[str]:
    """Return a warning if frames of one video are in several splits, of pairs of a video and a split."""
    splits: dict[object, list[str]] = defaultdict(list)
    for video, split in frames:
        splits[video].append(split)
    apart = [video for video, drawn in splits.items() if len(drawn) >= _LEAST and len({*drawn}) > 1]
    if not apart:
        return []
    count = f"{len(apart)} of {len(splits)} videos"
    return [f"warning: shares: frames of {count} are in several splits, such as those of {apart[0]!r}: {cure}"]


def joined_groups(members: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return image key -> group, of pairs of an image's key and something that it shows: a person, a video.

    Groups are the connected components: images that share something, directly or through others. A group is identified
    by its smallest member.
    """
    parents: dict[Any, Any] = {}  # the root of a component is its smallest member

    def root(member: Any) -> Any:
        while parents[member] != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    shown: dict[Any, Any] = {}  # one member of each image
    for image, member in members:
        parents.setdefault(member, member)
        low, high = sorted((root(member), root(shown.setdefault(image, member))), key=lambda one: (str(type(one)), one))
        parents[high] = low
    return {image: root(member) for image, member in shown.items()}

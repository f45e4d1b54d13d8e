"""Pictures by the names that annotation files give them."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

from figura.base.pictures import SUFFIXES
from figura.formats.records import UnusableError

_IN_FRONT = re.compile(r"(^|/)[0-9a-f]{8}-(?=[^/]+$)")


class PictureNames:
    r"""Finds pictures by the names that exports give them: with more or fewer folders, another suffix, a number.

    Names are compared without case, URL-encoding and Unicode's decomposition; `\` separates folders, too.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = set(files)
        self._by_stem: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
        self._by_number: dict[int, list[str]] = defaultdict(list)
        self._names: dict[str, str | int] = {}  # of pictures that were found
        for file in files:
            parts = path_parts(file)
            self._by_stem[_stem(parts[-1])].append((parts, file))
            if (stem := _stem(parts[-1])).isascii() and stem.isdecimal() and len(stem) < 19:
                self._by_number[int(stem)].append(file)

    def find(self, name: str | int) -> str:
        """Return the picture whose path ends as the name does, or the other way round.

        Raises:
            UnusableError: there is none, there are several, or another name found it before.
        """
        if isinstance(name, int):
            found = self._by_number.get(name, [])
        elif name in self._files:
            found = [name]
        else:
            parts = path_parts(name)
            stems = dict.fromkeys((parts[-1], _stem(parts[-1]))) if parts else ()  # `a.b` is a.b.jpg before a.jpg
            among = [pair for stem in stems for pair in self._by_stem.get(stem, ()) if _fits(pair[0], parts)]
            same = [pair for pair in among if pair[0][-1] == parts[-1]]
            same = same or [pair for pair in among if _stem(pair[0][-1]) == parts[-1]] or among
            common = [equal_end(parts[:-1], have[:-1]) for have, _ in same]
            found = [file for (_, file), count in zip(same, common, strict=True) if count == max(common)]
        if len(found) > 1:
            raise UnusableError("several pictures have the name", f"{name}: {', '.join(found[:3])}")
        if not found:
            raise UnusableError("image file missing", name)
        if (before := self._names.setdefault(found[0], name)) != name:
            raise UnusableError("two names for one picture", f"{before} and {name}: {found[0]}")
        return found[0]

    def nearest(self, name: str) -> str | None:
        """Return the one file of this name, whatever its folders: the one with most of them; None if several have.

        If there is none, it is the picture of this name with another suffix, without the query of a URL, or without the
        eight digits that Label Studio puts in front.
        """
        for one in (name, name.partition("?")[0], _IN_FRONT.sub(r"\1", name)):
            parts = path_parts(one)
            of_stem = self._by_stem.get(_stem(parts[-1]), []) if parts else []
            same = [pair for pair in of_stem if pair[0][-1] == parts[-1]]
            same = same or [pair for pair in of_stem if PurePosixPath(pair[1]).suffix.lower() in SUFFIXES]
            common = [equal_end(have[:-1], parts[:-1]) for have, _ in same]
            found = [file for (_, file), count in zip(same, common, strict=True) if count == max(common)]
            if found:
                return found[0] if len(found) == 1 else None
        return None


def path_parts(name: str) -> tuple[str, ...]:
    r"""Return the folders and the name of a path without case, URL-encoding, Unicode's decomposition, `\` and dots."""
    plain = unicodedata.normalize("NFC", unquote(name.strip())).lower().replace("\\", "/")
    return tuple(part for part in PurePosixPath(plain).parts if part not in ("/", ".", ".."))


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name


def _fits(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether the folders of one end as those of the other."""
    return equal_end(one[:-1], other[:-1]) == min(len(one), len(other)) - 1


def equal_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal last parts of two paths."""
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count

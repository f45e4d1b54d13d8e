"""Places boxes in columns and the lines between them so that few lines grid and most are straight (Sugiyama's layout).

A name that is read further on than in the next column runs straight through the columns between, in a slot of its own, and
branches where it is read: never more than one line a name between two columns. Order by barycentres (Sugiyama, Tagawa and
Toda, IEEE Transactions on Systems, Man and Cybernetics, 1981); heights by isotonic regression. y points downwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

SWEEPS = 12
SLOT_WEIGHT = (
    4.0  # how much more a line is kept straight through a column than a box is kept in the middle of its lines
)
GAP, SLOT_GAP = 18.0, 19.0  # least distances of boxes, and of lines from what is above and below them


@dataclass
class Item:
    """A box, or the slot through which a name passes a column: then it reads and gives that name and has no height.

    `ins` and `outs` are the heights below the item's top at which lines arrive and leave; which name has which is the
    layout's choice. Names in `reads` may be there twice, for two roles.
    """

    key: str
    reads: list[str]
    gives: list[str]
    height: float = 0.0
    ins: list[float] = field(default_factory=list)
    outs: list[float] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # of `reads`, from the top
    top: float = 0.0
    slot: bool = False

    def read_height(self, place: int) -> float:
        """Return where the line of `reads[place]` arrives."""
        return self.top + self.ins[self.order.index(place)]

    def give_height(self, name: str) -> float:
        """Return where the line of a name leaves."""
        return self.top + self.outs[self.gives.index(name)]


Columns = list[list[Item]]


def with_slots(columns: Sequence[Sequence[Item]]) -> Columns:
    """Return the columns with a slot wherever a name passes one on its way to a later one."""
    found = [list(column) for column in columns]
    for at, column in enumerate(columns):
        for name in (name for item in column for name in item.gives):
            last = max((place for place, other in enumerate(columns) for i in other if name in i.reads), default=at)
            for between in range(at + 1, last):
                slot = Item(f"{name}@{between}", [name], [name], 0.0, [0.0], [0.0], slot=True)
                found[between].append(slot)
    for item in (item for column in found for item in column):
        item.order = list(range(len(item.reads)))
    return found


def arrange(columns: Columns) -> None:
    """Choose the order and the height of all items, and the order of lines at each box, in place."""
    _stack(columns)
    best: tuple[tuple[int, float], list[tuple[Item, Item]]] | None = None
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for at in range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1):
            _settle(columns, at, forward)
        _sort_lines(columns)
        judged = (crossings(columns), _slope(columns))
        if best is None or judged < best[0]:
            best = judged, [(item, replace(item)) for column in columns for item in column]
    assert best is not None
    for item, kept in best[1]:
        item.top, item.order, item.gives = kept.top, kept.order, kept.gives
    for column in columns:
        column.sort(key=lambda item: item.top)
    top = min(item.top for column in columns for item in column)
    for item in (item for column in columns for item in column):
        item.top -= top


def lines(columns: Columns, at: int) -> list[tuple[str, float, float]]:
    """Return the lines from column `at` to the next: name, height at which it leaves, height at which it arrives."""
    leaving = {name: item.give_height(name) for item in columns[at] for name in item.gives}
    return [
        (name, leaving[name], item.read_height(place))
        for item in columns[at + 1]
        for place, name in enumerate(item.reads)
        if name in leaving
    ]


def crossings(columns: Columns) -> int:
    """Return how many pairs of lines grid; lines of one name do not count."""
    return sum(
        (a[1] - b[1]) * (a[2] - b[2]) < 0
        for at in range(len(columns) - 1)
        for a, b in combinations(lines(columns, at), 2)
        if a[0] != b[0]
    )


def spaced(wanted: Sequence[float], weights: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Return rising positions nearest to the `wanted` ones in weighted squares, the k-th and the next `distances[k]` apart.

    Pool adjacent violators (Ayer et al., Annals of Mathematical Statistics, 1955) on what is left of the positions without
    the distances.
    """
    offsets = [sum(distances[:k]) for k in range(len(wanted))]
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight, offset in zip(wanted, weights, offsets, strict=True):
        pools.append((value - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (m2, w2, n2), (m1, w1, n1) = pools.pop(), pools.pop()
            pools.append(((m1 * w1 + m2 * w2) / (w1 + w2), w1 + w2, n1 + n2))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _slope(columns: Columns) -> float:
    return sum(abs(end - start) for at in range(len(columns) - 1) for _, start, end in lines(columns, at))


def _stack(columns: Columns) -> None:
    for column in columns:
        y = 0.0
        for item in column:
            item.top, y = y, y + item.height + GAP


def _settle(columns: Columns, at: int, forward: bool) -> None:
    """Move the items of a column towards the lines from the column before, or to the one after."""
    column = columns[at]
    wanted = {}
    for item in column:
        if forward:
            from_ = {name: i.give_height(name) for i in columns[at - 1] for name in i.gives}
            pulls = [from_[n] - (item.read_height(p) - item.top) for p, n in enumerate(item.reads) if n in from_]
        else:
            there = lines(columns, at)
            pulls = [y - (item.give_height(n) - item.top) for n in item.gives for m, _, y in there if m == n]
        wanted[item.key] = sum(pulls) / len(pulls) if pulls else item.top
    column.sort(key=lambda item: wanted[item.key] + item.height / 2)
    distances = [a.height + (SLOT_GAP if a.slot or b.slot else GAP) for a, b in pairwise(column)]
    tops = spaced([wanted[i.key] for i in column], [SLOT_WEIGHT if i.slot else 1.0 for i in column], [*distances, 0.0])
    for item, top in zip(column, tops, strict=True):
        item.top = top


def _sort_lines(columns: Columns) -> None:
    """Let lines leave and arrive at each box in the order of where they go to and come from."""
    for at, column in enumerate(columns):
        if at + 1 < len(columns):
            there = lines(columns, at)
            for item in column:
                ends = {name: [y for n, _, y in there if n == name] for name in item.gives}
                low = item.top + item.height
                item.gives = sorted(item.gives, key=lambda n: sum(ends[n]) / len(ends[n]) if ends[n] else low)
        if at:
            from_ = {name: item.give_height(name) for item in columns[at - 1] for name in item.gives}
            for item in column:
                item.order = sorted(item.order, key=lambda place: from_.get(item.reads[place], item.top))

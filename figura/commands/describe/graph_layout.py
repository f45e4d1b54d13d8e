"""Places boxes in columns so that few lines between them cross and most are straight (Sugiyama's layout).

A name that a later column reads runs straight through the columns between, each time in a slot, and branches where it
is read; between two columns there is at most one line for each name. Boxes are ordered by barycentres (Sugiyama, Tagawa
and Toda, IEEE Transactions on Systems, Man and Cybernetics, 1981), and heights follow by isotonic regression. y points
downwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

SWEEPS = 12
SLOT_WEIGHT = 4.0  # weight of a straight line through a slot, relative to a box in the middle of its lines
GAP, SLOT_GAP = 18.0, 19.0  # minimum distance between boxes, and between a slot's line and its neighbours


@dataclass
class Item:
    """A box, or a slot in which a name passes a column; a slot reads and gives that name and has height 0.

    `ins` and `outs` are the heights below the item's top where lines arrive and leave; the layout chooses which name
    gets which. A name may be in `reads` twice, for two roles.
    """

    key: str
    reads: list[str]
    gives: list[str]
    height: float = 0.0
    ins: list[float] = field(default_factory=list)
    outs: list[float] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # indices of `reads`, from the top
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
    """Return the columns with a slot for every name that passes a column on its way to a later one."""
    extended = [list(column) for column in columns]
    for at, column in enumerate(columns):
        for name in (name for item in column for name in item.gives):
            last = max((place for place, other in enumerate(columns) for i in other if name in i.reads), default=at)
            for between in range(at + 1, last):
                slot = Item(f"{name}@{between}", [name], [name], 0.0, [0.0], [0.0], slot=True)
                extended[between].append(slot)
    for item in (item for column in extended for item in column):
        item.order = list(range(len(item.reads)))
    return extended


def arrange(columns: Columns) -> None:
    """Choose the order and the position of all items, and the order of lines at each box, in place."""
    _stack(columns)
    best: tuple[tuple[int, float], list[tuple[Item, Item]]] | None = None
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for at in range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1):
            _settle(columns, at, forward)
        _sort_lines(columns)
        cost = (crossings(columns), _slope(columns))
        if best is None or cost < best[0]:
            best = cost, [(item, replace(item)) for column in columns for item in column]
    assert best is not None
    for item, copy in best[1]:
        item.top, item.order, item.gives = copy.top, copy.order, copy.gives
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
    """Return how many pairs of lines cross; lines of the same name do not count."""
    return sum(
        (a[1] - b[1]) * (a[2] - b[2]) < 0
        for at in range(len(columns) - 1)
        for a, b in combinations(lines(columns, at), 2)
        if a[0] != b[0]
    )


def spaced(wanted: Sequence[float], weights: Sequence[float], distances: Sequence[float]) -> list[float]:
    """Return the positions nearest to `wanted` (weighted least squares), neighbours at least `distances` apart.

    `distances[k]` is between the k-th and the next. Without the distances, positions need only rise, which is isotonic
    regression by pool adjacent violators (Ayer et al., Annals of Mathematical Statistics, 1955).
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
    """Move the items of a column towards their lines from the previous column, or to the next one."""
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
    """Sort the lines at each box by where they go to or come from."""
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

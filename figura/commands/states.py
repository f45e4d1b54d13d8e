"""List the states that trainings share: `figura states [--prune GB] [--queue]`.

A training whose recipe has been another's so far goes on from the state that the other left; docs/states.md says more.
`--prune` removes the states that were not used for the longest, until the rest is that small. `--queue` says how many
iterations the queued experiments will train, one after the other, apart from what the store has already.
"""

import time
from collections.abc import Iterator

from figura.base.tables import as_text
from figura.commands import parser_of
from figura.training.state_store import SWITCH, SharedState, StateStore


def main(arguments: list[str]) -> None:
    parser = parser_of("states", __doc__)
    parser.add_argument("--prune", type=float, metavar="GB", help="keep at most this much; 0 removes all")
    parser.add_argument("--queue", action="store_true", help="say what the queued experiments will train")
    args = parser.parse_args(arguments)
    if args.prune is not None and not args.prune >= 0:
        parser.error(f"argument --prune: found {args.prune:g}; expected gigabytes, 0 or more")

    if args.queue:
        from figura.commands.state_tables import planned, queued  # imports PyTorch

        print(as_text([("experiment", "iterations", "to train"), *planned(queued())]))
        return
    store = StateStore.of_project()
    if store is None or not store.folder.is_dir():
        why = f"no cache of a pipeline, or {SWITCH} is off" if store is None else f"no {store.folder}"
        print(f"no states: {why}")
        return
    if args.prune is not None:
        removed = store.prune(args.prune * 1e9)
        print(f"removed {len(removed)} states of {sum(one.size for one in removed) / 1e6:,.1f} MB")
    print("\n".join(listed(store)))


def listed(store: StateStore) -> Iterator[str]:
    """Yield the lines of the table, the states used last first, and the total."""
    states = sorted(store.states(), key=lambda one: -one.used)
    if states:
        head = ("run", "experiment", "recipe", "iteration", "MB", "used", "state")
        yield as_text([head, *map(_row, states)])
    size, limit = sum(one.size for one in states), store.limit(states)
    yield f"{len(states)} states of {size / 1e6:,.1f} MB, at most {limit / 1e9:,.1f} GB, in {store.folder}"


def _row(state: SharedState) -> tuple[str, ...]:
    names = [str(state.about.get(key, "")) for key in ("run", "experiment", "recipe")]
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(state.used))
    return (*names, f"{state.iteration:,}", f"{state.size / 1e6:,.1f}", used, state.digest[:8])

"""List the states that trainings share: `figura states [--prune GB] [--queue]`.

A training whose recipe has been another's so far goes on from the state that the other left; docs/states.md says more.
`--prune` removes the states that were not used for the longest, until the rest is that small. `--queue` says how many
iterations the queued experiments will train, one after the other, apart from what the store has already.
"""

from figura.base.tables import as_text
from figura.commands import parser_of


def main(arguments: list[str]) -> None:
    """List, prune, or plan."""
    parser = parser_of("states", __doc__)
    parser.add_argument("--prune", type=float, metavar="GB", help="keep at most this much; 0 removes all")
    parser.add_argument("--queue", action="store_true", help="say what the queued experiments will train")
    args = parser.parse_args(arguments)

    from figura.commands.state_tables import listed, planned, queued
    from figura.training.states import SWITCH, StateStore

    if args.queue:
        print(as_text([("experiment", "iterations", "to train"), *planned(queued())]))
        return
    store = StateStore.beside_dvc()
    if store is None or not store.folder.is_dir():
        why = f"no DVC repository, or {SWITCH} is off" if store is None else f"no {store.folder}"
        print(f"no states: {why}")
        return
    if args.prune is not None:
        removed = store.prune(args.prune * 1e9)
        print(f"removed {len(removed)} states of {sum(one.size for one in removed) / 1e6:,.1f} MB")
    print("\n".join(listed(store)))

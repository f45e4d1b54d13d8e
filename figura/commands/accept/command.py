"""Show that a change of code has no effect on a stage, and record that, instead of running the stage again.

`figura accept train@pose` is for a stage that is stale through its code, or packages, alone (`figura why` says so). It
runs parts of the stage twice, with today's code and with the code that made its outputs, in a worktree of the commit
whose `code/` is that of the lock file, and compares the results bit for bit:

train                         iterations from the start, from the states that are there, where the recipe begins to do
                              something else, and the last ones with the model and the history
eval-dump, pose-consistency   the first batch and some at random: rows, files, and what metrics make of them
prepare                       the first pictures of drawn data, all of data that are read
metrics                       everything

If all is equal, the lock file gets the new code for this stage, `code/accepted.jsonl` says so, and its resume point and
shared states stay valid. If not, the first iteration, loss and parameter, or file, row and column that differs is
printed, and the exit status is 1. It cannot see an effect that begins where nothing was compared, or on another
processor.
"""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from figura.base.errors import UserError, printable
from figura.base.files import md5
from figura.commands import parser_of
from figura.commands.why import chosen_stages, lines, only_code
from figura.pipeline.accepted import Acceptance, acceptances, manifests_in, write
from figura.pipeline.calls import check_repository, status
from figura.pipeline.calls import commit as record
from figura.pipeline.dag import Instance
from figura.pipeline.lock import read_lock
from figura.pipeline.manifests import KEPT, refresh
from figura.training.process_record import process_record

if TYPE_CHECKING:
    from figura.commands.accept.sides import Worktrees


def main(arguments: list[str]) -> None:
    parser = parser_of("accept", __doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="such as train@pose, or train; default: all")
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="of a training, each time (20)")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="interpreter of the earlier packages")
    args = parser.parse_args(arguments)
    if args.iterations < 4:
        raise UserError(f"--iterations {args.iterations}: expected 4 or more")
    chosen, known = chosen_stages(args.stages)
    check_repository()
    refresh()
    stale, lock, refused = status(args.stages), read_lock(), list[str]()
    waiting = [one for one in chosen if one.name in stale and one.manifest is not None]
    if not waiting:
        print("nothing would run")
        return

    from figura.commands.accept.sides import Worktrees

    KEPT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="accept-", dir=KEPT.resolve()) as scratch,
        Worktrees(Path(scratch), args.python) as worktrees,
    ):
        for one in waiting:
            try:
                if not only_code(one, stale[one.name], lock):
                    causes = "\n".join(lines(one, stale[one.name], lock, known)[1:])
                    raise UserError(f"only changes of code can be accepted:\n{causes}")
                print(f"{one.name}: {_accept(one, args.iterations, worktrees)}", flush=True)
            except UserError as error:
                refused.append(one.name)
                print(printable(f"{one.name}: {error}"), flush=True)
    print("not seen: an effect that begins where nothing was compared, or on another processor")
    if refused:
        raise UserError(f"not accepted: {', '.join(refused)}")


def _accept(instance: Instance, count: int, worktrees: "Worktrees") -> Acceptance:
    """Compare the two codes of a stage; if all is equal, record it. Raises UserError if anything differs."""
    from figura.commands.accept.samples import compare_samples
    from figura.commands.accept.sides import Side
    from figura.commands.accept.trainings import compare_trainings

    manifest, lock = Path(str(instance.manifest)), read_lock()
    before, now = manifests_in(lock, instance.name)[manifest.as_posix()], md5(manifest.read_bytes())
    earlier = acceptances(lock).get(instance.name)
    old, commit = worktrees.code_of(manifest, [earlier.made, before] if earlier else [before])
    sides = old, Side(Path.cwd(), sys.executable, "today's code")
    print(f"{instance.name}: compares {sides[1].title} with {old.title}", flush=True)
    with tempfile.TemporaryDirectory(dir=worktrees.folder) as scratch:
        if instance.script == "stages.train":
            replayed = compare_trainings(instance, sides, Path(scratch), count)
        else:
            replayed = compare_samples(instance, sides, Path(scratch))
    refresh()
    said = status([instance.name]).get(instance.name, [])
    if md5(manifest.read_bytes()) != now or not only_code(instance, said, lock):  # new settings would be recorded, too
        raise UserError("its code, settings or data have changed meanwhile; try again")
    record(instance.name)
    here = process_record()
    at = f"{here['commit'] or 'none':.12}{' with changes' if here['changed_files'] else ''}"
    made, made_by = (earlier.made, earlier.made_by) if earlier else (before, commit)
    accepted = Acceptance(instance.name, now, made, made_by, at, replayed)
    write(acceptances(read_lock()) | {instance.name: accepted})
    return accepted

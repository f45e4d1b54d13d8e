"""Compare what two versions of the code do in parts of a training; then let its states go on with today's."""

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file

from figura.base.errors import UserError
from figura.base.files import read_json
from figura.commands.accept.differences import in_folders, in_iterations, in_tensors, in_values
from figura.commands.accept.sides import Side
from figura.commands.accept.visits import Plan, Visit
from figura.pipeline.dag import Instance
from figura.training.resume import TREE, ResumePoints
from figura.training.state_store import STATE, StateStore

Sides = tuple[Side, Side]


def compare_trainings(instance: Instance, sides: Sides, scratch: Path, count: int) -> str:
    """Return what was compared, as text. Raises UserError if anything differs, or one of the codes cannot run."""
    recipe, run = map(Path, instance.command[-2:])
    plan = Plan(recipe, run, count, scratch)
    spans = ", ".join(f"{one.start + 1} to {one.stop}" for one in plan.visits)
    print(f"{instance.name}: iterations {spans} of {plan.last}", flush=True)
    folders = [scratch / "visits" / name for name in ("old", "new")]
    for side, folder in zip(sides, folders, strict=True):
        run_visits(plan, plan.visits, side, folder)
    for visit in plan.visits:
        if first := difference(visit, *folders):
            raise UserError(f"differs {first[1]}{_closer(plan, visit, first[0], sides, scratch)}")
    _let_states_go_on(plan, run, folders)
    return f"{sum(one.stop - one.start for one in plan.visits)} iterations"


def run_visits(plan: Plan, visits: Sequence[Visit], side: Side, folder: Path, keep: bool = False) -> None:
    """Run visits with the code of a side, which leaves what they did in a folder. Raises UserError if it cannot."""
    side.run("stages.train", [plan.call(one, folder, keep) for one in visits], folder, plan.processes)
    for one in visits:
        first = (one.folder(folder) / "log.jsonl").read_text(encoding="utf-8").partition("\n")[0]
        ended = not first and (one.folder(folder) / "run/model").is_dir()  # by `train.stop`, before the first iteration
        if not ended and (not first or json.loads(first)["row"]["step"] != one.start + 1):
            raise UserError(f"{side.title} does not begin with iteration {one.start + 1}, so it cannot be compared")


def difference(visit: Visit, old: Path, new: Path) -> tuple[int, str] | None:
    """Return the first iteration of a visit after which anything differs, and what, from the folders of all visits."""
    a, b = visit.folder(old), visit.folder(new)
    if first := in_iterations(a, b):
        return first[0], f"in iteration {first[0]}: {first[1]}"
    states = [[read_json(path) for path in folder.glob("state.json")] for folder in (a, b)]  # none at the end
    found = in_values(states[0], states[1], "state") or in_folders(*(one / "run/model" for one in (a, b)))
    found = found or in_folders(*(one / "run/history" for one in (a, b)))
    return (visit.stop, f"after iteration {visit.stop}: {found}") if found else None


def _closer(plan: Plan, visit: Visit, iteration: int, sides: Sides, scratch: Path) -> str:
    """Repeat a visit until an iteration; return which tensor differs then, and whether the old code repeats itself."""
    again = visit._replace(stop=iteration)
    folders = [scratch / "closer" / name for name in ("old", "new", "again")]
    for side, folder in zip((*sides, sides[0]), folders, strict=True):
        run_visits(plan, [again], side, folder, keep=True)
    if difference(again, folders[0], folders[2]):
        return f"; but {sides[0].title} does not repeat itself on this device either, so nothing can be shown here"
    files = [file for one in folders[:2] for file in sorted(again.folder(one).glob("run/**/state.safetensors"))[-1:]]
    if len(files) < 2:
        return ""
    tensors = map(load_file, files)
    old, new = (
        {name: one[name] for name in sorted(one, key=lambda n: not n.startswith("/networks/"))} for one in tensors
    )
    found = in_tensors(old, new)
    return f"; then {found.lstrip('/')}" if found else ""


def _let_states_go_on(plan: Plan, run: Path, folders: Sequence[Path]) -> None:
    """Name the states of the old code as today's code names them: the resume point of the run, and shared states."""
    names = [read_json(folder / f"{0:010d}/names.json") for folder in folders]
    store = StateStore.of_project()
    for state in plan.shared if store else ():
        old, new = (one["states"].get(str(state.iteration)) for one in names)
        if store and state.digest == old and new:
            store.add(state.iteration, new, state.folder / STATE, state.about)
    for point in ResumePoints(run / "resume", {}).intact()[-1:]:
        made = read_json(point.folder / TREE)["provenance"]
        if made.get("code") == names[0]["code"]:
            ResumePoints(run / "resume", made | {"code": names[1]["code"]}).save(point.iteration, point.state())

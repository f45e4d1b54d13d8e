"""List why stages would run: `figura why [STAGE ...]`, such as train@pose; by default all stages.

For each stage that would run: the settings, files of code, packages and data that differ from its last
run, and the stages that may follow it. A stage prints the same lines when it begins. Brings the manifests in code/ up
to date first, as a run of the pipeline does.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from figura.base.errors import UserError, nearest, printable
from figura.base.files import read_text
from figura.base.yaml12 import read_yaml
from figura.commands import parser_of
from figura.pipeline.accepted import acceptances, manifests_in
from figura.pipeline.calls import BACK, check_repository, skipped, status
from figura.pipeline.causes import causes
from figura.pipeline.dag import PIPELINE, Instance, instances, no_pipeline
from figura.pipeline.lock import Lock, read_lock
from figura.pipeline.manifests import refresh

STARTING = 10  # seconds in which both codes, each in a process of its own, load what they need, about
ITERATIONS = 20
KNOTS = ("after:", "before:", "end:", "until:", "at:")
"""Keys of a recipe at which `figura accept` looks closer."""


def main(arguments: list[str]) -> None:
    parser = parser_of("why", __doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="such as train@pose, or train for all trainings")
    asked = parser.parse_args(arguments).stages
    chosen, known = chosen_stages(asked)
    check_repository()
    refresh()
    stale, lock = status(asked), read_lock()
    reported = [one for one in chosen if one.name in stale]
    for instance in reported:
        print(printable("\n".join(lines(instance, stale[instance.name], lock, known))))
    ran = [part for one in reported if one.name in lock for part in stale[one.name] if isinstance(part, Mapping)]
    missing = {how for part in ran for how in (part.get("changed outs") or {}).values()}
    for how in [one for one in BACK if one in missing]:
        print(f"{how}: {BACK[how]}")
    others = list(skipped(stale, {one.name for one in known}))
    for line in others:
        print(printable(line))
    if not reported and not others:
        print("nothing would run" if not asked else f"{', '.join(asked)}: would not run")
    for name, accepted in acceptances(lock).items():
        if name not in stale and any(one.name == name for one in chosen):
            print(f"{name}: {accepted}")


def chosen_stages(asked: Collection[str]) -> tuple[list[Instance], list[Instance]]:
    """Return the named stages, by default all, and all of them; what others follow comes first.

    Stages that `instances` skips are in neither, but may be named.

    Raises:
        UserError: there is no pipeline, or no such stage.
    """
    if not PIPELINE.is_file():
        raise no_pipeline()
    content = read_yaml(PIPELINE)
    written = list(instances(content))
    known = sorted(written, key=lambda one: -len(set(followers(one, written))))  # what is first is followed by most
    others = {*(content.get("stages") or {})} - {one.name.partition("@")[0] for one in known}
    for name in asked:
        found = any(name in (one.name, one.name.partition("@")[0]) for one in known)
        if not found and name.partition("@")[0] not in others:
            raise UserError(f"{PIPELINE}: no stage {name!r}{nearest(name, [one.name for one in known])}")
    return [one for one in known if not asked or one.name in asked or one.name.partition("@")[0] in asked], known


def only_code(instance: Instance, said: list[Any], lock: Lock) -> bool:
    """Whether a stage that ran is stale through its code or packages alone, by what its status says."""
    manifest = str(instance.manifest)
    return said == [{"changed deps": {manifest: "modified"}}] and manifest in manifests_in(lock, instance.name)


def lines(instance: Instance, said: list[Any], lock: Lock, known: Sequence[Instance]) -> list[str]:
    """Return the lines of a stage; `said` is its status."""
    found = [line for line in causes(instance, lock) if not line.startswith("no setting or code differs")]
    found += [one for one in said if isinstance(one, str) and one != "changed command"]  # "always changed"
    kinds = {kind: paths for one in said if isinstance(one, dict) for kind, paths in one.items()}
    kinds = kinds if instance.name in lock else {}  # all is called modified or deleted
    told, params = tuple(found), {str(path) for path, _ in instance.params}
    for kind, what in (("changed deps", "data"), ("changed outs", "output")):
        for path, how in (kinds.get(kind) or {}).items():
            said_so = any(line.startswith((f"{path}: ", f"data: {path} ", f"data: {path},")) for line in told)
            if isinstance(how, Mapping):  # a params file
                found += [f"{path}: {key} ({one})" for key, one in how.items() if not said_so]
            elif not said_so and path[:5] != "code/":
                found.append(f"{path} ({how})" if path in params else f"{what}: {path} ({how})")
    after = sorted(set(followers(instance, known)), key=known.index)
    follow = [f"  then perhaps {', '.join(one.name for one in after)}"] if after else []
    if only_code(instance, said, lock):
        follow.append(f"  or, if that changes no result: figura accept {instance.name}{_seconds(instance)}")
    return [f"{instance.name} would run:", *(f"  {line}" for line in found), *follow]


def _seconds(instance: Instance) -> str:
    """Return how long a training took by its log, and about how long accepting takes, as text."""
    try:
        run = Path(instance.command[-1]) if instance.script == "stages.train" else Path()
        begun = [json.loads(line) for line in read_text(run / "live/log.jsonl").splitlines()]
        recipe = read_yaml(run / "live/recipe.yaml")
        rates = [one["images_per_second"] for one in begun if "images_per_second" in one]
        each = recipe["data"]["batch_size"] * len(rates) / sum(rates)
        words = [line.split() for line in read_text(run / "live/recipe.yaml").splitlines()]
        knots = len({*map(" ".join, (one[1:] for one in words if one[:1] and one[0] in KNOTS))} - {"0", "null"})
        last = int(begun[-1]["step"])
    except (UserError, LookupError, TypeError, ValueError, ZeroDivisionError):
        return ""
    accepting = 2 * (STARTING + min(last, ITERATIONS * (2 + knots)) * each)
    return f", about {accepting:.0f} s; its iterations took about {last * each:.0f} s"


def followers(instance: Instance, known: Collection[Instance]) -> Iterator[Instance]:
    """Yield the stages that read what a stage writes, and those that read what these write."""
    for other in known:
        pairs = [(f"{dep}/", f"{out}/") for dep in other.deps for out in instance.outs]
        if any(dep.startswith(out) or out.startswith(dep) for dep, out in pairs):
            yield other
            yield from followers(other, known)

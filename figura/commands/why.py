"""List why stages would run: `figura why [STAGE ...]`, such as train@pose; by default all stages of `dvc.yaml`.

For each stage that DVC would run: the settings, files of code, packages and data that differ from its last run in
`dvc.lock`, and the stages that may follow it. `dvc repro` prints the same lines when a stage begins. Brings the
manifests in code/ up to date first, as `dvc repro` does; after that, `dvc status` and `dvc repro --dry` know of changed
code as well.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from figura.base.errors import UserError, nearest, one_line, printable
from figura.base.yaml12 import read_yaml
from figura.code.manifests import refresh
from figura.commands import parser_of
from figura.live.causes import causes, read_lock
from figura.recipe.pipeline import PIPELINE, Instance, instances


def main(arguments: list[str]) -> None:
    """Print the causes."""
    parser = parser_of("why", __doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="such as train@pose, or train for all trainings")
    asked = parser.parse_args(arguments).stages
    if not PIPELINE.is_file():
        raise UserError(f"{PIPELINE.absolute()}: no such file; go to the root of a project")
    written = list(instances(read_yaml(PIPELINE)))
    known = sorted(written, key=lambda one: -len(set(followers(one, written))))  # what is first is followed by most
    chosen = [one for one in known if not asked or one.name in asked or one.name.partition("@")[0] in asked]
    for name in asked:
        if not any(name in (one.name, one.name.partition("@")[0]) for one in known):
            raise UserError(f"{PIPELINE}: no stage {name!r}{nearest(name, [one.name for one in known])}")
    refresh()
    stale, lock = status([one.name for one in chosen] if asked else []), read_lock()
    reported = [one for one in chosen if one.name in stale and one.manifest is not None]
    for instance in reported:
        print(printable("\n".join(lines(instance, stale[instance.name], lock, known))))
    if not reported:
        print("nothing would run" if not asked else f"{', '.join(asked)}: would not run")


def status(targets: Sequence[str]) -> dict[str, list[Any]]:
    """Return what `dvc status` says of each of these stages, or of all. Raises UserError if DVC fails."""
    command = [sys.executable, "-m", "dvc", "status", "--json", *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"dvc status: {one_line(done.stderr.strip())}")
    stages: dict[str, list[Any]] = json.loads(done.stdout or "{}")
    return stages


def lines(instance: Instance, said: list[Any], lock: Mapping[str, Any], known: Sequence[Instance]) -> list[str]:
    """Return the lines of a stage; `said` is what DVC says of it."""
    found = [line for line in causes(instance, lock) if not line.startswith("no setting or code differs")]
    kinds = {kind: paths for one in said if isinstance(one, dict) for kind, paths in one.items()}
    told = " ".join(found)
    for kind, what in (("changed deps", "data"), ("changed outs", "output")):
        paths = kinds.get(kind) or {}
        found += [f"{what}: {path} ({how})" for path, how in paths.items() if path not in told and path[:5] != "code/"]
    after = sorted(set(followers(instance, known)), key=known.index)
    follow = [f"  then perhaps {', '.join(one.name for one in after)}"] if after else []
    return [f"{instance.name} would run:", *(f"  {line}" for line in found), *follow]


def followers(instance: Instance, known: Collection[Instance]) -> Iterator[Instance]:
    """Yield the stages that read what a stage writes, and those that read what these write."""
    for other in known:
        pairs = [(f"{dep}/", f"{out}/") for dep in other.deps for out in instance.outs]
        if any(dep.startswith(out) or out.startswith(dep) for dep, out in pairs):
            yield other
            yield from followers(other, known)

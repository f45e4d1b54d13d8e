"""Why a stage runs: settings, their order, code files, packages and data that differ from its entry in `dvc.lock`."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from figura.base.dotted_keys import value_at
from figura.base.errors import UserError
from figura.base.files import git, md5
from figura.base.yaml12 import read_yaml
from figura.pipeline.calls import stage
from figura.pipeline.dag import PIPELINE, Instance, instances
from figura.pipeline.lock import Lock, read_lock
from figura.pipeline.manifests import KEPT

MOST = 8  # maximum listed causes per kind
LONGEST = 40  # characters of a value
COMMITS = 200  # commits to search for an earlier manifest


def print_causes() -> None:
    """Print why DVC runs this stage, once for all its processes; nothing outside of DVC."""
    name = stage() or ""
    if not name or os.environ.get("RANK", "0") != "0" or not PIPELINE.is_file():
        return
    for instance in instances(read_yaml(PIPELINE)):
        if instance.name == name:
            print(*format_causes(name, causes(instance, read_lock())), sep="\n", flush=True)


def format_causes(name: str, found: list[str]) -> list[str]:
    """Format the causes of a stage's run."""
    if len(found) == 1:
        return [f"{name} runs: {found[0]}"]
    return [f"{name} runs, because these differ from dvc.lock:", *(f"  {line}" for line in found)]


def causes(instance: Instance, lock: Lock) -> list[str]:
    """Return the differences from the stage's last run, or a line that there are none."""
    entry = lock.get(instance.name)
    if entry is None:
        return ["dvc.lock knows no run of it"]
    before = {dep["path"]: dep.get("md5") for dep in entry.get("deps") or ()}
    settings = [*_settings(entry.get("params") or {})]
    told = {line.partition("  ")[0] for changed in settings for line in changed}
    found = [line for changed in settings for line in _first(changed)]
    found += [line for line in _code(instance, before) if line.partition("  ")[0] not in told]
    found += _data(instance, before, lock)
    command = entry.get("cmd")
    if (" && ".join(command) if isinstance(command, list) else str(command)).split() != [*instance.command]:
        found.append("the command")
    if found:
        return found
    others = ", ".join(dep for dep in instance.deps if not dep.startswith("code/"))
    return [f"no setting or code differs from dvc.lock; forced, without its outputs, or {others} changed"]


def _settings(params: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the differences of each params file."""
    for path, values in params.items():
        try:
            content = read_yaml(Path(path))
        except (UserError, OSError):
            continue
        now = {key: value for key in values if (value := value_at(content, key)) is not None}
        before = {key: value for key, value in values.items() if value is not None}
        yield [f"{path}: {line}" for line in differences(before, now)]


def _first(changed: list[str]) -> list[str]:
    rest = len(changed) - MOST
    return changed if rest <= 0 else [*changed[:MOST], f"{changed[0].partition(': ')[0]}: {rest} more settings"]


def differences(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield `losses.KL.weight  1.0 -> 2` for each value that differs; a map missing on one side is one value."""
    for key in dict.fromkeys([*before, *now]):
        first, second = before.get(key), now.get(key)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield from differences(first, second, f"{prefix}{key}.")
        elif key not in before or key not in now or first != second:
            old, new = (_shown(one[key]) if key in one else "absent" for one in (before, now))
            yield f"{prefix}{key}  {old} -> {new}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _code(instance: Instance, before: Mapping[str, str | None]) -> Iterator[str]:
    manifest = instance.manifest
    if manifest is None or not manifest.is_file():
        return
    text = manifest.read_bytes()
    if md5(text) == before.get(manifest.as_posix()):
        return
    if manifest.as_posix() not in before:
        yield f"code: {manifest} (new)"
        return
    earlier = _earlier(manifest, before.get(manifest.as_posix()))
    if earlier is None:
        yield f"code: {manifest} has changed; how it was is in no commit of this clone"
        return
    now = json.loads(text)
    files = [f"code: {line}" for line in _changed(earlier.get("files", {}), now["files"])]
    yield from files[:MOST]
    if len(files) > MOST:
        yield f"code: {len(files) - MOST} more files"
    yield from (f"package: {line}" for line in differences(earlier.get("packages", {}), now["packages"]))
    yield from differences(earlier.get("settings", {}), now.get("settings", {}))
    yield from _reordered(earlier.get("order", {}), now.get("order", {}))


def _reordered(before: Mapping[str, list[str]], now: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a line for each map whose entries, those on both sides, changed their order."""
    for key in sorted(before.keys() & now.keys()):
        common = {*before[key]} & {*now[key]}
        old, new = ([name for name in one[key] if name in common] for one in (before, now))
        if old != new:
            yield f"{key}: order  {', '.join(old)} -> {', '.join(new)}"


def _changed(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for path in sorted({**before, **now}):
        if path not in before:
            yield f"{path} (new)"
        elif path not in now:
            yield f"{path} (no longer imported)"
        elif before[path] != now[path]:
            yield path


def _earlier(manifest: Path, digest: str | None) -> Any:
    """Return the content of a manifest with this MD5, from the local cache or git; None if not found."""
    kept = KEPT / str(digest)
    if digest is not None and kept.is_file():
        return json.loads(kept.read_bytes())
    commits = commits_with(manifest, digest)
    return next((json.loads(git("show", f"{one}:./{manifest.as_posix()}") or "") for one in commits), None)


def commits_with(manifest: Path, digest: str | None) -> Iterator[str]:
    """Yield the commits, the latest first, that gave a manifest the content with this MD5."""
    for commit in (git("log", f"-{COMMITS}", "--format=%H", "--", manifest.as_posix()) or "").split():
        text = git("show", f"{commit}:./{manifest.as_posix()}")
        if text is not None and md5(text.encode()) == digest:
            yield commit


def _data(instance: Instance, before: Mapping[str, str | None], lock: Lock) -> Iterator[str]:
    """Yield the deps written by other stages that differ from those of this stage's last run."""
    written = {out["path"]: (name, out.get("md5")) for name, one in lock.items() for out in one.get("outs") or ()}
    for dep in instance.deps:
        if dep.startswith("code/"):
            continue
        if dep not in before:
            yield f"data: {dep} (new)"
        elif dep in written and written[dep][1] != before[dep]:
            yield f"data: {dep}, which {written[dep][0]} wrote anew"

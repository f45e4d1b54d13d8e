"""Start a project of your own: `figura init [FOLDER]` in an empty folder or a git repository, then `dvc repro`.

With `--data PATH`, on your data: it says what it sees there, and writes the entry of data/params.yaml and the size of
the recipe.

It gets copies of figura's own files: the pipeline, the recipe, the scripts of its stages, and the code of the systems
that the recipe needs, which is yours from then on. Files that exist stay: if one of them is in the way, nothing is
written. Makes the folder a repository of git and DVC unless it is one.
"""

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from figura.base.errors import DISTRIBUTION, UserError, nearest, one_line, printable
from figura.base.files import cache_around, write_text
from figura.base.yaml12 import in_one_line, parse_yaml, read_yaml
from figura.commands import parser_of
from figura.pipeline.closure import code_of, declared_types
from figura.recipe.expansion import extended_files
from figura.recipe.picture_sizes import fitting
from figura.systems import PACKAGE, PROJECT, folders

if TYPE_CHECKING:
    from figura.commands.raw_folder import Found

DRAWN = "data/raw/drawn"
ALWAYS = (
    ".dvc/plots", ".dvcignore", ".gitignore", "data/raw/.gitignore", "data/raw/README.md", DRAWN,
    "models/__init__.py", "recipes/schema.json", "stages", "weights/.gitignore", "weights/README.md",
)  # fmt: skip
"""Files and folders that each project gets as they are."""
KEPT = (".dvcignore", ".gitignore", "models/__init__.py", "stages/__init__.py")
"""Files that repositories may have already; theirs stay."""
IN_THE_WAY = ("data.dvc", "figura.py", "figura/__init__.py")
"""Files that would break something: one beside a folder of its name, modules that hide figura from `python -m`."""
WEIGHTS = ("start", "losses", "metrics")
HEADER = re.compile(r"^#.*\bdata/params\.yaml:\n((?:#   .*\n)+)", re.MULTILINE)
"""The dataset that a recipe needs, in the comment at its top; without one, it is that of `data/params.yaml`."""
LONGEST = 80  # characters of a line of `data/params.yaml`: DVC's writer breaks longer ones
RELATIVE = re.compile(r"rescale: \{relative: \[([\d.]+), ([\d.]+)\]\}  # of (\d+) px")
"""The sizes of training's pictures, relative to those of figura's own data."""
DOWNS = re.compile(r"^ *n_downs: (\d+)", re.MULTILINE)
"""The depth of a `pix2pix.UNetGenerator`: sides are multiples of 2^(n_downs + 2)."""
WEIGHTS_OF = re.compile(r"^ *\w+: (weights/\S+)", re.MULTILINE)
"""A file that a recipe names, and no project has at first."""
JUDGE = "pose_consistency"
"""The map in `dvc.yaml` of recipes that another recipe's network judges; its stage has the name with a dash."""


def main(arguments: list[str]) -> None:
    parser = parser_of("init", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="default: the current one")
    parser.add_argument(
        "--recipe", action="append", metavar="NAME",
        help=f"of {', '.join(recipe_names())}; several times for several; default: {recipe_names()[0]}",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, metavar="PATH", help="folder of your data, which then chooses the recipe")
    args = parser.parse_args(arguments)
    try:
        version(DISTRIBUTION)
    except PackageNotFoundError:
        raise UserError(
            "figura is not installed here, so a project could not import it; `pip install .` in the clone does it"
        ) from None
    importlib.import_module("dvc")  # before anything is written
    recipes, own = list(dict.fromkeys(args.recipe or recipe_names()[:1])), dict[str, str]()
    if args.data:
        from figura.commands.raw_folder import look

        found = look(args.data)
        recipes = list(dict.fromkeys(args.recipe or [found.recipe]))
        lines, own = with_data(args.folder, recipes, found)
        print(printable("\n".join(lines)))
    elif not args.recipe:
        print(f"recipe: {recipes[0]}, on pictures that figura draws; --data FOLDER begins on yours, --help says more")
    for line in write_project(args.folder, recipes, own):
        print(printable(line))


def recipe_names() -> list[str]:
    """Return the recipes that a project can begin with."""
    return list(_variables()["recipes"])


def with_data(root: Path, recipes: list[str], found: "Found") -> tuple[list[str], dict[str, str]]:
    """Return lines on the data that were found, and the files of a project that they change, by their paths.

    Raises:
        UserError: the recipe is not for such data.
    """
    if len(recipes) > 1:
        raise UserError(f"--recipe {', '.join(recipes)}: --data is for one recipe; name one")
    files = project_files(recipes)
    entry, before = _variables()["recipes"][recipes[0]], files["data/params.yaml"]
    name, params = entry["data"], entry["params"]
    needs = parse_yaml(before, "data/params.yaml")["datasets"][name]["kind"]
    needs = {"catalogue": "paired", "day_night": "unpaired"}.get(needs, needs)
    if needs != found.kind and {needs, found.kind} & {"paired", "unpaired"}:
        raise UserError(
            f"--recipe {recipes[0]}: it learns from data of kind {needs}; {found.source} has {'; '.join(found.seen)}; "
            f"that is for the recipe {found.recipe}"
        )
    source, project = found.source.resolve(), root.resolve()
    if project.is_relative_to(source):
        raise UserError(
            f"{root}: lies in its own data, {found.source}, which DVC refuses; name a folder for the project that is "
            "not in them, such as ../mine"
        )
    inside = source.is_relative_to(project)
    place = (source.relative_to(project) if inside else source).as_posix()
    keys = {"kind": found.kind, "source": place, "seed": 7, "max_rejected": 0.05, found.kind: found.section}
    text = _entry(name, keys, "  ")
    recipe, lines = files[params], [*found.seen, f"recipe: {recipes[0]}, {params}"]
    own = re.search(r"^    (crop_size|size): (\d+)", recipe, re.MULTILINE)
    if own and found.side and (own[1] == "crop_size" or found.side < int(own[2])):  # size: of patches
        least = [4 << int(downs) for text in files.values() for downs in DOWNS.findall(text)]
        size = max([fitting(found.side), *least])
        recipe = re.sub(rf"^(    {own[1]}: )\d+", rf"\g<1>{size}", recipe, flags=re.MULTILINE)
        longer = f" (a step takes {(size / int(own[2])) ** 2:.0f} times as long as at {own[2]})"
        lines.append(f"data.common.{own[1]}: {size}" + (longer if size > int(own[2]) else ""))
    if found.direction:
        recipe = re.sub(r"^(    direction: )\w+", rf"\g<1>{found.direction}", recipe, flags=re.MULTILINE)
        lines.append(f"data.common.direction: {found.direction}")
    recipe = RELATIVE.sub(_absolute, recipe)
    lines += ["data/params.yaml:", text.rstrip()]
    if not inside:
        lines.append(f"to share the project, move the data to data/raw/{source.name}, and change `source`")
    return lines, {"data/params.yaml": kept(before, "datasets", ()) + text, params: recipe}


def _entry(key: str, value: object, indent: str) -> str:
    """Return a key and its value as lines of YAML, in a form that `dvc exp run -S` keeps."""
    line = f"{indent}{key}: {in_one_line(value)}\n"
    if len(line) <= LONGEST or not isinstance(value, dict):
        return line
    return f"{indent}{key}:\n" + "".join(_entry(one, of, f"{indent}  ") for one, of in value.items())


def _absolute(limits: re.Match[str]) -> str:
    """Return sizes in pixels: pictures of any size are then trained on as large as validation has them."""
    low, high = (round(float(limit) * int(limits[3])) for limit in limits.group(1, 2))
    return f"rescale: {{absolute: [{low}, {high}]}}  # the longer side, px"


def write_project(root: Path, recipes: list[str], own: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Write a project with these recipes into a folder; return what was done, and what to do next, in lines.

    `own` has the texts of files that differ from figura's.

    Raises:
        UserError: figura has no such recipe, or a file is in the way.
    """
    files = {**project_files(recipes), **own}
    taken = [path for path in files if path not in KEPT and os.path.lexists(root / path)]
    modules = {f"{PurePosixPath(path).parent}.py" for path in files if path.endswith(".py")}  # packages would hide them
    taken += [name for name in sorted({*IN_THE_WAY, *modules}) if os.path.lexists(root / name)]
    folders = sorted({str(folder) for path in files for folder in PurePosixPath(path).parents} - {"."})
    taken += [name for name in folders if os.path.lexists(root / name) and not (root / name).is_dir()]
    if taken:
        listed = ", ".join(taken[:5]) + (f" and {len(taken) - 5} more" if len(taken) > 5 else "")
        raise UserError(
            f"{root}: {listed} {'is' if len(taken) == 1 else 'are'} there already, and nothing was written; choose "
            "another folder, or move them"
        )
    root.mkdir(parents=True, exist_ok=True)
    empty = {one.name for one in root.iterdir()} <= {".git"}
    stay = [path for path in KEPT if os.path.lexists(root / path)]
    lines = _repository(root)
    for path, text in files.items():
        if path not in stay:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write_text(root / path, text)
    written = sorted({_shown(path) for path in files if path not in stay})
    lines.append(f"wrote {', '.join(written)}")
    if stay:
        lines.append(f"left as they are: {', '.join(stay)}")
    if hidden := _run(["git", "check-ignore", "--stdin"], root, "\n".join(files)).stdout.splitlines():
        lines.append(f"next: .gitignore hides {', '.join(hidden)} from git and DVC; allow them")
    if ".dvcignore" in stay and "__pycache__" not in (root / ".dvcignore").read_text(errors="replace").split():
        lines.append(f"next: add the lines of {PROJECT / '.dvcignore'} to .dvcignore")
    if (cache := cache_around(root.resolve())) and not str(cache).isascii():
        lines.append(
            f"next: dvc cache dir --local /a/folder: DVC's `exp run --temp` and `--queue` fail below {root.resolve()}, "
            "as it has letters beyond ASCII"
        )
    if root.resolve() != Path.cwd():
        lines.append(f"next: cd {shlex.quote(str(root))}")
    return [*lines, *_next(root, recipes, files["data/params.yaml"], bool(own), empty)]


def _next(root: Path, recipes: Iterable[str], datasets: str, own: bool, empty: bool) -> list[str]:
    """Return what to do in a project, in lines. `own`: its data were there; `empty`: nothing else was."""
    sources = {one["source"] for one in parse_yaml(datasets, "data/params.yaml")["datasets"].values()} - {DRAWN}
    params = [_variables()["recipes"][name]["params"] for name in recipes]
    lines = []
    for source in sorted(sources) if own else ():
        known = Path(source).is_absolute() or (root / f"{source}.dvc").exists()
        if not known and not _run(["git", "ls-files", "--", source], root).stdout:
            lines.append(f"next: dvc add {shlex.quote(source)} (experiments in a copy find no other data)")
    comment = f"the comment at the top of {', '.join(params)}"
    if own and (weights := sorted({one for path in params for one in WEIGHTS_OF.findall((root / path).read_text())})):
        lines.append(f"next: bring {', '.join(weights)}, as {comment} says")
    commit = "git add . && git commit -m Start" if empty else "git add these files, and git commit"
    lines.append(f"next: {commit} (experiments start from a commit)")
    if sources and not own:
        return [*lines, f"next: bring {', '.join(sorted(sources))}, as {comment} says; then dvc repro"]
    tries = " ".join(f"-S {one}:train.try=true" for one in params)
    lines.append(f"next: dvc exp run --temp {tries} (10 steps in a copy: does it fit?)")
    work = "prepares the data" if own else "draws data"
    return [*lines, f"next: dvc repro ({work}, trains and judges), then figura report"]


def project_files(recipes: Collection[str]) -> dict[str, str]:
    """Return the texts of a project with these recipes of figura, by their paths in it.

    Raises:
        UserError: figura has no such recipe.
    """
    known = recipe_names()
    for name in recipes:
        if name not in known:
            raise UserError(
                f"--recipe {name!r}: figura has no such recipe{nearest(name, known)}; there are {', '.join(known)}"
            )
    variables = _variables()
    entries = {name: variables["recipes"][name] for name in recipes}
    judged = [name for name, entry in variables[JUDGE].items() if {name, entry["model"].split("/")[1]} <= {*recipes}]
    params = [entry["params"] for entry in entries.values()] + [variables[JUDGE][name]["params"] for name in judged]
    for path in params:  # which grows: what a recipe extends may extend others
        params += sorted({str(file) for file in extended_files(read_yaml(PROJECT / path))} - {*params})
    files = {
        "dvc.yaml": _pipeline(recipes, judged),
        "data/params.yaml": _datasets(entries),
        **{path: _text(path) for path in params},
        **{f"weights/{name}/{kind}/.gitkeep": "" for name in recipes for kind in WEIGHTS},
    }
    for path in [*ALWAYS, *(f"{PACKAGE}/{name}" for name in systems_of(params))]:
        files |= {name: _text(name) for name in _files(path)}
    return files


def systems_of(params: Iterable[str]) -> list[str]:
    """Return the folders of `models` that recipes need."""
    types = [name for path in params for _, name in declared_types(read_yaml(PROJECT / path))]
    # a project in the current folder has copies, which are found first
    places = [PROJECT / PACKAGE, *map(Path, folders())]
    inside = [
        file.relative_to(place).parts
        for file in code_of([], types).sources.values()
        for place in places
        if file.is_relative_to(place)
    ]
    return sorted({parts[0] for parts in inside if len(parts) > 1 and (PROJECT / PACKAGE / parts[0]).is_dir()})


def _pipeline(recipes: Collection[str], judged: Collection[str]) -> str:
    """Return `dvc.yaml` with some of its recipes."""
    text = kept(kept(_whole_pipeline(), "recipes", recipes), "artifacts", recipes)
    text = re.sub(r"\n(?:#.*\n)*artifacts:\n\Z", "", text)
    if judged:
        return kept(text, JUDGE, judged)
    stages = [name for name in read_yaml(PROJECT / "dvc.yaml")["stages"] if name != JUDGE.replace("_", "-")]
    return re.sub(rf"^  - {JUDGE}:\n(?: {{4,}}.*\n)*", "", kept(text, "stages", stages), flags=re.MULTILINE)


def _datasets(entries: Mapping[str, Mapping[str, str]]) -> str:
    """Return `data/params.yaml` with the datasets of some recipes. Raises UserError if two need another of one name."""
    found: dict[str, tuple[str, str]] = {}  # of each dataset, the recipe, and the text in its comment
    for name, entry in entries.items():
        comment = HEADER.search(_text(entry["params"]))
        text = re.sub(r"^# ", "", comment[1], flags=re.MULTILINE) if comment else ""
        first, own = found.setdefault(entry["data"], (name, text))
        if own != text:
            raise UserError(f"--recipe {first}, {name}: each needs another dataset {entry['data']!r}; take one of them")
    kept_ones = {data for data, (_, text) in found.items() if not text}
    return kept(_text("data/params.yaml"), "datasets", kept_ones) + "".join(text for _, text in found.values())


def kept(text: str, section: str, names: Collection[str]) -> str:
    """Return YAML in which a block map keeps some of its entries; everything else stays as it is written."""
    lines = text.splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if re.fullmatch(rf" *(- )?{section}:\n", line)) + 1
    child = next(line for line in lines[start:] if line.strip() and not line.strip().startswith("#"))
    indent = len(child) - len(child.lstrip())
    result, keep, inside = lines[:start], True, True
    for line in lines[start:]:
        here = len(line) - len(line.lstrip())
        if inside and line.strip() and here < indent:
            inside, keep = False, True
        if inside and here == indent and (key := re.match(r" *([\w-]+):", line)):
            keep = key[1] in names
        if keep:
            result.append(line)
    return "".join(result)


@cache
def _variables() -> dict[str, dict[str, dict[str, str]]]:
    """Return the maps among `vars` of `dvc.yaml`."""
    maps = [one for one in parse_yaml(_whole_pipeline(), "dvc.yaml")["vars"] if isinstance(one, dict)]
    return {name: entries for one in maps for name, entries in one.items()}


@cache
def _whole_pipeline() -> str:
    """Return `dvc.yaml` with an entry for each recipe, also for those that `dvc repro` does not run here."""
    text, more = _text("dvc.yaml"), ""
    for file in sorted((PROJECT / "recipes").rglob("*.yaml")):
        params = file.relative_to(PROJECT).as_posix()
        data = re.search(r"\bdata/prepared/([\w-]+)", _text(params))  # none: judges another recipe's pictures
        if data and f"params: {params}\n" not in text:
            name = f"{file.parent.name}_{file.stem}" if f"\n      {file.stem}:\n" in text + more else file.stem
            more += f"      {name}:\n        params: {params}\n        data: {data[1]}\n"
    return text.replace(f"  - {JUDGE}:\n", f"{more}  - {JUDGE}:\n", 1)


def _text(path: str) -> str:
    return (PROJECT / path).read_text(encoding="utf-8")


def _files(path: str) -> Iterator[str]:
    """Yield a file, or the files below a folder, without Python's caches and DVC's lock file."""
    full = PROJECT / path
    for file in [full] if full.is_file() else sorted(full.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts and file.name != "dvc.lock":
            yield file.relative_to(PROJECT).as_posix()


def _shown(path: str) -> str:
    """Return a file, or the folder for one of many."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[:2]) if parts[0] == PACKAGE else parts[0] if len(parts) > 1 else path


def _repository(root: Path) -> list[str]:
    """Make the folder a repository of git and of DVC; return what was done. Raises UserError if one refuses."""
    lines = []
    if _run(["git", "rev-parse", "--git-dir"], root).returncode:
        _done(["git", "init", "--quiet"], root)
        lines.append("git init")
    if not (root / ".dvc").is_dir():
        below = _done(["git", "rev-parse", "--show-prefix"], root).strip()
        _done([sys.executable, "-m", "dvc", "init", *(["--subdir"] if below else [])], root)
        (root / ".dvc/config").write_text("[core]\n    autostage = true\n    analytics = false\n", encoding="utf-8")
        lines.append("dvc init")
    return lines


def _run(command: list[str], root: Path, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command, which reads `text`. Raises UserError if it is not installed."""
    try:
        return subprocess.run(command, cwd=root, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed; DVC needs it") from None


def _done(command: list[str], root: Path) -> str:
    """Return what a command prints. Raises UserError with its message if it fails."""
    done = _run(command, root)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.lower().startswith(("error", "fatal"))]
        raise UserError(f"{' '.join(command)}: {one_line((' '.join(errors) or done.stderr).strip())}")
    return done.stdout

"""What README.md and docs/ say is true: commands, keys, paths, types and numbers are those of the code."""

import importlib
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest
from dvc.utils.cli_parse import to_path_overrides
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps
from loading import find_class

from figura.base.error_collector import ErrorCollector
from figura.base.validation import validated
from figura.base.yaml12 import parse_yaml, read_yaml, to_yaml
from figura.command import COMMANDS
from figura.pipeline.dag import instances
from figura.preparation.datasets import read_dataset
from figura.recipe import trusted
from figura.recipe.assignments import overridden
from figura.recipe.completion import with_data
from figura.recipe.expansion import read_recipe
from figura.recipe.load import check_recipe
from figura.recipe.schema import Recipe
from models.images.adversarial_losses import Kind
from models.pose.pose_network import BACKBONES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = {name: ROOT / name for name in ("README.md", "CONTRIBUTING.md", "weights/README.md", "data/raw/README.md")}
OUTSIDE |= {str(path.relative_to(ROOT)): path for path in sorted(ROOT.glob("models/*/translate_*.md"))}
PAGES = OUTSIDE | {str(page.relative_to(DOCS)): page for page in sorted(DOCS.rglob("*.md"))}
EVERY = {name: page.read_text() for name, page in PAGES.items()}
TEXT = {name: text for name, text in EVERY.items() if not name.startswith(("coming_from/", "models/"))}
"""By page; tests/test_coming_from.py reads the keys on pages of other systems, some of which are not ours."""
OF_PAGE = {"models/pix2pix/translate_nectargan.md": "recipes/pix2pix.yaml"}
"""The recipe of ours that commands of a page call `R`."""
OWN = ("bench", "figura", "models", "stages", "tests")
MADE = (
    ".dvc/tmp/", "build/", "code/accepted.jsonl", "data/raw/", "data/prepared/", "runs/", "plots/", "live/", "resume/",
    "model/", "history/", "dump/", "recipes/NAME.yaml", "models/SYSTEM/COMMAND.py", "models/mine/", "models/wing.py",
    "weights/brighten/", "figura/project", "metrics/facades.json",
)  # fmt: skip
"""What a run, DVC or `figura init` makes, so that a fresh clone has none of it."""


@pytest.fixture
def own_modules(tmp_path, monkeypatch) -> Callable[[str], None]:
    """A function that writes the blocks of a page that begin with `# in NAME.py`, so that they can be imported."""

    def write(page: str) -> None:
        for block in fences(EVERY[page], "python"):
            if name := re.match(r"# in (\w+)\.py\n", block):
                with (tmp_path / f"{name[1]}.py").open("a") as file:
                    file.write(block)
                monkeypatch.delitem(sys.modules, name[1], raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()

    return write


def fences(text: str, language: str) -> list[str]:
    """Return the blocks of a page between ``` lines that name a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def outside_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(page: str) -> list[str]:
    """Return what stands between backticks, a line break inside as a blank."""
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", outside_blocks(EVERY[page]))]


def commands(page: str) -> list[list[str]]:
    """Return the words of each command, in indented blocks and in spans, variables filled in."""
    variables = {"weight": "1"}  # of the loop in docs/sweeps.md
    words = []
    text = EVERY[page].replace("\\\n", " ")
    if page in OF_PAGE:
        text = re.sub(r"\bR\b", OF_PAGE[page], text)
    for block, span in re.findall(r"^    +(\S.*)$|(?<!`)`([^`]+)`(?!`)", text, re.MULTILINE):
        line = re.sub(r"\$(\w+)", lambda name: variables.get(name[1], name[0]), block or " ".join(span.split()))
        if assigned := re.match(r"([A-Z])=([^\s]+)", line):
            variables[assigned[1]] = assigned[2]
        if re.match(r"(FIGURA_\w+=\S+ )?(dvc|python -m|figura (?=[a-z])|-S) ?", line):
            words += [shlex.split(part, comments=True) for part in re.split(r" && | \| ", line)]
    return words


ALL = [(page, command) for page in EVERY for command in commands(page)]


@cache
def content(file: str) -> dict[str, Any]:
    return read_recipe(Path(file))


def called() -> set[tuple[str, str, tuple[str, ...]]]:
    """Return the page, the module and the arguments of each command of ours."""
    modules = {name: command.module for group in COMMANDS.values() for name, command in group.items()}
    found = set()
    for page, words in ALL:
        if "-m" in words:
            name, *rest = words[words.index("-m") + 1 :]
            if name.split(".")[0] not in OWN or name == "figura":
                continue
        elif words[:1] == ["figura"]:
            name, *rest = words[1:]
            name = modules.get(name, f"models.{name}")
        else:
            continue
        found.add((page, name, tuple(rest)))
    return found


def test_modules_and_their_options_exist():
    names = {name for _, name, _ in called()}
    assert {"bench.stale_stages", "stages.train", "stages.eval_dump", "figura.commands.plot_logs"} <= names
    assert {"figura.commands.predict", "models.pose.overfit", "figura.commands.report.command"} <= names
    wrong = set()
    for page, name, rest in called():
        path = ROOT / name.removesuffix(".command").replace(".", "/")
        texts = [file.read_text() for file in [path.with_suffix(".py"), *path.glob("*.py")] if file.is_file()]
        if not f"{name.replace('.', '/')}.py".startswith(MADE):
            wrong |= set() if texts else {f"{page}: {name}"}
            options = {word for word in rest if word.startswith("--")} - {trusted.OPTION, "--help"}
            wrong |= {f"{page}: {name} {one}" for one in options if not any(f'"{one}"' in text for text in texts)}
            files = {word for word in rest if re.search(r"^recipes/.*\.yaml$", word) and not (ROOT / word).exists()}
            wrong |= {f"{page}: {file}" for file in files if not file.startswith(MADE)}
    assert not wrong, "\n".join(sorted(wrong))


SET = [(page, words) for page, words in ALL if "-S" in words and not words[-1].lower().endswith("key=value")]


@pytest.mark.parametrize(("page", "words"), SET, ids=[f"{page}: {' '.join(words)}" for page, words in SET])
def test_changed_parameters_make_a_recipe(page, words, tmp_path):
    """DVC takes every `-S`, and what it makes of the recipe passes all checks, for each value of a sweep."""
    options = [word for name, word in itertools.pairwise(words) if name == "-S"]
    for case in {str(one): one for one in get_hydra_sweeps(to_path_overrides(options))}.values():
        for file, overrides in case.items():
            changed = tmp_path / "params.json"
            changed.write_text(json.dumps(read_yaml(ROOT / file)))
            apply_overrides(changed, overrides)
            if file != "data/params.yaml":
                check_recipe(json.loads(changed.read_text()), Path(file))


def test_a_try_leaves_the_recipe_as_it_is_or_is_set_back():
    tries = [(page, words) for page, words in ALL if any(word.endswith("train.try=true") for word in words[3:])]
    assert len(tries) > 3
    kept = {page for page, words in tries if "--temp" not in words}
    assert [page for page in kept if "train.try=false" not in TEXT[page]] == []


def test_instances_of_stages_exist():
    stages = content("dvc.yaml")["stages"]
    maps = [one for one in content("dvc.yaml")["vars"] if isinstance(one, dict)]
    items = {f"${{{name}}}": entries for one in maps for name, entries in one.items()}
    published = "".join(path.read_text() for path in (ROOT / "recipes/published").glob("*.yaml"))
    entries = re.findall(r"^#   (\w+):$", published, re.MULTILINE)  # for data/params.yaml, at the top of each file
    entries += re.findall(
        r"^  (\w+):$", "".join(block for page in EVERY for block in fences(EVERY[page], "yaml")), re.MULTILINE
    )
    items["${datasets}"] = dict.fromkeys([*content("data/params.yaml")["datasets"], *entries])
    items["${recipes}"] = recipe_map() | own_entry()
    known = {f"{name}@{key}" for name, stage in stages.items() for key in items.get(stage.get("foreach"), ())}
    used = {word for _, words in ALL for word in words if word.partition("@")[0] in stages and "@" in word}
    assert used
    assert used <= known


SETTING = [(page, words) for page, words in ALL if "--set" in words]


@pytest.mark.parametrize(("page", "words"), SETTING, ids=[f"{page}: {' '.join(words)}" for page, words in SETTING])
def test_values_set_for_a_tool_make_a_recipe(page, words):
    recipe = next((word for word in words if word.endswith(".yaml")), "recipes/photos/super_resolution.yaml")  # shipped
    texts = [word for name, word in itertools.pairwise(words) if name == "--set"]
    sections = ("data", "evaluate") if "show" in words else ("evaluate", "predict")
    check_recipe(overridden(content(recipe), texts, sections, Path(recipe)), Path(recipe), ("evaluate", "predict"))


def merged(base: Any, change: Any) -> Any:
    """Return a mapping with another written over it; a new key comes before the known one that follows it."""
    if isinstance(base, dict) and isinstance(change, Mapping) and "type" not in change:
        keys, following = list(base), None
        for key in reversed(change):
            if key not in base:
                keys.insert(keys.index(following) if following else len(keys), key)
            following = key
        return {key: merged(base.get(key), change[key]) if key in change else base[key] for key in keys}
    return change


SNIPPETS = [
    (page, "".join(re.findall(r"\A# in (\S+)$", block, re.MULTILINE)), block)
    for page in EVERY
    for block in fences(EVERY[page], "yaml")
    if page != "data/raw/README.md"  # tests/stages/test_prepare_splits.py reads these
    and not block.startswith("# edflow")
]
WHOLE = {"your_own_code.md": "brighten"}
"""Pages with a whole recipe, and what it names, which no other page's code does (test_own_code.py runs it)."""


@pytest.mark.parametrize(("page", "file", "block"), SNIPPETS)
def test_a_snippet_makes_a_recipe(page, file, block, own_modules, tmp_path):
    """A block of YAML says which file it belongs into: a recipe, or the datasets to prepare."""
    if not file:
        assert WHOLE[page] in block
        assert set(parse_yaml(block, page)) <= set(Recipe.model_fields)
        return
    for package in re.findall(r"type: (spandrel|timm)\.", block):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    own_modules(page)
    changed = merged(content(file), parse_yaml(block, page))
    if file == "data/params.yaml":
        (tmp_path / "params.yaml").write_text(to_yaml(changed))
        for name in parse_yaml(block, page)["datasets"]:
            read_dataset(name, tmp_path / "params.yaml")
        return
    check_recipe(without_null(changed), Path(file))


def without_null(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe without `data.common: null`, which says that it is left out."""
    common = recipe["data"].get("common")
    return recipe if common else {**recipe, "data": {k: one for k, one in recipe["data"].items() if k != "common"}}


SECTIONS = "|".join(Recipe.model_fields)
DECLARED = [
    (page, *match)
    for page in TEXT
    for span in spans(page)
    for match in re.findall(rf"^((?:{SECTIONS})(?:\.\w+)+): (.+)$", span)
]


@pytest.mark.parametrize(("page", "key", "value"), DECLARED)
def test_a_key_with_a_value_fits_the_schema(page, key, value):
    assert len(DECLARED) > 3
    errors = ErrorCollector(Path(page))
    changed = merged(content("params.yaml"), overridden({}, [f"{key}={value}"], [key.split(".")[0]], Path(page)))
    validated(Recipe, with_data(changed, errors), errors)
    assert errors.lines == []


def test_files_and_folders_exist():
    names = {path.name for path in ROOT.iterdir()}
    wrong = []
    for page, text in EVERY.items():
        rows = [row for tree in fences(text, "") for row in tree.splitlines()]
        lines = [word.strip(",") for row in rows for word in first_words(row)]
        for path in [*spans(page), *lines]:
            plain = re.fullmatch(r"[\w./-]+", path) and (path.split("/")[0] in names or path.startswith("docs/"))
            known_kind = "/" in path or path.endswith((".py", ".md", ".yaml", ".toml", ".lock", ".yml"))
            if plain and known_kind and not path.startswith(MADE) and not (ROOT / path).exists():
                wrong.append(f"{page}: {path}")
    assert not wrong, "\n".join(wrong)


def first_words(line: str) -> list[str]:
    """Return the paths before the description in a line of a tree, which two blanks part."""
    return [] if line.startswith(" ") else re.split(r"\s{2,}", line)[0].split()


def test_links_lead_somewhere():
    wrong = []
    for name, page in PAGES.items():
        for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)]*))?\)", outside_blocks(EVERY[name])):
            path = page.parent / target if target else page
            known = path.exists() and (not anchor or anchor in anchors(path.read_text()))
            wrong += [] if known else [f"{name}: {target}#{anchor}"]
    assert not wrong, "\n".join(wrong)


def anchors(text: str) -> set[str]:
    """Return what links to the headings of a page say after `#`, on the site and on GitHub."""
    titles = re.findall(r"^#+ (.*)$", outside_blocks(text), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def test_every_page_is_in_the_navigation():
    def pages(entries: list[Any]) -> list[str]:
        return [
            page
            for entry in entries
            for part in entry.values()
            for page in (pages(part) if isinstance(part, list) else [part])
        ]

    found = pages(tomllib.loads((DOCS / "zensical.toml").read_text())["project"]["nav"])
    assert sorted(found) == sorted(set(PAGES) - set(OUTSIDE))


def test_pages_of_classes_name_modules():
    named = [name for page in TEXT for name in re.findall(r"^::: ([\w.]+)", TEXT[page], re.MULTILINE)]
    assert "figura.interfaces" in named
    for name in named:
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """Where its generator is installed: the dependency group `docs`, in an environment of its own."""
    program = shutil.which("zensical", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("zensical is not installed; CONTRIBUTING.md")
    for folder in ("docs", "models", "figura"):
        ignore = shutil.ignore_patterns("__pycache__", ".cache", "build")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    command = [program, "build", "--strict", "--config-file", "docs/zensical.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for page in PAGES.keys() - OUTSIDE.keys():
        file = page if page == "index.md" else f"{page.removesuffix('.md')}/index.md"
        assert (tmp_path / "docs/build/site" / file).with_suffix(".html").is_file(), page


def test_classes_and_modules_exist():
    wrong = []
    systems = "|".join(path.name for path in (ROOT / "models").iterdir() if path.is_dir())
    for page, text in EVERY.items():
        for name in spans(page):
            if re.fullmatch(rf"(models\.[\w.]+|({systems})\.[A-Z]\w+)\.?\w*", name) and find_class(name) is None:
                importlib.import_module(name)
        for block in fences(text, "python"):
            compile(block, page, "exec")
            for module, classes in re.findall(r"^from ([\w.]+) import (.+)$", block, re.MULTILINE):
                home = importlib.import_module(module)
                names = [one for one in classes.split(", ") if not hasattr(home, one)]
                wrong += [f"{page}: {module}.{one}" for one in names if find_spec(f"{module}.{one}") is None]
    assert not wrong, "\n".join(wrong)


def test_environment_variables_and_make_targets_exist():
    code = [
        path
        for folder in ("figura/base", "figura/launch", "figura/training", "stages", "machines/slurm")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sbatch")
    ]
    variables = {name for path in code for name in re.findall(r"\bFIGURA_[A-Z_]+", path.read_text())}
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, text in EVERY.items():
        assert set(re.findall(r"\bFIGURA_[A-Z_]+", text)) <= variables, page
        assert set(re.findall(r"(?:`|^    )make ([\w-]+)", text, re.MULTILINE)) <= targets, page


def test_lines_are_no_longer_than_120_columns():
    """Tables and links may be; printed output in docs/ too."""
    long = [
        f"{page}:{number}"
        for page, path in PAGES.items()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120
        and not line.startswith("|")
        and "](" not in line
        and not re.match(r"\s{4}.*\S\s{2,}\S", line)
    ]
    assert not long, "\n".join(long)


@pytest.mark.usefixtures("pages_of_the_metrics")
def test_results_are_those_of_the_metrics():
    """A number in the README lies in the interval of the committed metric, and says which one it is."""
    rows = re.findall(
        r"^\| `([\w/.]+\.yaml)`.*?\| `([\w.]+)`.*?\| ([\d.]+) \[([\d.]+), ([\d.]+)\]", TEXT["README.md"], re.MULTILINE
    )
    recipes = recipe_map()
    assert sorted(row[0] for row in rows) == sorted(entry["params"] for entry in recipes.values())
    for file, key, *numbers in rows:
        name = next(name for name, entry in recipes.items() if entry["params"] == file)
        metric = json.loads((ROOT / f"metrics/full/{name}.json").read_text())
        for part in key.split("."):
            metric = metric[part]
        width = metric["high"] - metric["low"]
        assert [float(one) for one in numbers] == [
            pytest.approx(metric[end], abs=width / 2) for end in ("value", "low", "high")
        ], key


def test_memory_of_published_recipes_is_what_their_comments_say():
    rows = re.findall(r"^\| `(\w+\.yaml)` \|.*\| ([^|]*GiB[^|]*) \|[^|]*\|$", TEXT["recipes.md"], re.MULTILINE)
    assert {file for file, _ in rows} == {path.name for path in (ROOT / "recipes/published").glob("*.yaml")}
    for file, memory in rows:
        (wants,) = re.findall(r"^# Wants: (.*\n.*)", (ROOT / "recipes/published" / file).read_text(), re.MULTILINE)
        assert set(re.findall(r"\d+\.\d", memory)) <= set(re.findall(r"\d+\.\d", wants)), file


def test_lists_of_choices_are_complete():
    backbones = {name for name in BACKBONES if not re.fullmatch(r"resnet(34|50|101)", name)}  # resnet18 to resnet152
    assert backbones <= set(spans("recipes/pose.md"))
    (kinds,) = re.findall(r"`kind` is ([\w,\s]+)\.", TEXT["recipes/pix2pix.md"])
    assert set(re.split(r",\s| or ", kinds)) == set(get_args(Kind))


def recipe_map() -> dict[str, dict[str, str]]:
    return next(one["recipes"] for one in content("dvc.yaml")["vars"] if "recipes" in one)


def own_entry() -> dict[str, dict[str, str]]:
    """Return the entry of a recipe of one's own that docs/your_own_code.md shows."""
    (block,) = re.findall(r"^    # in dvc.yaml\n((?:    .*\n)+)", TEXT["your_own_code.md"], re.MULTILINE)
    return parse_yaml(re.sub("(?m)^    ", "", block), "your_own_code.md")


def test_an_entry_of_the_recipe_map_has_these_fields():
    (entry,) = own_entry().values()
    assert [list(one) for one in recipe_map().values()] == [list(entry)] * len(recipe_map())


def test_the_table_of_weights_is_that_of_dvc_yaml():
    rows = re.findall(r"^\| `weights/<recipe>/(\w+)` \| ([\w, -]+) \|", TEXT["weights/README.md"], re.MULTILINE)
    said = {(folder, stage) for folder, stages in rows for stage in stages.split(", ")}
    true = {
        (dep.rpartition("/")[2], name)
        for name, stage in content("dvc.yaml")["stages"].items()
        for dep in stage.get("do", {}).get("deps", ())
        if dep.startswith("weights/")
    }
    assert said == true


def test_a_stage_that_copies_weights_goes_before_the_training_that_reads_them():
    """The stage in weights/README.md, with a recipe `mine` that starts from another one."""
    (block,) = re.findall(r"^    (start-of-mine:\n(?:    .*\n)+)", TEXT["weights/README.md"], re.MULTILINE)
    recipes = recipe_map() | {"mine": {"params": "mine.yaml", "data": "pairs"}}
    stages = content("dvc.yaml")["stages"] | parse_yaml(re.sub("(?m)^    ", "", block), "weights/README.md")
    found = {one.name: one for one in instances({"vars": [{"recipes": recipes}], "stages": stages})}
    copy, training = found["start-of-mine"], found["train@mine"]
    (source,), (copied,) = copy.deps, copy.outs
    assert any(source.startswith(f"{out}/") for out in found["train@pix2pix"].outs)
    assert any(copied.startswith(f"{dep}/") for dep in training.deps)
    assert copy.command == ("cp", source, f"{Path(copied).parent}/")
    assert f"`networks.generator.weights: {copied}`" in TEXT["weights/README.md"]


def test_the_tree_has_every_folder():
    """Of the repository's root, of figura/ and of models/, as git knows them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git repository")
    files = [path.split("/") for path in listed.stdout.splitlines() if path[0] != "."]
    folders = {parts[0] for parts in files if len(parts) > 1}
    folders |= {parts[1] for parts in files if parts[0] in ("figura", "models") and len(parts) > 2}
    (tree,) = fences(EVERY["architecture.md"], "")
    assert folders <= set(re.findall(r"(?:^|\s)(\w+)/", tree))


def test_the_walk_to_backward_calls_what_is_there():
    section = TEXT["architecture.md"].partition("\n## From `dvc repro` to `backward()`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?:`([\w/.]+)`)? ?\| `([\w.]+)` \|", section, re.MULTILINE)
    assert [call for _, call in rows if "." in call][:1] == ["Trainer.fit"]
    file = ""
    for place, call in rows:
        file = place or file
        path = ROOT / file / "__init__.py" if (ROOT / file).is_dir() else ROOT / file
        assert f"def {call.rpartition('.')[2]}(" in path.read_text(), f"{file}: {call}"

"""Write the JSON schema by which editors complete, explain and check recipes: `figura schema [MODULE ...]`.

It has all keys, and all types with their arguments, of figura, of `models`, of `torch.optim` and of the modules that
the command line names, such as `mine`. Types of other modules pass with any arguments. A recipe names the schema in its
first line: `# yaml-language-server: $schema=recipes/schema.json`.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from figura.base.error_collector import ErrorCollector
from figura.base.errors import UserError, one_line
from figura.base.files import write_text
from figura.commands import parser_of
from figura.recipe import schema as sections
from figura.recipe import types
from figura.recipe.expansion import KEY
from figura.recipe.schema import Declaration, Gated, Recipe
from figura.recipe.shares import FORM
from figura.recipe.stand_ins import annotations, is_stand_in
from figura.recipe.types import Slot, find_type
from figura.systems import PACKAGE, classes_in, modules_below, systems

FILE = Path("recipes/schema.json")
DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest draft that every editor reads: earlier versions of YAML's language server know no later one."""
MODULES = ("figura.callbacks", "torch.optim")
SLOTS = {
    "DatasetEntry": types.DATASET,
    "TrainingDataset": types.DATASET,
    "NetworkEntry": types.NETWORK,
    "LossEntry": types.LOSS,
    "InjectorEntry": types.INJECTOR,
    "ScheduleEntry": types.SCHEDULE,
    "Injector": types.INJECTOR,
    "Optimizer": types.OPTIMIZER,
    "Callback": types.CALLBACK,
    "Score": types.SCORE,
    "Picture": types.PICTURE,
    "Photos": types.PHOTOS,
    "Comparison": types.COMPARISON,
}
"""The kinds of declarations, by the names of their definitions in the schema."""
KEYS = {
    "schedule": "ScheduleEntry",
    "lr_schedule": "ScheduleEntry",
    "injectors": "Injector",
    "optimizer": "Optimizer",
    "callbacks": "Callback",
    "scores": "Score",
    "pictures": "Picture",
    "data": "Photos",
    "compare": "Comparison",
}
"""The definition of the plain `Declaration` at a key of a section."""
SECTIONS = ("StepEntry", "Train", "Evaluate", "Mode", "Grid", "Average", "Predict", "Metrics", "Headline", "Runtime")
"""The other definitions that may extend others."""
TIMES = ("after", "before", "evaluate_every", "record_every")
"""Keys of iterations that may be shares of a training."""
EXTENDS = {"type": "string", "description": "what has the other keys: a name beside it, or a dotted key"}
DEFINITIONS = "#/definitions/"
Json = dict[str, Any]
Arguments = dict[str, tuple[inspect.Parameter, Any]]
"""Parameters of a constructor and their annotations, by the names that a recipe uses."""


def main(arguments: list[str]) -> None:
    parser = parser_of("schema", __doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="another module with types, such as mine or timm")
    parser.add_argument("--output", type=Path, default=FILE, metavar="FILE", help=f"default: {FILE}")
    args = parser.parse_args(arguments)
    if not args.output.parent.is_dir():
        raise UserError(f"{args.output.parent}: no such folder; go to the root of a project, or name --output FILE")
    write_text(args.output, text(schema(args.modules)))
    print(f"wrote {args.output}")


def text(content: Json) -> str:
    """Return a schema as JSON, with one definition a line."""
    rows = ",\n".join(f"{_json(name)}:{_json(one)}" for name, one in content["definitions"].items())
    return _json(content | {"definitions": {}})[:-2] + f"\n{rows}\n}}}}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class ScheduleEntry(Declaration):
    """A number that changes during training, or a factor of one."""


class _Draft7(GenerateJsonSchema):
    """What pydantic checks, in draft 7; a schedule is a declaration."""

    def tuple_schema(self, schema: core_schema.TupleSchema) -> JsonSchemaValue:
        made = super().tuple_schema(schema)
        return {"items" if key == "prefixItems" else key: value for key, value in made.items()}

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> JsonSchemaValue:
        if schema["cls"] is types.SCHEDULE.base:
            return self.generate_inner(ScheduleEntry.__pydantic_core_schema__)
        return super().is_instance_schema(schema)


def schema(modules: list[str]) -> Json:
    """Return the schema of recipes, with the types of `modules` beside those that figura knows by itself.

    Raises:
        UserError: a module cannot be imported.
    """
    homes = systems() | {name: name for name in (*MODULES, *modules)}
    kinds = {slot: dict(_types(slot, homes)) for slot in dict.fromkeys(SLOTS.values())}
    takes = {kind: _arguments(kind) for of_slot in kinds.values() for kind in of_slot.values()}
    adapters = {(kind, name): _adapter(hint) for kind, given in takes.items() for name, (_, hint) in given.items()}
    recipe = TypeAdapter(Recipe).json_schema(ref_template=f"{DEFINITIONS}{{model}}", schema_generator=_Draft7)
    made, shared = TypeAdapter.json_schemas(
        [(key, "validation", adapter) for key, adapter in adapters.items()],
        ref_template=f"{DEFINITIONS}argument.{{model}}",
        schema_generator=_Draft7,
    )
    definitions: Json = {**recipe.pop("$defs"), "Recipe": recipe, "ScheduleEntry": shared["$defs"].pop("ScheduleEntry")}
    _refine(definitions)
    definitions |= {f"argument.{name}": _plain(one) for name, one in shared["$defs"].items()}
    definitions["argument.ScheduleEntry"] = {"$ref": f"{DEFINITIONS}ScheduleEntry"}
    for name, slot in SLOTS.items():
        entry = definitions.get(name) or definitions["Declaration"]
        definitions[name] = _entry(entry, name, kinds[slot], list(homes))
        for one, kind in kinds[slot].items():
            properties = {key: _plain(made[(kind, key), "validation"]) for key in takes[kind]}
            definitions[f"{name}.{one}"] = _of_type(kind, takes[kind], properties, entry["properties"])
    for name in definitions:
        family = name.partition(".")[0]
        for key, value in definitions[name].get("properties", {}).items():
            if key in TIMES or (family == "ScheduleEntry" and key != "type"):
                definitions[name]["properties"][key] = _or_share(value)
        if family in (*SLOTS, *SECTIONS):
            definitions[name] = _extending(definitions[name], complete=name not in ("Injector", "InjectorEntry"))
    recipe = definitions.pop("Recipe")
    _inherit(recipe, definitions, kinds[types.DATASET])
    return {"$schema": DRAFT} | recipe | {"definitions": dict(sorted(definitions.items()))}


def _types(slot: Slot, homes: dict[str, str]) -> Iterator[tuple[str, type]]:
    """Yield the types of a slot by name: those without a dot, then those of the modules in `homes`."""
    for prefix, module in {**({"": slot.home} if slot.home else {}), **homes}.items():
        if module == "torch.optim" and slot is not types.OPTIMIZER:
            continue  # its functions count as injectors
        for public in _public(module):
            name = f"{prefix}.{public}".lstrip(".")
            kind = find_type(name, slot, "", ErrorCollector(Path()))
            if kind is not None and (slot is not types.NETWORK or not issubclass(kind, types.LOSS.base)):
                yield name, kind


@cache
def _public(module: str) -> list[str]:
    """Return the public names that a module, or if it is a package of figura or `models`, a module below it, defines.

    Raises:
        UserError: one of them cannot be imported.
    """
    loaded = _imported(module)
    names = [name for name, part in vars(loaded).items() if str(getattr(part, "__module__", "")).startswith(module)]
    if module.partition(".")[0] in (PACKAGE, "figura"):
        for folder in getattr(loaded, "__path__", ()):
            for parts, path in modules_below(Path(folder)):
                if found := classes_in(path):
                    _imported(".".join((module, *parts)))
                    names += found
    return sorted({name for name in names if not name.startswith("_")})


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:  # anybody's code
        raise UserError(one_line(f"{module}: {type(error).__name__}: {error}")) from error


def _arguments(kind: type) -> Arguments:
    """Return what a recipe can pass to a constructor; `params` of an optimizer come from the engine."""
    hints = annotations(kind.__init__)  # type: ignore[misc]
    every = list(inspect.signature(kind).parameters.values())
    named = [one for one in every if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and one.name != "params"]
    return {one.name.rstrip("_"): (one, hints.get(one.name, Any)) for one in named}


def _adapter(hint: Any) -> TypeAdapter[Any]:
    """Return a validator of an annotation; of any value if a schema cannot say what it takes."""
    for config in (ConfigDict(arbitrary_types_allowed=True), None):  # models bring their own config
        try:
            adapter = TypeAdapter(hint, config=config)
            adapter.json_schema(schema_generator=_Draft7)
        except PydanticUserError:
            continue
        return adapter
    return TypeAdapter(Any)


def _refine(definitions: Json) -> None:
    """Describe the sections of a recipe, and tell the kinds of their declarations."""
    for name, section in definitions.items():
        model = getattr(sections, name, Declaration)
        if model is Declaration:
            continue
        documented = [model, *([Gated] if issubclass(model, Gated) else [])]
        section["description"] = "\n\n".join(inspect.cleandoc(kind.__doc__ or "") for kind in documented)
        for key, value in section["properties"].items():
            plain = json.dumps(value).replace('/Declaration"', f'/{KEYS.get(key, "Declaration")}"')
            section["properties"][key] = json.loads(plain)
    for name, definition in definitions.items():
        definitions[name] = _plain(definition)


def _plain(value: Any) -> Any:
    """Return a schema without titles, whose keys say what the docstring beside them says of them."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    made = {key: _plain(part) for key, part in value.items() if key != "title" or not isinstance(part, str)}
    if "patternProperties" in made:
        made["additionalProperties"] = False
        made["properties"] = {KEY: EXTENDS}
        made["patternProperties"] = {f"^(?!{KEY}$){key[1:]}": one for key, one in made["patternProperties"].items()}
    if isinstance(said := value.get("description"), str):
        made["description"] = _sentences(said)[0]
        _describe(made.get("properties", {}), said)
    return made


def _describe(properties: Json, said: str) -> None:
    """Give each property without a description what a docstring says of it, in `Args` or else where it names it."""
    for name, of_key in properties.items():
        listed = re.search(rf"^( *){name}(?: \(.*\))?: (.+(?:\n\1 +.+)*)", said, re.MULTILINE)
        about = [listed[2]] if listed else [one for one in _sentences(said) if f"`{name}`" in one]
        if about:
            of_key.setdefault("description", _sentences(about[0])[0])


def _sentences(said: str) -> list[str]:
    """Return the sentences of a text, each on one line; a paragraph ends one."""
    paragraphs = [" ".join(one.split()) for one in said.split("\n\n")]
    return [one for paragraph in paragraphs for one in re.split(r"(?<=\.) (?=[A-Z`])", paragraph)]


def _entry(entry: Json, name: str, kinds: dict[str, type], modules: list[str]) -> Json:
    """Return the definition of a declaration of any type: of those in `kinds`, or of other modules than `modules`."""
    said = [_sentences(_documented(kind))[0] for kind in kinds.values()]
    listed = {"enum": list(kinds), "enumDescriptions": said}
    known = "|".join(map(re.escape, modules))
    others = {"type": "string", "pattern": rf"^(?!({known})\.\w+$)[A-Za-z_]\w*(\.\w+)+$"}
    rules = [{"if": _of_constant(one), "then": {"$ref": f"{DEFINITIONS}{name}.{one}"}} for one in kinds]
    return entry | {"properties": entry["properties"] | {"type": {"anyOf": [listed, others]}}, "allOf": rules}


def _extending(definition: Json, *, complete: bool) -> Json:
    """Return the definition of an entry that needs its keys only if it extends no other.

    Unless it must be `complete`, it never needs them: an injector may differ from that of the mode that is extended.
    """
    needed = {"required": definition["required"]} if definition.get("required") else {}
    made = {key: value for key, value in definition.items() if key not in needed}
    made["properties"] = made["properties"] | {KEY: EXTENDS}
    return made | ({"if": {"not": {"required": [KEY]}}, "then": needed} if needed and complete else {})


def _or_share(value: Any) -> Any:
    """Return a schema that takes a share of the training where it takes an integer."""
    if isinstance(value, list):
        return [_or_share(part) for part in value]
    if not isinstance(value, dict):
        return value
    made = {key: _or_share(part) for key, part in value.items()}
    if value.get("type") != "integer":
        return made
    said = {key: made.pop(key) for key in ("default", "description") if key in made}
    return said | {"anyOf": [made, {"type": "string", "pattern": FORM}]}


def _documented(kind: type) -> str:
    """Return the docstrings of a class and of its bases in the same package."""
    package = kind.__module__.partition(".")[0]
    docs = [inspect.cleandoc(one.__doc__) for one in kind.__mro__ if one.__doc__ and one.__module__.startswith(package)]
    return "\n\n".join(docs) or kind.__name__


def _of_type(kind: type, arguments: Arguments, properties: Json, beside: Json) -> Json:
    """Return the definition of a declaration of one type: its arguments, and the keys of an entry that are `beside`."""
    needed = []
    for name, (parameter, _) in arguments.items():
        if parameter.default is parameter.empty:
            needed.append(name)
        else:
            try:
                properties[name]["default"] = json.loads(json.dumps(parameter.default, allow_nan=False))
            except (TypeError, ValueError):  # an object
                continue
    _describe(properties, _documented(kind))
    every = properties | dict.fromkeys(beside, True)
    if issubclass(kind, types.LOSS.base) and (roles := _roles(kind)):
        every["inputs"] = roles
    optional = getattr(kind, "from_data", ())
    made = {"properties": every, "required": [name for name in needed if name not in (*optional, *beside)]}
    more = any(one.kind is one.VAR_KEYWORD for one in inspect.signature(kind).parameters.values())
    return made if is_stand_in(kind) and more else made | {"additionalProperties": False}


def _roles(kind: Any) -> Json | None:
    """Return the schema of a loss's `inputs`; None where any name may be a role."""
    roles = list(inspect.signature(kind.forward).parameters.values())[1:]
    if any(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in roles):
        return None
    needed = [one.name for one in roles if one.default is one.empty]
    return {
        "properties": {one.name: {"type": "string"} for one in roles},
        "required": needed,
        "additionalProperties": False,
    }


def _inherit(recipe: Json, definitions: Json, datasets: dict[str, type]) -> None:
    """Let datasets take keys from `data.common`, and be checked as of the type that stands there."""
    entry, data = definitions["DatasetEntry"], definitions["Data"]
    data["properties"]["common"] = {"type": "object", "properties": {"type": entry["properties"]["type"]}}
    for kind in ("DatasetEntry", "TrainingDataset"):
        definitions[kind]["then"]["required"].remove("type")
        definitions |= {one: definitions[one] | {"then": {}} for name in datasets if (one := f"{kind}.{name}")}
    recipe["allOf"] = []
    for name in datasets:
        of_type, training = ({"$ref": f"{DEFINITIONS}{kind}.{name}"} for kind in ("DatasetEntry", "TrainingDataset"))
        each, of_train = (
            {"additionalProperties": {"if": {"required": ["type"]}, "else": one}} for one in (of_type, training)
        )
        named = {"properties": {"common": _of_constant(name)}, "required": ["common"]}
        here = {"properties": {"common": of_type, "train": of_train, "validation": each}}
        then = {"properties": {"data": here, "evaluate": {"properties": {"data": each}}}}
        recipe["allOf"].append({"if": {"properties": {"data": named}, "required": ["data"]}, "then": then})


def _of_constant(name: str) -> Json:
    return {"properties": {"type": {"const": name}}, "required": ["type"]}

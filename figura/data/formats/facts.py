"""The facts of a prepared dataset, `data/prepared/<name>/facts.json`.

Keys of a people dataset:
    skeleton: the joints, as accepted by `figura.data.formats.skeletons.skeleton_from`; null without joints.
    categories: `[{"id": 1, "name": "person"}, ...]`, sorted by id; a detection field is an index into this list.
    people: the name of the category with joints; null if there is none. Its annotations are the persons.
    annotated: split -> counts of `images`, `persons` (no crowd regions), persons `with_joints`, `boxes` (annotations of
        all categories, no crowd regions), `identities` (different values of `person_id`) and `identities_seen_twice`
        (those of two persons or more); and `annotated`, false for a split whose source has no annotations.
"""

from pathlib import Path
from typing import Any

from figura.base.errors import UserError
from figura.base.files import read_json

FACTS = "facts.json"


def read_facts(root: Path) -> dict[str, Any]:
    """Return the facts of the prepared dataset in the folder `root`; `{}` if it has no `facts.json`.

    Raises:
        UserError: the file is not a JSON object.
    """
    path = root / FACTS
    if not path.exists():
        return {}
    facts = read_json(path, f"run `dvc repro prepare@{root.name}`")
    if not isinstance(facts, dict):
        raise UserError(f"{path}: found {str(facts)[:80]!r}; expected a map; run `dvc repro prepare@{root.name}`")
    return facts

"""The category of people among the categories of a COCO file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figura.base.errors import UserError, nearest
from figura.formats.coco import KEYPOINTS, PERSON, categories_by_id, check_keypoints
from figura.formats.keypoint_sets import AP10K, HUMANART21, SETS, WHOLEBODY, same_joints, set_of
from figura.formats.skeletons import Skeleton
from figura.preparation.settings import KeypointSettings

Category = dict[str, Any]
_OF_JOINTS = ("keypoints", "skeleton", "sigmas", "flip", "flip_pairs", "standing_pose")
_NAMED = 20  # joints listed in an error


@dataclass(frozen=True)
class People:
    """The category of people of a file: the annotations of `members` become annotations of the category `id`.

    Attributes:
        id: the category's id.
        name: its name.
        members: the merged categories of the file, by id.
        keypoints: the names of its joints; empty if unknown.
    """

    id: int
    name: str
    members: dict[int, Category]
    keypoints: tuple[str, ...]

    @property
    def entry(self) -> Category:
        """The first of the members, with the id and name of people."""
        return {**next(iter(self.members.values())), "id": self.id, "name": self.name}

    def renames(self, number: int, name: str) -> bool:
        """Return whether annotations of the member with this id and name get another category."""
        return len(self.members) > 1 or (number, name) != (self.id, self.name)


def choose_people(
    path: Path, categories: Any, wanted: str | Sequence[str] | None, settings: KeypointSettings, key: str
) -> People | None:
    """Return the category of people; None if no category has joints.

    It is the one in `wanted`; or `person`; or the only one with keypoints; or all with keypoints together, if these are
    equal. Merged categories get the smallest of their ids, and the instance name of the published set with these joints
    (`animal`), or their common `supercategory`, or `instance`. Joints of `person` without `keypoints` are COCO's.

    Raises:
        UserError: there is no such category; or several have different keypoints: then `category`, at the dotted `key`,
            decides; or joints in the settings differ from the file.
    """
    known = categories_by_id(path, categories)
    if not known:
        raise UserError(f"{path}: categories: the list is empty")
    if wanted is not None:
        members = _named(path, known, [wanted] if isinstance(wanted, str) else wanted, key)
    else:
        members = _found(path, known, settings, key)
    if not members:
        return None
    jointed = {one.get("name") for one in members.values() if one.get("keypoints")}
    # Roboflow has a category above all, without joints, which may have the name of the one below
    members = {number: one for number, one in members.items() if one.get("keypoints") or one.get("name") not in jointed}
    for member in members.values():
        check_keypoints(path, member)
    _check_same(path, members, key)
    in_file = tuple(name.strip() for name in next(iter(members.values())).get("keypoints") or ())
    if in_file:
        _check_names(path, in_file, settings, key)
    stated = stated_names(settings)
    in_set = settings.set is not None and same_joints(in_file, stated)
    keypoints = in_file if in_set else stated or in_file
    if not keypoints and any(map(_is_person, members.values())):
        keypoints = KEYPOINTS
    return People(min(members), _name(members, keypoints), members, tuple(keypoints))


def _check_names(path: Path, in_file: tuple[str, ...], settings: KeypointSettings, key: str) -> None:
    """Raise UserError if the settings' names cannot be those of the file's joints.

    A set must have the file's names, in any order and spelling, except that WholeBody's and Human-Art's files only name
    those of the body, which are COCO's. Other names are arbitrary: one per joint of the file.
    """
    stated = stated_names(settings)
    if settings.keypoints and len(stated) != len(in_file):
        raise UserError(
            f"{key}.keypoints.keypoints: found {len(stated)} names; {path} has {len(in_file)} keypoints: "
            f"{', '.join(in_file)}"
        )
    whole = stated in (WHOLEBODY.keypoints, HUMANART21.keypoints) and in_file == KEYPOINTS
    if settings.set and not whole and not same_joints(in_file, stated):
        raise UserError(
            f"{key}.keypoints: the set {settings.set!r} has {len(stated)} joints, {_listed_names(stated)}; {path} has "
            f"{len(in_file)}, {_listed_names(in_file)}; leave out the set, or write names in the file's order to "
            f"{key}.keypoints.keypoints"
        )


def _listed_names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])}, ..."


def stated_names(settings: KeypointSettings | None) -> tuple[str, ...]:
    """Return the joint names in the settings; empty if they come from the file."""
    if settings is not None and settings.set is not None:
        return SETS[settings.set].keypoints
    return tuple(settings.keypoints or ()) if settings is not None else ()


def standing_pose_of(people: People, settings: KeypointSettings) -> NDArray[np.float64] | None:
    """Return the standing pose (K, 2) that is known before any annotation: of the settings or a published set."""
    if settings.standing_pose is not None and len(settings.standing_pose) == len(people.keypoints):
        return np.array(settings.standing_pose)
    published = set_of(people.keypoints)
    return published.standing_pose if published else None


def _listed(members: dict[int, Category]) -> str:
    joints = {str(one.get("name")): one.get("keypoints") for one in members.values()}
    return ", ".join(f"{one} ({len(has) if isinstance(has, list) else 0} keypoints)" for one, has in joints.items())


def _named(path: Path, known: dict[int, Category], names: Sequence[str], key: str) -> dict[int, Category]:
    there = [str(one.get("name")) for one in known.values()]
    for name in names:
        if name not in there:
            raise UserError(
                f"{key}.category: {path} has no category {name!r}{nearest(name, there)}; there are {_listed(known)}"
            )
    return {number: one for number, one in known.items() if one.get("name") in names}


def _found(path: Path, known: dict[int, Category], settings: KeypointSettings, key: str) -> dict[int, Category]:
    with_joints = {number: one for number, one in known.items() if one.get("keypoints")}
    person = {number: one for number, one in known.items() if _is_person(one)}
    if person and (not with_joints or any(number in with_joints for number in person)):
        return person
    if with_joints:
        return with_joints
    if not stated_names(settings):
        return {}
    if len(known) > 1:
        raise UserError(
            f"{path}: categories: none has keypoints; write the one that the joints belong to to {key}.category: "
            f"{_listed(known)}"
        )
    return known


def _is_person(category: Category) -> bool:
    """Return whether a category is named `person`, in any case and with blanks around it."""
    return str(category.get("name")).strip().casefold() == PERSON


def _check_same(path: Path, members: dict[int, Category], key: str) -> None:
    first = next(iter(members.values())).get("keypoints") or []
    if any((one.get("keypoints") or []) != first for one in members.values()):
        names = [one.get("name") for one in members.values()]
        raise UserError(
            f"{path}: categories: {_listed(members)}: different joints cannot be one category; write the one to use, "
            f"as in `category: {names[0]}`, to {key}.category"
        )


def _name(members: dict[int, Category], keypoints: Sequence[str]) -> str:
    if len(members) == 1:
        (member,) = members.values()
        return PERSON if _is_person(member) else str(member.get("name"))
    if set_of(keypoints):
        return "animal" if same_joints(keypoints, AP10K.keypoints) else PERSON
    above = {one.get("supercategory") for one in members.values()}
    common = above.pop() if len(above) == 1 else None
    return str(common or "instance")


def written_categories(
    categories: Sequence[Category], people: People | None, skeleton: Skeleton | None
) -> list[Category]:
    """Return the categories of a prepared file: that of people, with its joints, replaces its first member.

    No other category has joints, so it is identified by them.
    """
    if people is None:
        return list(categories)
    entry = {key: value for key, value in people.entry.items() if key not in _OF_JOINTS}
    if skeleton is not None:
        entry["keypoints"] = list(skeleton.keypoints)
        entry["skeleton"] = [[a + 1, b + 1] for a, b in skeleton.connections]
    written = []
    for category in categories:
        if category["id"] not in people.members:
            written.append({key: value for key, value in category.items() if key not in _OF_JOINTS})
        elif entry not in written:
            written.append(entry)
    return written

"""OpenPifPaf's checkpoints since 0.13: {model, epoch, meta} with a pickled network, or its state dictionary.

Names are the same except for heads: OpenPifPaf numbers them (`head_nets.0.conv.weight`), figura names them
(`head_nets.cif.conv.weight`). OpenPifPaf's heads are, in this order, cif (17 fields), caf (19) and, in dense
checkpoints, caf25 (25) of `cocokp`, and cifdet (91) of `cocodet`. Checkpoints are those of
openpifpaf/network/trainer.py.
"""

from typing import Any

from torch import nn

from figura.base.errors import UserError, nearest
from figura.commands.import_weights.plan import Plan, Tensors
from figura.commands.import_weights.safe_unpickle import Placeholder, children_of

TYPE = "pose.PoseNetwork"
RECIPE = "recipes/published/openpifpaf_shufflenetv2k16.yaml"
HEADS = "head_nets."
LEFT_OUT = "-"
EARLIER_HEAD = "CompositeField3"  # before 0.13; different components in a different order
REMEDY = (
    "the recipe's backbone and its options have to be those of the checkpoint, and its heads too: published ones have "
    "upsample 2 and, in this order, cif with 17 fields, caf with 19 and, if dense, one of kind caf with 25 (cocokp), "
    "or cifdet with 91 (cocodet); heads from before OpenPifPaf 0.13 fit none"
)


def refuse_content(content: Any) -> None:
    """Raise UserError for a pickled network with heads from before OpenPifPaf 0.13, whose tensors may fit."""
    for network in content.values() if isinstance(content, dict) else (content,):
        modules = children_of(network) if isinstance(network, Placeholder) else {}
        for place, head in children_of(modules["head_nets"]).items() if "head_nets" in modules else ():
            if head.stands_for.endswith(f".{EARLIER_HEAD}"):
                raise UserError(
                    f"head {place} is a {EARLIER_HEAD}, from before OpenPifPaf 0.13, with other components than "
                    "today's; a checkpoint of 0.13 is needed"
                )


def plan(tensors: Tensors, network: nn.Module, heads: str | None = None) -> Plan:
    """Plan the checkpoint's tensors for a `PoseNetwork`.

    `heads` are the network's names of the checkpoint's heads, in order, separated by commas; `-` drops a head. Without
    it, they are all heads of the network. Heads of the network that it does not name stay as they are.

    Raises:
        UserError: `heads` has a name twice, or one that the network lacks.
    """
    own = list(network.get_submodule("head_nets")._modules)
    names = own if heads is None else heads.split(",")
    for head in set(names) - {LEFT_OUT}:
        if head not in own:
            raise UserError(f"--heads {head!r}{nearest(head, own)}: the recipe has {', '.join(own)}")
        if names.count(head) > 1:
            raise UserError(f"--heads {head!r}: is there twice")
    numbered, places, ignored = {str(number): head for number, head in enumerate(names)}, {}, set()
    for name in tensors:
        number, _, rest = name.removeprefix(HEADS).partition(".")
        places[name] = name
        if name.startswith(HEADS) and number in numbered:
            head = numbered[number]
            places[name] = f"{HEADS}{head}.{rest}"
            if head == LEFT_OUT:
                ignored.add(name)
    fresh = [head for head in own if head not in names]
    said = [f"head {number} becomes {head}" for number, head in enumerate(names) if head != LEFT_OUT]
    said += [f"{head} starts at random" for head in fresh]
    return Plan(
        TYPE, {}, places, (RECIPE, "network"), ignored=frozenset(ignored), remark=", ".join(said),
        kept=frozenset(name for name in network.state_dict() if name.startswith(tuple(f"{HEADS}{h}." for h in fresh))),
        remedy=f"; {', '.join(f'head {number} is {head}' for number, head in enumerate(names))}; {REMEDY}",
    )  # fmt: skip

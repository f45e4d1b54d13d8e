"""State dictionaries of any network, for the same network in a recipe: a class of the user's own, or of any package.

Names and shapes have to be the network's. A prefix that its names have in the file, such as `generator.` in a
checkpoint of Lightning or `netG.` for a key of several, is found; tensors without it belong to other networks.
"""

from torch import nn

from figura.base.errors import UserError
from figura.commands.import_weights.plan import COUNTER, Plan, Tensors
from figura.systems import SHIPPED

TYPE = ""  # any
RECIPE = "mine.yaml, which names the network's class as a `type`"
UNITS = "the file does not say which range of values the network reads and gives; figura's images are in [-1, 1]"


def plan(tensors: Tensors, network: nn.Module, heads: None = None) -> Plan:
    """Plan the tensors whose names are the network's, perhaps behind a prefix.

    Raises:
        UserError: the names of the network are there several times, behind different prefixes.
    """
    del heads
    own = list(network.state_dict())
    prefixes = {name.removesuffix(end) for end in own for name in tensors if f".{name}".endswith(f".{end}")}
    fitting = [one for one in prefixes if all(one + name in tensors for name in own if not name.endswith(COUNTER))]
    if len(fitting) > 1:
        raise UserError(
            f"its names fit the network behind each of the prefixes {', '.join(map(repr, sorted(fitting)))}; "
            "write the tensors of one prefix to a file of their own"
        )
    prefix = max(sorted(prefixes), key=lambda one: sum(one + name in tensors for name in own), default="")
    others = frozenset(name for name in tensors if not name.startswith(prefix))
    left = f"{len(others):,} tensors without the prefix {prefix} are left out; " if others else ""
    name = f"{type(network).__module__}.{type(network).__qualname__}".removeprefix(f"{SHIPPED}.")
    return Plan(
        name, {}, {prefix + one: one for one in own}, (RECIPE, ""),
        ignored=others, remark=left + UNITS,
    )  # fmt: skip

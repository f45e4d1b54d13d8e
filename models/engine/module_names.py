"""Modules of a network by the names that a recipe gives: `base_net`, `trunk.3`, or a pattern such as `*.stage2.*`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from models.base.errors import UserError, nearest


def modules_named(network: nn.Module, patterns: Sequence[str], key: str) -> dict[str, nn.Module]:
    """Return the modules of a network whose names match a pattern, without those inside another of them.

    In a pattern, `*` stands for any characters, dots included.

    Raises:
        UserError: a pattern matches no module; `key` is the place of the patterns in the recipe.
    """
    modules = {name: module for name, module in network.named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in modules):
            tops = ", ".join(name for name, _ in network.named_children())
            raise UserError(
                f"{key}: {type(network).__name__} has no module {pattern!r}{nearest(pattern, modules)}; "
                f"it consists of {tops or 'none'}"
            )
    return outermost({n: m for n, m in modules.items() if any(fnmatchcase(n, pattern) for pattern in patterns)})


def outermost(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Leave out the modules that lie inside another one."""
    return {
        name: module for name, module in modules.items() if not any(name.startswith(f"{other}.") for other in modules)
    }

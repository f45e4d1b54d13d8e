"""Look up modules of a network by names in a recipe: `base_net`, `trunk.3`, or a pattern such as `*.stage2.*`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from figura.base.errors import UserError, nearest


def modules_named(network: nn.Module, patterns: Sequence[str], key: str) -> dict[str, nn.Module]:
    """Return the modules of a network whose names match a pattern, except those nested in another match.

    In a pattern, `*` stands for any characters, dots included.

    Raises:
        UserError: a pattern matches no module; `key` is the recipe key of the patterns.
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
    """Drop modules nested in another one."""
    return {
        name: module for name, module in modules.items() if not any(name.startswith(f"{other}.") for other in modules)
    }

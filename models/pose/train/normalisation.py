"""Settings of normalisation layers (specification 1.5), and BatchNorm that no longer follows its batches."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

BATCH_EPS = 1e-3  # of BatchNorm, at least
OTHER_EPS = 1e-4
MOMENTUM = 0.01  # the weight of the new batch


def settle_norms(network: nn.Module, batch_eps: float = BATCH_EPS) -> None:
    """Set eps and momentum of every normalisation layer in place; a BatchNorm's eps is raised to `batch_eps`, never cut.

    A large eps bounds the gain of channels that hardly vary: see the rule lr x clip <= sqrt(eps).
    """
    for module in network.modules():
        if isinstance(module, _InstanceNorm):
            module.eps, module.momentum = OTHER_EPS, MOMENTUM
        elif isinstance(module, _BatchNorm):
            module.eps, module.momentum = max(module.eps, batch_eps), MOMENTUM
        elif isinstance(module, nn.GroupNorm | nn.LayerNorm):
            module.eps = OTHER_EPS


def freeze_batch_norms(network: nn.Module) -> None:
    """Switch every BatchNorm to its running statistics, and keep those; gain and offset are still trained."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.eval()

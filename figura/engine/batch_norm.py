"""Batch normalisation over the batch of all ranks: its statistics do not depend on the number of ranks."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from figura.base.distributed import current_shard, whole_batch

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """BatchNorm that trains on the statistics of the full sharded batch; otherwise a plain BatchNorm.

    On CPUs, a plain one trains on contiguous input: with channels last, PyTorch adds up each channel one value after
    the other in float32, and gradients of gains are off by 1e-4 to 1e-2.

    `torch.nn.SyncBatchNorm` needs a GPU, and it also waits for other ranks in validation, where their batches may
    differ or be missing. Shapes, arguments, parameters and buffers are those of `torch.nn.BatchNorm*d`. Mean and
    variance are computed in float32 or float64 from the means m_r and variances v_r of the ranks, which have equally
    many values: mean(m_r), and mean(v_r + (m_r - mean)^2).
    """

    def _check_input_dim(
        self, input: Tensor
    ) -> None:  # `share_batch_norms` replaced a BatchNorm*d, which knew its own dimensions
        if input.dim() < 2:
            raise ValueError(f"expected (N, C, ...), got {input.dim()} dimensions")

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, ...), any float type -> the same."""
        shard = current_shard()
        if shard is None or not self.training:
            return super().forward(input.contiguous() if self.training and input.device.type == "cpu" else input)
        self._check_input_dim(input)
        values = input if input.dtype == torch.float64 else input.float()
        axes = [axis for axis in range(input.dim()) if axis != 1]
        own_variance, own_mean = torch.var_mean(values, dim=axes, correction=0)
        means, variances = whole_batch(torch.cat([own_mean, own_variance])[None]).chunk(2, dim=1)
        mean = means.mean(dim=0)
        variance = (variances + (means - mean).square()).mean(dim=0)
        self._follow(mean.detach(), variance.detach(), shard.ranks * input.numel() // input.shape[1])
        shape = [1, -1, *[1] * (input.dim() - 2)]
        scale = (variance + self.eps).rsqrt() * (1 if self.weight is None else self.weight)
        # centre first: far from 0, the gradient of the scale would be a small difference of large sums
        output = (values - mean.view(shape)) * scale.view(shape)
        return (output if self.bias is None else output + self.bias.view(shape)).to(input.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Update the running statistics, with the unbiased variance (Bessel's correction for `count` values)."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_((variance * (count / max(count - 1, 1))).to(self.running_var.dtype), momentum)


def share_batch_norms(network: nn.Module) -> None:
    """Convert every BatchNorm of a network to `SharedBatchNorm`, in place. Subclasses are not converted."""
    for module in network.modules():
        if type(module) in KINDS:
            module.__class__ = SharedBatchNorm  # same attributes, different `forward`

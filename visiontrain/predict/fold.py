"""Fold BatchNorm into the convolution before it: the same numbers to rounding, in one pass over memory instead of two.

For networks that only predict: what is folded can no longer be trained or saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

_PAIRS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "visiontrain.models.layers.ConvNorm": (("conv", "norm"),),
    "torchvision.models.resnet.BasicBlock": (("conv1", "bn1"), ("conv2", "bn2")),
    "torchvision.models.resnet.Bottleneck": (("conv1", "bn1"), ("conv2", "bn2"), ("conv3", "bn3")),
    "torchvision.models.resnet.ResNet": (("conv1", "bn1"),),
}
"""Modules that hand the output of a convolution to a normalization and to nothing else, by their attributes.

By the names of the classes: to import those of torchvision takes seconds, and no network of ours has any.
"""


def fold_norms_(network: nn.Module) -> int:
    """Fold every BatchNorm that directly follows a convolution, by its running statistics.

    Source: Jacob et al. 2018, Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference (arXiv:1712.05877), section 3.2.

    Args:
        network: It is put into evaluation mode. Other normalizations, and such as stand elsewhere, stay.

    Returns:
        How many were folded.
    """
    network.eval()
    num_folded = 0
    for parent in list(network.modules()):
        for conv_name, norm_name in _pairs_of(parent):
            conv, norm = parent.get_submodule(conv_name), parent.get_submodule(norm_name)
            if not (isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)):
                continue
            if norm.running_var is not None:
                setattr(parent, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(parent, norm_name, nn.Identity())
                num_folded += 1
    return num_folded


def _pairs_of(parent: nn.Module) -> Iterator[tuple[str, str]]:
    for kind in type(parent).__mro__:
        yield from _PAIRS.get(f"{kind.__module__}.{kind.__qualname__}", ())
    if isinstance(parent, nn.Sequential):
        yield from pairwise(parent._modules)

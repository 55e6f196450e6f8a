"""BatchNorm's running statistics, estimated anew where training has left only a fading memory of them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from visiontrain.engine.precision import Precision
from visiontrain.sample import Batch


def estimate_running_statistics_(
    network: nn.Module, batches: Iterable[Batch], precision: Precision, device: torch.device
) -> None:
    """Set the running statistics of `network` to their mean over `batches`, each counting the same.

    In training they are a moving average over weights that have changed since. These are of the final weights alone.

    Source: Wu & Johnson 2021, Rethinking "Batch" in BatchNorm (arXiv:2105.07576), section 3.
    """
    with precision.autocast():
        update_bn((batch.images for batch in batches if len(batch)), network, device)

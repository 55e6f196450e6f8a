"""Normalization layers of feature maps, and how one kind takes the place of another.

batch    BatchNorm over the images of a micro-batch
frozen   BatchNorm by its running statistics, which stay as they are; its weight and bias learn
group    GroupNorm, which sees one image at a time and so knows nothing of micro-batches
sync     BatchNorm over the micro-batches of all processes; with one process the same as `batch`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from visiontrain.models.network import Network

# Source: Wu & He 2018, Group Normalization (arXiv:1803.08494), section 4.1: 32 groups. Where there are few channels, we
# take fewer groups rather than such of a few channels, which come close to instance normalization (table 3: worse).
MOST_GROUPS = 32
LEAST_GROUP_CHANNELS = 8


class FrozenBatchNorm(nn.BatchNorm2d):
    """BatchNorm that always normalizes by its running statistics and never moves them.

    This does not hang on `training`, which anybody may set; the mode of the network comes and goes as usual.
    """

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )

    def reset_running_stats(self) -> None:
        """Nothing: whoever estimates statistics anew resets all layers first, and these stay as they are."""


class ChannelGroupNorm(nn.GroupNorm):
    """GroupNorm in the place of a BatchNorm.

    Attributes:
        momentum: Of that BatchNorm; unused here, kept for the way back.
    """

    def __init__(self, num_channels: int, *, eps: float, momentum: float | None, affine: bool) -> None:
        super().__init__(num_groups(num_channels), num_channels, eps=eps, affine=affine)
        self.momentum = momentum


_BATCH_NORMS: Mapping[str, type[_BatchNorm]] = {
    "frozen": FrozenBatchNorm,  # before its parent
    "batch": nn.BatchNorm2d,
    "sync": nn.SyncBatchNorm,
}
NORMS = ("batch", "frozen", "group", "sync")
"""The kinds that `set_norm_` knows."""


def num_groups(channels: int) -> int:
    """The most groups that divide `channels`, up to 32 and of at least 8 channels each; 1 where there are none."""
    most = min(MOST_GROUPS, channels // LEAST_GROUP_CHANNELS)
    return next((groups for groups in range(most, 1, -1) if channels % groups == 0), 1)


def set_norm_(network: nn.Module, kind: str, *, only: Collection[str] | None = None) -> None:
    """Make every normalization layer of 2-d feature maps in `network` one of `kind`.

    Weights and biases stay the very same parameters, so an optimizer that holds them goes on; running statistics stay
    too where both kinds have them, and start at mean 0 and variance 1 after GroupNorm. Nothing random is drawn. Other
    layers (a GroupNorm that was not put here, BatchNorm1d) are left alone. A `Network` notes in its description whether
    it is to be built with GroupNorm.

    Args:
        network: Any network that holds nn.BatchNorm2d, nn.SyncBatchNorm (of feature maps), or what an earlier call made
            of them.
        kind: One of `NORMS`.
        only: Paths of layers, the others being left alone; what is noted of the network then stays too.

    Raises:
        ValueError: If there is no such kind, or `network` is itself such a layer.
    """
    if kind not in NORMS:
        raise ValueError(f"norm = {kind!r}; it should be one of {', '.join(NORMS)}")
    if kind_of(network) is not None:
        raise ValueError(f"{type(network).__name__} is a normalization layer itself; give the network that holds it")
    places = list(network.named_modules(remove_duplicate=False))
    replaced: dict[nn.Module, nn.Module] = {}  # a layer that stands in two places remains one
    for path, layer in places:
        is_meant = only is None or path in only
        if is_meant and isinstance(layer, _BatchNorm | ChannelGroupNorm) and kind_of(layer) not in (None, kind):
            if layer not in replaced:
                replaced[layer] = _converted(layer, kind)
            parent, _, name = path.rpartition(".")
            setattr(network.get_submodule(parent), name, replaced[layer])
    if isinstance(network, Network) and only is None:
        network.description["norm"] = "group" if kind == "group" else "batch"


def set_momentum_(network: nn.Module, momentum: float) -> None:
    """Set the weight of a micro-batch in all running statistics, (0, 1]; they remember about 1/momentum of them."""
    for layer in network.modules():
        if isinstance(layer, _BatchNorm | ChannelGroupNorm):
            layer.momentum = momentum


def has_running_statistics(network: nn.Module) -> bool:
    """Whether training moves running statistics: not so where all layers are frozen or look at one image."""
    return any(
        isinstance(layer, _BatchNorm) and layer.track_running_stats and not isinstance(layer, FrozenBatchNorm)
        for layer in network.modules()
    )


def has_layers_to_set(network: nn.Module) -> bool:
    """Whether the network has any layer of which `set_norm_` decides."""
    return any(kind_of(layer) is not None for layer in network.modules())


def kind_of(layer: nn.Module) -> str | None:
    """The kind of a layer that `set_norm_` may replace; None of all others."""
    if isinstance(layer, ChannelGroupNorm):
        return "group"
    return next((kind for kind, norm in _BATCH_NORMS.items() if isinstance(layer, norm)), None)


def _converted(layer: _BatchNorm | ChannelGroupNorm, kind: str) -> nn.Module:
    """A layer of `kind` with all that `layer` has for it."""
    channels = layer.num_channels if isinstance(layer, ChannelGroupNorm) else layer.num_features
    converted: _BatchNorm | ChannelGroupNorm
    if kind == "group":
        converted = ChannelGroupNorm(channels, eps=layer.eps, momentum=layer.momentum, affine=layer.affine)
    else:
        # Frozen statistics are needed even where a layer never had any; they then are mean 0 and variance 1.
        tracks = kind == "frozen" or isinstance(layer, ChannelGroupNorm) or layer.track_running_stats
        converted = _BATCH_NORMS[kind](channels, layer.eps, layer.momentum, layer.affine, tracks)
    like = next(chain(layer.parameters(), layer.buffers()), None)
    if like is not None:
        converted.to(like.device, like.dtype)
    kept = {**layer._parameters, **layer._buffers}
    for name in (*converted._parameters, *converted._buffers):
        if kept.get(name) is not None:
            setattr(converted, name, kept[name])
    return converted.train(layer.training)

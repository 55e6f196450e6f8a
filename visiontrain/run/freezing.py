"""Which parameters a run keeps as they are, and which learn at rates of their own; what is said of both."""

from __future__ import annotations

from collections.abc import Iterator

from visiontrain.config.schema import Config
from visiontrain.engine.freeze import Frozen, freeze_, matching, split_patterns
from visiontrain.engine.optimizer import Part, Parts
from visiontrain.errors import ConfigError
from visiontrain.models.anatomy import Anatomy, anatomy_of
from visiontrain.models.network import Network
from visiontrain.models.norm import has_running_statistics
from visiontrain.run.normalization import KEYS_OF_RUNNING_STATISTICS

BACKBONE = "backbone"


def set_up_freezing_(network: Network, config: Config) -> Frozen | None:
    """Freeze what `freeze` asks for.

    Raises:
        ConfigError: If that is nothing or everything, or if a key was typed that has no effect then.
    """
    if not config.freeze:
        if config.unfreeze_epoch is not None:
            raise ConfigError("unfreeze_epoch: has no effect without freeze; leave it out, or name what is frozen")
        return None
    names = _names_to_freeze(network, config)
    num_learning = sum(name not in names for name, _ in network.named_parameters())
    if not names or not num_learning:
        what = "nothing that has weights" if not names else "every parameter"
        raise ConfigError(f"freeze = {_shown(config)}: freezes {what}; {_choices(anatomy_of(network))}")
    if config.unfreeze_epoch is not None and config.unfreeze_epoch > config.epochs and not config.resume:
        raise ConfigError(
            f"unfreeze_epoch = {config.unfreeze_epoch}: the run has {config.epochs} epochs, so nothing would learn "
            "again; choose an earlier one, or leave it out"
        )
    frozen = freeze_(network, names)
    faults = list(_useless_keys(network, config))
    if faults:
        raise ConfigError(faults)
    return frozen


def rates_of(network: Network, config: Config) -> Parts | None:
    """The parameters that learn at rates of their own; None where all have one rate.

    The k-th backbone layer from the top learns at lr0 × lr_backbone × layer_decay^k, all else at lr0.

    Source: Howard & Ruder 2018, Universal Language Model Fine-tuning (arXiv:1801.06146), section 3.2, for rates that
    fall from layer to layer.
    """
    if config.lr_backbone == 1 and config.layer_decay == 1:
        return None
    anatomy = anatomy_of(network)
    count = anatomy.num_backbone
    if config.layer_decay == 1:
        parts = [Part(BACKBONE, config.lr_backbone)] * count
    else:
        scales = [config.lr_backbone * config.layer_decay ** (count - index) for index in range(count)]
        parts = [Part(path, scale) for path, scale in zip(anatomy.layers, scales, strict=False)]
    layers = {name: anatomy.layer_of(name) for name, _ in network.named_parameters()}
    return {name: parts[layer] for name, layer in layers.items() if layer < count}


def freezing_lines(network: Network, config: Config, frozen: Frozen | None, *, epoch: int = 1) -> Iterator[str]:
    """What is frozen in `epoch`, from 1, with which the run begins or goes on, and rates beside the schedule's."""
    if frozen is not None and config.unfreeze_epoch is not None and config.unfreeze_epoch <= epoch:
        yield f"frozen: nothing any more, since epoch {config.unfreeze_epoch} began"
    elif frozen is not None:
        total = sum(param.numel() for param in network.parameters())
        until = "" if config.unfreeze_epoch is None else f", until epoch {config.unfreeze_epoch} begins"
        norms = f" and the statistics of {len(frozen.norms)} BatchNorm layers" if frozen.norms else ""
        yield (
            f"frozen: {frozen.num_values:,} of {total:,} parameters ({len(frozen.parameters)} tensors){norms}{until}"
        )
    if (config.lr_backbone, config.layer_decay) != (1, 1):
        anatomy = anatomy_of(network)
        first, last = (
            config.lr_backbone * config.layer_decay**depth
            for depth in (anatomy.num_backbone, min(1, anatomy.num_backbone))
        )
        span = f"{first:.3g}" if first == last else f"{first:.3g} (first layer) to {last:.3g} (last)"
        yield f"backbone: {anatomy.num_backbone} layers learn at {span} of the learning rate"


def freezing_warnings(config: Config, *, is_fresh: bool) -> Iterator[str]:
    """What may come as a surprise, with what to turn."""
    if config.freeze and is_fresh:
        yield (
            f"freeze = {_shown(config)}: the network is a fresh one, so what is frozen are random weights; start from "
            "trained ones with model=best.pt or pretrained=best.pt"
        )


def _names_to_freeze(network: Network, config: Config) -> tuple[str, ...]:
    """Names of parameters."""
    names = [name for name, _ in network.named_parameters()]
    if isinstance(config.freeze, str) and config.freeze != BACKBONE:
        return matching(names, split_patterns(config.freeze))
    anatomy = anatomy_of(network)
    count = len(anatomy.layers)
    if config.freeze == BACKBONE:
        chosen = set(range(anatomy.num_backbone))
    elif isinstance(config.freeze, int):
        chosen = set(range(config.freeze))
    else:
        assert isinstance(config.freeze, tuple)
        chosen = set(config.freeze)
    if max(chosen, default=0) >= count:
        raise ConfigError(
            f"freeze = {_shown(config)}: the network has {count} layers, 0 to {count - 1}; {_choices(anatomy)}"
        )
    return tuple(name for name in names if anatomy.layer_of(name) in chosen)


def _useless_keys(network: Network, config: Config) -> Iterator[str]:
    """Keys that were typed for what is frozen for the whole run."""
    if config.unfreeze_epoch is not None:
        return
    shown = _shown(config)
    parts = rates_of(network, config) or {}
    if parts and not any(param.requires_grad for name, param in network.named_parameters() if name in parts):
        for key in ("lr_backbone", "layer_decay"):
            if config.is_typed(key):
                yield f"{key}: has no effect with freeze = {shown}, which freezes the whole backbone; leave one out"
    if not has_running_statistics(network) and config.norm != "frozen":
        for key in KEYS_OF_RUNNING_STATISTICS:
            if config.is_typed(key):
                yield f"{key}: has no effect with freeze = {shown}, which freezes all running statistics; leave one out"


def _choices(anatomy: Anatomy) -> str:
    return (
        f"type {BACKBONE}, the number of the first layers (the backbone is the first {anatomy.num_backbone} of "
        f"{len(anatomy.layers)}), a list of layers, or names of parameters"
    )


def _shown(config: Config) -> str:
    return ",".join(map(str, config.freeze)) if isinstance(config.freeze, tuple) else str(config.freeze)

"""What the settings make of a network's normalization layers, and what a user should know of it."""

from __future__ import annotations

from collections.abc import Iterator

from visiontrain.config.schema import Config
from visiontrain.engine.device import DeviceSetup
from visiontrain.errors import ConfigError
from visiontrain.models.network import Network
from visiontrain.models.norm import has_layers_to_set, has_running_statistics, set_momentum_, set_norm_
from visiontrain.models.probe import values_of_batch_norm
from visiontrain.plan import Plan
from visiontrain.run.samples import smallest_size

SMALL_FOR_BATCH_NORM = 2
KEYS_OF_RUNNING_STATISTICS = ("bn_momentum", "precise_bn")


def set_up_normalization_(network: Network, config: Config) -> Config:
    """Give `network` the layers that `config` asks for; the kind that its own file asks for is decided by that.

    Raises:
        ConfigError: If a key was typed that has no effect on such layers.
    """
    if config.origin("norm") == "default":
        config = config.decide(norm=network.description.get("norm", "batch"))
    if config.is_typed("norm") and not has_layers_to_set(network):
        raise ConfigError(
            f"norm = {config.norm}: has no effect on {config.model}, which has no BatchNorm; leave norm out"
        )
    set_norm_(network, config.norm)
    set_momentum_(network, config.bn_momentum)
    if not has_running_statistics(network):
        useless = [key for key in KEYS_OF_RUNNING_STATISTICS if config.is_typed(key)]
        if useless:
            raise ConfigError(
                f"{key} = {getattr(config, key)}: has no effect with norm = {config.norm}, which moves no running "
                f"statistics; leave {key} out, or choose norm=batch"
                for key in useless
            )
    return config


def check_sync(config: Config, setup: DeviceSetup) -> None:
    """Raises ConfigError where layers are to exchange between processes that have no GPUs."""
    if config.norm == "sync" and config.processes > 1 and setup.device.type != "cuda":
        raise ConfigError(
            f"norm = sync: torch's SyncBatchNorm exchanges between GPUs alone, and this runs on {setup.device.type}; "
            "use norm=batch, or norm=group, which sees one image at a time"
        )


def check_batch_size(config: Config, network: Network, plan: Plan) -> None:
    """Raises ConfigError where BatchNorm would see one value a channel, of which there is no variance."""
    imgsz = smallest_size(config, max(network.strides))
    if plan.smallest_share(config.processes) == 1 and values_of_batch_norm(network, imgsz) == 1:
        raise ConfigError(
            f"batch = {plan.batch}: a micro-batch of one image of {imgsz} pixels leaves BatchNorm one value a channel; "
            "double imgsz, choose a batch so that no micro-batch holds one image, or norm=group"
        )


def normalization_warnings(config: Config, network: Network, plan: Plan, *, is_fresh: bool) -> Iterator[str]:
    """What may come as a surprise, each with what to turn."""
    smallest = plan.smallest_share(1 if config.norm == "sync" else config.processes)
    if smallest <= SMALL_FOR_BATCH_NORM and has_running_statistics(network):
        each = plan.batch // config.processes
        remedy = "raise batch" if each <= SMALL_FOR_BATCH_NORM else "choose another batch or tail"
        yield (
            f"BatchNorm sees micro-batches of {smallest}: its statistics will be rough; {remedy} if memory allows, "
            "or take norm=group, which sees one image at a time"
        )
    if config.norm == "frozen" and is_fresh:
        yield (
            "norm = frozen keeps the statistics of the weights that training starts from, and a fresh network has none "
            "(mean 0, variance 1 everywhere); norm=group also does without micro-batch statistics"
        )
    if config.norm == "sync" and config.processes == 1:
        yield "norm = sync: there is one process, so it is the same as norm=batch"


def normalization_line(config: Config, network: Network, plan: Plan) -> str:
    """The sentence on what the layers see and remember; empty where the network has none of its own."""
    if config.norm == "group":
        return "normalization: GroupNorm, image by image, whatever the batch"
    if config.norm == "frozen":
        return "normalization: BatchNorm by frozen statistics, whatever the batch"
    if not has_running_statistics(network):
        return ""
    horizon, is_shared = 1 / config.bn_momentum, config.processes > 1 and config.norm != "sync"
    images = horizon * (plan.batch / config.processes if is_shared else plan.batch)
    return (
        f"normalization: BatchNorm over {'the parts of ' if is_shared else ''}micro-batches; its running "
        f"statistics remember about {horizon:.3g} of them, {images:,.0f} images (bn_momentum {config.bn_momentum:g})"
    )

"""Exported files in the place of trained weights: what `val` and `predict` do otherwise for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError
from visiontrain.export.onnx_network import OnnxNetwork
from visiontrain.export.suppression import DETECTIONS, Suppression
from visiontrain.losses.sums import LossSum
from visiontrain.models.network import Network
from visiontrain.protocols import Task
from visiontrain.sample import Batch

# What a file with suppression inside has decided already.
_DECIDED = ("iou", "max_det", "agnostic_nms", "augment")


def settle_exported(config: Config, task: Task, network: Network) -> tuple[Config, Task]:
    """The settings and the task as an exported file takes them; any other network leaves them as they are.

    Raises:
        ConfigError: If a key was typed that has no effect on such a file, all faults at once.
    """
    if not isinstance(network, OnnxNetwork):
        return config, task
    faults = []
    if config.is_typed("device") and config.device not in ("auto", "cpu"):
        faults.append(f"device = {config.device!r}: exported files are run on the processor; leave it out")
    if config.is_typed("amp") and config.amp not in (False, "auto"):
        faults.append(f"amp = {config.amp!r}: has no effect on an exported file, which is in float32; leave it out")
    suppression = network.metadata.suppression
    if suppression is not None:
        faults += _suppression_faults(config, suppression)
    if faults:
        raise ConfigError(faults)
    task = replace(task, criterion=lambda _network, _config: _no_losses)
    if suppression is not None:
        task = replace(task, decoder=_suppressed)
    return config.decide(device="cpu", amp=False), task


def _suppression_faults(config: Config, suppression: Suppression) -> list[str]:
    if config.mode != "predict":
        return [
            f"model = {config.model!r}: was exported with nms=True and gives no scores to be ranked; "
            "export it without nms to score it"
        ]
    faults = [
        f"{key}: has no effect on a file that was exported with nms=True; leave it out, or export it without nms"
        for key in _DECIDED
        if config.is_typed(key)
    ]
    if config.conf is not None and config.conf < suppression.conf:
        faults.append(
            f"conf = {config.conf:g}: the file was exported with nms=True and conf={suppression.conf:g}, and holds "
            "nothing below that; type a higher one, or export it anew"
        )
    return faults


def _no_losses(outputs: Any, batch: Batch) -> Sequence[LossSum]:
    """Losses are of raw outputs, which a finished network does not give."""
    return ()


def _suppressed(_network: Network, config: Config) -> Any:
    """The decoder of a file with suppression inside."""
    conf = config.conf or 0.0

    def decode(outputs: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        found = []
        for rows in outputs[DETECTIONS]:  # (max_det, 6)
            rows = rows[(rows[:, 4] > 0) & (rows[:, 4] > conf)]
            classes = rows[:, 5].long()
            if config.classes is not None:
                is_wanted = (classes[:, None] == classes.new_tensor(config.classes)).any(dim=1)
                rows, classes = rows[is_wanted], classes[is_wanted]
            found.append({"boxes": rows[:, :4], "scores": rows[:, 4], "classes": classes})
        return found

    return decode

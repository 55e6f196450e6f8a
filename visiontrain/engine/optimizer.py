"""Named parameter groups and the optimizers that work on them.

Groups: `weights` (convolution and linear kernels, decayed), `depthwise` (kernels of one input channel, decayed but
never made orthogonal), `norms` (gains of normalisation layers), `biases`. The last two are not decayed. Parts of a
network that learn at rates of their own have such groups each, named after the part: `backbone/weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from visiontrain.engine.eager import EagerAdamW, EagerSGD
from visiontrain.engine.muon import Muon

OPTIMIZERS = ("SGD", "AdamW", "Muon")
KINDS = ("weights", "depthwise", "norms", "biases")

# What `optimizer=auto` takes. Muon learns fastest where updates are few, and was measured there; for very long runs the
# published recipes are made with SGD.
AUTO_MANY_UPDATES = 20_000
AUTO_MUON_LR = 0.02
AUTO_MOMENTUM = 0.9


@dataclass(frozen=True)
class OptimizerChoice:
    """The optimizer's name and rates, typed or decided."""

    name: str
    lr0: float
    momentum: float
    reason: str = ""


def choose_optimizer(
    name: str, *, num_updates: int, lr0: float, momentum: float, is_lr_typed: bool, is_momentum_typed: bool
) -> OptimizerChoice:
    """Resolve `auto` by the number of updates; what the user typed stays."""
    if name != "auto":
        return OptimizerChoice(name, lr0, momentum)
    if num_updates >= AUTO_MANY_UPDATES:
        return OptimizerChoice("SGD", lr0, momentum, f"{num_updates} updates, {AUTO_MANY_UPDATES} or more")
    return OptimizerChoice(
        "Muon",
        lr0 if is_lr_typed else AUTO_MUON_LR,
        momentum if is_momentum_typed else AUTO_MOMENTUM,
        f"{num_updates} updates, fewer than {AUTO_MANY_UPDATES}",
    )


@dataclass(frozen=True)
class Part:
    """Parameters that learn at a rate of their own."""

    name: str
    """Stands before the names of their groups, as in `backbone/weights`."""
    lr_scale: float
    """Their learning rate as a fraction of the schedule's."""


Parts = Mapping[str, Part]
"""By the names of the parameters; those that are not in it have the schedule's rate."""
_WHOLE = Part("", 1.0)


def build_optimizer(
    network: nn.Module, choice: OptimizerChoice, *, weight_decay: float, parts: Parts | None = None
) -> Optimizer:
    """Make the optimizer over the trainable parameters of `network`.

    Raises:
        ValueError: If `choice.name` is not one of OPTIMIZERS.
    """
    groups = parameter_groups(network, weight_decay=weight_decay, parts=parts)
    if choice.name == "SGD":
        return EagerSGD(groups, lr=choice.lr0, momentum=choice.momentum, nesterov=choice.momentum > 0, foreach=True)
    if choice.name == "AdamW":
        return EagerAdamW(groups, lr=choice.lr0, betas=(choice.momentum, 0.999), foreach=True)
    if choice.name == "Muon":
        return Muon(groups, lr=choice.lr0, betas=(choice.momentum, 0.999))
    raise ValueError(f"optimizer {choice.name!r} is none of {', '.join(OPTIMIZERS)}")


def regroup_(optimizer: Optimizer, network: nn.Module, *, weight_decay: float, parts: Parts | None = None) -> None:
    """Give `optimizer` the groups that `build_optimizer` would give it now, where other parameters are trainable.

    Parameters keep their state; new ones have none, as at the start of a run. Groups and their members stand in the
    same order as in an optimizer that had all of them from the start: the order is part of a run's bits.
    """
    optimizer.param_groups.clear()
    for group in parameter_groups(network, weight_decay=weight_decay, parts=parts):
        optimizer.add_param_group(group)


def parameter_groups(network: nn.Module, *, weight_decay: float, parts: Parts | None = None) -> list[dict[str, Any]]:
    """The trainable parameters of `network` in named groups, each parameter once; empty groups are left out."""
    members: dict[Part, dict[str, list[nn.Parameter]]] = {}
    for name, param in network.named_parameters():
        if param.requires_grad:
            kinds = members.setdefault((parts or {}).get(name, _WHOLE), {kind: [] for kind in KINDS})
            kinds[_kind_of(name, param)].append(param)
    return [
        {
            "name": f"{part.name}/{kind}" if part.name else kind,
            "params": params,
            "weight_decay": weight_decay if kind in ("weights", "depthwise") else 0.0,
            "is_orthogonal": kind == "weights",
            "lr_scale": part.lr_scale,
        }
        for part, kinds in members.items()
        for kind, params in kinds.items()
        if params
    ]


def _kind_of(name: str, param: nn.Parameter) -> str:
    if name.endswith("bias"):
        return "biases"
    if param.ndim < 2:
        return "norms"
    return "depthwise" if param.ndim > 2 and param.shape[1] == 1 else "weights"

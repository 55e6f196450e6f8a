"""Named parameter groups and the optimizers that work on them.

Groups: `weights` (convolution and linear kernels, decayed), `depthwise` (kernels of one input channel, decayed but
never made orthogonal), `norms` (gains of normalisation layers), `biases`. The last two are not decayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from visiontrain.engine.muon import Muon

OPTIMIZERS = ("SGD", "AdamW", "Muon")

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


def build_optimizer(network: nn.Module, choice: OptimizerChoice, *, weight_decay: float) -> Optimizer:
    """Make the optimizer over the trainable parameters of `network`.

    Raises:
        ValueError: If `choice.name` is not one of OPTIMIZERS.
    """
    groups = parameter_groups(network, weight_decay=weight_decay)
    if choice.name == "SGD":
        return SGD(groups, lr=choice.lr0, momentum=choice.momentum, nesterov=choice.momentum > 0, foreach=True)
    if choice.name == "AdamW":
        return AdamW(groups, lr=choice.lr0, betas=(choice.momentum, 0.999), foreach=True)
    if choice.name == "Muon":
        return Muon(groups, lr=choice.lr0, betas=(choice.momentum, 0.999))
    raise ValueError(f"optimizer {choice.name!r} is none of {', '.join(OPTIMIZERS)}")


def parameter_groups(network: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """The trainable parameters of `network` in named groups, each parameter once; empty groups are left out."""
    params: dict[str, list[nn.Parameter]] = {"weights": [], "depthwise": [], "norms": [], "biases": []}
    for name, param in network.named_parameters():
        if not param.requires_grad:
            continue
        if name.endswith("bias"):
            params["biases"].append(param)
        elif param.ndim < 2:
            params["norms"].append(param)
        elif param.ndim > 2 and param.shape[1] == 1:
            params["depthwise"].append(param)
        else:
            params["weights"].append(param)
    return [
        {
            "name": name,
            "params": members,
            "weight_decay": weight_decay if name in ("weights", "depthwise") else 0.0,
            "is_orthogonal": name == "weights",
        }
        for name, members in params.items()
        if members
    ]

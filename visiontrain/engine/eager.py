"""torch's optimizers without torch's compiler.

torch wraps the methods of its optimizers so that they can be compiled, and the first call of one of them loads the
compiler: seconds and 150 MB for every run. Here they are what is inside of the wrapping; no optimizer is compiled.
"""

from __future__ import annotations

from inspect import unwrap

import torch
from torch.optim import SGD, AdamW, Optimizer


class EagerOptimizer(Optimizer):
    """An optimizer whose methods are called as they are written."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)


class EagerSGD(EagerOptimizer, SGD):
    """torch's SGD."""

    step = torch.no_grad()(unwrap(SGD.step))


class EagerAdamW(EagerOptimizer, AdamW):
    """torch's AdamW."""

    step = torch.no_grad()(unwrap(AdamW.step))

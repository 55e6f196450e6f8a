"""Counts floating-point operations as they happen.

torch has such a counter, which knows many more kinds of them; it loads triton and torch's compiler, seconds and 150 MB
for a line of a run's banner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_FACTORS = {
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.baddbmm.default: (1, 2),
}
"""Products of matrices, and where among the arguments their factors stand."""


class OperationCounter(TorchDispatchMode):
    """While it is entered, adds up the operations of convolutions and of products of matrices.

    Attributes:
        total: Operations; a multiplication with its addition counts as two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _FACTORS:
            first, second = (args[place] for place in _FACTORS[func])  # (…, M, K), (…, K, N)
            self.total += 2 * first.numel() * second.shape[-1]
        elif func == torch.ops.aten.convolution.default:
            self.total += 2 * _products_of_convolution(args, result)
        return result


# torch wraps the method for its compiler, and the first call would load that.
OperationCounter.__torch_dispatch__ = unwrap(OperationCounter.__torch_dispatch__)  # type: ignore[method-assign]


def _products_of_convolution(args: Sequence[Any], result: Tensor) -> int:
    images, kernel, is_transposed = args[0], args[1], args[6]
    return (images if is_transposed else result).numel() * kernel[0].numel()

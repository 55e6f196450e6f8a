"""The branches of a loss: one `LossSum`, or several whose parameters are disjoint."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from visiontrain.losses.sums import LossSum

BARE_TENSOR = (
    "the criterion returned a bare tensor: means cannot be added up over micro-batches that hold different numbers of "
    "targets; return LossSum(total, normalizer), or LossSum.from_mean(loss, count) with the count it was divided by"
)


def as_branches(losses: LossSum | Sequence[LossSum]) -> list[LossSum]:
    """What a criterion returned, as a list.

    Raises:
        TypeError: If it is a bare tensor.
        ValueError: If two branches have one name, or there is none.
    """
    branches = [losses] if isinstance(losses, LossSum | Tensor) else list(losses)
    if not all(isinstance(branch, LossSum) for branch in branches):
        raise TypeError(BARE_TENSOR)
    names = [branch.name for branch in branches]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"a criterion returns one LossSum, or several of different names; got {names}")
    return branches


def note_owners_(owners: dict[Tensor, str], branches: Sequence[LossSum]) -> None:
    """Note the parameters behind each branch, found in the graph.

    Raises:
        ValueError: If one is reached from two branches.
    """
    for branch in branches:
        for leaf in _leaves(branch.total):
            first = owners.setdefault(leaf, branch.name)
            if first != branch.name:
                raise ValueError(
                    f"a parameter of shape {tuple(leaf.shape)} is reached from the loss branches {first!r} and "
                    f"{branch.name!r}, which have different normalizers; let them share one LossSum, or detach one"
                )


def _leaves(total: Tensor) -> list[Tensor]:
    """The parameters that `total` was computed from."""
    leaves: dict[Tensor, None] = {}
    waiting, seen = [total.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # only the graph's AccumulateGrad nodes carry one
        if variable is not None:
            leaves[variable] = None
        waiting.extend(following for following, _ in node.next_functions)
    return list(leaves)

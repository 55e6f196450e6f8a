"""The branches of a loss, one `LossSum` or several whose parameters are disjoint, and their sums over a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed
from torch import Tensor

from visiontrain.losses.sums import LossSum

BARE_TENSOR = (
    "the criterion returned a bare tensor: means cannot be added up over micro-batches that hold different numbers of "
    "targets; return LossSum(total, normalizer), or LossSum.from_mean(loss, count) with the count it was divided by"
)


@dataclass(frozen=True)
class Share:
    """A named share of the loss over one window or several: shares are added up first, and divided once."""

    total: Tensor
    """() float64."""
    normalizer: Tensor
    """() float64."""
    floor: float = 0.0
    """The least that the normalizer counts as, of one window or of several."""

    def __add__(self, other: Share) -> Share:
        return Share(self.total + other.total, self.normalizer + other.normalizer, self.floor)

    def mean(self) -> Tensor:
        """() float64; nan where nothing counted."""
        return self.total / self.normalizer.clamp(min=self.floor)


@dataclass
class _Branch:
    """Running sums of one `LossSum` over a window."""

    total: Tensor
    normalizer: Tensor
    floor: float
    parts: dict[str, Tensor] = field(default_factory=dict)


class BranchSums:
    """Totals, normalizers and parts of every branch, summed over the micro-batches of a window; false while empty."""

    def __init__(self) -> None:
        self._branches: dict[str, _Branch] = {}
        self.num_images = torch.zeros(())
        """() of all processes once they are reduced."""

    def __bool__(self) -> bool:
        return bool(self._branches)

    @property
    def names(self) -> list[str]:
        return list(self._branches)

    def check(self, branches: Sequence[LossSum]) -> None:
        """Raises ValueError unless `branches` are those of the micro-batches before."""
        names = [branch.name for branch in branches]
        if self._branches and names != self.names:
            raise ValueError(
                f"the loss branches of a micro-batch are {names}, those before it were {self.names}; return the same "
                "in every micro-batch, with sums of 0 where one has no targets"
            )
        for branch in branches:
            if self._branches and list(branch.parts or (branch.name,)) != list(self._branches[branch.name].parts):
                raise ValueError(
                    f"the parts of the loss are {list(branch.parts)}, those of the micro-batch before "
                    f"{list(self._branches[branch.name].parts)}; return the same in every micro-batch"
                )

    def add(self, branches: Sequence[LossSum], num_images: int) -> None:
        """Add a micro-batch, in float64 where the device has it."""
        self.num_images = self.num_images + num_images
        for loss in branches:
            wide = torch.float32 if loss.total.device.type == "mps" else torch.float64
            total, normalizer = loss.total.detach().to(wide), loss.normalizer.detach().to(wide)
            parts = {name: part.detach().to(wide) for name, part in loss.parts.items()} or {loss.name: total}
            branch = self._branches.get(loss.name)
            if branch is None:
                self._branches[loss.name] = _Branch(total, normalizer, loss.floor, parts)
            else:
                branch.total = branch.total + total
                branch.normalizer = branch.normalizer + normalizer
                branch.parts = {name: branch.parts[name] + part for name, part in parts.items()}

    def reduce(self, votes: Tensor) -> tuple[int, Tensor]:
        """Sum over all processes, in one small vector.

        Args:
            votes: (V,) float, to be summed along with the rest.

        Returns:
            The number of processes, and the sums of their votes.
        """
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return 1, votes
        branches = list(self._branches.values())
        sums = [value for b in branches for value in (b.total, b.normalizer, *b.parts.values())]
        vector = torch.cat([votes.to(sums[0]), torch.stack([self.num_images.to(sums[0]), *sums])])
        torch.distributed.all_reduce(vector)
        votes, (self.num_images, *reduced) = vector[: len(votes)], vector[len(votes) :]
        values = iter(reduced)
        for branch in branches:
            branch.total, branch.normalizer = next(values), next(values)
            branch.parts = {name: next(values) for name in branch.parts}
        return torch.distributed.get_world_size(), votes

    def divisors(self) -> dict[str, Tensor]:
        """() what the gradient of each branch is divided by."""
        return {name: branch.normalizer.clamp(min=branch.floor) for name, branch in self._branches.items()}

    def are_finite(self) -> Tensor:
        """() bool: whether every total and every normalizer is."""
        sums = [value for branch in self._branches.values() for value in (branch.total, branch.normalizer)]
        return torch.isfinite(torch.stack(sums)).all()

    def have_targets(self) -> Tensor:
        """() bool: whether every branch has something to divide by."""
        return (torch.stack([*self.divisors().values()]) > 0).all()

    def shares(self) -> dict[str, Share]:
        """The parts of all branches, by their names."""
        return {
            name: Share(part, branch.normalizer, branch.floor)
            for branch in self._branches.values()
            for name, part in branch.parts.items()
        }

    def normalizer(self) -> Tensor:
        """() float64, of the first branch."""
        return next(iter(self._branches.values())).normalizer


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

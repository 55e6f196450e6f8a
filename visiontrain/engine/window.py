"""`GradientWindow`: one optimizer step from many micro-batches, equal to the step of the full batch.

Every micro-batch adds the gradient of its loss *sum*; when the window closes, one division by the normalizer of the
whole window makes it the gradient of the full batch's mean. Nothing else divides, so nothing can divide twice.

    window = GradientWindow(optimizer, model=model, clip=10.0)
    for planned in plan_windows(num_images=len(data), batch=8, nbs=64):
        for batch in planned.micro_batches:
            with window.micro_batch(last=batch.is_last):
                window.add(criterion(model(images), targets))
        report = window.step()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer

from visiontrain.engine.branches import BranchSums, Share, as_branches, note_owners_
from visiontrain.engine.exchange import Exchange
from visiontrain.engine.forward_state import ForwardState
from visiontrain.engine.loss_scale import LossScale, loss_scale_of
from visiontrain.engine.noise import NoiseScale
from visiontrain.losses.sums import LossSum

NO_IMAGE = "the window holds no image that could be read"


@dataclass(frozen=True)
class WindowReport:
    """What became of a window. Its tensors stay on the device until somebody asks for a number."""

    applied: bool
    num_images: int
    shares: Mapping[str, Share]
    """By the names of the criterion's parts."""
    normalizer: Tensor
    """() float64: summed over the window and all processes, before the floor; of the first branch where there are
    several."""
    grad_norm: Tensor
    """() float: norm of the whole gradient before clipping."""
    reason: str = ""
    """Why the window was not applied."""
    is_calibration: bool = False
    """Whether it was left out because the scaler's loss scale was too high: then no image is at fault."""
    is_forward_finite: bool = True
    """Whether the loss, and what the forward pass left in BatchNorm, are finite."""
    votes: tuple[float, ...] = ()
    """Of all processes, summed."""

    def losses(self) -> dict[str, float]:
        """The mean of every part over the window; waits for the device."""
        return {name: share.mean().item() for name, share in self.shares.items()}


class GradientWindow:
    """Adds up gradients of micro-batches and applies them as one step.

    Args:
        optimizer: Any torch optimizer; its groups hold every parameter that is to be updated.
        model: The network, or its DistributedDataParallel.
        scaler: For fp16; a disabled one is as good as none.
        clip: The most that the norm of the whole gradient may be; None leaves it.
        gain: A constant that the mean gradient is multiplied by.
        noise: Measures the gradient noise scale; `add` must then be told its images.
        votes: Numbers of this process, the same many every time, which are summed over all processes when a window
            closes: what they decide together costs no exchange of its own.

    Raises:
        TypeError: If one of them is something else.
        ValueError: If `clip` is not positive, or if the model looks for unused parameters.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        model: nn.Module,
        scaler: torch.amp.GradScaler | None = None,
        clip: float | None = None,
        gain: float = 1.0,
        noise: NoiseScale | None = None,
        votes: Callable[[], Sequence[float]] = tuple,
    ) -> None:
        _check_arguments(optimizer, model, scaler, clip)
        self.optimizer = optimizer
        self.model = model
        self._votes = votes
        self.loss_scale: LossScale = loss_scale_of(scaler)
        self.clip = clip
        self.gain = gain
        self.noise = noise
        self.is_applying = False
        """Whether the optimizer's own step has begun: from then on the window cannot be rolled back."""
        self._owners: dict[Tensor, str] = {}  # parameter → its branch, where there are several
        self._exchange = Exchange(model)
        # The open window:
        self._sums = BranchSums()
        self._reference: float | None = None
        self._planned_images: int | None = None
        self._is_last = self._counts_images = False
        self._is_open = self._is_inside = self._is_broken = False
        self._before = ForwardState(model)  # also for whoever calls add() without micro_batch()

    def use(self, model: nn.Module) -> None:
        """Train `model` from the next window on: the same parameters in another DistributedDataParallel."""
        assert not self._is_open, "a window is open"
        self.model = model
        self._exchange = Exchange(model)
        self._reset()

    def open(self, num_images: int | None = None) -> None:
        """Open a window of `num_images` planned images. Called by the first micro-batch where nobody did.

        The number only keeps half-precision gradients in range: the sums are divided by the power of two nearest to
        the normalizer expected of so many images, and multiplied by it at the close, which changes no bit.

        Raises:
            RuntimeError: If the window before was neither closed nor rolled back.
        """
        if self._is_open:
            raise RuntimeError("the window before is still open: call step() or rollback()")
        for param in self._all_params():
            param.grad = None  # of somebody else's backward pass: it is no part of this window
        self._is_open = True
        self._planned_images = num_images
        self._before = ForwardState(self.model)

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """The context of a micro-batch's forward pass and `add`; gradients are exchanged in the last one only.

        Raises:
            RuntimeError: If it stands inside another one or after the last, or if an error has interrupted the window.
        """
        self._check_whole()
        if self._is_inside:
            raise RuntimeError("a micro-batch stands inside another one; end the first before the next begins")
        if self._is_last:
            raise RuntimeError("a micro-batch comes after the last one of its window; call step() in between")
        if not self._is_open:
            self.open()
        self._is_inside, self._is_last = True, last
        is_done = False
        try:
            with self._exchange.micro_batch(last=last):
                yield
            is_done = True
        finally:
            self._is_inside, self._is_broken = False, not is_done  # whatever ended it, an interrupt too

    def add(self, losses: LossSum | Sequence[LossSum], *, num_images: int | None = None) -> None:
        """Run backward on a micro-batch's loss and add its sums to the window.

        Args:
            losses: What the criterion returned; several where branches of the network have normalizers of their own.
            num_images: Images of the micro-batch, for the report; a window in which all say 0 is not applied.

        Raises:
            TypeError: If it is a bare tensor, whose normalizer nobody knows.
            ValueError: If a parameter is reached from two branches, or if the branches are not those of the micro-batch
                before.
            RuntimeError: If an error has interrupted the window.
        """
        self._check_whole()
        if num_images is not None and (not isinstance(num_images, int) or num_images < 0):
            raise ValueError(f"num_images = {num_images!r} is not a number of images")
        self._counts_images = num_images is not None
        num_images = num_images or 0
        branches = as_branches(losses)
        self._sums.check(branches)
        self._is_open = True
        if self._reference is None:
            self._reference = _power_of_two(branches[0].scale_hint * (self._planned_images or 1))
        if len(branches) > 1:
            # In every micro-batch: a branch without targets may reach fewer parameters than it does with some.
            note_owners_(self._owners, branches)
        total = torch.stack([branch.total for branch in branches]).sum() / self._reference
        if total.requires_grad:  # not where it is a constant, as nothing in the micro-batch counts
            self.loss_scale.scale(total).backward()
        if self.noise is not None and not self._sums and not self._is_last:
            self.noise.note_part(
                self._params(), {branch.name: branch.normalizer.detach() for branch in branches}, num_images
            )
        self._sums.add(branches, num_images)

    def step(self) -> WindowReport:
        """Close the window: reduce, scale, clip, check, step, zero; each exactly once and in this order.

        Raises:
            RuntimeError: If an error has interrupted the window, if this stands inside a micro-batch, or if gradients
                were not exchanged between processes.
            ValueError: If no parameter of the optimizer has a gradient.
        """
        self._check_whole()
        if self._is_inside:
            raise RuntimeError("step() stands inside a micro-batch; call it behind the last one")
        if not self._sums:
            return self._close_empty()
        self._exchange.check()
        world, votes = self._sums.reduce(self._ballot())
        params = self._params()
        if params:
            self.loss_scale.unscale_(self.optimizer)
        self._scale(params, world)
        norm = torch.nn.utils.clip_grad_norm_(params, math.inf if self.clip is None else self.clip)
        report = self._report(norm, votes)
        if report.applied and not params:
            self.rollback()
            raise ValueError(
                "no parameter of the optimizer has a gradient: make it of this model's parameters, of which some must "
                "require a gradient, and run the forward pass with gradients enabled"
            )
        if report.applied:
            self.is_applying = True
            self.loss_scale.step(self.optimizer)
        else:
            self._before.restore()
        self.loss_scale.close(may_change=report.applied or report.is_calibration)
        if self.noise is not None:
            self.noise.keep(report.num_images) if report.applied else self.noise.drop()
        self._drop_gradients()
        self._reset()
        return report

    def rollback(self) -> None:
        """Drop the open window: no gradient, running statistic or random number of it remains."""
        assert not self.is_applying, "the optimizer's step has begun: its weights cannot be brought back"
        self.loss_scale.close(may_change=False)
        self._before.restore()
        if self.noise is not None:
            self.noise.drop()
        self._drop_gradients()
        self._reset()

    def _check_whole(self) -> None:
        if self._is_broken:
            raise RuntimeError(
                "an error has interrupted the window: call rollback(), which drops what was added, and begin it again"
            )

    def _drop_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for param in self._all_params():
            param.grad = None  # also of those that the optimizer does not have

    def _all_params(self) -> Iterator[Tensor]:
        """Those of the optimizer and those of the model, some twice."""
        yield from (param for group in self.optimizer.param_groups for param in group["params"])
        yield from self.model.parameters()

    def _params(self) -> list[Tensor]:
        """The optimizer's parameters that have a gradient."""
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]

    def _scale(self, params: list[Tensor], world: int) -> None:
        """The one division of the window. DDP has averaged over `world` processes; this undoes it."""
        assert self._reference is not None
        divisors = self._sums.divisors()
        for name, divisor in divisors.items():
            owned = params if len(divisors) == 1 else self._owned_by(name, params)
            factor = self.gain * self._reference * world / divisor
            by_dtype: dict[torch.dtype, list[Tensor]] = {}
            for param in owned:
                assert param.grad is not None
                by_dtype.setdefault(param.grad.dtype, []).append(param.grad)
            for dtype, grads in by_dtype.items():
                torch._foreach_mul_(grads, factor.to(dtype))
            if self.noise is not None:
                # What was kept is this process's own, not a mean over processes, and may be scaled for half precision.
                kept_in = world * (self.loss_scale.value or 1.0)
                self.noise.compare(name, owned, factor=factor / kept_in, divisor=divisor)

    def _owned_by(self, name: str, params: list[Tensor]) -> list[Tensor]:
        orphan = next((param for param in params if param not in self._owners), None)
        if orphan is not None:
            raise ValueError(
                f"a parameter of shape {tuple(orphan.shape)} has a gradient that comes from none of the loss branches "
                f"{self._sums.names}; run backward by add() alone, or let the branches share one LossSum"
            )
        return [param for param in params if self._owners[param] == name]

    def _ballot(self) -> Tensor:
        """(1 + V,) whether running statistics have become infinite or nan here, and the votes."""
        is_finite = self._before.is_finite()
        votes = torch.tensor([0.0, *self._votes()])
        if is_finite is None:
            return votes
        votes = votes.to(is_finite.device)
        votes[0] = ~is_finite
        return votes

    def _report(self, norm: Tensor, votes: Tensor) -> WindowReport:
        """What is to become of the window. The one place where it waits for the device."""
        findings = [
            self._sums.num_images,
            self._sums.are_finite(),
            self._sums.have_targets(),
            torch.isfinite(norm),
            *votes,
        ]
        num_images, finite_loss, targets, finite_gradient, infinite_statistics, *votes_cast = torch.stack(
            [finding.to(norm.device, torch.float32) for finding in findings]
        ).tolist()
        finite_statistics = not infinite_statistics
        reason, is_calibration = "", False
        if not num_images and self._counts_images:
            reason = NO_IMAGE
        elif not finite_loss:
            reason = "the loss is not finite"
        elif not finite_statistics:
            reason = "a running statistic of BatchNorm is not finite"
        elif not targets:
            reason = "the window holds nothing that counts: its normalizer is 0"
        elif not finite_gradient:
            scale = self.loss_scale.value
            is_calibration = scale is not None
            if scale:
                reason = f"the gradient overflowed at a loss scale of {scale:g}"
            else:
                reason = f"the gradient of {self._not_finite()} is not finite"
        return WindowReport(
            applied=not reason,
            num_images=round(num_images),
            shares=self._sums.shares(),
            normalizer=self._sums.normalizer(),
            grad_norm=norm,
            reason=reason,
            is_calibration=is_calibration,
            is_forward_finite=bool(finite_loss) and finite_statistics,
            votes=tuple(votes_cast),
        )

    def _not_finite(self) -> str:
        """The first parameter whose gradient is not finite, by name; of one that the model does not hold, its shape."""
        names: dict[Tensor, str] = {param: name for name, param in self.model.named_parameters()}
        for param in self._params():
            if param.grad is not None and not torch.isfinite(param.grad).all():
                return names.get(param, f"a parameter of shape {tuple(param.shape)}")
        return "all parameters together"

    def _close_empty(self) -> WindowReport:
        reason = "nothing was added to the window"
        if self._planned_images:
            reason = NO_IMAGE
        self.rollback()
        nothing = torch.zeros(())
        return WindowReport(False, 0, {}, nothing.double(), nothing, reason)

    def _reset(self) -> None:
        self.is_applying = self._is_last = self._counts_images = False
        self._exchange.reset()
        self._is_open = self._is_broken = False
        self._sums = BranchSums()
        self._reference = None
        self._planned_images = None
        self._before = ForwardState(self.model)


def _check_arguments(optimizer: object, model: object, scaler: object, clip: object) -> None:
    if not isinstance(optimizer, Optimizer) or isinstance(optimizer, LBFGS):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; it should be one of torch.optim, and not LBFGS")
    if isinstance(model, DistributedDataParallel) and model.find_unused_parameters:
        raise ValueError(
            "model looks for unused parameters, which would have to be done in every micro-batch; make it with "
            "find_unused_parameters=False, and let every micro-batch reach every parameter that learns"
        )
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it should be the nn.Module that is trained")
    if scaler is not None and not hasattr(scaler, "unscale_"):
        raise TypeError(f"scaler is a {type(scaler).__name__}; it should be a torch.amp.GradScaler or None")
    if clip is not None and (not isinstance(clip, int | float) or not clip > 0):
        raise ValueError(f"clip = {clip!r} is not a positive norm; None leaves gradients as they are")


def _power_of_two(value: float) -> float:
    """The power of two nearest to `value` in ratio."""
    return 2.0 ** round(math.log2(value))

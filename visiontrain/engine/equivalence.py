"""Is the gradient of a window that was cut into micro-batches the gradient of one full batch?

The full batch's is computed by plain torch: sums, one division, no `GradientWindow`. So no fault of the window can be
on both sides of the comparison. Works for any network, any criterion of `LossSum`s and any batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from visiontrain.engine.branches import as_branches, note_owners_
from visiontrain.engine.optimizer import parameter_groups
from visiontrain.engine.precision import Precision, choose_precision
from visiontrain.engine.running_statistics import estimate_running_statistics_
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.sums import LossSum
from visiontrain.models.norm import has_running_statistics
from visiontrain.protocols import Criterion
from visiontrain.sample import Batch

TOLERANCE = 1e-9
"""How far the gradients may be apart in float64; rounding alone leaves them at about 1e-15."""
FIRST_SCALE = 2.0**16
"""Loss scale from which the full batch in fp16 comes down until its gradient is finite."""
MOST_SCALES = 40

Gradient = Mapping[str, Tensor]
"""By the names of the parameter groups: (K) float64, on the CPU. nan where there is no gradient to speak of."""


@dataclass(frozen=True)
class Agreement:
    """How near a gradient is to its reference."""

    rel_error: float
    """Norm of the difference over the norm of the reference; inf where only the reference is 0."""
    cosine: float
    norm_ratio: float

    @property
    def is_exact(self) -> bool:
        """Whether nothing but rounding in float64 is between the two."""
        return self.rel_error <= TOLERANCE


@dataclass(frozen=True)
class Comparison(Agreement):
    """The same over all parameters, and for each of their groups."""

    groups: Mapping[str, Agreement]


@dataclass(frozen=True)
class Equivalence:
    """What comparing one window found."""

    exact: Comparison
    """float64, normalization frozen, dropout off: as the plan cuts it."""
    single_images: Comparison
    """The same, cut into single images."""
    precision: Comparison
    """The training precision, normalization frozen, dropout off."""
    batchnorm: Comparison | None
    """The training precision, everything live; None where there was no full batch to compare with."""
    mean_of_means: Comparison
    """float64, frozen: the mean over micro-batches of each one's own mean, as accumulation is commonly done."""

    is_about_nothing: bool
    """Whether the gradient of the reference is 0, and nothing is proved."""

    @property
    def passed(self) -> bool:
        return self.exact.is_exact and self.single_images.is_exact


@dataclass(frozen=True)
class Setting:
    """A network, and how its gradients are computed."""

    network: nn.Module
    criterion: Criterion
    gain: float
    precision: Precision
    device: torch.device

    def forward(self, host_batch: Batch) -> LossSum | Sequence[LossSum]:
        """The loss of a batch."""
        batch = host_batch.to(self.device)
        with self.precision.autocast():
            outputs = self.network(batch.images)
        return self.criterion(outputs, batch)

    def groups(self) -> list[dict[str, Any]]:
        """The trainable parameters in named groups."""
        return parameter_groups(self.network, weight_decay=0.0)


@dataclass(frozen=True)
class Settings:
    """The three that are compared in. Made by `settings_of`."""

    exact: Setting
    precision: Setting
    live: Setting


def settings_of(
    network: nn.Module,
    criterion_of: Callable[[Any], Criterion],
    micro_batches: Sequence[Batch],
    *,
    gain: float,
    precision: Precision,
    device: torch.device,
    is_trained: bool,
) -> Settings:
    """Copies of `network` to compare in.

    The running statistics of a fresh network (mean 0, variance 1) let the signal die out on its way down, and gradients
    of almost nothing prove little. They are therefore estimated on this very window first.

    Args:
        network: On `device`; it is left as it was.
        criterion_of: Makes the criterion of a network.
        micro_batches: The window.
        gain: What the mean gradient is multiplied by.
        precision: That of training.
        device: That of training; float64 goes to the CPU where it has none.
        is_trained: Whether the running statistics mean something already.
    """
    live = deepcopy(network).train()
    frozen = deepcopy(network)
    if not is_trained and has_running_statistics(frozen):
        estimate_running_statistics_(frozen, micro_batches, choose_precision("False", device), device)
    frozen.eval()
    exact_device = torch.device("cpu") if device.type == "mps" else device
    # Plain memory order: no library has fast convolutions of float64 for channels last.
    exact = deepcopy(frozen).to(exact_device, torch.float64).to(memory_format=torch.contiguous_format)
    full = choose_precision("False", exact_device)
    return Settings(
        exact=Setting(exact, criterion_of(exact), gain, full, exact_device),
        precision=Setting(frozen, criterion_of(frozen), gain, precision, device),
        live=Setting(live, criterion_of(live), gain, precision, device),
    )


def compare_cuts(
    settings: Settings, micro_batches: Sequence[Batch], whole: Batch, *, whole_fits: bool, live_fits: bool
) -> Equivalence:
    """Compare the window as it is cut with one full batch, in each of `settings`.

    Args:
        settings: Of the network.
        micro_batches: The window as training cuts it.
        whole: All its images in one batch.
        whole_fits: Whether `whole` fits into memory in float64; if not, its single images are the reference.
        live_fits: Whether it fits in training; if not, live BatchNorm has no reference, since it sees all at once.
    """
    singles = whole.split(1)
    reference_batches = [whole] if whole_fits else singles
    reference = plain_gradient(settings.exact, reference_batches)
    exact, means = windowed_gradient_with_means(settings.exact, micro_batches)
    return Equivalence(
        exact=compare(exact, reference),
        single_images=compare(windowed_gradient(settings.exact, singles), reference),
        precision=compare(
            windowed_gradient(settings.precision, micro_batches), plain_gradient(settings.precision, reference_batches)
        ),
        batchnorm=compare(windowed_gradient(settings.live, micro_batches), plain_gradient(settings.live, [whole]))
        if live_fits
        else None,
        mean_of_means=compare(means, reference),
        is_about_nothing=all(not values.any() for values in reference.values()),
    )


def windowed_gradient(setting: Setting, batches: Sequence[Batch]) -> Gradient:
    """What `GradientWindow` hands to the optimizer for a window of `batches`, without clipping."""
    return _through_window(setting, batches, lambda window, losses, images: window.add(losses, num_images=images))


def windowed_gradient_with_means(setting: Setting, batches: Sequence[Batch]) -> tuple[Gradient, Gradient]:
    """The same, and from the same passes the mean over `batches` of each one's own mean gradient."""
    means = _OwnMeans(setting)
    return _through_window(setting, batches, means.add), means.gradient()


def plain_gradient(setting: Setting, batches: Sequence[Batch]) -> Gradient:
    """The gradient of the mean loss over all `batches` together: sums of plain torch, and one division."""
    if setting.precision.scaler is None:
        return _plain_sum(setting, batches, scale=1.0)
    gradient, scale = _plain_sum(setting, batches, scale=FIRST_SCALE), FIRST_SCALE
    for _ in range(MOST_SCALES):  # as a scaler does, window by window
        if all(values.isfinite().all() for values in gradient.values()):
            break
        scale /= 2
        gradient = _plain_sum(setting, batches, scale=scale)
    return gradient


def compare(gradient: Gradient, reference: Gradient) -> Comparison:
    """Compare over all parameters and for each group; the groups are those of `reference`."""
    groups = {name: _agreement(gradient[name], values) for name, values in reference.items()}
    everything = _agreement(torch.cat([gradient[name] for name in reference]), torch.cat([*reference.values()]))
    return Comparison(everything.rel_error, everything.cosine, everything.norm_ratio, groups)


def _agreement(values: Tensor, reference: Tensor) -> Agreement:
    norm, reference_norm = values.norm().item(), reference.norm().item()
    if reference_norm == 0:
        return Agreement(0.0, 1.0, 1.0) if norm == 0 else Agreement(math.inf, 0.0, math.inf)
    # Of unit vectors, so that products of small norms do not underflow.
    cosine = torch.dot(values / norm, reference / reference_norm).item() if norm else 0.0
    return Agreement((values - reference).norm().item() / reference_norm, cosine, norm / reference_norm)


def _plain_sum(setting: Setting, batches: Sequence[Batch], *, scale: float) -> Gradient:
    """Σ gradient of the totals × gain / Σ normalizer, for each branch of the loss; `scale` is undone."""
    groups = setting.groups()
    params = [param for group in groups for param in group["params"]]
    sums: dict[str, list[Tensor]] = {}
    divisors: dict[str, Tensor] = {}
    floors: dict[str, float] = {}
    for batch in batches:
        branches = as_branches(setting.forward(batch))
        for branch in branches:
            is_last = branch is branches[-1]
            grads: Sequence[Tensor | None] = [None] * len(params)  # of a branch without targets
            if branch.total.requires_grad:
                total = branch.total * scale
                grads = torch.autograd.grad(total, params, retain_graph=not is_last, allow_unused=True)
            so_far = sums.setdefault(branch.name, [_zeros_like(param) for param in params])
            for sum_, grad in zip(so_far, grads, strict=True):
                if grad is not None:
                    sum_.add_(_wide(grad))
            divisors[branch.name] = divisors.get(branch.name, torch.zeros(())) + _wide(branch.normalizer)
            floors[branch.name] = branch.floor
    factors = {name: setting.gain / scale / divisor.clamp(min=floors[name]) for name, divisor in divisors.items()}
    if not all(factor.isfinite() for factor in factors.values()):  # nothing counts: no update either
        return _flat(groups, map(_zeros_like, params))
    means = [[values * factors[name] for values in totals] for name, totals in sums.items()]
    return _flat(groups, map(sum, zip(*means, strict=True)))


class _Recorder(Optimizer):
    """An optimizer that keeps the gradients it is given, and moves nothing."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})
        self.gradient: Gradient | None = None

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        params = (param for group in self.param_groups for param in group["params"])
        self.gradient = _flat(self.param_groups, map(_grad_of, params))


def _through_window(
    setting: Setting, batches: Sequence[Batch], add: Callable[[GradientWindow, Any, int], None]
) -> Gradient:
    """Run a window as training runs it, and return what reached the optimizer."""
    recorder = _Recorder(setting.groups())
    scaler = setting.precision.scaler
    window = GradientWindow(recorder, model=setting.network, scaler=scaler, gain=setting.gain)
    for _ in range(MOST_SCALES):
        window.open(sum(map(len, batches)))
        for batch in batches:
            if not len(batch):  # none of its images could be read
                continue
            with window.micro_batch(last=batch.is_last):
                add(window, setting.forward(batch), len(batch))
        report = window.step()
        if report.applied or not report.is_calibration:
            break
    if recorder.gradient is not None:
        return recorder.gradient
    divisors = [share.normalizer.clamp(min=share.floor) for share in report.shares.values()]
    nothing_counts = any(divisor == 0 for divisor in divisors)
    fill = 0.0 if nothing_counts else math.nan
    params = [param for group in recorder.param_groups for param in group["params"]]
    return _flat(recorder.param_groups, (_zeros_like(param) + fill for param in params))


class _OwnMeans:
    """Adds up each micro-batch's own mean gradient beside the window that the micro-batch is added to.

    No pass of its own: what `backward` has added to a gradient is the micro-batch's sum, times the factor that the
    window's loss has for its totals, which a hook on the total learns.
    """

    def __init__(self, setting: Setting) -> None:
        self._gain = setting.gain
        self._groups = setting.groups()
        self._params: list[nn.Parameter] = [param for group in self._groups for param in group["params"]]
        self._before = [_zeros_like(param) for param in self._params]
        self._sums = [_zeros_like(param) for param in self._params]
        self._owners: dict[Tensor, str] = {}
        self._num_batches = 0

    def add(self, window: GradientWindow, losses: LossSum | Sequence[LossSum], num_images: int) -> None:
        """Add a micro-batch to `window`, and its own mean to the sum here."""
        branches = as_branches(losses)
        seeds: list[Tensor] = []
        handle = next(b.total for b in branches if b.total.requires_grad).register_hook(seeds.append)
        if len(branches) > 1:
            note_owners_(self._owners, branches)
        window.add(losses, num_images=num_images)
        handle.remove()
        seed = _wide(seeds[0])
        divisors = {branch.name: _wide(branch.normalizer).clamp(min=branch.floor) for branch in branches}
        for place, param in enumerate(self._params):
            now = _grad_of(param)
            divisor = divisors[self._owners.get(param, branches[0].name)]
            if divisor > 0:  # the mean over nothing is nothing
                self._sums[place] += (now - self._before[place]) / (seed * divisor)
            self._before[place] = now
        self._num_batches += 1

    def gradient(self) -> Gradient:
        """The mean of the means so far."""
        return _flat(self._groups, (total * (self._gain / self._num_batches) for total in self._sums))


def _flat(groups: Sequence[Mapping[str, Any]], values: Any) -> Gradient:
    """Values for each parameter, in the order of `groups`, as one vector for each group."""
    values = iter(values)
    return {group["name"]: torch.cat([next(values).flatten() for _ in group["params"]]) for group in groups}


def _grad_of(param: Tensor) -> Tensor:
    return _zeros_like(param) if param.grad is None else _wide(param.grad).clone()


def _zeros_like(param: Tensor) -> Tensor:
    return torch.zeros(param.shape, dtype=torch.float64)


def _wide(values: Tensor) -> Tensor:
    """On the CPU, since not every device has float64."""
    return values.detach().cpu().double()
